"""Optimal against its twin, against arithmetic by hand, and against the published reference figure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.bayes.optimal import Optimal
from jbrl.mdp.dirichlet import Prior
from jbrl.mdp.mdp import MDP
from jbrl.problems.problem import distribution
from jbrl.runner.play.experiment import play
from tests.reference import agents as twins


@pytest.mark.parametrize("test", ["GC", "Grid"])
def test_its_twin_decides_alike(test):
    for index, steps in twins.decisions(Optimal(), test):
        assert twins.disagreements(steps, twins.Optimal(*twins.true_mdp(test, index))) == []


def test_by_hand():
    """Staying pays 1 for ever, worth 1 / (1 - 0.5) = 2; going pays 0 and then 3 for ever, worth 0.5 * 6 = 3."""
    transitions = jnp.array([[[1.0, 0], [0, 1]], [[0, 1], [0, 1]]])
    rewards = jnp.array([[[1.0, 0], [0, 0]], [[0, 3], [0, 3]]])
    mdp = MDP(transitions, rewards, jnp.int32(0))
    knowledge = Prior(distribution(np.ones((2, 2, 2)), rewards), jnp.float32(0.5), 10)
    plan = Optimal().reset(Optimal().reveal(knowledge, mdp))
    np.testing.assert_allclose(plan.q, [[1 + 0.5 * 3, 3], [6, 6]], rtol=1e-6)
    chosen = [[int(Optimal().act(key, plan, jnp.int32(x))[0]) for key in jax.random.split(jax.random.key(0), 32)] for x in (0, 1)]
    assert set(chosen[0]) == {1}
    assert set(chosen[1]) == {0, 1}  # a tie


@pytest.mark.parametrize(("test", "reference"), [("GC", 72.7), ("GDL", 3.50), ("Grid", 10.6)])
def test_scores_as_the_published_program(test, reference):
    # Both are means over 500 MDPs: 3.5 combined standard errors, false-alarm rate 5e-4 each.
    returns = play(Optimal(), prior=test, n_mdps=500, seed=1).returns
    assert abs(returns.mean() - reference) < 3.5 * np.sqrt(2 * returns.var(ddof=1) / 500)
