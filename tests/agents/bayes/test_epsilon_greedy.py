"""e-Greedy against its twin, its two extremes, and the two ways of playing an agent that learns
in steps.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins.planner import EpsilonGreedy as Twin
from jbrl.agents.bayes.mean_model import EpsilonGreedy
from jbrl.base.pytree import record
from jbrl.mdp.belief import Belief
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import Agent, Stepwise, as_arrays
from tests.reference.trajectories import decisions, disagreements, play_all, prior_of

KEY = jax.random.key(1)


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("prior", "test", "epsilon"),
    [
        ("GC", "GC", 0.0),
        ("UGC", "GC", 0.3),
        pytest.param("UGDL", "GDL", 0.1, marks=pytest.mark.slow),
    ],
)
def test_its_twin_decides_alike(prior, test, epsilon):
    for _, steps in decisions(EpsilonGreedy(epsilon), prior, test):
        assert disagreements(steps, Twin(problem(prior).mdps, epsilon)) == []


@pytest.mark.slow
def test_its_twin_decides_alike_on_the_grid():
    for _, steps in decisions(EpsilonGreedy(0.0), "Grid", n_environments=3, horizon=60):
        assert disagreements(steps, Twin(problem("Grid").mdps, 0.0)) == []


@record
class InStep(Agent[Belief, Belief]):
    """The same, but learning by `observe`, so that all lanes wait for the slowest."""

    base: EpsilonGreedy

    def train(self, key, prior):
        return self.base.train(key, prior)

    def reset(self, key, knowledge):
        return self.base.reset(key, knowledge)

    def act(self, key, state, observation):
        return self.base.act(key, state, observation)

    def observe(self, key, state, transition):
        return self.base.observe(key, state, transition)


@pytest.mark.slow
@pytest.mark.parametrize("test", ["GC", pytest.param("GDL", marks=pytest.mark.slow)])
def test_own_pace_or_in_step_is_the_same(test):
    # as many decisions and MDPs as above: the same program
    agents, prior = (EpsilonGreedy(0.2), InStep(EpsilonGreedy(0.2))), prior_of(test, 80)
    assert [isinstance(agent, Stepwise) for agent in agents] == [True, False]
    own_pace, in_step = (
        play_all(as_arrays(agent), prior, prior, KEY, jnp.arange(24, dtype=jnp.int32))
        for agent in agents
    )
    jax.tree.map(np.testing.assert_array_equal, own_pace, in_step)


@pytest.mark.parametrize(
    ("epsilon", "least", "most"), [(0.0, 0, 0), (0.5, 0.25, 0.41), (1.0, 0.59, 0.75)]
)
def test_how_often_it_explores(epsilon, least, most):
    """Three actions: a random one is not the greedy one two thirds of the time.

    24 x 80 decisions, of which ties are left out: at least 400; then a share is off by 0.08 with
    probability below 0.002 (three limits, one of them exact)."""
    explored = certain = 0
    for _, steps in decisions(EpsilonGreedy(epsilon), "UGC", "GC"):
        twin = Twin(problem("UGC").mdps, 0.0)
        for x, u, y, _, _ in steps:
            second, first = np.sort(twin.q[x])[-2:]
            if first - second > 1e-4 * twin.q.max():
                certain, explored = certain + 1, explored + (twin.q[x].argmax() != u)
            twin.observe(x, u, y)
    assert certain > 400
    assert least <= explored / certain <= most
