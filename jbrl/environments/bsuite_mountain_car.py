"""Mountain car of bsuite: one fixed engine, a random start, the time as part of the observation."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, Spec
from jbrl.mdp import sampling

LEFT, RIGHT, GOAL = -1.2, 0.6, 0.5
FASTEST, FORCE, GRAVITY = 0.07, 0.001, 0.0025


@record
class BsuiteMountainCarState:
    """State of the car, and steps of the episode."""

    position: jax.Array  # [] float32
    velocity: jax.Array  # [] float32, per step
    steps: jax.Array  # [] int32, of this episode


@register_environment("BsuiteMountainCar", cite="osband2020bsuite")
class BsuiteMountainCar(Environment[BsuiteMountainCarState]):
    """Mountain car of bsuite: swing up a slope with a weak engine within 1000 steps, for -1
    per step.

    Observation, [3]: position x, velocity v, steps taken divided by `max_steps`. Actions 0, 1, 2:
    u = -1, 0, 1. One step:

        v <- clip(v + 0.001 u - 0.0025 cos(3 x), -0.07, 0.07);  x <- clip(x + v, -1.2, 0.6)
        if x = -1.2: v <- max(v, 0)

    An episode starts at rest at a position drawn uniformly from [-0.6, -0.4]. Reward: -1 at each
    step, the last one included. An episode terminates at x >= 0.5 or after `max_steps` steps.

    Metrics: `raw_return`, the return.

    Namesakes: `MountainCar` (Jordan et al. 2020) draws the engine for each lifetime, starts at
    -0.5, ends after 5000 steps and does not show the time; Gymnasium's truncates after 200 steps.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime: ClassVar[Lifetime] = Episodes(1000)

    max_steps: int = parameter(1000, "steps after which an episode terminates", low=1, high=100_000)

    @property
    def spec(self) -> Spec:
        return Spec(Box((3,), (LEFT, -FASTEST, 0.0), (RIGHT, FASTEST, 1.0)), Discrete(3))

    @property
    def typical_steps(self) -> float:
        return float(self.max_steps)

    def reset(self, key: jax.Array) -> tuple[BsuiteMountainCarState, jax.Array]:
        position = 0.2 * sampling.uniforms(key)[0] - 0.6
        state = BsuiteMountainCarState(position, jnp.float32(0), jnp.int32(0))
        return state, self._observation(state)

    def step(
        self, key: jax.Array, state: BsuiteMountainCarState, action: jax.Array
    ) -> tuple[BsuiteMountainCarState, Step]:
        del key
        push = FORCE * (action - 1).astype(jnp.float32)
        pulled = state.velocity + push - GRAVITY * jnp.cos(3 * state.position)
        velocity = vectorize.prevent_fusion(jnp.clip(pulled, -FASTEST, FASTEST))
        position = jnp.clip(state.position + velocity, LEFT, RIGHT)
        velocity = jnp.where(position == jnp.float32(LEFT), jnp.maximum(velocity, 0.0), velocity)
        after = BsuiteMountainCarState(position, velocity, state.steps + 1)
        ended = (position >= GOAL) | (after.steps >= self.max_steps)
        return after, Step(self._observation(after), jnp.float32(-1), ended, jnp.bool_(False))

    def metrics(self, state: BsuiteMountainCarState) -> dict[str, jax.Array]:
        return {"raw_return": -state.steps.astype(jnp.float32)}

    def _observation(self, state: BsuiteMountainCarState) -> jax.Array:
        limit = jnp.asarray(self.max_steps, jnp.int32).astype(jnp.float32)
        time = state.steps.astype(jnp.float32) / limit
        return jnp.stack([state.position, state.velocity, time])
