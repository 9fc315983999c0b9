"""Networks whose parameters are one vector, for batches on the last axis.

An offline trainer plays thousands of lifetimes side by side, in arrays whose last axis runs over
them. A layer is then one product of a small matrix with a wide one: on one core 160 ns for an
input of 36 numbers, two layers of 64 units and 4 outputs, and 590 ns with its gradient. One vector
of parameters makes a step of the optimiser one operation.

Attention to the transitions of a history has no positions, so copies of a transition have the same
key and value: a sum over the history is a sum over the M transitions that are possible, each
weighted by its number. This is exact, and what it costs does not grow with time.
"""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax


class FlatNetwork:
    """Base of the networks: matrices that lie one after the other in a vector [P]. Part of the
    compiled program.
    """

    @property
    def shapes(self) -> Sequence[tuple[int, int]]:
        """Shape of each matrix."""
        raise NotImplementedError(f"{type(self).__name__} has no property shapes")

    def init(self, key: Array, last: float = 1.0) -> Array:
        """Draw the parameters, [P] float32.

        Args:
          last: factor of the weights of the last layer.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method init")

    @property
    def parameters(self) -> int:
        """P, number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes)

    def layers(self, parameters: Array) -> list[Array]:
        """Return the matrices, `shapes`, of a vector [P]."""
        layers, first = [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            layers.append(lax.slice(parameters, (first,), (first + size,)).reshape(shape))
            first += size
        return layers


@dataclasses.dataclass(frozen=True)
class Dense(FlatNetwork):
    """A perceptron with ReLU between its layers."""

    sizes: tuple[int, ...]  # inputs, units of each hidden layer, outputs

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shape of each matrix, [outputs, inputs + 1]: the last column is the bias."""
        return tuple((o, i + 1) for i, o in zip(self.sizes, self.sizes[1:], strict=False))

    def init(self, key: Array, last: float = 1.0) -> Array:
        """Draw the parameters, [P] float32: weights normal with variance 2 / inputs, biases 0.

        Args:
          last: factor of the weights of the last layer.
        """
        parts = []
        for number, (o, i) in enumerate(self.shapes):
            scale = math.sqrt(2 / (i - 1)) if number + 1 < len(self.shapes) else last / math.sqrt(i)
            drawn = jax.random.normal(jax.random.fold_in(key, number), (o, i - 1))
            parts.append(jnp.concatenate([drawn * jnp.float32(scale), jnp.zeros((o, 1))], axis=1))
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def apply(self, layers: list[Array], inputs: Array) -> Array:
        """Return the outputs [outputs, N] for N inputs [inputs, N]."""
        hidden = inputs
        for number, layer in enumerate(layers):
            hidden = layer[:, :-1] @ hidden + layer[:, -1:]
            if number + 1 < len(layers):
                hidden = jax.nn.relu(hidden)
        return hidden


@dataclasses.dataclass(frozen=True)
class Gru(FlatNetwork):
    """A gated recurrent unit (Cho et al. 2014) and a linear layer.

    With gates z (update) and r (reset), inputs x and state h:

        z, r = sigmoid(W x + U h + b),  n = tanh(W' x + b' + r (U' h)),  h <- (1 - z) n + z h.
    """

    inputs: int
    units: int
    outputs: int

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shapes of the matrices: of the inputs with their biases, of the state, of the outputs
        with theirs.
        """
        return (
            (3 * self.units, self.inputs + 1),
            (3 * self.units, self.units),
            (self.outputs, self.units + 1),
        )

    def init(self, key: Array, last: float = 1.0) -> Array:
        """Draw the parameters, [P] float32: weights of the inputs and of the state uniform with
        variance 1 / (3 units), biases 0, outputs as normal ones with variance last² / units.
        """
        keys = jax.random.split(key, 3)
        bound = 1 / math.sqrt(self.units)
        inputs, state = (
            jax.random.uniform(keys[i], self.shapes[i], minval=-bound, maxval=bound)
            for i in range(2)
        )
        outputs = jax.random.normal(keys[2], self.shapes[2]) * jnp.float32(last * bound)
        parts = [inputs.at[:, -1].set(0.0), state, outputs.at[:, -1].set(0.0)]
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def start(self, width: int) -> Array:
        """Return the state before the first input, [units, N]."""
        return jnp.zeros((self.units, width))

    def advance(self, layers: list[Array], state: Array, inputs: Array) -> Array:
        """Return the next state [units, N] after inputs [I, N]."""
        n = self.units
        seen = layers[0][:, :-1] @ inputs + layers[0][:, -1:]
        kept = layers[1] @ state
        gates = jax.nn.sigmoid(seen[: 2 * n] + kept[: 2 * n])
        update, reset = gates[:n], gates[n:]
        new = jnp.tanh(seen[2 * n :] + reset * kept[2 * n :])
        return new + update * (state - new)

    def read(self, layers: list[Array], state: Array) -> Array:
        """Return the outputs [O, N] of states [units, N]."""
        return layers[2][:, :-1] @ state + layers[2][:, -1:]


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
