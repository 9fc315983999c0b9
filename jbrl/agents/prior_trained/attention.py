"""Attention to the transitions of a history, for batches on the last axis.

Without positions, copies of a transition have the same key and value: a sum over the history is a
sum over the M transitions that are possible, each weighted by its number. This is exact, and what
it costs does not grow with time.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl.agents.prior_trained.networks import FlatNetwork

MATRICES = 6  # of a block
TABLES = (1, 2)  # those of them that are keys and values


@dataclasses.dataclass(frozen=True)
class Attention(FlatNetwork):
    """A transformer in which the present state attends to the transitions so far.

    Keys k_j and values v_j of the M transitions are parameters. With their numbers n_j, a block
    adds to x, through a matrix, for each head

        sum_j n_j exp(q k_j) v_j / (1 + sum_j n_j exp(q k_j)),    q = Q x / sqrt(size of a head),

    then a perceptron of x with one hidden layer. The 1 stands for a transition with key and value
    0, without which the sums would be the same for twice the history.
    """

    sizes: tuple[int, ...]  # inputs that are no numbers, M, width, heads, blocks, outputs

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shape of each matrix: of the inputs; of queries, keys, values, what the heads have found,
        and the perceptron of each block; of the outputs. The last column is the bias, but of keys
        and values.
        """
        inputs, transitions, width, _, blocks, outputs = self.sizes
        square, keys = (width, width + 1), (transitions, width)
        block = (square, keys, keys[::-1], square, square, square)
        return ((width, inputs + 1), *block * blocks, (outputs, width + 1))

    def init(self, key: Array, last: float = 1.0) -> Array:
        """Draw the parameters, [P] float32: weights normal with variance 1 / inputs, keys and
        values with variance 1, biases 0.

        Args:
          last: factor of the weights of the last layer.
        """
        parts = self.layers(jax.random.normal(key, (self.parameters,)))
        for number, part in enumerate(parts):
            if number and (number - 1) % MATRICES in TABLES:
                continue
            scale = last if number + 1 == len(parts) else 1.0
            weights = part[:, :-1] * (scale / math.sqrt(part.shape[1] - 1))
            parts[number] = jnp.concatenate([weights, jnp.zeros_like(part[:, -1:])], axis=1)
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def apply(self, layers: list[Array], inputs: Array) -> Array:
        """Return the outputs [outputs, N] for N inputs, the last M of which are numbers of
        transitions: [inputs + M, N].
        """
        others, _, _, heads, blocks, _ = self.sizes
        numbers, x = inputs[others:], _linear(layers[0], inputs[:others])
        for b in range(blocks):
            query, keys, values, back, up, down = layers[1 + MATRICES * b :][:MATRICES]
            queries = jnp.split(_linear(query, x), heads)
            parts = zip(
                queries, jnp.split(keys, heads, axis=1), jnp.split(values, heads), strict=True
            )
            x = x + _linear(back, jnp.concatenate([attend(*part, numbers) for part in parts]))
            x = x + _linear(down, jax.nn.relu(_linear(up, x)))
        return _linear(layers[-1], x)


def attend(query: Array, keys: Array, values: Array, numbers: Array) -> Array:
    """Return what a head of size D finds: [D, N].

    Args:
      query: [D, N].
      keys: [M, D].
      values: [D, M].
      numbers: of transitions, [M, N] float32.
    """
    scores = keys @ (query / math.sqrt(query.shape[0]))
    scores = jnp.where(numbers > 0, scores, 0.0)
    most = lax.stop_gradient(scores).max(0, keepdims=True, initial=0.0)
    weights = numbers * jnp.exp(scores - most)
    return values @ weights / (jnp.exp(-most) + weights.sum(0, keepdims=True))


def _linear(layer: Array, x: Array) -> Array:
    return layer[:, :-1] @ x + layer[:, -1:]
