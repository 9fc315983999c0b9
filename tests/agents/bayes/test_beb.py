"""BEB against its twin, and its two bonuses against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins import planner
from jbrl.agents.bayes.mean_model import BEB
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import as_arrays
from tests.reference.trajectories import KEY, decisions, disagreements, transition


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "test", "beta", "bonus"),
    [
        ("GC", "GC", 2.5, "pair"),
        ("UGDL", "GDL", 0.5, "pair"),
        ("GC", "GC", 1.0, "transition"),
        ("UGC", "GC", 4.0, "transition"),
    ],
)
def test_its_twin_decides_alike(prior, test, beta, bonus):
    for _, steps in decisions(BEB(beta, bonus), prior, test):
        assert disagreements(steps, planner.BEB(problem(prior).mdps, beta, bonus)) == []


@pytest.mark.slow
def test_its_twin_decides_alike_on_the_grid():
    for _, steps in decisions(BEB(0.5), "Grid", n_environments=3, horizon=60):
        assert disagreements(steps, planner.BEB(problem("Grid").mdps, 0.5)) == []


def expected_rewards(agent, transitions_seen=()):
    """The rewards that BEB plans with, [S, A], in an MDP of two states and two actions
    without rewards.
    """
    concentrations = jnp.array([[[1.0, 3.0], [0.0, 2.0]], [[1.0, 1.0], [0.5, 0.0]]])
    prior = DirichletPrior(
        DirichletMDPs(concentrations, jnp.zeros((2, 2, 2)), jnp.int32(0)), jnp.float32(0.95), 10
    )
    agent = as_arrays(agent)
    state = jax.jit(agent.reset)(KEY, agent.train(KEY, prior))
    for x, u, y in transitions_seen:
        state = agent.observe(KEY, state, transition(x, u, y))
    return np.asarray(state.plan.rewards)


def test_bonus_of_a_pair():
    """beta / (1 + n(x, u))."""
    np.testing.assert_allclose(
        expected_rewards(BEB(6.0)), [[6 / 5, 6 / 3], [6 / 3, 6 / 1.5]], rtol=1e-6
    )
    after = expected_rewards(BEB(6.0), [(0, 0, 1), (0, 0, 0), (1, 1, 0)])
    np.testing.assert_allclose(after, [[6 / 7, 6 / 3], [6 / 3, 6 / 2.5]], rtol=1e-6)


@pytest.mark.slow
def test_bonus_of_a_transition():
    """sum over y of P beta / c = beta (number of possible next states) / n; one thought impossible
    counts once it has been seen.
    """
    np.testing.assert_allclose(
        expected_rewards(BEB(6.0, "transition")),
        [[2 * 6 / 4, 6 / 2], [2 * 6 / 2, 6 / 0.5]],
        rtol=1e-6,
    )
    after = expected_rewards(BEB(6.0, "transition"), [(0, 0, 1), (0, 1, 0), (1, 1, 0)])
    np.testing.assert_allclose(after, [[2 * 6 / 5, 2 * 6 / 3], [2 * 6 / 2, 6 / 1.5]], rtol=1e-6)


def test_beta_is_not_rounded():
    """The published program makes 0 of 0.5."""
    assert (expected_rewards(BEB(0.5)) > 0).all()
    assert (expected_rewards(BEB(0.0)) == 0).all()
