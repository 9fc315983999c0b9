"""e-Greedy against its twin, its two extremes, and the two ways of playing an agent that thinks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.agent import as_arrays
from jbrl.agents.bayes.epsilon_greedy import EpsilonGreedy
from jbrl.mdp.dirichlet import Prior, draw_mdp
from jbrl.problems.problem import problem
from jbrl.pytree import record
from jbrl.rollout.rollout import inputs, simulate, stream
from tests.reference import agents as twins
from tests.reference.planner import EpsilonGreedy as Twin

KEY = jax.random.key(1)


@pytest.mark.parametrize(("prior", "test", "epsilon"), [("GC", "GC", 0.0), ("UGC", "GC", 0.3), ("UGDL", "GDL", 0.1)])
def test_its_twin_decides_alike(prior, test, epsilon):
    for _, steps in twins.decisions(EpsilonGreedy(epsilon), prior, test):
        assert twins.disagreements(steps, Twin(problem(prior).mdps, epsilon)) == []


def test_its_twin_decides_alike_on_the_grid():
    for _, steps in twins.decisions(EpsilonGreedy(0.0), "Grid", n_mdps=3, horizon=60):
        assert twins.disagreements(steps, Twin(problem("Grid").mdps, 0.0)) == []


def play_all(agent, n_mdps=32, horizon=60):
    prior = Prior(jax.tree.map(jnp.asarray, problem("GDL").mdps), jnp.float32(0.95), horizon)

    @jax.jit
    def play(agent, index):
        def one(index):
            mdp = draw_mdp(stream(KEY, index, "mdp"), prior.mdps, unit=True)
            return simulate(agent, knowledge, inputs(mdp, KEY, index, horizon), keep=True)[0]

        knowledge = agent.train(KEY, prior)
        return jax.vmap(one)(index)

    return jax.tree.map(np.asarray, play(as_arrays(agent), jnp.arange(n_mdps)))


@record
class InStep(EpsilonGreedy):
    """The same, but learning by `observe`, so that all MDPs wait for the slowest."""

    thinks = False


def test_own_pace_or_in_step_is_the_same():
    own_pace, in_step = play_all(EpsilonGreedy(0.2)), play_all(InStep(0.2))
    jax.tree.map(np.testing.assert_array_equal, own_pace, in_step)


@pytest.mark.parametrize(("epsilon", "least", "most"), [(0.0, 0, 0), (0.5, 0.17, 0.33), (1.0, 0.42, 0.58)])
def test_how_often_it_explores(epsilon, least, most):
    """Two actions: a random one is not the greedy one half of the time. 24 x 80 decisions, of which ties are left out: at least 400;
    then a share is off by 0.08 with probability below 0.002 (three limits, one of them exact)."""
    explored = certain = 0
    for _, steps in twins.decisions(EpsilonGreedy(epsilon), "UGDL", "GDL"):
        twin = Twin(problem("UGDL").mdps, 0.0)
        for x, u, y, _, _ in steps:
            gap = abs(twin.q[x, 0] - twin.q[x, 1])
            if gap > 1e-4 * twin.q.max():
                certain, explored = certain + 1, explored + (twin.q[x].argmax() != u)
            twin.observe(x, u, y)
    assert certain > 400
    assert least <= explored / certain <= most
