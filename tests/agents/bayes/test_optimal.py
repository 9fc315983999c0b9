"""Optimal against its twin, against arithmetic by hand, and against the published reference figure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins import agents as twins
from jbrl import play
from jbrl.agents.agent import AGENTS
from jbrl.agents.bayes.optimal import Optimal
from jbrl.agents.complete import Complete, is_oracle
from jbrl.environments.tabular import Tabular
from jbrl.mdp.mdp import MDP
from jbrl.problems.prior import DirichletPrior
from jbrl.problems.problem import distribution
from tests.reference.trajectories import KEY, decisions, disagreements, true_mdp


@pytest.mark.parametrize("test", ["GC", "Grid"])
def test_its_twin_decides_alike(test):
    for index, steps in decisions(Optimal(), test):
        assert disagreements(steps, twins.Optimal(*true_mdp(test, index))) == []


def test_by_hand():
    """Staying pays 1 for ever, worth 1 / (1 - 0.5) = 2; going pays 0 and then 3 for ever, worth 0.5 * 6 = 3."""
    transitions = jnp.array([[[1.0, 0], [0, 1]], [[0, 1], [0, 1]]])
    rewards = jnp.array([[[1.0, 0], [0, 0]], [[0, 3], [0, 3]]])
    mdp = MDP(transitions, rewards, jnp.int32(0))
    knowledge = DirichletPrior(distribution(np.ones((2, 2, 2)), rewards), jnp.float32(0.5), 10)
    plan = Optimal().reset(KEY, Optimal().reveal(knowledge, Tabular.of(mdp)))
    np.testing.assert_allclose(plan.q, [[1 + 0.5 * 3, 3], [6, 6]], rtol=1e-6)
    chosen = [[int(Optimal().act(key, plan, jnp.int32(x))[0]) for key in jax.random.split(KEY, 32)] for x in (0, 1)]
    assert set(chosen[0]) == {1}
    assert set(chosen[1]) == {0, 1}  # a tie


def test_it_alone_is_an_oracle():
    assert [name for name, entry in AGENTS.items() if is_oracle(entry.agent())] == ["Optimal"]
    assert is_oracle(Complete(Optimal(), {})) and not is_oracle(Complete(AGENTS["Random"].agent(), {}))


@pytest.mark.parametrize(("test", "reference"), [("GC", 72.7), ("GDL", 3.50), ("Grid", 10.6)])
def test_scores_as_the_published_program(test, reference):
    # Both are means over 500 MDPs: 3.5 combined standard errors, false-alarm rate 5e-4 each.
    returns = play(Optimal(), prior=test, n_environments=500, seed=1).returns
    assert abs(returns.mean() - reference) < 3.5 * np.sqrt(2 * returns.var(ddof=1) / 500)
