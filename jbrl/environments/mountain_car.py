"""Mountain car: an engine too weak for the slope has to swing itself up."""

from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Perturbed, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Spec
from jbrl.mdp import sampling

WALL, GOAL, RIGHT = -1.2, 0.5, 0.6  # the right wall is that of bsuite
FASTEST, GRAVITY = 0.07, 0.0025
FORCE = 0.001  # of bsuite


@record
class MountainCarState:
    """State of the car, and steps of the episode."""

    position: Array  # [] float32
    velocity: Array  # [] float32, per step
    steps: Array  # [] int32, of this episode


@register_environment("MountainCar", cite="jordan2020")
class MountainCar(Environment[MountainCarState], Perturbed):
    """Mountain car of Jordan et al. 2020: swing up a slope with an engine of a strength drawn for
    each lifetime, for -1 per step.

    Observation: position x in [-1.2, 0.5] and velocity v in [-0.07, 0.07], as they are; the last
    position of an episode may lie beyond 0.5. Actions 0, 1, 2: u = -1, 0, 1. One step:

        v <- clip(v + k u - 0.0025 cos(3 x), -0.07, 0.07);  x <- x + v;
        if x < -1.2: x = -1.2, v = 0

    The force k is drawn for each lifetime, uniformly from force (1 - spread) to force (1 + spread).
    An episode starts at rest at x = -0.5, or, with `random_start`, at a position drawn uniformly
    from [-0.6, -0.4].

    Reward: -1 at each step, the last one included. An episode terminates at x >= 0.5 or after
    `max_steps` steps: running out of time is terminal, as in the published comparison.

    Namesakes: Gymnasium's MountainCar-v0 has a random start, one fixed force, a bound of 0.6 on x
    and truncates after 200 steps; bsuite's has a random start, one fixed force, a bound of 0.6 on
    x, terminates after 1000 steps and shows the time as a third observation.

    Source: Jordan et al. 2020; the published program (ScottJordan/EvaluationOfRLAlgs) where it
    says more.
    """

    lifetime = Episodes(100)

    force: float = parameter(
        0.001,
        "middle of the range of k, the change of velocity by the engine in one step",
        low=0,
        high=1,
    )
    spread: float = parameter(
        0.2,
        "half the width of that range, relative to `force`; 0: k is always `force`",
        low=0,
        high=1,
    )
    random_start: bool = parameter(
        False,
        "start each episode at a position drawn uniformly from [-0.6, -0.4], instead of at -0.5",
    )
    max_steps: int = parameter(5000, "steps after which an episode terminates", low=1, high=100_000)

    @property
    def spec(self) -> Spec:
        return Spec(Box((2,), (WALL, -FASTEST), (GOAL, FASTEST)), Discrete(3))

    def perturb(self, key: Array) -> Self:
        return self.moved({"force": 1.0}, [jax.random.uniform(key, minval=-1.0, maxval=1.0)])

    @property
    def typical_steps(self) -> float:
        return float(self.max_steps) / 2

    def reset(self, key: Array) -> tuple[MountainCarState, Array]:
        anywhere = 0.2 * sampling.uniforms(key)[0] - 0.6
        state = MountainCarState(
            jnp.where(self.random_start, anywhere, -0.5), jnp.float32(0), jnp.int32(0)
        )
        return state, _observation(state)

    def step(
        self, key: Array, state: MountainCarState, action: Array
    ) -> tuple[MountainCarState, Step]:
        del key
        velocity = _swung(state, action, self.force)
        position = state.position + velocity
        hit = position < WALL
        after = MountainCarState(
            jnp.where(hit, WALL, position), jnp.where(hit, 0.0, velocity), state.steps + 1
        )
        ended = (position >= GOAL) | (after.steps >= self.max_steps)
        return after, Step(_observation(after), jnp.float32(-1), ended)


def _swung(state: MountainCarState, action: Array, force: float | Array) -> Array:
    """Return the velocity after one step of the engine and of gravity."""
    push = force * (action - 1).astype(jnp.float32)
    pulled = state.velocity + push - GRAVITY * jnp.cos(3 * state.position)
    return vectorize.prevent_fusion(jnp.clip(pulled, -FASTEST, FASTEST))


def _observation(state: MountainCarState) -> Array:
    return jnp.stack([state.position, state.velocity])


@register_environment("BsuiteMountainCar", cite="osband2020bsuite")
class BsuiteMountainCar(Environment[MountainCarState]):
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

    lifetime = Episodes(1000)

    max_steps: int = parameter(1000, "steps after which an episode terminates", low=1, high=100_000)

    @property
    def spec(self) -> Spec:
        return Spec(Box((3,), (WALL, -FASTEST, 0.0), (RIGHT, FASTEST, 1.0)), Discrete(3))

    @property
    def typical_steps(self) -> float:
        return float(self.max_steps)

    def reset(self, key: Array) -> tuple[MountainCarState, Array]:
        position = 0.2 * sampling.uniforms(key)[0] - 0.6
        state = MountainCarState(position, jnp.float32(0), jnp.int32(0))
        return state, self._observation(state)

    def step(
        self, key: Array, state: MountainCarState, action: Array
    ) -> tuple[MountainCarState, Step]:
        del key
        velocity = _swung(state, action, FORCE)
        position = jnp.clip(state.position + velocity, WALL, RIGHT)
        velocity = jnp.where(position == jnp.float32(WALL), jnp.maximum(velocity, 0.0), velocity)
        after = MountainCarState(position, velocity, state.steps + 1)
        ended = (position >= GOAL) | (after.steps >= self.max_steps)
        return after, Step(self._observation(after), jnp.float32(-1), ended)

    def metrics(self, state: MountainCarState) -> dict[str, Array]:
        return {"raw_return": -state.steps.astype(jnp.float32)}

    def _observation(self, state: MountainCarState) -> Array:
        limit = jnp.asarray(self.max_steps, jnp.int32).astype(jnp.float32)
        time = state.steps.astype(jnp.float32) / limit
        return jnp.stack([state.position, state.velocity, time])
