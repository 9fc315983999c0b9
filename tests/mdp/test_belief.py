"""Beliefs: counts, the mean model and its plan, against the twin; distributions over MDPs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from benchmarks.twins.agents import Learner
from jbrl.agents.bayes import mean_model as belief
from jbrl.mdp import incremental
from jbrl.mdp.dirichlet import (
    DirichletMDPs,
    distribution,
    draw_mdp,
    has_unit_concentrations,
    mean_transitions,
)
from jbrl.problems.lookup import problem

DISCOUNT = np.float32(0.95)

prior_belief = jax.jit(belief.prior_belief)
learn = jax.jit(belief.learn)


def prior(name):
    return jax.tree.map(jnp.asarray, problem(name).mdps)


def agree(held, twin):
    np.testing.assert_allclose(held.counts, twin.counts, rtol=1e-5)
    error = 19 * float(held.plan.tolerance.max()) + 1e-7 * abs(twin.q).max()
    np.testing.assert_allclose(held.plan.action_values, twin.q, rtol=0, atol=error)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", ["UGC", "GDL"])
def test_learning_is_counting(name):
    held, twin = prior_belief(prior(name), DISCOUNT), Learner(problem(name).mdps)
    agree(held, twin)
    rng = np.random.default_rng(0)
    for _ in range(30):
        x, u = rng.integers(twin.counts.shape[:2])
        y = rng.choice(len(twin.counts), p=twin.counts[x, u] / twin.counts[x, u].sum())
        held = learn(held, *map(np.int32, (x, u, y)))
        twin.observe(x, u, y)
        agree(held, twin)


def test_concentrations_need_not_be_whole_numbers():
    mdps = problem("GC").mdps
    scaled = DirichletMDPs(
        0.013 * jnp.asarray(mdps.concentrations), jnp.asarray(mdps.rewards), jnp.int32(0)
    )
    held, twin = prior_belief(scaled, DISCOUNT), Learner(scaled)
    for x, u, y in ((0, 0, 1), (1, 2, 0), (1, 2, 0), (4, 1, 4)):
        held = learn(held, *map(np.int32, (x, u, y)))
        twin.observe(x, u, y)
        agree(held, twin)


def test_what_was_thought_impossible_is_learned():
    held, twin = prior_belief(prior("GC"), DISCOUNT), Learner(problem("GC").mdps)
    held = learn(held, *map(np.int32, (0, 0, 4)))
    twin.observe(0, 0, 4)
    agree(held, twin)
    assert held.counts[0, 0, 4] == 1


def test_extra_gain():
    extra = np.arange(15, dtype=np.float32).reshape(5, 3)
    plain, raised = prior_belief(prior("GC"), DISCOUNT), prior_belief(prior("GC"), DISCOUNT, extra)
    np.testing.assert_allclose(raised.plan.gains - plain.plan.gains, extra, rtol=1e-6)
    note = jax.jit(belief.add_transition)
    noted = note(raised, jnp.int32(1), jnp.int32(1), jnp.int32(0), jnp.float32(0.5))
    assert not incremental.converged(noted.plan)
    # arriving in state 0 pays 2
    np.testing.assert_allclose((noted.plan.gains - raised.plan.gains)[1, 1], 2.5, rtol=1e-6)


def test_mapped_beliefs_learn_apart():
    held = prior_belief(prior("GC"), DISCOUNT)
    x, u, y = np.array([[0, 4, 2], [0, 1, 2], [1, 4, 3]], np.int32)
    many = jax.jit(jax.vmap(belief.learn, (None, 0, 0, 0)))
    together = jax.tree.map(np.asarray, many(held, x, u, y))
    for i in range(3):
        alone = learn(held, x[i], u[i], y[i])
        np.testing.assert_array_equal(together.counts[i], alone.counts)
        found = jax.tree.map(lambda v, i=i: v[i], together.plan)
        np.testing.assert_allclose(found.action_values, alone.plan.action_values, rtol=1e-6)


def mdps_of(concentrations, initial_state=0):
    return distribution(concentrations, np.zeros_like(concentrations), initial_state)


def draws(mdps, n, *, unit, seed=0):
    keys = jax.random.split(jax.random.key(seed), n)
    return jax.jit(jax.vmap(lambda key: draw_mdp(key, mdps, unit=unit)))(keys)


def test_mean_is_the_share_and_zero_stays_zero():
    mean = mean_transitions(jnp.array([[0.0, 3, 1], [0.5, 0, 0]]))
    np.testing.assert_array_equal(mean, [[0, 0.75, 0.25], [1, 0, 0]])


def test_concentrations_of_0_and_1_are_drawn_the_fast_way():
    assert all(has_unit_concentrations(problem(name).mdps) for name in ("GC", "Grid", "UGDL"))
    for value in (2.0, 0.5, 1.0000001):
        concentrations = problem("GC").mdps.concentrations.copy()
        concentrations[0, 0, 0] = value
        assert not has_unit_concentrations(mdps_of(concentrations))


@pytest.mark.parametrize("unit", [True, False], ids=["fast", "general"])
def test_both_ways_draw_from_the_same_distribution(unit):
    # Kolmogorov-Smirnov against the exact Beta(1, k - 1) marginals of rows with k possible states:
    # false-alarm rate 1e-4 for each.
    concentrations = np.zeros((4, 1, 4))
    for possible in (1, 2, 3, 4):
        concentrations[possible - 1, 0, :possible] = 1
    drawn = draws(mdps_of(concentrations), 8000, unit=unit).transitions
    rows = np.asarray(drawn, np.float64)[:, :, 0]
    np.testing.assert_array_equal((rows == 0).all(0), concentrations[:, 0] == 0)
    np.testing.assert_array_equal((rows == 0).any(0), concentrations[:, 0] == 0)
    np.testing.assert_allclose(rows[:, 0, 0], 1, atol=1e-7)
    np.testing.assert_allclose(rows.sum(-1), 1, atol=3e-7)
    for possible in (2, 3, 4):
        assert stats.kstest(rows[:, possible - 1, 1], stats.beta(1, possible - 1).cdf).pvalue > 1e-4


def test_mean_of_draws_is_the_mean():
    # Standard errors from the Dirichlet variance; 4.5 of them for 18 numbers: false-alarm rate
    # below 2e-4.
    concentrations = np.array([[[7.5, 0, 0.5]], [[0.2, 0.3, 0.1]], [[1000, 2000, 1]]], np.float32)
    mean = concentrations / concentrations.sum(-1, keepdims=True)
    deviation = np.sqrt(mean * (1 - mean) / (concentrations.sum(-1, keepdims=True) + 1) / 4000)
    drawn = draws(mdps_of(concentrations), 4000, unit=False).transitions
    assert (np.abs(np.asarray(drawn, np.float64).mean(0) - mean) <= 4.5 * deviation + 1e-7).all()


def test_rewards_and_initial_state_are_copied():
    mdps = distribution(np.ones((2, 1, 2)), [[[1, 2]], [[3, 4]]], -1)
    drawn = draws(mdps, 3, unit=True)
    np.testing.assert_array_equal(drawn.rewards[2], mdps.rewards)
    assert drawn.initial_state.tolist() == [-1, -1, -1]


@pytest.mark.first_case_quick
@pytest.mark.parametrize("unit", [True, False], ids=["fast", "general"])
def test_draws_do_not_depend_on_how_many(unit):
    mdps = problem("GDL").mdps
    many = draws(mdps, 6, unit=unit).transitions
    keys = jax.random.split(jax.random.key(0), 6)
    one = jax.jit(lambda key: draw_mdp(key, mdps, unit=unit))
    for lane in (0, 5):
        np.testing.assert_array_equal(one(keys[lane]).transitions, many[lane])
