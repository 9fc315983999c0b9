"""Beliefs: counts, the mean model and its plan, against the twin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins.agents import Learner
from jbrl.mdp import belief, incremental
from jbrl.mdp.dirichlet import DirichletMDPs
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
    settled = jax.jit(incremental.converge)(noted.plan)
    assert incremental.converged(settled)
    stepwise, improve = noted, jax.jit(belief.improve)
    for _ in range(10):
        stepwise = improve(stepwise)
    np.testing.assert_allclose(stepwise.plan.action_values, settled.action_values, rtol=1e-6)


def test_mapped_beliefs_learn_apart():
    held = prior_belief(prior("GC"), DISCOUNT)
    x, u, y = np.array([[0, 4, 2], [0, 1, 2], [1, 4, 3]], np.int32)
    together = jax.jit(jax.vmap(belief.learn, (None, 0, 0, 0)))(held, x, u, y)
    for i in range(3):
        alone = learn(held, x[i], u[i], y[i])
        np.testing.assert_array_equal(together.counts[i], alone.counts)
        found = jax.tree.map(lambda v, i=i: v[i], together.plan)
        np.testing.assert_allclose(found.action_values, alone.plan.action_values, rtol=1e-6)
