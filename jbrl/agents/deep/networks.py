"""Networks of agents that learn by gradients: perceptrons, lookups in place of one-hot products, a
policy with a value function, action values; and what they cost.

Layers are `Linear` records, weights [inputs, outputs] and bias [outputs]; an `Mlp` has a tuple of
them. Each array stands for itself: slices of one vector of all parameters would be copied before
every product. Two other perceptrons compute the same function where another form is faster:
`QNetwork` for batches of a replay buffer, `prior_trained.networks` for thousands of lifetimes side
by side.

A layer of `QNetwork` is one matrix [outputs, inputs + 1], whose last column is the bias: every
input ends with a 1, so that neither adding a bias nor the sum in its gradient is an operation of
its own. Hidden units are [units, B], the batch on the last axis, which for batches of 32 is a whole
number of vector registers. Against weights and biases apart and the batch in front, an update of a
50-50 network with 50 inputs takes 10 to 17% less time, for 1 to 16 lanes at once; with all
parameters in one vector, whose slices are copied for each product, it takes 5% more than with one
array for each layer.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.spec import Box, LowerTriangle, Observation, OneHot, Spec
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import SECONDS_PER_STEP, Agent, Cost

MAX_BYTES = 4 << 30  # of one lifetime

# On CPUs, a product of at most so many rows with the transpose of weights of at least so many
# entries takes 3 to 12 times as long as one row after the other, and their outer products 2 to 7
# times as long as sums written out.
FEW_ROWS = 9
MANY_WEIGHTS = 128 * 128

# Seconds of one core with vectors of 512 bits (`benchmarks/deep.py`).
PRODUCT = 4e-11  # a multiplication and addition in the products of a batch
LONE_PRODUCT = 2e-10  # the same where a network sees one input, or a few
ADAM = 3e-9  # a parameter in a step of Adam
COMPILING = 4.0  # times as long as for a plain learner


@record
class Linear:
    """Parameters of a linear layer."""

    weights: Array  # [inputs, outputs]
    bias: Array  # [outputs]


@dataclasses.dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron: linear layers with ReLU between them.

    The input is given as `inputs` numbers, or, with `lookup`, as the index of the only 1 among
    them: the product with the weights of the first layer is then one of their rows, and -1 gives
    the product with zeros.
    """

    inputs: int
    widths: tuple[int, ...]  # outputs of each layer, at least one
    lookup: bool = False
    final_activation: bool = False  # ReLU after the last layer as well

    def init(self, key: Array, fan_in: int | Array | None = None) -> tuple[Linear, ...]:
        """Draw the parameters, as `linear` does.

        Args:
          fan_in: inputs that count, where some only pad others to a common size. Default: all.
        """
        sizes = (self.inputs, *self.widths)
        keys = jax.random.split(key, len(self.widths))
        return tuple(
            linear(keys[i], sizes[i], sizes[i + 1], None if i else fan_in)
            for i in range(len(self.widths))
        )

    def apply(self, layers: tuple[Linear, ...], inputs: Array) -> Array:
        """Return the outputs [B, widths[-1]] for a batch.

        Args:
          layers: parameters, as `init` draws them.
          inputs: [B, inputs] float, or [B] int32 with `lookup`.
        """
        chex.assert_rank(inputs, 1 if self.lookup else 2)
        hidden = inputs
        for i, layer in enumerate(layers):
            outputs = (
                rows(layer.weights, hidden)
                if self.lookup and i == 0
                else product(hidden, layer.weights)
            )
            hidden = outputs + layer.bias[None]
            if self.final_activation or i + 1 < len(layers):
                hidden = jax.nn.relu(hidden)
        return hidden


def linear(key: Array, inputs: int, outputs: int, fan_in: int | Array | None = None) -> Linear:
    """Draw a linear layer: weights normal with standard deviation 1 / sqrt(fan_in), cut at two
    standard deviations in either direction; bias 0.

    The default of Haiku and Sonnet. The cut makes the standard deviation 12% smaller, for which
    neither makes up.

    Args:
      fan_in: inputs that count, where some only pad others to a common size. Default: all.
    """
    weights = jax.random.truncated_normal(key, -2.0, 2.0, (inputs, outputs), jnp.float32)
    scale = lax.rsqrt(jnp.asarray(inputs if fan_in is None else fan_in, jnp.float32))
    return Linear(weights * scale, jnp.zeros(outputs))


@jax.custom_vjp
def rows(weights: Array, index: Array) -> Array:
    """Return the product of one-hot vectors, given by the index of their 1, with `weights`.

    Args:
      weights: [inputs, outputs].
      index: [B] int32 from -1; -1 is the vector of zeros.

    Returns: [B, outputs].
    """
    chosen = weights.at[jnp.maximum(index, 0)].get(mode="promise_in_bounds")
    return jnp.where((index >= 0)[:, None], chosen, jnp.zeros_like(chosen))


def _rows_forward(weights: Array, index: Array) -> tuple[Array, Any]:
    return rows(weights, index), (weights, index)


def _rows_backward(saved: Any, slope: Array) -> tuple[Array, None]:
    weights, index = saved
    # -1 would count as the last row
    at = jnp.where(index < 0, weights.shape[0], index)
    return sums_of_rows(slope, at, weights.shape[0]), None


rows.defvjp(_rows_forward, _rows_backward)


def sums_of_rows(added: Array, at: Array, count: int) -> Array:
    """Return a table of `count` rows, [count, C], each the sum of the rows of `added` that belong
    there.

    On CPUs they are added one after the other. Elsewhere additions to one place would wait for each
    other, in an order that is not that of the next run: a matrix product sums them.

    Args:
      added: [B, C].
      at: [B] int32, row of the table that each belongs to; those from `count` on are left out.
    """
    return lax.platform_dependent(
        added,
        at,
        cpu=functools.partial(scattered, count=count),
        default=functools.partial(multiplied, count=count),
    )


def scattered(added: Array, at: Array, count: int) -> Array:
    """Return `sums_of_rows` by additions to places of memory."""
    return jnp.zeros((count, added.shape[1]), added.dtype).at[at].add(added, mode="drop")


def multiplied(added: Array, at: Array, count: int) -> Array:
    """Return `sums_of_rows` by a product with one-hot vectors."""
    belongs = jnp.arange(count, dtype=at.dtype)[:, None] == at[None]
    return jnp.matmul(belongs.astype(added.dtype), added, precision=lax.Precision.HIGHEST)


def product(rows: Array, weights: Array) -> Array:
    """Return `rows @ weights`, [B, O] from [B, I] and [I, O], with a backward pass that suits few
    rows.
    """
    few = 1 < rows.shape[0] <= FEW_ROWS and weights.size >= MANY_WEIGHTS
    return _product(rows, weights) if few else rows @ weights


@jax.custom_vjp
def _product(rows: Array, weights: Array) -> Array:
    return rows @ weights


def _product_forward(rows: Array, weights: Array) -> tuple[Array, Any]:
    return rows @ weights, (rows, weights)


def _product_backward(saved: Any, slopes: Array) -> tuple[Array, Array]:
    rows, weights = saved
    earlier = jnp.stack([weights @ slopes[b] for b in range(slopes.shape[0])])
    return earlier, outer(rows, slopes)


_product.defvjp(_product_forward, _product_backward)


def outer(rows: Array, slopes: Array) -> Array:
    """Return `rows.T @ slopes`, [I, O] from [B, I] and [B, O]: the gradient of the weights of a
    layer.
    """
    few = rows.shape[0] <= FEW_ROWS and rows.shape[1] * slopes.shape[1] >= MANY_WEIGHTS
    if not few:
        return rows.T @ slopes
    return sum(
        (rows[b][:, None] * slopes[b][None] for b in range(1, rows.shape[0])),
        start=rows[0][:, None] * slopes[0][None],
    )


def input_size(observation: Observation) -> tuple[int, bool]:
    """Return the inputs of a network for an observation, and whether they are looked up."""
    if isinstance(observation, Box):
        return math.prod(observation.shape), False
    return observation.n, True


def as_input(observation: Array, *, lookup: bool) -> Array:
    """Return an observation as an input of a network: [] int32 with `lookup`, else [inputs]."""
    return observation if lookup else observation.reshape(-1)


@dataclasses.dataclass(frozen=True)
class PolicyValue:
    """A multi-layer perceptron, and linear layers on its output for logits and value.

    The two layers are one with A + 1 outputs, the last of which is the value. Part of the compiled
    program.
    """

    torso: Mlp
    n_actions: int

    @classmethod
    def of(
        cls, spec: Spec, widths: tuple[int, ...], *, final_activation: bool = False
    ) -> "PolicyValue":
        """Return the network for observations and actions of an environment."""
        inputs, lookup = input_size(spec.observation)
        return cls(Mlp(inputs, widths, lookup, final_activation), spec.actions.n)

    @property
    def looked_up(self) -> int:
        """Weights of the first layer of which an input is one row."""
        return self.torso.inputs * self.torso.widths[0] if self.torso.lookup else 0

    def init(self, key: Array) -> tuple[Any, Linear]:
        """Draw the parameters, as `linear` does."""
        torso, heads = jax.random.split(key)
        return self.torso.init(torso), linear(heads, self.torso.widths[-1], self.n_actions + 1)

    def apply(self, parameters: tuple[Any, Linear], inputs: Array) -> tuple[Array, Array]:
        """Return logits [B, A] and values [B] for a batch.

        Args:
          inputs: [B, inputs] float, or [B] int32 where observations are indices.
        """
        return self.heads(parameters[1], self.torso.apply(parameters[0], inputs))

    def heads(self, layer: Linear, hidden: Array) -> tuple[Array, Array]:
        """Return logits [B, A] and values [B] of the outputs of the torso, [B, H]."""
        outputs = hidden @ layer.weights + layer.bias[None]
        return outputs[:, : self.n_actions], outputs[:, self.n_actions]

    def act(self, parameters: tuple[Any, Linear], observation: Array, uniform: Array) -> Array:
        """Return an action drawn from the policy: [] int32.

        Args:
          parameters: the parameters.
          observation: of one lane, as the environment gives it.
          uniform: [] float32 in [0, 1).
        """
        seen = as_input(observation, lookup=self.torso.lookup)
        return selection.softmax_sample(self.apply(parameters, seen[None])[0][0], uniform)


# bytes of states, by structures and shapes: studies have thousands of units
_BYTES: dict[Any, int] = {}


def cost_of(agent: Agent, prior: Prior, seconds: float, compiling: float = COMPILING) -> Cost:
    """Return the cost of a decision that takes `seconds`, with the memory of the agent's states.

    Args:
      compiling: as in `Cost`.

    Raises:
      JbrlError: the agent refuses to take so much memory.
    """
    leaves, structure = jax.tree.flatten((agent, prior))
    key = structure, tuple(np.shape(leaf) for leaf in leaves)
    if key not in _BYTES:
        state = jax.eval_shape(lambda key: agent.reset(key, prior), jax.random.key(0))
        sizes = (math.prod(v.shape) * v.dtype.itemsize for v in jax.tree.leaves(state))
        _BYTES[key] = sum(sizes)
    return Cost(seconds / SECONDS_PER_STEP, agent.lanes * _BYTES[key], compiling=compiling)


@functools.cache
def parameter_count(network: Any) -> int:
    """Return the number of parameters of a network, which has `init`."""
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    return sum(math.prod(v.shape) for v in jax.tree.leaves(shapes))


def check_bytes(name: str, numbers: int, parameters: str, advice: str) -> None:
    """Refuse an agent whose state takes too much memory. On the host, while it is traced.

    Args:
      name: of the agent, for the message.
      numbers: of 4 bytes, of one lifetime.
      parameters: of the network, in words.
      advice: what takes less.

    Raises:
      JbrlError: says how much one lifetime takes.
    """
    needed = 4 * numbers
    if needed > MAX_BYTES:
        raise JbrlError(
            f"{name} takes {needed / 2**30:.3g} GiB for one lifetime{parameters}: expected at most "
            f"{MAX_BYTES >> 30} GiB; {advice}"
        )


def check_size(name: str, network: Any, kept: Any) -> None:
    """As `check_bytes`, of parameters, gradient and moments, and arrays `kept` beside them."""
    parameters = parameter_count(network)
    others = sum(math.prod(v.shape) for v in jax.tree.leaves(kept))
    words = f", {parameters:,} parameters"
    check_bytes(name, 4 * parameters + others, words, "a smaller hidden_width takes less")


Layers = tuple[Array, ...]  # the first [rows + 1, outputs] with lookup, else as above


@dataclasses.dataclass(frozen=True)
class QNetwork:
    """A multi-layer perceptron with ReLU between its layers: values of all actions.

    Part of the compiled program.
    """

    inputs: int  # numbers of an observation, or observations that there are with `lookup`
    widths: tuple[int, ...]  # outputs of each layer; the last are the actions
    # an input is the index of the only 1 among `inputs` numbers, -1 for none: the product with the
    # first matrix is a row of its transpose
    lookup: bool = False
    # with lookup: the indices that occur, which alone have rows; None: all
    reachable: LowerTriangle | None = None

    @classmethod
    def of(cls, spec: Spec, hidden_layers: int, hidden_width: int) -> "QNetwork":
        """Return the network for the observations and actions of an environment."""
        inputs, lookup = input_size(spec.observation)
        seen = spec.observation
        reachable = seen.reachable if isinstance(seen, OneHot) else None
        return cls(inputs, (hidden_width,) * hidden_layers + (spec.actions.n,), lookup, reachable)

    @property
    def rows(self) -> int:
        """Inputs that have weights."""
        return self.reachable.count if self.reachable else self.inputs

    @property
    def parameters(self) -> int:
        """Number of its parameters."""
        sizes = (self.rows, *self.widths)
        return sum((i + 1) * o for i, o in zip(sizes, self.widths, strict=False))

    @property
    def products(self) -> int:
        """Multiplications of matrix products with one input: a lookup takes none."""
        sizes = (self.inputs, *self.widths)
        terms = [i * o for i, o in zip(sizes, self.widths, strict=False)]
        return sum(terms[1:] if self.lookup else terms)

    def init(self, key: Array, fan_in: int | Array | None = None) -> Layers:
        """Draw the layers: weights as `networks.linear` does, biases 0.

        Args:
          fan_in: inputs that count, where some only pad others to a common size. Default: all.
        """
        drawn = Mlp(self.inputs, self.widths).init(key, fan_in)
        return self.pack([(layer.weights, layer.bias) for layer in drawn])

    def pack(self, layers: list[tuple[Array, Array]]) -> Layers:
        """Return layers from weights [inputs, outputs] and bias [outputs] of each."""
        (first, bias), *others = layers
        if self.reachable:
            first = first[self.reachable.indices()]
        stacked = [jnp.concatenate([w, b[None]]) for w, b in [(first, bias), *others]]
        return tuple(v if self.lookup and i == 0 else v.T for i, v in enumerate(stacked))

    def values(self, layers: Layers, inputs: Array) -> Array:
        """Return the action values [A, B].

        Args:
          layers: as `init` draws them.
          inputs: [B, inputs + 1], each with a 1 at its end; or [B] int32 with `lookup`.
        """
        chex.assert_rank(inputs, 1 if self.lookup else 2)
        first, *others = layers
        if not self.lookup:
            return _above(others, jnp.einsum("nk,bk->nb", first, inputs))
        hidden = _looked_up(first, self._row(inputs))
        if not others:
            return hidden.T
        # the batch in front, as rows are found: a gather that transposes is many times as slow
        active = jnp.pad(jax.nn.relu(hidden), ((0, 0), (0, 1)), constant_values=1)
        return _above(others[1:], jnp.einsum("nk,bk->nb", others[0], active))

    def _row(self, index: Array) -> Array:
        """Return the rows of the first matrix that belong to indices, [B] int32."""
        if self.reachable is None:
            return index
        # fused with what comes after it, it would change how products are rounded
        return vectorize.prevent_fusion_index(self.reachable.numbers(index))

    def values_of(self, layers: Layers, observation: Array) -> Array:
        """Return the values [A] of all actions at one observation, as the spec has it."""
        if self.lookup:
            return self.values(layers, observation[None])[:, 0]
        flat = observation.reshape(-1)
        return self.values(layers, jnp.append(flat, jnp.ones((1,), flat.dtype))[None])[:, 0]


def _above(layers: Sequence[Array], hidden: Array) -> Array:
    """Return the outputs [A, B] of the layers that come after `hidden`, [units, B] before ReLU."""
    for layer in layers:
        hidden = layer @ jnp.pad(jax.nn.relu(hidden), ((0, 1), (0, 0)), constant_values=1)
    return hidden


def taken(values: Array, action: Array) -> Array:
    """Return the values [B] of one action each, [B] int32, among `values` [A, B]."""
    chosen = jnp.arange(values.shape[0], dtype=jnp.int32)[:, None] == action[None]
    return jnp.where(chosen, values, jnp.zeros_like(values)).sum(0)


@jax.custom_vjp
def _looked_up(table: Array, index: Array) -> Array:
    """Return rows `index` [B] of `table` [inputs + 1, outputs], plus its last row: [B, outputs]; -1
    is a row of zeros.
    """
    rows = vectorize.get_rows(table, jnp.maximum(index, 0))
    rows = jnp.where((index >= 0)[:, None], rows, jnp.zeros_like(rows))
    return rows + table[-1][None]


def _looked_up_forward(table: Array, index: Array) -> tuple[Array, Any]:
    return _looked_up(table, index), (table, index)


def _looked_up_backward(saved: Any, slope: Array) -> tuple[Array, None]:
    table, index = saved
    bias = table.shape[0] - 1
    # -1 would count as the last row; beyond the table it is dropped
    at = jnp.append(jnp.where(index < 0, bias + 1, index), jnp.full((1,), bias, index.dtype))
    rows = jnp.concatenate([slope, slope.sum(0, keepdims=True)])
    return sums_of_rows(rows, at, table.shape[0]), None


_looked_up.defvjp(_looked_up_forward, _looked_up_backward)
