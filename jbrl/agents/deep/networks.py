"""Networks of agents that learn by gradients of a policy: perceptrons, lookups in place of one-hot
products, a policy with a value function; and what they cost.

Layers are `Linear` records, weights [inputs, outputs] and bias [outputs]; an `Mlp` has a tuple of
them. Each array stands for itself: slices of one vector of all parameters would be copied before
every product. Two other perceptrons compute the same function where another form is faster:
`q_network` for batches of a replay buffer, `prior_trained.networks` for thousands of lifetimes side
by side.
"""

import dataclasses
import functools
import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jbrl.agents import selection
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.spec import Box, Observation, Spec
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

    weights: jax.Array  # [inputs, outputs]
    bias: jax.Array  # [outputs]


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

    def init(self, key: jax.Array, fan_in: int | jax.Array | None = None) -> tuple[Linear, ...]:
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

    def apply(self, layers: tuple[Linear, ...], inputs: jax.Array) -> jax.Array:
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


def linear(
    key: jax.Array, inputs: int, outputs: int, fan_in: int | jax.Array | None = None
) -> Linear:
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
def rows(weights: jax.Array, index: jax.Array) -> jax.Array:
    """Return the product of one-hot vectors, given by the index of their 1, with `weights`.

    Args:
      weights: [inputs, outputs].
      index: [B] int32 from -1; -1 is the vector of zeros.

    Returns: [B, outputs].
    """
    found = weights.at[jnp.maximum(index, 0)].get(mode="promise_in_bounds")
    return jnp.where((index >= 0)[:, None], found, jnp.zeros_like(found))


def _rows_forward(weights: jax.Array, index: jax.Array) -> tuple[jax.Array, Any]:
    return rows(weights, index), (weights, index)


def _rows_backward(saved: Any, slope: jax.Array) -> tuple[jax.Array, None]:
    weights, index = saved
    # -1 would count as the last row
    at = jnp.where(index < 0, weights.shape[0], index)
    return sums_of_rows(slope, at, weights.shape[0]), None


rows.defvjp(_rows_forward, _rows_backward)


def sums_of_rows(added: jax.Array, at: jax.Array, count: int) -> jax.Array:
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


def scattered(added: jax.Array, at: jax.Array, count: int) -> jax.Array:
    """Return `sums_of_rows` by additions to places of memory."""
    return jnp.zeros((count, added.shape[1]), added.dtype).at[at].add(added, mode="drop")


def multiplied(added: jax.Array, at: jax.Array, count: int) -> jax.Array:
    """Return `sums_of_rows` by a product with one-hot vectors."""
    belongs = jnp.arange(count, dtype=at.dtype)[:, None] == at[None]
    return jnp.matmul(belongs.astype(added.dtype), added, precision=lax.Precision.HIGHEST)


def product(rows: jax.Array, weights: jax.Array) -> jax.Array:
    """Return `rows @ weights`, [B, O] from [B, I] and [I, O], with a backward pass that suits few
    rows.
    """
    few = 1 < rows.shape[0] <= FEW_ROWS and weights.size >= MANY_WEIGHTS
    return _product(rows, weights) if few else rows @ weights


@jax.custom_vjp
def _product(rows: jax.Array, weights: jax.Array) -> jax.Array:
    return rows @ weights


def _product_forward(rows: jax.Array, weights: jax.Array) -> tuple[jax.Array, Any]:
    return rows @ weights, (rows, weights)


def _product_backward(saved: Any, slopes: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows, weights = saved
    earlier = jnp.stack([weights @ slopes[b] for b in range(slopes.shape[0])])
    return earlier, outer(rows, slopes)


_product.defvjp(_product_forward, _product_backward)


def outer(rows: jax.Array, slopes: jax.Array) -> jax.Array:
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


def as_input(observation: jax.Array, *, lookup: bool) -> jax.Array:
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

    def init(self, key: jax.Array) -> tuple[Any, Linear]:
        """Draw the parameters, as `linear` does."""
        torso, heads = jax.random.split(key)
        return self.torso.init(torso), linear(heads, self.torso.widths[-1], self.n_actions + 1)

    def apply(
        self, parameters: tuple[Any, Linear], inputs: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return logits [B, A] and values [B] for a batch.

        Args:
          inputs: [B, inputs] float, or [B] int32 where observations are indices.
        """
        return self.heads(parameters[1], self.torso.apply(parameters[0], inputs))

    def heads(self, layer: Linear, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return logits [B, A] and values [B] of the outputs of the torso, [B, H]."""
        outputs = hidden @ layer.weights + layer.bias[None]
        return outputs[:, : self.n_actions], outputs[:, self.n_actions]

    def act(
        self, parameters: tuple[Any, Linear], observation: jax.Array, uniform: jax.Array
    ) -> jax.Array:
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


def cost_of(agent: Agent, prior: Prior, seconds: float) -> Cost:
    """Return the cost of a decision that takes `seconds`, with the memory of the agent's states.

    Raises:
      JbrlError: the agent refuses to take so much memory.
    """
    leaves, structure = jax.tree.flatten((agent, prior))
    key = structure, tuple(np.shape(leaf) for leaf in leaves)
    if key not in _BYTES:
        state = jax.eval_shape(lambda key: agent.reset(key, prior), jax.random.key(0))
        sizes = (math.prod(v.shape) * v.dtype.itemsize for v in jax.tree.leaves(state))
        _BYTES[key] = sum(sizes)
    return Cost(seconds / SECONDS_PER_STEP, agent.lanes * _BYTES[key], compiling=COMPILING)


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
