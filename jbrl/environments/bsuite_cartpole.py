"""Cart-pole of bsuite: keep a pole upright, or swing it up and keep it there."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Spec
from jbrl.mdp import sampling

MASS_CART, MASS_POLE, HALF_LENGTH = 1.0, 0.1, 0.5
FORCE, GRAVITY, TAU = 10.0, 9.8, 0.01  # N, m/s², s
MASS, MASS_LENGTH = MASS_CART + MASS_POLE, MASS_POLE * HALF_LENGTH
START = 0.05  # half the width of the range that each coordinate starts in
TURN = 2 * np.pi
FASTEST = 10.0  # nominal bound of velocities in observations


@record
class CartPole:
    """The cart, the pole and the time."""

    x: Array  # [] float32, m
    x_dot: Array  # [] float32, m/s
    theta: Array  # [] float32, rad, 0: upright
    theta_dot: Array  # [] float32, rad/s
    steps: Array  # [] int32, of this episode


def start(key: Array, middle: float) -> CartPole:
    """Return the start of an episode: four numbers within `START` of 0, the angle of `middle`."""
    x, x_dot, theta, theta_dot = 2 * START * sampling.four_uniforms(key) - START
    return CartPole(x, x_dot, theta + jnp.float32(middle), theta_dot, jnp.int32(0))


def move(state: CartPole, action: Array) -> CartPole:
    """Return the state one explicit Euler step later, for the actions left, stay, right (0,
    1, 2).
    """
    cos, sin = jnp.cos(state.theta), jnp.sin(state.theta)
    force = (action - 1).astype(jnp.float32) * FORCE
    pushed = (force + MASS_LENGTH * state.theta_dot**2 * sin) / MASS
    inertia = HALF_LENGTH * (4 / 3 - MASS_POLE * cos**2 / MASS)
    theta_acc = (GRAVITY * sin - cos * pushed) / inertia
    x_acc = pushed - MASS_LENGTH * theta_acc * cos / MASS
    theta = jnp.mod(state.theta + TAU * state.theta_dot, jnp.float32(TURN))
    return CartPole(
        vectorize.prevent_fusion(state.x + TAU * state.x_dot),
        state.x_dot + TAU * x_acc,
        vectorize.prevent_fusion(theta),
        vectorize.prevent_fusion(state.theta_dot + TAU * theta_acc),
        state.steps + 1,
    )


def last_step(max_time: float) -> int:
    """Return the number of the step after which the time exceeds `max_time`.

    The original adds 0.01 in float64 at each step; its rounding decides: 1001 for 10, 200 for 2.
    """
    sums = np.cumsum(np.full(round(max_time / TAU) + 2, TAU))
    return int(np.argmax(sums > max_time)) + 1


def seen(state: CartPole, cos: Array, x_limit: Any, max_time: Any) -> list[Array]:
    """Return the six numbers that both environments show, each [] float32."""
    time = state.steps.astype(jnp.float32) * jnp.float32(TAU)
    return [
        state.x / x_limit,
        state.x_dot / x_limit,
        jnp.sin(state.theta),
        cos,
        state.theta_dot,
        time / max_time,
    ]


@record
class BsuiteCartPoleState:
    """The cart and the pole, and the results of the episode so far."""

    physics: CartPole
    earned: Array  # [] float32, return of the episode


@register_environment("BsuiteCartPole", cite="osband2020bsuite")
class BsuiteCartPole(Environment[BsuiteCartPoleState]):
    """Cart-pole of bsuite: keep a pole upright on a cart for ten seconds of 0.01 s per step.

    Observation, [6]: x / 3, x' / 3, sin θ, cos θ, θ', t / 10, where θ = 0 is upright, and 3 and 10
    stand for `x_threshold` and `max_time`. Actions 0, 1, 2: push by -10, 0, 10 N. Physics: cart 1
    kg, pole 0.1 kg and half-length 0.5 m, gravity 9.8 m/s², explicit Euler steps. An episode starts
    with x, x', θ and θ' drawn uniformly from [-0.05, 0.05].

    Reward: 1 for each step after which cos θ > `height_threshold` and |x| < `x_threshold`, else 0.
    An episode terminates with the first 0, and when the time exceeds `max_time`: at step 1001,
    since a sum of 1000 times 0.01 in float64 lies below 10.

    Metrics: `raw_return`, the return.

    Namesakes: Gymnasium's CartPole has steps of 0.02 s, no action to stay, and ends at 12°.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime = Episodes(1000)

    height_threshold: float = parameter(0.8, "cos θ that counts as upright", low=-1, high=1)
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
        high = (1.0, FASTEST, 1.0, 1.0, FASTEST, 1.0)
        low = (*(-bound for bound in high[:-1]), 0.0)
        return Spec(Box((6,), low, high), Discrete(3))

    @property
    def typical_steps(self) -> float:
        return float(self.last) / 4

    def reset(self, key: Array) -> tuple[BsuiteCartPoleState, Array]:
        state = BsuiteCartPoleState(start(key, 0.0), jnp.float32(0))
        return state, self._observation(state.physics, jnp.cos(state.physics.theta))

    def step(
        self, key: Array, state: BsuiteCartPoleState, action: Array
    ) -> tuple[BsuiteCartPoleState, Step]:
        del key
        physics = move(state.physics, action)
        cos = vectorize.prevent_fusion(jnp.cos(physics.theta))
        good = (cos > self.height_threshold) & (jnp.abs(physics.x) < self.x_threshold)
        reward = good.astype(jnp.float32)
        ended = ~good | (physics.steps >= self.last)
        after = BsuiteCartPoleState(physics, state.earned + reward)
        return after, Step(self._observation(physics, cos), reward, ended)

    def metrics(self, state: BsuiteCartPoleState) -> dict[str, Array]:
        return {"raw_return": state.earned}

    def _observation(self, state: CartPole, cos: Array) -> Array:
        return jnp.stack(seen(state, cos, self.x_threshold, self.max_time))


@record
class SwingupState:
    """The cart and the pole, and the results of the episode so far."""

    physics: CartPole
    upright: Array  # [] int32, steps that were rewarded
    moves: Array  # [] int32, steps that were paid for


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

    lifetime = Episodes(1000)

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

    def reset(self, key: Array) -> tuple[SwingupState, Array]:
        physics = start(key, np.pi)
        state = SwingupState(physics, jnp.int32(0), jnp.int32(0))
        return state, self._observation(physics, jnp.cos(physics.theta))

    def step(self, key: Array, state: SwingupState, action: Array) -> tuple[SwingupState, Step]:
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
        return after, Step(self._observation(physics, cos), reward, ended)

    def metrics(self, state: SwingupState) -> dict[str, Array]:
        upright = state.upright.astype(jnp.float32)
        earned = upright - self.move_cost * state.moves.astype(jnp.float32)
        return {"raw_return": earned, "total_upright": upright}

    def _near(self, state: CartPole) -> Array:
        return jnp.abs(state.x) < self.x_reward_threshold

    def _slow(self, state: CartPole) -> Array:
        return jnp.abs(state.theta_dot) < self.theta_dot_threshold

    def _observation(self, state: CartPole, cos: Array) -> Array:
        flags = [_sign(self._near(state)), _sign(self._slow(state))]
        return jnp.stack([*seen(state, cos, self.x_threshold, self.max_time), *flags])


def _sign(flag: Array) -> Array:
    return jnp.where(flag, jnp.float32(1), jnp.float32(-1))
