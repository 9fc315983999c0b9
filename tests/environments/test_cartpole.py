"""Cart-pole: a twin in double precision, the equations of motion solved as a linear system, the
drawn physics, and what two simple policies do.
"""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbrl.environments.cartpole import CartPole, CartPoleState
from jbrl.environments.environment import as_arrays
from tests.environments import playing
from tests.environments.playing import LANES, SHORT, episodes, lane, one_step

KEY = jax.random.key(0)
PHYSICS = ("pole_mass", "half_length", "cart_mass", "gravity")


def accelerations(state, u, m, half, mc, g):
    """x'' and θ'' as the specification says them."""
    _, x_dot, theta, theta_dot = state
    muc, mup, sin, cos = 5e-4, 2e-6, np.sin(theta), np.cos(theta)
    omega = (
        g * sin
        + cos * (muc * np.sign(x_dot) - u - m * half * theta_dot**2 * sin) / (m + mc)
        - mup * theta_dot / (m * half)
    ) / (half * (4 / 3 - m / (m + mc) * cos**2))
    force = u + m * half * (theta_dot**2 * sin - omega * cos) - muc * np.sign(x_dot)
    return force / (m + mc), omega


def twin_step(state, u, physics):
    x_acc, omega = accelerations(state, u, *physics)
    rates = np.array([state[1], x_acc, state[3], omega])
    return state + 0.02 * rates


@pytest.mark.parametrize("settings", [{}, {"spread": 0.0, "max_steps": 5}], ids=str)
def test_every_step_is_that_of_a_twin_in_double_precision(settings):
    """One step at a time, from the state that was played: errors of single precision only."""
    environment = CartPole(**settings)
    lanes, actions, _, log = playing.play(environment, steps=SHORT)
    for i in range(LANES):
        played = lane(log, i)
        physics = [np.float64(getattr(lanes, name)[i]) for name in PHYSICS]
        pairs = zip(played.before.astype(float), actions[i], strict=True)
        after = np.array([twin_step(before, 20 * u - 10, physics) for before, u in pairs])
        np.testing.assert_allclose(played.step.observation, after, rtol=2e-6, atol=2e-6)
        assert (played.step.reward == 1).all()
        assert not played.step.truncated.any()
        lengths, _, ends = episodes(played)
        over = (np.abs(after[:, 2]) > np.pi / 15) | (np.abs(after[:, 0]) >= 2.4)
        assert (over[ends] | (lengths == environment.max_steps)).all()
        assert not over[~played.step.terminated].any()
        starts = np.concatenate([[0], ends[ends < SHORT - 1] + 1])
        assert not played.before[starts].any()


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4), st.sampled_from((-10, 10)))
def test_accelerations_solve_the_equations_of_motion(state, u):
    """The two balances of forces, of the whole and of the pole around its joint, as a linear system
    in x'' and θ''.
    """
    m, half, mc, g = 0.2, 0.7, 1.5, 9.5
    _, x_dot, theta, theta_dot = state
    matrix = [[m + mc, m * half * np.cos(theta)], [m * half * np.cos(theta), 4 / 3 * m * half**2]]
    forces = [
        u + m * half * theta_dot**2 * np.sin(theta) - 5e-4 * np.sign(x_dot),
        m * half * g * np.sin(theta) - 2e-6 * theta_dot,
    ]
    found = accelerations(state, u, m, half, mc, g)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, forces), rtol=1e-9, atol=1e-9)


def test_one_push_by_hand():
    """From rest a push of 10 N on 2.6875 kg gives θ'' = -cos 0 u / (m+M) / (l (4/3 - m/(m+M)))."""
    environment = as_arrays(CartPole(spread=0.0))
    state, _ = environment.reset(KEY)
    after, step = one_step(environment, KEY, state, np.int32(1))
    omega = -(10 / 2.6875) / (0.55 * (4 / 3 - 0.1375 / 2.6875))
    x_acc = (10 - 0.1375 * 0.55 * omega) / 2.6875
    np.testing.assert_allclose(step.observation, [0, 0.02 * x_acc, 0, 0.02 * omega], rtol=1e-6)
    assert (int(after.steps), float(step.reward), bool(step.terminated)) == (1, 1.0, False)


def test_balancing_lasts_until_the_time_is_up_and_one_action_does_not():
    """A linear policy with a large gain on the angle keeps the pole of every draw up for a while;
    pushing one way alone ends within a second.
    """
    lanes, keys = playing.lifetimes(CartPole(spread=0.0))
    log = playing.on_host(playing.together(lanes, keys, np.ones((LANES, SHORT), np.int32))[1])
    for i in range(LANES):
        lengths, returns, _ = episodes(lane(log, i))
        assert len(set(lengths)) == 1
        assert lengths[0] < 50
        assert (returns == lengths).all()
    environment = as_arrays(CartPole(spread=0.0))

    def body(carry):
        state, _ = carry
        lean = 0.5 * state.x + state.x_dot + 20 * state.theta + 4 * state.theta_dot
        state, step = environment.step(KEY, state, (lean > 0).astype(np.int32))
        return state, step.terminated

    state, _ = jax.jit(
        lambda first: jax.lax.while_loop(lambda c: ~c[1], body, (first, jax.numpy.bool_(False)))
    )(environment.reset(KEY)[0])
    assert int(state.steps) == 1000


@given(
    st.floats(-2.39, 2.39),
    st.floats(-5, 5),
    st.floats(-0.2, 0.2),
    st.floats(-8, 8),
    st.integers(0, 998),
)
def test_mirrored_states_move_to_mirrored_states(x, x_dot, theta, theta_dot, steps):
    values = np.array([x, x_dot, theta, theta_dot], np.float32)
    steps = np.int32(steps)
    environment = as_arrays(CartPole())
    step = one_step(environment, KEY, CartPoleState(*values, steps), np.int32(0))[1]
    mirrored = one_step(environment, KEY, CartPoleState(*-values, steps), np.int32(1))[1]
    np.testing.assert_array_equal(step.observation, -mirrored.observation)
    ended = abs(step.observation[2]) > np.pi / 15 or abs(step.observation[0]) >= 2.4
    assert bool(step.terminated) == bool(mirrored.terminated) == bool(ended)
