"""Catch: move a paddle under a ball that falls."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, Spec
from jbrl.mdp import sampling


@record
class CatchState:
    """The ball and the paddle, which stays in the last row."""

    ball_x: jax.Array  # [] int32, column
    ball_y: jax.Array  # [] int32, row
    paddle_x: jax.Array  # [] int32, column


@register_environment("Catch", cite="osband2020bsuite")
class Catch(Environment[CatchState]):
    """Catch of bsuite: a ball falls from the top of a board of 10 x 5, the paddle should be
    below it.

    Observation: the board, 1 where the ball is and 1 where the paddle is, else 0; [rows, columns].
    Actions 0, 1, 2: left, stay, right; nothing leads beyond the borders. The ball starts in a
    column drawn uniformly and falls one row per step; the paddle starts in the middle of the
    last row.

    Reward: 1 for a ball that is caught, -1 for one that is not, when it reaches the last row, where
    the episode terminates after rows - 1 steps; 0 before.

    Metrics: `total_regret`, 2 for a ball that is not caught.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime: ClassVar[Lifetime] = Episodes(10_000)

    rows: int = parameter(10, "rows of the board", low=2, high=1000, static=True)
    columns: int = parameter(5, "columns of the board", low=1, high=1000, static=True)

    @property
    def spec(self) -> Spec:
        return Spec(Box((self.rows, self.columns), 0.0, 1.0), Discrete(3))

    @property
    def typical_steps(self) -> float:
        return self.rows - 1.0

    def reset(self, key: jax.Array) -> tuple[CatchState, jax.Array]:
        ball_x = sampling.uniform_index(sampling.uniforms(key)[0], self.columns)
        state = CatchState(ball_x, jnp.int32(0), jnp.int32(self.columns // 2))
        return state, self._board(state)

    def step(self, key: jax.Array, state: CatchState, action: jax.Array) -> tuple[CatchState, Step]:
        del key
        moved = jnp.clip(state.paddle_x + action - 1, 0, self.columns - 1)
        paddle_x = vectorize.prevent_fusion_index(moved)
        after = CatchState(state.ball_x, state.ball_y + 1, paddle_x)
        ended = after.ball_y == self.rows - 1
        outcome = jnp.where(after.ball_x == paddle_x, jnp.float32(1), jnp.float32(-1))
        reward = jnp.where(ended, outcome, jnp.float32(0))
        return after, Step(self._board(after), reward, ended, jnp.bool_(False))

    def metrics(self, state: CatchState) -> dict[str, jax.Array]:
        missed = (state.ball_y == self.rows - 1) & (state.ball_x != state.paddle_x)
        return {"total_regret": jnp.where(missed, jnp.float32(2), jnp.float32(0))}

    def _board(self, state: CatchState) -> jax.Array:
        cells = jnp.arange(self.rows * self.columns, dtype=jnp.int32)
        ball = state.ball_y * self.columns + state.ball_x
        paddle = (self.rows - 1) * self.columns + state.paddle_x
        shown = (cells == ball) | (cells == paddle)
        return shown.astype(jnp.float32).reshape(self.rows, self.columns)
