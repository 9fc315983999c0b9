"""Planners in the mean model, and Optimal: against their twins, by hand, at their limits."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins import agents as twins
from benchmarks.twins import planner
from jbrl import play
from jbrl.agents.bayes.mean_model import (
    BEB,
    VDBE,
    Belief,
    EpsilonGreedy,
    Optimal,
    SoftMax,
    boltzmann,
)
from jbrl.agents.complete import Complete, is_oracle
from jbrl.agents.registry import AGENTS
from jbrl.agents.scripted import Random
from jbrl.base.pytree import record
from jbrl.mdp import incremental
from jbrl.mdp.dirichlet import DirichletMDPs, distribution
from jbrl.mdp.planning import GREATEST_DISCOUNT
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Agent, Stepwise, as_arrays
from tests.reference.trajectories import (
    KEY,
    decisions,
    disagreements,
    draw_all,
    play_all,
    prior_of,
    transition,
    true_mdp,
)

GRID = {"n_environments": 3, "horizon": 60}
BEGIN = jax.jit(lambda agent, prior: agent.reset(KEY, agent.train(KEY, prior)))
OBSERVE = jax.jit(lambda agent, state, seen: agent.observe(KEY, state, seen))


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("cls", "parameters", "twin", "prior", "test", "size"),
    [
        (EpsilonGreedy, (0.0,), planner.EpsilonGreedy, "GC", "GC", {}),
        (Random, (), twins.Random, "GDL", "GDL", {}),
        (EpsilonGreedy, (0.3,), planner.EpsilonGreedy, "UGC", "GC", {}),
        (EpsilonGreedy, (0.1,), planner.EpsilonGreedy, "UGDL", "GDL", {}),
        (EpsilonGreedy, (0.0,), planner.EpsilonGreedy, "Grid", "Grid", GRID),
        (SoftMax, (0.5,), twins.SoftMax, "UGC", "GC", {}),
        (SoftMax, (5.0,), twins.SoftMax, "UGC", "GC", {}),
        (VDBE, (1.0, 0.0, 1.0), twins.VDBE, "GC", "GC", {}),
        (VDBE, (20.0, 0.7, 0.3), twins.VDBE, "GC", "GC", {}),
        (BEB, (2.5, "pair"), planner.BEB, "GC", "GC", {}),
        (BEB, (0.5, "pair"), planner.BEB, "UGDL", "GDL", {}),
        (BEB, (1.0, "transition"), planner.BEB, "GC", "GC", {}),
        (BEB, (4.0, "transition"), planner.BEB, "UGC", "GC", {}),
        (BEB, (0.5, "pair"), planner.BEB, "Grid", "Grid", GRID),
    ],
)
def test_its_twin_decides_alike(cls, parameters, twin, prior, test, size):
    for _, steps in itertools.islice(decisions(cls(*parameters), prior, test, **size), 8):
        assert disagreements(steps, twin(problem(prior).mdps, *parameters)) == []


@pytest.mark.slow
@pytest.mark.parametrize("test", ["GC", "Grid"])
def test_the_twin_of_optimal_decides_alike(test):
    for index, steps in decisions(Optimal(), test):
        assert disagreements(steps, twins.Optimal(*true_mdp(test, index))) == []


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
@pytest.mark.parametrize("test", ["GC", "GDL"])
def test_own_pace_or_in_step_is_the_same(test):
    # as many decisions and MDPs as above: the same program
    agents, prior = (EpsilonGreedy(0.2), InStep(EpsilonGreedy(0.2))), prior_of(test, 80)
    assert [isinstance(agent, Stepwise) for agent in agents] == [True, False]
    inputs = draw_all(prior, KEY, jnp.arange(24, dtype=jnp.int32))
    own_pace, in_step = (play_all(as_arrays(agent), prior, KEY, inputs) for agent in agents)
    jax.tree.map(np.testing.assert_array_equal, own_pace, in_step)


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("epsilon", "least", "most"), [(0.5, 0.25, 0.41), (0.0, 0, 0), (1.0, 0.59, 0.75)]
)
def test_how_often_e_greedy_explores(epsilon, least, most):
    """Three actions: a random one is not the greedy one two thirds of the time.

    24 x 80 decisions, of which ties are left out: at least 400; then a share is off by 0.08 with
    probability below 0.002 (three limits, one of them exact)."""
    explored = certain = 0
    for _, steps in decisions(EpsilonGreedy(epsilon), "UGC", "GC"):
        twin = planner.EpsilonGreedy(problem("UGC").mdps, 0.0)
        for x, u, y, _, _ in steps:
            second, first = np.sort(twin.q[x])[-2:]
            if first - second > 1e-4 * twin.q.max():
                certain, explored = certain + 1, explored + (twin.q[x].argmax() != u)
            twin.observe(x, u, y)
    assert certain > 400
    assert least <= explored / certain <= most


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("values", "tau", "expected"),
    [
        ((0.0, np.log(2), np.log(5)), 1.0, (1 / 8, 2 / 8, 5 / 8)),
        ((3.0, 3.0 + 2 * np.log(3)), 2.0, (1 / 4, 3 / 4)),
        ((-700.0, -700.0, -800.0), 1.0, (0.5, 0.5, 0)),
        ((200.0, 199.0, 200.0), 1e-3, (0.5, 0, 0.5)),
        ((200.0, 199.9999, 100.0), 1e-6, (0.5, 0.5, 0)),  # as close as float32 can tell
        ((200.0, 100.0, 0.0), 1e6, (1 / 3, 1 / 3, 1 / 3)),
        ((0.0, 0.0), 1e-6, (0.5, 0.5)),
        ((4.0,), 1.0, (1,)),
    ],
)
def test_probabilities_of_soft_max(values, tau, expected):
    """In a plan of one state in which the actions have these values."""
    values = jnp.array([values], jnp.float32)
    plan = jax.jit(incremental.solve)(jnp.ones((1, values.size, 1)), values, jnp.float32(0))
    np.testing.assert_allclose(jax.jit(boltzmann)(plan, jnp.int32(0), tau), expected, atol=7e-5)


@pytest.mark.slow
def test_cold_soft_max_is_greedy():
    cold, greedy = (
        play(agent, prior="GC", n_environments=500).returns
        for agent in (SoftMax(1e-6), EpsilonGreedy(0.0))
    )
    # The same but for how ties are broken. Paired Z-test, false-alarm rate 1e-4.
    difference = cold - greedy
    assert abs(difference.mean()) < 3.9 * difference.std(ddof=1) / np.sqrt(500)


@pytest.mark.first_case_quick
@pytest.mark.parametrize(("delta", "weight"), [(0.0, 0.5), (0.25, 0.25), (1.0, 1.0)])
def test_epsilon_of_vdbe_follows_the_change_of_value_where_it_happened(delta, weight):
    """Discount 0: values are expected rewards.

    Action 1 in state 0 pays 8 with probability 1/2, then, once seen, 2/3.
    """
    rewards = np.zeros((2, 2, 2))
    rewards[0, 1, 1] = 8
    agent = as_arrays(VDBE(sigma=2.0, delta=delta, epsilon0=0.4))
    prior = DirichletPrior(distribution(np.ones((2, 2, 2)), rewards), jnp.float32(0), 10)
    state = OBSERVE(agent, BEGIN(agent, prior), transition(0, 1, 1, 8))
    e = np.exp(-(8 * 2 / 3 - 8 / 2) / 2)
    np.testing.assert_allclose(
        state.epsilons, [weight * (1 - e) / (1 + e) + (1 - weight) * 0.4, 0.4], rtol=1e-5
    )


@pytest.mark.parametrize("discount", [0.95, 0.999])
def test_a_certain_transition_lets_epsilon_of_vdbe_decay(discount):
    """It changes no value, however small a change calls for exploration: epsilon decays by 1 - 1/A.

    As does one that may lead elsewhere, to where things are worth as much.
    """
    concentrations = np.full((4, 2, 4), 0.7) * np.eye(4)[[[1, 2], [3, 3], [3, 3], [0, 0]]]
    concentrations[0, 1, [1, 2]] = 0.7, 1.9
    rewards = np.full((4, 2, 4), 0.3) * np.array([1, 2, 2, 0.7])[:, None, None]
    agent = as_arrays(VDBE(sigma=1e-6))
    prior = DirichletPrior(distribution(concentrations, rewards), jnp.float32(discount), 10)
    state = BEGIN(agent, prior)
    for x, action, y in [(0, 0, 1), (1, 1, 3), (3, 0, 0), (0, 1, 2), (2, 0, 3), (3, 0, 0)] * 4:
        state = OBSERVE(agent, state, transition(x, action, y))
    np.testing.assert_array_equal(state.epsilons, 0.5 ** np.array([8, 4, 4, 8]))


@pytest.mark.parametrize(
    ("agent", "seen", "expected"),
    [
        # beta / (1 + n(x, u))
        (BEB(6.0), [], [[6 / 5, 6 / 3], [6 / 3, 6 / 1.5]]),
        (BEB(6.0), [(0, 0, 1), (0, 0, 0), (1, 1, 0)], [[6 / 7, 6 / 3], [6 / 3, 6 / 2.5]]),
        # sum over y of P beta / c = beta (number of possible next states) / n; one thought
        # impossible counts once it has been seen
        (BEB(6.0, "transition"), [], [[2 * 6 / 4, 6 / 2], [2 * 6 / 2, 6 / 0.5]]),
        (
            BEB(6.0, "transition"),
            [(0, 0, 1), (0, 1, 0), (1, 1, 1)],
            [[2 * 6 / 5, 2 * 6 / 3], [2 * 6 / 2, 2 * 6 / 1.5]],
        ),
        (BEB(0.5), [], [[0.5 / 5, 0.5 / 3], [0.5 / 3, 0.5 / 1.5]]),  # published: rounded to 0
    ],
)
def test_bonus_of_beb(agent, seen, expected):
    """The rewards that it plans with, in an MDP of two states and two actions without rewards."""
    concentrations = jnp.array([[[1.0, 3.0], [0.0, 2.0]], [[1.0, 1.0], [0.5, 0.0]]])
    mdps = DirichletMDPs(concentrations, jnp.zeros((2, 2, 2)), jnp.int32(0))
    agent = as_arrays(agent)
    state = BEGIN(agent, DirichletPrior(mdps, jnp.float32(0.95), 10))
    for x, u, y in seen:
        state = OBSERVE(agent, state, transition(x, u, y))
    np.testing.assert_allclose(state.plan.rewards, expected, rtol=1e-6)
    for x, values in enumerate(np.asarray(state.plan.q)):
        assert values[int(agent.act(KEY, state, jnp.int32(x))[0])] == values.max()


def test_the_greatest_bonus_can_be_planned_with():
    agent = as_arrays(BEB(1e30, "transition"))
    state = BEGIN(agent, prior_of("UGC", discount=GREATEST_DISCOUNT))
    state = OBSERVE(agent, state, transition(0, 1, 1))
    assert np.isfinite(state.plan.q).all() and state.plan.tolerance.max() < 1e30


def test_optimal_is_an_oracle_as_scripted_policies_are():
    oracles = [name for name, entry in AGENTS.items() if is_oracle(entry.agent())]
    assert sorted(oracles) == ["Optimal", "Scripted"]
    assert is_oracle(Complete(Optimal(), {}))
    assert not is_oracle(Complete(Random(), {}))


@pytest.mark.slow
@pytest.mark.parametrize(("test", "reference"), [("GC", 72.7), ("GDL", 3.50), ("Grid", 10.6)])
def test_scores_of_optimal_as_the_published_program(test, reference):
    # Both are means over 500 MDPs: 3.5 combined standard errors, false-alarm rate 5e-4 each.
    returns = play(Optimal(), prior=test, n_environments=500, seed=1).returns
    assert abs(returns.mean() - reference) < 3.5 * np.sqrt(2 * returns.var(ddof=1) / 500)
