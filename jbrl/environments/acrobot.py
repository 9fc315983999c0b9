"""Acrobot: two links that hang down, and a motor at the joint between them to swing them up."""

from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Perturbed, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Spec
from jbrl.mdp import sampling

SUBSTEPS, H = 10, 0.02  # Runge-Kutta steps of an action, and their length in seconds
INERTIA = 1.0  # moment of inertia of either link
FASTEST_1, FASTEST_2 = 4 * np.pi, 9 * np.pi  # rad/s
START = 5 * np.pi / 180  # half the width of the range of a random start
TURN = 2 * np.pi
# π/2 as a sum whose first parts have few digits, so that small multiples of them are exact, and
# polynomials of x² in (sin x / x - 1) / x² and (cos x - 1 + x²/2) / x⁴ on [-π/4, π/4] (Moshier's
# Cephes library, sinf and cosf)
HALF_PI = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
# half the width of each range, relative to its middle: 0.8 to 1.2 each, and 8 to 10
SPREADS = {"mass_1": 0.2, "length_1": 0.2, "mass_2": 0.2, "length_2": 0.2, "gravity": 1 / 9}

Angles = tuple[Array, Array, Array, Array]  # θ1, θ2, θ1', θ2'


@record
class AcrobotState:
    """The two links, and steps of the episode."""

    theta_1: Array  # [] float32, rad, 0: hanging down
    theta_2: Array  # [] float32, rad, of the second link against the first
    theta_1_dot: Array  # [] float32, rad/s
    theta_2_dot: Array  # [] float32, rad/s
    steps: Array  # [] int32, of this episode


@register_environment("Acrobot", cite="jordan2020")
class Acrobot(Environment[AcrobotState], Perturbed):
    """Acrobot of Jordan et al. 2020: swing the end of two links above the length of the first one,
    with links drawn for each lifetime, for -0.1 per step.

    Observation, [4]: θ1, θ2 in [-π, π) rad, 0 hanging down and in line, θ1' within 4π and θ2'
    within 9π rad/s. Actions 0, 1, 2: torque -1, 0, 1 at the second joint. Physics: the equations of
    Sutton and Barto's textbook, centres of mass in the middle, moments of inertia 1; ten
    Runge-Kutta steps of 0.02 s for an action, velocities clipped and angles wrapped after them. The
    published program takes the last of the four slopes of such a step at half of it, not at its
    end, which adds energy; with `fourth_order` it is taken at the end, as the method has it. An
    episode starts at rest, hanging down, or, with `random_start`, with both angles drawn uniformly
    from -5 to 5 degrees.

    Drawn for each lifetime, uniformly: masses and lengths of both links from 0.8 to 1.2, gravity
    from 8 to 10. The fields are the middles of these ranges; `spread` narrows all of them.

    Reward: -0.1 at each step, 0 at the last one. An episode terminates when the end is higher than
    the length of the first link above its joint, or after `max_steps` steps, 2001 since the sum of
    2000 times 0.2 s in float64 lies below the 400 s of the published program: running out of time
    is terminal.

    Namesakes: Gymnasium's Acrobot-v1 has one set of links, shows sines and cosines, starts at
    random, costs 1 per step and truncates after 500 steps.

    Source: Jordan et al. 2020; the published program (ScottJordan/EvaluationOfRLAlgs) where it
    says more.
    """

    lifetime = Episodes(500)

    mass_1: float = parameter(1.0, "middle of the range of the first mass", low=1e-2, high=100)
    length_1: float = parameter(1.0, "middle of the range of the first length", low=1e-2, high=100)
    mass_2: float = parameter(1.0, "middle of the range of the second mass", low=1e-2, high=100)
    length_2: float = parameter(1.0, "middle of the range of the second length", low=1e-2, high=100)
    gravity: float = parameter(9.0, "middle of the range of gravity", low=0, high=100)
    spread: float = parameter(
        1.0,
        "width of the five ranges, relative to the published ones; 0: physics are the middles",
        low=0,
        high=1,
    )
    random_start: bool = parameter(
        False, "start each episode with both angles drawn from -5 to 5 degrees, instead of 0"
    )
    fourth_order: bool = parameter(
        False,
        "take the fourth Runge-Kutta slope at the end of a step, instead of, as the published "
        "program, at half of it",
    )
    max_steps: int = parameter(2001, "steps after which an episode terminates", low=1, high=100_000)

    @property
    def spec(self) -> Spec:
        high = (np.pi, np.pi, FASTEST_1, FASTEST_2)
        return Spec(Box((4,), tuple(-bound for bound in high), high), Discrete(3))

    @property
    def typical_steps(self) -> float:
        return float(self.max_steps) / 8

    def perturb(self, key: Array) -> Self:
        offsets = jax.random.uniform(key, (len(SPREADS),), minval=-1.0, maxval=1.0)
        return self.moved(SPREADS, offsets)

    def reset(self, key: Array) -> tuple[AcrobotState, Array]:
        zero = jnp.float32(0)
        angles = jnp.where(
            self.random_start, jnp.float32(START) * (2 * sampling.uniforms(key) - 1), zero
        )
        state = AcrobotState(angles[0], angles[1], zero, zero, jnp.int32(0))
        return state, _observation(state)

    def step(self, key: Array, state: AcrobotState, action: Array) -> tuple[AcrobotState, Step]:
        del key
        links, torque = self._links(), (action - 1).astype(jnp.float32)
        angles = (state.theta_1, state.theta_2, state.theta_1_dot, state.theta_2_dot)
        last = jnp.where(self.fourth_order, jnp.float32(H), jnp.float32(H / 2))
        theta_1, theta_2, dot_1, dot_2 = lax.fori_loop(
            0, SUBSTEPS, lambda _, now: _runge_kutta(links, now, torque, last), angles
        )
        after = AcrobotState(
            _wrapped(theta_1),
            _wrapped(theta_2),
            jnp.clip(dot_1, -FASTEST_1, FASTEST_1),
            jnp.clip(dot_2, -FASTEST_2, FASTEST_2),
            state.steps + 1,
        )
        ended = self._is_up(after) | (after.steps >= self.max_steps)
        reward = jnp.where(ended, jnp.float32(0), jnp.float32(-0.1))
        return after, Step(_observation(after), reward, ended)

    def _is_up(self, state: AcrobotState) -> Array:
        """Return whether the end of the second link is higher than the first is long, [] bool."""
        elbow = -self.length_1 * jnp.cos(state.theta_1)
        return elbow - self.length_2 * jnp.cos(state.theta_1 + state.theta_2) > self.length_1

    def _links(self) -> "Links":
        """Return the constants of the equations."""
        centre_1, centre_2 = self.length_1 / 2, self.length_2 / 2
        own_2 = self.mass_2 * centre_2**2 + INERTIA
        return Links(
            self.mass_1 * centre_1**2 + self.mass_2 * self.length_1**2 + own_2 + INERTIA,
            own_2,
            self.mass_2 * self.length_1 * centre_2,
            (self.mass_1 * centre_1 + self.mass_2 * self.length_1) * self.gravity,
            self.mass_2 * centre_2 * self.gravity,
        )


@record
class Links:
    """Constants of the equations of motion, [] float32 each."""

    inertia_1: float | Array  # of both links in line at the first joint, less twice the coupling
    inertia_2: float | Array  # of the second link at its joint
    coupling: float | Array  # m2 l1 lc2
    weight_1: float | Array  # (m1 lc1 + m2 l1) g
    weight_2: float | Array  # m2 lc2 g


def _runge_kutta(links: Links, now: Angles, torque: Array, last: Array) -> Angles:
    """Return the angles and velocities `H` seconds later.

    Args:
      last: time at which the fourth slope is taken, `H` or half of it.
    """

    def moved(rates: Angles, time: float | Array) -> Angles:
        a, b, c, d = (v + time * rate for v, rate in zip(now, rates, strict=True))
        return a, b, c, d

    k1 = _rates(links, now, torque)
    k2 = _rates(links, moved(k1, H / 2), torque)
    k3 = _rates(links, moved(k2, H / 2), torque)
    k4 = _rates(links, moved(k3, last), torque)
    a, b, c, d = (p + 2 * (q + r) + s for p, q, r, s in zip(k1, k2, k3, k4, strict=True))
    return moved((a, b, c, d), H / 6)


def _rates(links: Links, now: Angles, torque: Array) -> Angles:
    """Return the derivatives of the angles and velocities (Sutton and Barto 1998, section 11.3)."""
    theta_1, theta_2, dot_1, dot_2 = now
    (sin_1, cos_1), (sin_2, cos_2) = sine_and_cosine(theta_1), sine_and_cosine(theta_2)
    d2 = links.inertia_2 + links.coupling * cos_2
    d1 = links.inertia_1 + 2 * links.coupling * cos_2
    # cos(θ - π/2) of the textbook is sin θ
    phi_2 = links.weight_2 * (sin_1 * cos_2 + cos_1 * sin_2)
    swing = links.coupling * sin_2
    phi_1 = links.weight_1 * sin_1 + phi_2 - swing * dot_2 * (dot_2 + 2 * dot_1)
    ratio = d2 / d1
    acc_2 = (torque + ratio * phi_1 - swing * dot_1**2 - phi_2) / (links.inertia_2 - d2 * ratio)
    return dot_1, dot_2, -(ratio * acc_2 + phi_1 / d1), acc_2


def sine_and_cosine(angle: Array) -> tuple[Array, Array]:
    """Return sin and cos of an angle within 1000 rad, [] float32 each, with errors below 1e-7.

    XLA computes each by itself, and takes four times as long: a step asks for 80 pairs. What is
    left beyond multiples of π/2 goes into polynomials.
    """
    quarters = jnp.round(angle * jnp.float32(2 / np.pi))
    rest = angle
    for part in HALF_PI:
        rest = rest - quarters * jnp.float32(part)
    square = rest * rest
    odd = rest * (1 + square * _polynomial(square, SINE))
    even = 1 - square / 2 + square * square * _polynomial(square, COSINE)
    number = quarters.astype(jnp.int32)
    swapped = (number & 1) == 1
    sin, cos = jnp.where(swapped, even, odd), jnp.where(swapped, odd, even)
    sin = jnp.where((number & 2) != 0, -sin, sin)
    cos = jnp.where(((number + 1) & 2) != 0, -cos, cos)
    return vectorize.prevent_fusion(sin), vectorize.prevent_fusion(cos)


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Return the polynomial with these coefficients, the highest one first."""
    result = jnp.float32(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + jnp.float32(coefficient)
    return result


def _wrapped(angle: Array) -> Array:
    """Return an angle in [-π, π)."""
    return jnp.mod(angle + jnp.float32(np.pi), jnp.float32(TURN)) - jnp.float32(np.pi)


def _observation(state: AcrobotState) -> Array:
    return jnp.stack([state.theta_1, state.theta_2, state.theta_1_dot, state.theta_2_dot])
