"""Deep sea: one sequence of N actions out of 2^N is rewarded, and each step towards it costs."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Discrete, Episodes, LowerTriangle, OneHot, Spec
from jbrl.mdp import sampling

COST = 0.01  # of N moves to the right


@record
class DeepSeaState:
    """Position in the sea, and record of the episode so far."""

    row: Array  # [] int32, from 0; N: the episode has ended
    column: Array  # [] int32, from 0
    bad: Array  # [] bool, the diagonal was left by going left
    found: Array  # [] bool, the treasure was found


@register_environment("DeepSea", cite="osband2020bsuite")
class DeepSea(Environment[DeepSeaState]):
    """Deep sea of N x N cells: sink one row per step, and find the treasure by N steps to the
    right alone.

    Observation: the cell, as the one-hot vector of length N^2 with index row N + column; after the
    last step the vector of zeros, index -1. Which of the two actions goes right differs from cell
    to cell: where `mapping` is 1, action 1 does. The map is that of the original, bit for bit: one
    binomial draw of NumPy's `RandomState(mapping_seed)` per cell; each size has its own.

    Going right costs 0.01 / N, whether or not it succeeds. Going right in the last row and column
    pays 1. With `stochastic`, going right fails with probability 1 / N, and the last step adds a
    standard normal number where it is taken in the first or the last column. An episode terminates
    after N steps. The best mean return is 0.99; with `stochastic`, of an agent that goes left once
    it has slipped, q^(N - 1) - 0.01 (1 - q^N), where q = 1 - 1 / N.

    Metrics: `total_bad_episodes`, 1 from the step on that goes left on the diagonal, else 0;
    `denoised_return`, 1 once the treasure is found, else 0 (neither cost nor noise, as in
    the original).

    `mapping` follows from the other fields where it is None. `dataclasses.replace` keeps it:
    replace it by None along with them.

    Source: Osband et al. 2020, appendix; the published program (google-deepmind/bsuite 0.3.6) where
    it says more.
    """

    lifetime = Episodes(10_000)

    size: int = parameter(10, "N, rows and columns", low=2, high=1000, static=True)
    stochastic: bool = parameter(
        False, "let moves to the right fail, and add noise to the reward of the last step"
    )
    randomize_actions: bool = parameter(
        True, "draw the action that goes right for each cell; otherwise it is action 1 everywhere"
    )
    mapping_seed: int = parameter(42, "seed of that draw", low=0, high=2**31 - 1)
    mapping: Any = None  # [N, N] int8, the action that goes right

    def __post_init__(self) -> None:
        if self.mapping is None and isinstance(self.mapping_seed, int):  # neither of them is traced
            made = (
                action_mapping(self.size, self.mapping_seed)
                if self.randomize_actions
                else np.ones((self.size, self.size), np.int8)
            )
            object.__setattr__(self, "mapping", made)

    @property
    def spec(self) -> Spec:
        # no move goes more than one column to the right
        return Spec(OneHot(self.size**2, LowerTriangle(self.size)), Discrete(2))

    @property
    def typical_steps(self) -> float:
        return float(self.size)

    def reset(self, key: Array) -> tuple[DeepSeaState, Array]:
        del key
        zero, no = jnp.int32(0), jnp.bool_(False)
        return DeepSeaState(zero, zero, no, no), zero

    def step(self, key: Array, state: DeepSeaState, action: Array) -> tuple[DeepSeaState, Step]:
        N, last = self.size, self.size - 1
        slip, noise = sampling.uniforms(key)
        row, column = state.row, state.column
        cell = jnp.minimum(row, last) * N + column
        rightward = jnp.ravel(self.mapping).at[cell].get(mode="promise_in_bounds").astype(jnp.int32)
        right = vectorize.prevent_fusion_index((action == rightward).astype(jnp.int32)) == 1
        treasure = right & (column == last)
        noisy = jnp.logical_and(self.stochastic, (row == last) & ((column == 0) | (column == last)))
        gift = jnp.where(noisy, sampling.standard_normal(noise), 0.0)
        reward = gift + treasure.astype(jnp.float32) - jnp.where(right, COST / N, 0.0)
        moves = jnp.logical_or(jnp.logical_not(self.stochastic), slip > 1 / N)
        advanced = jnp.where(moves, jnp.minimum(column + 1, last), column)
        bad = state.bad | (~right & (row == column))
        column = jnp.where(right, advanced, jnp.maximum(column - 1, 0))
        row = row + 1
        ended = row >= N
        observation = jnp.where(ended, -1, row * N + column)
        return DeepSeaState(row, column, bad, state.found | treasure), Step(
            observation, reward, ended
        )

    def metrics(self, state: DeepSeaState) -> dict[str, Array]:
        return {
            "total_bad_episodes": state.bad.astype(jnp.float32),
            "denoised_return": state.found.astype(jnp.float32),
        }


def action_mapping(size: int, seed: int) -> np.ndarray:
    """Return the action that goes right in each cell, [N, N] int8, as the original draws it."""
    return np.random.RandomState(seed).binomial(1, 0.5, (size, size)).astype(np.int8)
