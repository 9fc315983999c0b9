"""Recorders: the rows of bsuite's logs, when they are written, and how exact sums and means are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbrl.base.bsuite_sweep import logged_episodes
from jbrl.base.pytree import record
from jbrl.environments.bsuite_tasks import DeepSea, DeepSeaState
from jbrl.environments.environment import Environment, Step
from jbrl.problems import recorder as recorders
from jbrl.problems.recorder import MOST_EPISODES, SCHEDULE, BsuiteLog, EpisodeMean


@record
class Counting:
    """An environment of which only the counters matter: the state is an episode's raw return."""

    def metrics(self, state):
        return {"raw_return": state}


@jax.jit
def logged(rewards, ends, counts):
    recorder = BsuiteLog(("raw_return", "best_episode"))

    def one(carry, inputs):
        log, earned = carry
        reward, end, count = inputs
        earned = earned + reward
        step = Step(jnp.int32(0), reward, end, jnp.bool_(False))
        log = recorder.record_if(count, log, Counting(), earned, step)
        return (log, jnp.where(end, 0.0, earned)), None

    start = (recorder.begin(Counting(), jnp.float32(0)), jnp.float32(0))
    (log, _), _ = jax.lax.scan(one, start, (rewards, ends, counts))
    return log


def rows(rewards, ends, counts=None):
    counts = np.ones(len(rewards), bool) if counts is None else counts
    log = logged(np.float32(rewards), np.asarray(ends), counts)
    log = jax.tree.map(lambda v: np.asarray(v)[None], log)
    recorder = BsuiteLog(("raw_return", "best_episode"))
    found = {name.removeprefix("log_"): values[0] for name, values in recorder.metrics(log).items()}
    return found, recorder.scores(log)[0]


def test_schedule_and_columns_over_ten_thousand_episodes_of_two_steps():
    rng = np.random.default_rng(0)
    rewards = np.float32(rng.normal(size=20_000) * 1000)
    ends = np.arange(20_000) % 2 == 1
    found, score = rows(rewards, ends)
    wanted = np.array(logged_episodes(10_000))
    assert len(wanted) == 49
    returns = rewards.astype(np.float64).reshape(-1, 2).sum(1)
    np.testing.assert_array_equal(found["episode"][:49], wanted)
    np.testing.assert_array_equal(found["steps"][:49], 2 * wanted)
    np.testing.assert_array_equal(found["episode_len"][:49], 2)
    # Trap k: sums of float32 rewards keep the digits of float64.
    np.testing.assert_allclose(
        found["total_return"][:49], np.cumsum(returns)[wanted - 1], rtol=1e-10, atol=1e-6
    )
    np.testing.assert_allclose(
        found["episode_return"][:49], returns[wanted - 1], rtol=1e-10, atol=1e-8
    )
    best = np.maximum.accumulate(np.float32(rewards[0::2]) + np.float32(rewards[1::2]))
    np.testing.assert_allclose(
        found["best_episode"][:49], np.maximum(best, 0)[wanted - 1], rtol=1e-6
    )
    assert all(np.isnan(values[49:]).all() for values in found.values())
    assert score == pytest.approx(returns.mean(), rel=1e-9)


def test_the_longest_lifetime_has_all_rows():
    zero, n = np.int32(0), len(SCHEDULE)
    write = jax.jit(recorders._written)
    for row in (n - 2, n - 1):  # of the last but one, then of the last
        parts = (zero, np.int32(SCHEDULE[row]), zero), ()
        table, _, due, *_ = write((np.zeros((n, 3), np.int32), np.int32(row), zero, *parts))
        assert table[row, 1] == SCHEDULE[row] and due == MOST_EPISODES


def test_best_episode_is_that_of_a_finished_one_and_never_negative():
    """Trap j. The third episode earns most and does not end."""
    rewards = [-5.0, 1.0, -9.0, 100.0]
    found, _ = rows(rewards, [True, False, True, False])
    np.testing.assert_array_equal(found["best_episode"][:3], [0, 0, np.nan])
    found, _ = rows([2.0, 1.0, 1.0], [True, True, True])
    np.testing.assert_array_equal(found["best_episode"][:3], [2, 2, 2])


def test_counters_live_across_episodes():
    """Trap e."""
    found, _ = rows([1.0, 2.0, 3.0, 4.0], [False, True, True, True])
    np.testing.assert_array_equal(found["raw_return"][:3], [3, 6, 10])
    np.testing.assert_array_equal(found["steps"][:3], [2, 3, 4])
    np.testing.assert_array_equal(found["episode_len"][:3], [2, 1, 1])


def test_steps_that_do_not_count_change_nothing():
    rewards, ends = [1.0, 2.0, 50.0, 60.0], [True, True, True, True]
    found, score = rows(rewards, ends, np.array([True, True, False, False]))
    np.testing.assert_array_equal(found["episode"][:3], [1, 2, np.nan])
    assert score == 1.5


def test_repr_tells_recorders_apart():
    """It is part of the identity of a unit."""
    assert repr(BsuiteLog(("a",))) != repr(BsuiteLog(("b",)))


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
    least = len(rewards) * float(np.finfo(np.float32).tiny)  # XLA takes what is less for 0
    assert found == pytest.approx(twin(rewards, ended), rel=1e-5, abs=error + least)
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


@pytest.mark.parametrize("steps", [2048, 2049, 10**6])
def test_a_long_episode_loses_few_digits(steps):
    """A sum in float32 alone is 1% off after 10^6 steps."""
    for ended in (False, True):
        ends = np.zeros(steps, bool)
        ends[-1] = ended
        found, state = score(np.full(steps, 0.1, np.float32), ends)
        np.testing.assert_allclose(found, steps * float(np.float32(0.1)), rtol=2e-5)
        assert (state.episodes, state.steps) == ((1, 0) if ended else (0, steps))


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
