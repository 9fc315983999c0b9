"""Mountain car: a twin in double precision, the drawn force, and what the engine can and
cannot do.
"""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbrl.environments.environment import as_arrays
from jbrl.environments.mountain_car import MountainCar, MountainCarState
from tests.environments import playing
from tests.environments.playing import LANES, SHORT, episodes, lane, one_step, uniforms

KEY = jax.random.key(0)
many_steps = jax.jit(jax.vmap(one_step, in_axes=(None, None, 0, 0)))


def twin_step(x, v, u, k):
    """One step in double precision, as the specification says it."""
    v = min(max(v + k * u - 0.0025 * np.cos(3 * x), -0.07), 0.07)
    x = x + v
    return (-1.2, 0.0) if x < -1.2 else (x, v)


@pytest.mark.parametrize(
    "settings",
    [{}, {"random_start": True, "spread": 0.0}, {"max_steps": 100, "force": 0.002}],
    ids=str,
)
def test_every_step_is_that_of_a_twin_in_double_precision(settings):
    """One step at a time, from the state that was played: errors of single precision only, which
    are below 1e-6.
    """
    environment = MountainCar(**settings)
    lanes, actions, first, log = playing.play(environment, steps=SHORT)
    for i in range(LANES):
        played, k = lane(log, i), np.float64(lanes.force[i])
        lengths, _, ends = episodes(played)
        pairs = zip(played.before.astype(float), actions[i], strict=True)
        after = np.array([twin_step(*before, action - 1, k) for before, action in pairs])
        np.testing.assert_allclose(played.step.observation, after, atol=1e-6)
        assert (played.step.reward == -1).all()
        assert not played.step.truncated.any()
        arrived = played.step.observation[:, 0] >= 0.5
        assert (lengths <= environment.max_steps).all()
        np.testing.assert_array_equal(np.flatnonzero(played.step.terminated), ends)
        assert (arrived[ends] | (lengths == environment.max_steps)).all()
        assert not arrived[~played.step.terminated].any()
        ends = ends[ends < SHORT - 1]
        words = np.concatenate([[first[i]], played.reset_words[ends]])
        starts = played.before[np.concatenate([[0], ends + 1])]
        anywhere = 0.2 * uniforms(words)[:, 0] - 0.6
        expected = anywhere if environment.random_start else np.full(len(words), -0.5)
        np.testing.assert_allclose(starts[:, 0], expected, atol=1e-7)
        assert not starts[:, 1].any()


def swing(environment, state, key=KEY):
    """Push where the car is going, until the end: how many steps that takes."""

    def body(carry):
        state, _, steps = carry
        state, step = environment.step(key, state, jax.numpy.where(state.velocity < 0, 0, 2))
        return state, step.terminated, steps + 1

    return jax.lax.while_loop(
        lambda carry: ~carry[1], body, (state, jax.numpy.bool_(False), jax.numpy.int32(0))
    )[2]


def test_swinging_up_takes_as_many_steps_as_in_double_precision():
    forces = np.linspace(0.0008, 0.0012, 9)
    lanes = jax.tree.map(
        lambda *v: np.stack(v), *[as_arrays(MountainCar(force=float(k))) for k in forces]
    )
    found = jax.jit(jax.vmap(lambda environment: swing(environment, environment.reset(KEY)[0])))(
        lanes
    )
    for k, steps in zip(forces, np.asarray(found), strict=True):
        (x, v), count = (-0.5, 0.0), 0
        while x < 0.5:
            (x, v), count = twin_step(x, v, -1 if v < 0 else 1, k), count + 1
        assert abs(count - steps) <= 1  # a position within rounding of the goal
        assert 80 < steps < 250


@pytest.mark.parametrize("action", range(3))
def test_the_engine_is_too_weak_for_a_constant_push(action):
    lanes, keys = playing.lifetimes(MountainCar())
    log = playing.on_host(
        playing.together(lanes, keys, np.full((LANES, playing.T), action, np.int32))[1]
    )
    for i in range(LANES):
        lengths, returns, _ = episodes(lane(log, i))
        assert list(lengths) == [5000]
        assert list(returns) == [-5000]


@given(
    st.floats(-1.2, 0.5, exclude_max=True),
    st.floats(-0.07, 0.07),
    st.integers(0, 2),
    st.integers(0, 4999),
)
def test_state_stays_in_its_ranges(position, velocity, action, steps):
    state = MountainCarState(np.float32(position), np.float32(velocity), np.int32(steps))
    after, step = one_step(as_arrays(MountainCar()), KEY, state, np.int32(action))
    x, v = map(float, step.observation)
    assert np.float32(-1.2) <= x <= 0.57 + 1e-6
    assert abs(v) <= np.float32(0.07)
    assert x > np.float32(-1.2) or v == 0
    assert bool(step.terminated) == (x >= 0.5 or steps == 4999)
    assert (float(after.position), float(after.velocity)) == (x, v)


@given(st.floats(-1.1, 0.4), st.floats(-0.05, 0.05))
def test_more_push_means_more_speed(position, velocity):
    state = MountainCarState(
        np.full(3, position, np.float32), np.full(3, velocity, np.float32), np.zeros(3, np.int32)
    )
    actions = np.arange(3, dtype=np.int32)
    after = many_steps(as_arrays(MountainCar()), KEY, state, actions)[1].observation
    assert (np.diff(np.asarray(after)[:, 1]) > 0).all()
