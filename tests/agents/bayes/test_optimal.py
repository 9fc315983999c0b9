"""Optimal against its twin, against arithmetic by hand, and against the published
reference figure.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins import agents as twins
from jbrl import play
from jbrl.agents.bayes.mean_model import Optimal
from jbrl.agents.bayes.psrl import PSRL
from jbrl.agents.complete import Complete, is_oracle
from jbrl.agents.registry import AGENTS
from jbrl.environments.wrappers import Tabular
from jbrl.mdp.dirichlet import distribution
from jbrl.mdp.mdp import MDP
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from jbrl.problems.problem import DirichletProblem
from tests.reference.trajectories import KEY, decisions, disagreements, true_mdp


@pytest.mark.slow
@pytest.mark.parametrize("test", ["GC", "Grid"])
def test_its_twin_decides_alike(test):
    for index, steps in decisions(Optimal(), test):
        assert disagreements(steps, twins.Optimal(*true_mdp(test, index))) == []


@pytest.mark.slow
def test_by_hand():
    """Staying pays 1 for ever, worth 1 / (1 - 0.5) = 2; going pays 0 and then 3 for ever, worth
    0.5 * 6 = 3.
    """
    transitions = jnp.array([[[1.0, 0], [0, 1]], [[0, 1], [0, 1]]])
    rewards = jnp.array([[[1.0, 0], [0, 0]], [[0, 3], [0, 3]]])
    mdp = MDP(transitions, rewards, jnp.int32(0))
    knowledge = DirichletPrior(distribution(np.ones((2, 2, 2)), rewards), jnp.float32(0.5), 10)
    plan = Optimal().reset(KEY, Optimal().reveal(knowledge, Tabular.of(mdp)))
    np.testing.assert_allclose(plan.action_values, [[1 + 0.5 * 3, 3], [6, 6]], rtol=1e-6)
    chosen = [
        [int(Optimal().act(key, plan, jnp.int32(x))[0]) for key in jax.random.split(KEY, 32)]
        for x in (0, 1)
    ]
    assert set(chosen[0]) == {1}
    assert set(chosen[1]) == {0, 1}  # a tie


def test_it_is_an_oracle_as_scripted_policies_are():
    assert [name for name, entry in AGENTS.items() if is_oracle(entry.agent())] == [
        "Optimal",
        "Scripted",
    ]
    assert is_oracle(Complete(Optimal(), {})) and not is_oracle(
        Complete(AGENTS["Random"].agent(), {})
    )


@pytest.mark.slow
@pytest.mark.parametrize(("test", "reference"), [("GC", 72.7), ("GDL", 3.50), ("Grid", 10.6)])
def test_scores_as_the_published_program(test, reference):
    # Both are means over 500 MDPs: 3.5 combined standard errors, false-alarm rate 5e-4 each.
    returns = play(Optimal(), prior=test, n_environments=500, seed=1).returns
    assert abs(returns.mean() - reference) < 3.5 * np.sqrt(2 * returns.var(ddof=1) / 500)


def gc_with_an_absorbing_state(reward, p=0.0):
    """GC and one more state, never left, that pays `reward` per step; action 1 of state 2 leads
    there with weight `p`.
    """
    mdps = problem("GC").mdps
    concentrations, rewards = np.zeros((6, 3, 6)), np.zeros((6, 3, 6))
    concentrations[:5, :, :5], rewards[:5, :, :5] = mdps.concentrations, mdps.rewards
    concentrations[5, :, 5], rewards[5, :, 5] = 1, reward
    concentrations[2, 1, 5] = p
    mdps = distribution(concentrations, rewards)
    return DirichletProblem("GC", f"GC with {reward:g}, {p:g}", mdps=mdps)


@pytest.mark.slow
def test_a_state_that_is_never_reached_changes_nothing():
    """The same MDPs and decisions, whatever it pays; with a tolerance common to all states Optimal
    plays at random.
    """
    plain = play(Optimal(), prior=gc_with_an_absorbing_state(0), n_environments=100).returns
    for reward in (1e6, -1e7):
        found = play(
            Optimal(), prior=gc_with_an_absorbing_state(reward), n_environments=100
        ).returns
        np.testing.assert_array_equal(found, plain)


@pytest.mark.slow
def test_an_agent_that_learns_does_not_beat_it_where_there_is_a_trap():
    # The trap can be avoided: no trajectory of Optimal ends there.
    trap = gc_with_an_absorbing_state(-1e6, 1.0)
    optimal = play(Optimal(), prior=trap, n_environments=100).returns
    assert optimal.min() > 0
    assert play(PSRL(), prior=trap, n_environments=100).returns.mean() < optimal.mean()
