"""Look-ahead: its value and choices against expectimax over histories, what plays after them, and
searches that are interrupted.
"""

import zlib

import numpy as np
import pytest

from benchmarks.twins import planner
from jbrl.agents.bayes import look_ahead
from jbrl.agents.bayes.look_ahead import BEYOND, LookAheadAgent, LookAheadStrategy
from jbrl.environments.spec import Steps
from jbrl.play.offline import SearchCheckpoint, learn
from jbrl.problems.lookup import problem as find
from tests.bayes_optimal.exact import PRIORS, exact, iterated, problem
from tests.reference.trajectories import decisions, disagreements, prior_of

DISCOUNT, HORIZON = 0.9, 6
# a certain row beside uncertain ones, exchangeable actions, three states
THREE = (
    np.array([[[1, 1, 0]] * 2 + [[0, 0, 1]], [[0, 1, 2]] * 3, [[1, 1, 1], [1, 0, 0], [1, 1, 1]]]),
    np.arange(27).reshape(3, 3, 3) % 4 * 1.0,
)
THREE[1][0, 1] = THREE[1][0, 0]
KNOWN = (np.array([[[1, 0], [0, 1]], [[1, 0], [1, 0]]]), np.arange(8).reshape(2, 2, 2) % 3 * 1.0)
CASES = PRIORS | {"three": THREE, "known": KNOWN}


def strategy(two, horizon=HORIZON, discount=DISCOUNT, **parameters) -> LookAheadStrategy:
    prior = two.prior(Steps(horizon), discount)
    return learn(LookAheadAgent(**parameters), 0, prior, None, SearchCheckpoint())[0].strategy


def worth(mdps, x, counts, left, depth):
    """Return the action values of a look-ahead of `depth` decisions, [A], by its definition: then
    the optimal value of the mean MDP for the decisions that are left.
    """
    rewards = np.asarray(mdps.rewards, float)
    mean = counts / counts.sum(-1, keepdims=True)
    if depth == 0:
        return iterated(mean, rewards, DISCOUNT, left)[x : x + 1]
    q = np.zeros(mdps.n_actions)
    for u, y in np.argwhere(counts[x] > 0):
        after = counts.copy()
        after[x, u, y] += 1
        later = worth(mdps, y, after, left - 1, depth - 1).max()
        q[u] += mean[x, u, y] * (rewards[x, u, y] + DISCOUNT * later)
    return q


@pytest.mark.parametrize("first", [0, -1])
@pytest.mark.parametrize("name", CASES)
def test_its_choices_are_greedy_and_earn_the_exact_value_at_the_horizon(name, first):
    """Every node, with the counts that lead to it."""
    mdps = problem(CASES[name], first).mdps
    rewards, horizon = np.asarray(mdps.rewards, float), 4
    for depth in (2, 4):
        found = strategy(problem(CASES[name], first), horizon, decisions=depth)

        def earned(node, counts, left, found=found, depth=depth):
            if node == BEYOND:
                assert left == horizon - depth
                return 0.0
            x, u = found.states[node], found.actions[node]
            q = worth(mdps, x, counts, left, left + depth - horizon)
            assert q[u] >= q.max() - 1e-9 * max(1, abs(q.max()))
            total = 0.0
            for y in np.flatnonzero(counts[x, u]):
                after = counts.copy()
                after[x, u, y] += 1
                later = earned(found.after[node, y], after, left - 1)
                share = counts[x, u, y] / counts[x, u].sum()
                total += share * (rewards[x, u, y] + DISCOUNT * later)
            return total

        prior = np.asarray(mdps.concentrations, float)
        begun = found.first[found.first != BEYOND]
        assert list(found.states[begun]) == ([0] if first == 0 else list(range(mdps.n_states)))
        value = np.mean([earned(node, prior, horizon) for node in begun])
        if depth == horizon:
            assert value == pytest.approx(exact(mdps, DISCOUNT, horizon), abs=1e-9)


def test_values_after_it_are_those_of_the_decisions_that_are_left():
    """With two decisions the sure move is worth 0.74 + 0.9 * 0.75 = 1.415, the other at most
    2/3 * (1 + 0.9 * 0.75) + 1/3 * 0.9 * 0.74 = 1.339, though it may lead to where all states pay
    0.75 for ever.
    """
    moves = np.array([[[1, 2], [0, 1]], [[0, 1], [0, 1]]])
    pays = np.array([[[0, 1], [0, 0.74]], [[0, 0.75], [0, 0.75]]])
    found = strategy(problem((moves, pays), 0), 2, decisions=1)
    assert found.actions[found.first[0]] == 1


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
def test_the_unit_of_rewards_changes_no_choice(unit):
    concentrations, rewards = THREE
    one, other = (strategy(problem((concentrations, r), 0), 4) for r in (rewards, rewards * unit))
    np.testing.assert_array_equal(one.actions, other.actions)


def test_its_twin_decides_alike_beyond_what_the_prior_excludes_too():
    """The nodes until a decision or a state that the prior excludes ends the look-ahead, then BEB,
    which has learned from them.
    """
    found = strategy(find("GC"), 40, 0.95, decisions=3, beta=2.5)
    ends = set()
    for _, steps in decisions(found, "GC", "UGC", n_environments=12, horizon=40):
        node, twin, t = found.first[steps[0][0]], planner.BEB(find("GC").mdps, 2.5), 0
        while node != BEYOND:
            x, u, y, *_ = steps[t]
            assert found.actions[node] == u
            twin.observe(x, u, y)
            node, t = found.after[node, y], t + 1
        ends.add(t)
        assert disagreements(steps[t:], twin) == []
    assert ends == {1, 2, 3}


def test_a_search_goes_on_where_it_was_with_the_same_choices():
    prior = find("GC").prior(Steps(20), 0.95)
    agent = LookAheadAgent(decisions=8)
    whole = list(agent.search(0, prior, None, None))
    assert len(whole) > 4
    rest = list(agent.search(0, prior, None, whole[2]))
    assert len(rest) == len(whole) - 2
    for name, array in whole[-1].arrays.items():
        np.testing.assert_array_equal(rest[-1].arrays[name], array)
    # stored results hang on these: a change raises the version
    choices = {name: zlib.crc32(array) for name, array in agent.weights(whole[-1]).items()}
    assert choices == {"first": 1790091467, "states": 1853795735, "actions": 1436375912} | {
        "after": 63725354
    }


@pytest.mark.parametrize("name", ["MOST_BLOCKS", "MOST_LEAVES", "MOST_ROWS"])
def test_what_is_too_large_is_not_looked_ahead(name, monkeypatch):
    layers = look_ahead.layers_of(prior_of("GC"))
    assert look_ahead.deepest(layers, 2) == 2
    monkeypatch.setattr(look_ahead, name, 0)
    assert look_ahead.deepest(layers, 2) == 0
