"""Acrobot: a twin in double precision, the energy of the links, and the drawn physics."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbrl.environments.acrobot import Acrobot, AcrobotState, sine_and_cosine
from jbrl.environments.environment import as_arrays
from tests.environments.playing import LANES, episodes, lane, one_step, play, uniforms

KEY = jax.random.key(0)
T = 2100  # more than the longest episode
NAMES = ("mass_1", "length_1", "mass_2", "length_2", "gravity")


def rates(state, tau, m1, l1, m2, l2, g):
    """The equations of Sutton and Barto's textbook, as the specification says them; states
    [..., 4].
    """
    th1, th2, th1_dot, th2_dot = np.moveaxis(state, -1, 0)
    lc1, lc2, i1, i2, cos, sin = l1 / 2, l2 / 2, 1.0, 1.0, np.cos, np.sin
    d1 = m1 * lc1**2 + m2 * (l1**2 + lc2**2 + 2 * l1 * lc2 * cos(th2)) + i1 + i2
    d2 = m2 * (lc2**2 + l1 * lc2 * cos(th2)) + i2
    phi2 = m2 * lc2 * g * cos(th1 + th2 - np.pi / 2)
    phi1 = (
        -m2 * l1 * lc2 * th2_dot**2 * sin(th2)
        - 2 * m2 * l1 * lc2 * th2_dot * th1_dot * sin(th2)
        + (m1 * lc1 + m2 * l1) * g * cos(th1 - np.pi / 2)
        + phi2
    )
    a2 = (tau + d2 / d1 * phi1 - m2 * l1 * lc2 * th1_dot**2 * sin(th2) - phi2) / (
        m2 * lc2**2 + i2 - d2**2 / d1
    )
    return np.stack([th1_dot, th2_dot, -(d2 * a2 + phi1) / d1, a2], -1)


def twin_step(state, tau, links, last=0.01):
    """One action: ten Runge-Kutta steps, whose fourth slope is taken after `last` seconds."""
    for _ in range(10):
        k1 = rates(state, tau, *links)
        k2 = rates(state + 0.01 * k1, tau, *links)
        k3 = rates(state + 0.01 * k2, tau, *links)
        k4 = rates(state + last * k3, tau, *links)
        state = state + 0.02 / 6 * (k1 + 2 * (k2 + k3) + k4)
    angles = np.mod(state[..., :2] + np.pi, 2 * np.pi) - np.pi
    fastest = np.array([4 * np.pi, 9 * np.pi])
    return np.concatenate([angles, np.clip(state[..., 2:], -fastest, fastest)], -1)


def is_up(state, l1, l2):
    return -l1 * np.cos(state[:, 0]) - l2 * np.cos(state[:, 0] + state[:, 1]) > l1


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    "settings", [{}, {"random_start": True, "fourth_order": True, "max_steps": 300}], ids=str
)
def test_every_step_is_that_of_a_twin_in_double_precision(settings):
    """One action at a time, from the state that was played: errors of single precision only."""
    environment = Acrobot(**settings)
    lanes, actions, first, log = play(environment, steps=T)
    for i in range(LANES):
        played = lane(log, i)
        links = [np.float64(getattr(lanes, name)[i]) for name in NAMES]
        last = 0.02 if environment.fourth_order else 0.01
        torque = (actions[i] - 1).astype(float)
        after = twin_step(played.before.astype(float), torque, links, last)
        gaps = played.step.observation - after
        gaps[:, :2] = np.mod(gaps[:, :2] + np.pi, 2 * np.pi) - np.pi
        assert np.abs(gaps / np.maximum(1, np.abs(after))).max() < 1e-4
        lengths, _, ends = episodes(played)
        up = is_up(played.step.observation.astype(float), links[1], links[3])
        assert (up[ends] | (lengths == environment.max_steps)).all()
        assert not up[~played.step.terminated].any()
        expected = np.where(played.step.terminated, 0, np.float32(-0.1))
        np.testing.assert_array_equal(played.step.reward, expected.astype(np.float32))
        starts = np.concatenate([[0], ends[ends < T - 1] + 1])
        words = np.concatenate([[first[i]], played.reset_words[ends[ends < T - 1]]])
        angles = np.pi / 36 * (2 * uniforms(words) - 1) * float(environment.random_start)
        np.testing.assert_allclose(played.before[starts, :2], angles, atol=1e-6)
        assert not played.before[starts, 2:].any()


def energy(states, m1, l1, m2, l2, g):
    """Kinetic and potential energy, from the positions and velocities of the centres of mass."""
    th1, th2, th1_dot, th2_dot = np.asarray(states, float).T
    both, both_dot = th1 + th2, th1_dot + th2_dot
    vx = l1 * th1_dot * np.cos(th1) + l2 / 2 * both_dot * np.cos(both)
    vy = l1 * th1_dot * np.sin(th1) + l2 / 2 * both_dot * np.sin(both)
    kinetic = (m1 * (l1 / 2 * th1_dot) ** 2 + m2 * (vx**2 + vy**2) + th1_dot**2 + both_dot**2) / 2
    heights = -l1 / 2 * np.cos(th1), -l1 * np.cos(th1) - l2 / 2 * np.cos(both)
    return kinetic + m1 * g * heights[0] + m2 * g * heights[1]


@jax.jit
def swung(environment, state):
    """Steps without torque: 2001, the longest episode."""

    def step(now, _):
        return environment.step(KEY, now, jax.numpy.int32(1))

    return jax.lax.scan(step, state, length=2001)[1]


def test_no_torque_stays_at_rest_until_the_time_is_up():
    """The bounds of the return: -200 for 2001 steps, the last of which costs nothing."""
    log = swung(as_arrays(Acrobot()), AcrobotState(*np.zeros(4, np.float32), np.int32(0)))
    assert list(np.flatnonzero(log.terminated)) == [2000]
    np.testing.assert_allclose(np.sum(np.asarray(log.reward, np.float64)), -200, rtol=1e-6)


def test_energy_is_kept_without_torque_to_fourth_order_and_grows_in_the_published_program():
    """Ten seconds of free swinging, below the velocities that are clipped."""
    state = AcrobotState(*map(np.float32, (1.5, -0.8, 0.5, 0.3)), np.int32(0))
    first = energy(np.array([[1.5, -0.8, 0.5, 0.3]]), 1, 1, 1, 1, 9)[0]
    kept, grown = (
        energy(
            swung(as_arrays(Acrobot(fourth_order=fourth)), state).observation[:50], 1, 1, 1, 1, 9
        )
        for fourth in (True, False)
    )
    assert np.abs(kept - first).max() < 2e-4
    # of first order: swinging with the frequency ω gains h ω² / 6 of its energy in each second
    assert 1.2 < grown[-1] - first < 2.2


@given(st.floats(-1000, 1000, width=32))
def test_sine_and_cosine_are_those_of_double_precision(angle):
    found = pair(np.float32(angle))
    expected = np.sin(np.float64(np.float32(angle))), np.cos(np.float64(np.float32(angle)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


pair = jax.jit(sine_and_cosine)


angles = st.floats(-3, 3)


@given(angles, angles, st.floats(-12, 12), st.floats(-28, 28), st.integers(0, 2))
def test_state_stays_in_its_ranges(theta_1, theta_2, dot_1, dot_2, action):
    state = AcrobotState(*map(np.float32, (theta_1, theta_2, dot_1, dot_2)), np.int32(0))
    after, step = one_step(as_arrays(Acrobot()), KEY, state, np.int32(action))
    high = np.array([np.pi, np.pi, 4 * np.pi, 9 * np.pi]) * (1 + 1e-6)
    assert (np.abs(step.observation) <= high).all()
    assert float(step.reward) == (0 if step.terminated else np.float32(-0.1))
    np.testing.assert_array_equal(
        step.observation, [after.theta_1, after.theta_2, after.theta_1_dot, after.theta_2_dot]
    )
