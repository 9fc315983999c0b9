"""Multi-layer perceptrons: layers, their initialisation, and lookups in place of one-hot products.

Layers are `Linear` records, weights [inputs, outputs] and bias [outputs]; an `Mlp` has a tuple of
them. Each array stands for itself: slices of one vector of all parameters would be copied before
every product. Action values have a form of their own, whose matrix products are faster:
`q_network`.
"""

import dataclasses
import functools
import math

import chex
import jax
import jax.numpy as jnp
from jax import lax

from jbrl.agents.deep.products import product
from jbrl.base.pytree import record
from jbrl.environments.spec import Box, Observation


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
            found = (
                rows(layer.weights, hidden)
                if self.lookup and i == 0
                else product(hidden, layer.weights)
            )
            hidden = found + layer.bias[None]
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


def _rows_forward(weights: jax.Array, index: jax.Array) -> tuple[jax.Array, tuple]:
    return rows(weights, index), (weights, index)


def _rows_backward(saved: tuple, slope: jax.Array) -> tuple[jax.Array, None]:
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


def input_size(observation: Observation) -> tuple[int, bool]:
    """Return the inputs of a network for an observation, and whether they are looked up."""
    if isinstance(observation, Box):
        return math.prod(observation.shape), False
    return observation.n, True


def as_input(observation: jax.Array, *, lookup: bool) -> jax.Array:
    """Return an observation as an input of a network: [] int32 with `lookup`, else [inputs]."""
    return observation if lookup else observation.reshape(-1)
