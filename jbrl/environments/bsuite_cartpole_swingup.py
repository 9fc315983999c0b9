"""Swing-up of bsuite: bring a hanging pole up and keep it there, near the middle of the track."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.bsuite_cartpole import FASTEST, CartPole, last_step, move, seen, start
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, Spec


@record
class SwingupState:
    """The cart and the pole, and the results of the episode so far."""

    physics: CartPole
    upright: jax.Array  # [] int32, steps that were rewarded
    moves: jax.Array  # [] int32, steps that were paid for


@register_environment("BsuiteCartPoleSwingup", cite="osband2020bsuite")
class BsuiteCartPoleSwingup(Environment[SwingupState]):
    """Swing-up of bsuite: swing a hanging pole up on a cart, which costs, and keep it there.

    Observation, [8]: the six numbers of `BsuiteCartPole`, then 1 if |x| < `x_reward_threshold`,
    else -1; and 1 if |θ'| < `theta_dot_threshold`, else -1. Actions and physics are those of
    `BsuiteCartPole`; the pole starts at π plus a number drawn uniformly from [-0.05, 0.05].

    Reward: 1 for a step after which cos θ > `height_threshold`, |θ'| < `theta_dot_threshold` and
    |x| < `x_reward_threshold`; minus `move_cost` for a step with a push. An episode terminates when
    the time exceeds `max_time`, at step 1001, or when |x| > `x_threshold`.

    Metrics: `raw_return`, the return; `total_upright`, the steps that were rewarded.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime: ClassVar[Lifetime] = Episodes(1000)

    height_threshold: float = parameter(0.5, "cos θ that counts as upright", low=-1, high=1)
    theta_dot_threshold: float = parameter(1.0, "|θ'| that counts as slow", low=0, high=100)
    x_reward_threshold: float = parameter(1.0, "|x| that counts as near", low=0, high=100)
    move_cost: float = parameter(0.1, "cost of a push", low=0, high=100)
    x_threshold: float = parameter(
        3.0, "|x| at which the track ends", low=0, high=100, open_low=True
    )
    max_time: float = parameter(10.0, "seconds of an episode", low=0.01, high=1000)
    last: Any = None  # [] int32, greatest number of steps

    def __post_init__(self) -> None:
        if self.last is None and isinstance(self.max_time, int | float):  # not traced
            object.__setattr__(self, "last", np.int32(last_step(self.max_time)))

    @property
    def spec(self) -> Spec:
        high = (1.0, FASTEST, 1.0, 1.0, FASTEST, 1.0, 1.0, 1.0)
        low = (-1.0, -FASTEST, -1.0, -1.0, -FASTEST, 0.0, -1.0, -1.0)
        return Spec(Box((8,), low, high), Discrete(3))

    @property
    def typical_steps(self) -> float:
        return float(self.last)

    def reset(self, key: jax.Array) -> tuple[SwingupState, jax.Array]:
        physics = start(key, np.pi)
        state = SwingupState(physics, jnp.int32(0), jnp.int32(0))
        return state, self._observation(physics, jnp.cos(physics.theta))

    def step(
        self, key: jax.Array, state: SwingupState, action: jax.Array
    ) -> tuple[SwingupState, Step]:
        del key
        physics = move(state.physics, action)
        cos = vectorize.prevent_fusion(jnp.cos(physics.theta))
        upright = (cos > self.height_threshold) & self._slow(physics) & self._near(physics)
        moved = jnp.abs(action - 1)
        reward = upright.astype(jnp.float32) - self.move_cost * moved.astype(jnp.float32)
        ended = (physics.steps >= self.last) | (jnp.abs(physics.x) > self.x_threshold)
        after = SwingupState(
            physics, state.upright + upright.astype(jnp.int32), state.moves + moved
        )
        return after, Step(self._observation(physics, cos), reward, ended, jnp.bool_(False))

    def metrics(self, state: SwingupState) -> dict[str, jax.Array]:
        upright = state.upright.astype(jnp.float32)
        earned = upright - self.move_cost * state.moves.astype(jnp.float32)
        return {"raw_return": earned, "total_upright": upright}

    def _near(self, state: CartPole) -> jax.Array:
        return jnp.abs(state.x) < self.x_reward_threshold

    def _slow(self, state: CartPole) -> jax.Array:
        return jnp.abs(state.theta_dot) < self.theta_dot_threshold

    def _observation(self, state: CartPole, cos: jax.Array) -> jax.Array:
        flags = [_sign(self._near(state)), _sign(self._slow(state))]
        return jnp.stack([*seen(state, cos, self.x_threshold, self.max_time), *flags])


def _sign(flag: jax.Array) -> jax.Array:
    return jnp.where(flag, jnp.float32(1), jnp.float32(-1))
