"""VDBE-e-Greedy against its twin, and its epsilons by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins import agents as twins
from jbrl.agents.bayes.mean_model import VDBE
from jbrl.mdp.dirichlet import distribution
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import as_arrays
from tests.reference.trajectories import KEY, decisions, disagreements, transition

BEGIN = jax.jit(lambda agent, prior: agent.reset(KEY, agent.train(KEY, prior)))
OBSERVE = jax.jit(lambda agent, state, seen: agent.observe(KEY, state, seen))


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [(1.0, 0.0, 1.0), (20.0, 0.7, 0.3)])
def test_its_twin_decides_alike(parameters):
    for _, steps in decisions(VDBE(*parameters), "GC"):
        assert disagreements(steps, twins.VDBE(problem("GC").mdps, *parameters)) == []


@pytest.mark.first_case_quick
@pytest.mark.parametrize(("delta", "weight"), [(0.0, 0.5), (0.25, 0.25), (1.0, 1.0)])
def test_epsilon_follows_the_change_of_value_where_it_happened(delta, weight):
    """Discount 0: values are expected rewards.

    Action 1 in state 0 pays 8 with probability 1/2, then, once seen, 2/3.
    """
    rewards = np.zeros((2, 2, 2))
    rewards[0, 1, 1] = 8
    agent = as_arrays(VDBE(sigma=2.0, delta=delta, epsilon0=0.4))
    prior = DirichletPrior(distribution(np.ones((2, 2, 2)), rewards), jnp.float32(0), 10)
    state = BEGIN(agent, prior)
    state = OBSERVE(agent, state, transition(0, 1, 1, 8))
    e = np.exp(-(8 * 2 / 3 - 8 / 2) / 2)
    np.testing.assert_allclose(
        state.epsilons, [weight * (1 - e) / (1 + e) + (1 - weight) * 0.4, 0.4], rtol=1e-5
    )


@pytest.mark.slow
def test_no_surprise_no_exploration():
    """A certain transition changes no value: epsilon decays by 1 - 1/A."""
    concentrations = np.tile(np.array([[0.0, 1], [1, 0]])[:, None], (1, 2, 1))
    agent = as_arrays(VDBE())
    prior = DirichletPrior(distribution(concentrations, concentrations), jnp.float32(0.9), 10)
    state = BEGIN(agent, prior)
    np.testing.assert_array_equal(state.epsilons, [1, 1])
    state = OBSERVE(agent, state, transition(0, 1, 1, 1))
    np.testing.assert_allclose(state.epsilons, [0.5, 1], atol=1e-5)
