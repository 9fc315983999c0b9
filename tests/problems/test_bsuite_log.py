"""The rows of bsuite's logs: when they are written, and how exact their sums are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.base.bsuite_sweep import logged_episodes
from jbrl.base.pytree import record
from jbrl.environments.environment import Step
from jbrl.problems.recorder import BsuiteLog


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
