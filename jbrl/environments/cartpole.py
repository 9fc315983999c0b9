"""Cart-pole of Jordan et al. 2020: keep a pole upright on a cart of unknown masses."""

from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Perturbed, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Spec

PUSH, TAU = 10.0, 0.02  # N, s
CART_FRICTION, POLE_FRICTION = 5e-4, 2e-6
TRACK, FALLEN = 2.4, np.pi / 15  # m, rad: where an episode ends
FASTEST, LARGEST, FASTEST_TURN = 10.0, np.pi / 12, np.pi  # nominal bounds of observations
# half the width of each range, relative to its middle: 0.025 to 0.25, 0.1 to 1, 0.1 to 5, 8 to 10
SPREADS = {
    "pole_mass": 0.1125 / 0.1375,
    "half_length": 0.45 / 0.55,
    "cart_mass": 2.45 / 2.55,
    "gravity": 1 / 9,
}


@record
class CartPoleState:
    """The cart, the pole, and steps of the episode."""

    x: Array  # [] float32, m
    x_dot: Array  # [] float32, m/s
    theta: Array  # [] float32, rad, 0: upright
    theta_dot: Array  # [] float32, rad/s
    steps: Array  # [] int32, of this episode


@register_environment("CartPole", cite="jordan2020")
class CartPole(Environment[CartPoleState], Perturbed):
    """Cart-pole of Jordan et al. 2020: keep a pole upright on a cart, both drawn for each lifetime,
    for 1 per step.

    Observation, [4]: x, x', θ, θ' as they are, θ = 0 upright; nominally up to 2.4 m, 10 m/s, π/12
    and π rad/s. Actions 0, 1: push by -10, 10 N. Physics: the equations with friction on the track
    and in the joint, the normal force left out (Florian 2007); explicit Euler steps of 0.02 s, all
    right-hand sides from the state before. An episode starts upright, at rest, in the middle.

    Drawn for each lifetime, uniformly: mass of the pole from 0.025 to 0.25 kg, half-length of the
    pole from 0.1 to 1 m, mass of the cart from 0.1 to 5 kg, gravity from 8 to 10 m/s². The fields
    are the middles of these ranges; `spread` narrows all of them.

    Reward: 1 at each step, the last one included. An episode terminates when |θ| > π/15 or |x| >=
    2.4, or after `max_steps` steps: running out of time is terminal, as in the published
    comparison.

    Namesakes: bsuite's cart-pole is `BsuiteCartPole`; Gymnasium's CartPole-v1 has fixed physics
    without friction, a random start, and truncates after 500 steps.

    Source: Jordan et al. 2020; the published program (ScottJordan/EvaluationOfRLAlgs) where it
    says more.
    """

    lifetime = Episodes(100)

    pole_mass: float = parameter(
        0.1375, "middle of the range of the pole's mass, kg", low=1e-3, high=1e3
    )
    half_length: float = parameter(
        0.55, "middle of the range of half the pole's length, m", low=1e-2, high=1e3
    )
    cart_mass: float = parameter(
        2.55, "middle of the range of the cart's mass, kg", low=1e-3, high=1e3
    )
    gravity: float = parameter(9.0, "middle of the range of gravity, m/s²", low=0, high=1e3)
    spread: float = parameter(
        1.0,
        "width of the four ranges, relative to the published ones; 0: physics are the middles",
        low=0,
        high=1,
    )
    max_steps: int = parameter(1000, "steps after which an episode terminates", low=1, high=100_000)

    @property
    def spec(self) -> Spec:
        high = (TRACK, FASTEST, LARGEST, FASTEST_TURN)
        return Spec(Box((4,), tuple(-bound for bound in high), high), Discrete(2))

    @property
    def typical_steps(self) -> float:
        return float(self.max_steps) / 4

    def perturb(self, key: Array) -> Self:
        offsets = jax.random.uniform(key, (len(SPREADS),), minval=-1.0, maxval=1.0)
        return self.moved(SPREADS, offsets)

    def reset(self, key: Array) -> tuple[CartPoleState, Array]:
        del key
        zero = jnp.float32(0)
        state = CartPoleState(zero, zero, zero, zero, jnp.int32(0))
        return state, _observation(state)

    def step(self, key: Array, state: CartPoleState, action: Array) -> tuple[CartPoleState, Step]:
        del key
        x_acc, theta_acc = self._accelerations(state, action)
        # The angle needs no wrapping: an episode ends long before half a turn.
        after = CartPoleState(
            vectorize.prevent_fusion(state.x + TAU * state.x_dot),
            state.x_dot + TAU * x_acc,
            vectorize.prevent_fusion(state.theta + TAU * state.theta_dot),
            vectorize.prevent_fusion(state.theta_dot + TAU * theta_acc),
            state.steps + 1,
        )
        ended = (
            (jnp.abs(after.theta) > FALLEN)
            | (jnp.abs(after.x) >= TRACK)
            | (after.steps >= self.max_steps)
        )
        return after, Step(_observation(after), jnp.float32(1), ended)

    def _accelerations(self, state: CartPoleState, action: Array) -> tuple[Array, Array]:
        """Return x'' and θ'', [] float32 each."""
        mass, moment = self.pole_mass + self.cart_mass, self.pole_mass * self.half_length
        sin, cos = jnp.sin(state.theta), jnp.cos(state.theta)
        rubbing = CART_FRICTION * jnp.sign(state.x_dot)
        force = jnp.where(action == 1, PUSH, -PUSH) - rubbing
        swing = moment * state.theta_dot**2 * sin
        theta_acc = vectorize.prevent_fusion(
            (
                self.gravity * sin
                - cos * (force + swing) / mass
                - POLE_FRICTION * state.theta_dot / moment
            )
            / (self.half_length * (4 / 3 - self.pole_mass / mass * cos**2))
        )
        return (force + swing - moment * theta_acc * cos) / mass, theta_acc


def _observation(state: CartPoleState) -> Array:
    return jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot])
