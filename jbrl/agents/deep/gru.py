"""A gated recurrent unit with a linear layer on its state, its parameters one vector, for batches
on the last axis.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

from jbrl.agents.deep.dense import matrices


@dataclasses.dataclass(frozen=True)
class Gru:
    """A gated recurrent unit (Cho et al. 2014) and a linear layer. Part of the compiled program.

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

    @property
    def parameters(self) -> int:
        """P, number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes)

    def init(self, key: jax.Array, last: float = 1.0) -> jax.Array:
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

    def layers(self, parameters: jax.Array) -> list[jax.Array]:
        """Return the matrices, `shapes`, of a vector [P]."""
        return matrices(self.shapes, parameters)

    def start(self, width: int) -> jax.Array:
        """Return the state before the first input, [units, N]."""
        return jnp.zeros((self.units, width))

    def advance(self, layers: list[jax.Array], state: jax.Array, inputs: jax.Array) -> jax.Array:
        """Return the next state [units, N] after inputs [I, N]."""
        n = self.units
        seen = layers[0][:, :-1] @ inputs + layers[0][:, -1:]
        kept = layers[1] @ state
        gates = jax.nn.sigmoid(seen[: 2 * n] + kept[: 2 * n])
        update, reset = gates[:n], gates[n:]
        new = jnp.tanh(seen[2 * n :] + reset * kept[2 * n :])
        return new + update * (state - new)

    def read(self, layers: list[jax.Array], state: jax.Array) -> jax.Array:
        """Return the outputs [O, N] of states [units, N]."""
        return layers[2][:, :-1] @ state + layers[2][:, -1:]
