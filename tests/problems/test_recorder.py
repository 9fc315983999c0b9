"""Recorders: the mean return per episode, to more digits than a sum in single precision has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbrl.environments.deep_sea import DeepSea, DeepSeaState
from jbrl.environments.environment import Environment, Step
from jbrl.problems.recorder import EpisodeMean

N = 12


@jax.jit
def recorded(rewards, terminated, truncated):
    """The recorder's state after steps of these rewards and ends, [T] each, in an environment
    without counters.
    """
    recorder, environment = EpisodeMean(), Environment()

    def step(state, inputs):
        return recorder.record(state, environment, None, Step(None, *inputs)), None

    start = recorder.begin(environment, None)
    return jax.lax.scan(step, start, (rewards, terminated, truncated))[0]


def score(rewards, terminated, truncated=None):
    truncated = np.zeros_like(terminated) if truncated is None else truncated
    state = jax.tree.map(np.asarray, recorded(rewards, terminated, truncated))
    return float(EpisodeMean().scores(jax.tree.map(lambda leaf: leaf[None], state))[0]), state


def twin(rewards, ended):
    """In double precision: the mean over all episodes that have begun."""
    begun = np.concatenate([[0], np.cumsum(ended)[:-1]])
    return np.asarray(rewards, np.float64).sum() / (begun[-1] + 1)


rewards = st.lists(st.floats(-1000, 1000, width=32), min_size=N, max_size=N)
flags = st.lists(st.sampled_from(["goes on", "terminated", "truncated"]), min_size=N, max_size=N)


@given(rewards, flags)
def test_score_is_that_of_a_twin_in_double_precision(rewards, flags):
    rewards, flags = np.array(rewards, np.float32), np.array(flags)
    terminated, truncated = flags == "terminated", flags == "truncated"
    found, state = score(rewards, terminated, truncated)
    ended = terminated | truncated
    error = 1e-5 * float(np.abs(rewards).max())
    assert found == pytest.approx(twin(rewards, ended), rel=1e-5, abs=error)
    assert state.episodes == ended.sum()
    assert state.steps == N - 1 - (np.flatnonzero(ended)[-1] if ended.any() else -1)


@pytest.mark.parametrize("reward", [-0.001, 0.1, 1 / 3])
def test_ten_thousand_small_returns_lose_no_digits(reward):
    rewards, ended = np.full(10_000, reward, np.float32), np.ones(10_000, bool)
    found, state = score(rewards, ended)
    exact = float(np.float32(reward))
    assert found == pytest.approx(exact, rel=1e-12)
    plain = np.float32(0)
    for r in rewards:
        plain += r
    # what a sum in single precision makes of it
    assert abs(plain / 10_000 - exact) > 1e-7 * abs(exact)
    assert int(state.episodes) == 10_000


def test_large_and_small_returns_do_not_cancel():
    rewards = np.array([1e8, 1, -1e8, 1], np.float32)
    assert score(rewards, np.ones(4, bool))[0] == 0.5


def test_an_unfinished_episode_counts_with_what_it_has_earned():
    assert score(np.array([1, 1, 4], np.float32), np.array([False, True, False]))[0] == 3
    assert score(np.array([1, 1, 4], np.float32), np.array([False, True, True]))[0] == 3
    assert score(np.array([1, 1, 4], np.float32), np.zeros(3, bool))[0] == 6


def test_before_the_first_step_the_score_is_zero():
    state = EpisodeMean().begin(Environment(), None)
    lanes = jax.tree.map(lambda leaf: np.asarray(leaf)[None], state)
    assert list(EpisodeMean().scores(lanes)) == [0.0]


def test_counters_are_added_up_over_finished_episodes():
    environment, recorder = DeepSea(4), EpisodeMean()

    def after(bad, found):
        return DeepSeaState(jnp.int32(1), jnp.int32(0), jnp.bool_(bad), jnp.bool_(found))

    state = recorder.begin(environment, after(False, False))
    assert set(state.metrics) == {"total_bad_episodes", "denoised_return"}
    for bad, found, ended in ((1, 0, 0), (1, 0, 1), (0, 1, 1), (1, 1, 0)):
        step = Step(jnp.int32(0), jnp.float32(0.5), jnp.bool_(ended), jnp.bool_(False))
        state = recorder.record(state, environment, after(bad, found), step)
    assert set(map(float, state.metrics.values())) == {1}
    assert (int(state.episodes), int(state.steps), float(state.current)) == (2, 1, 0.5)


def test_scores_are_one_for_each_lane_in_double_precision():
    lanes = jax.vmap(recorded)(
        np.array([[1, 2], [3, 5]], np.float32), np.ones((2, 2), bool), np.zeros((2, 2), bool)
    )
    scores = EpisodeMean().scores(jax.tree.map(np.asarray, lanes))
    assert scores.dtype == np.float64
    assert list(scores) == [1.5, 4.0]
