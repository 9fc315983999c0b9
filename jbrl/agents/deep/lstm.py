"""Long short-term memory, with its own backward pass.

Differentiating a scan would add an outer product to the gradient of the weights at each step, and
pass over a matrix of megabytes for it. Here the steps only find the gradients of the gates, and one
product of matrices afterwards that of the weights. Both passes take as many steps as count, not as
many as there is space for. A loop over steps reads one matrix of weights: with 256 units one stays
in a core's cache from step to step, and two do not.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jbrl.agents.deep import networks
from jbrl.base.pytree import record


@record
class LstmParameters:
    """Parameters of a cell; the four gates are i, g, f, o, in this order."""

    inputs: jax.Array  # [I, 4 H], weights of the inputs
    hidden: jax.Array  # [H, 4 H], weights of the last output
    bias: jax.Array  # [4 H]


@record
class LstmState:
    """State of a cell: its last output is `hidden`."""

    hidden: jax.Array  # [H]
    cell: jax.Array  # [H]


@dataclasses.dataclass(frozen=True)
class Lstm:
    """A long short-term memory (Hochreiter and Schmidhuber 1997) as Haiku has it.

    With the gates i, g, f, o of x W + h U + b: c' = sigma(f + 1) c + sigma(i) tanh(g) and
    h' = sigma(o) tanh(c'). Part of the compiled program.
    """

    inputs: int
    units: int

    def init(self, key: jax.Array) -> LstmParameters:
        """Draw the parameters, as `networks.linear` does for inputs and last output together."""
        both = networks.linear(key, self.inputs + self.units, 4 * self.units)
        return LstmParameters(both.weights[: self.inputs], both.weights[self.inputs :], both.bias)

    def start(self) -> LstmState:
        """Return the state before the first input: zeros."""
        return LstmState(jnp.zeros(self.units), jnp.zeros(self.units))


def step(parameters: LstmParameters, state: LstmState, inputs: jax.Array) -> LstmState:
    """Return the state after one input, [I]."""
    found = inputs[None] @ parameters.inputs + state.hidden[None] @ parameters.hidden
    after, _ = _cell((found + parameters.bias[None])[0], state)
    return after


def _cell(found: jax.Array, state: LstmState) -> tuple[LstmState, jax.Array]:
    """Return the state after a step, and the gates [4, H], from what goes into them, [4 H]."""
    i, g, f, o = found.reshape(4, -1)
    gates = [jax.nn.sigmoid(i), jnp.tanh(g), jax.nn.sigmoid(f + 1), jax.nn.sigmoid(o)]
    cell = gates[2] * state.cell + gates[0] * gates[1]
    return LstmState(gates[3] * jnp.tanh(cell), cell), jnp.stack(gates)


@jax.custom_vjp
def unroll(
    parameters: LstmParameters, start: LstmState, inputs: jax.Array, count: jax.Array
) -> LstmState:
    """Return the states after each of the first `count` inputs: [S, H] each, 0 after them.

    Differentiable in parameters and inputs, by the outputs; neither through `start` nor by the
    cells.

    Args:
      inputs: [S, I].
      count: [] int32, from 0 to S.
    """
    return _forward(parameters, start, inputs, count)[0]


def _forward(
    parameters: LstmParameters, start: LstmState, inputs: jax.Array, count: jax.Array
) -> tuple[LstmState, Any]:
    offered = inputs @ parameters.inputs + parameters.bias[None]
    size, units = offered.shape[0], parameters.hidden.shape[0]
    empty = jnp.zeros((size, units), offered.dtype)

    def one(t: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        state, outputs, cells, gates = carry
        found = _at(offered, t) + (state.hidden[None] @ parameters.hidden)[0]
        state, now = _cell(found, state)
        return (
            state,
            _put(outputs, t, state.hidden),
            _put(cells, t, state.cell),
            _put(gates, t, now),
        )

    carry = (start, empty, empty, jnp.zeros((size, 4, units), offered.dtype))
    _, outputs, cells, gates = lax.fori_loop(0, count, one, carry)
    saved = (parameters, start, inputs, count, outputs, cells, gates)
    return LstmState(outputs, cells), saved


def _backward(saved: Any, slopes: LstmState) -> tuple[Any, ...]:
    parameters, start, inputs, count, outputs, cells, gates = saved
    before = [
        jnp.concatenate([first[None], later[:-1]])
        for first, later in ((start.hidden, outputs), (start.cell, cells))
    ]

    def one(k: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        t = count - 1 - k
        output_slope, cell_slope, found = carry
        i, g, f, o = _at(gates, t)
        output_slope = output_slope + _at(slopes.hidden, t)
        squashed = jnp.tanh(_at(cells, t))
        cell_slope = cell_slope + output_slope * o * (1 - squashed * squashed)
        now = jnp.stack(
            [
                cell_slope * g * i * (1 - i),
                cell_slope * i * (1 - g * g),
                cell_slope * _at(before[1], t) * f * (1 - f),
                output_slope * squashed * o * (1 - o),
            ]
        )
        return parameters.hidden @ now.reshape(-1), cell_slope * f, _put(found, t, now)

    none = jnp.zeros_like(start.hidden)
    found = lax.fori_loop(0, count, one, (none, none, jnp.zeros_like(gates)))[2]
    found = found.reshape(found.shape[0], -1)

    def input_slope(t: jax.Array, slopes: jax.Array) -> jax.Array:
        return _put(slopes, t, parameters.inputs @ _at(found, t))

    input_slopes = lax.fori_loop(0, count, input_slope, jnp.zeros_like(inputs))
    slope = LstmParameters(
        networks.outer(inputs, found), networks.outer(before[0], found), found.sum(0)
    )
    return slope, LstmState(none, none), input_slopes, None


unroll.defvjp(_forward, _backward)


def _at(table: jax.Array, t: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(table, t, keepdims=False)


def _put(table: jax.Array, t: jax.Array, row: jax.Array) -> jax.Array:
    return lax.dynamic_update_index_in_dim(table, row, t, 0)
