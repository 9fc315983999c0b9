"""Gittins indices and values of bandits, held against published tables and plain induction."""

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

import jbrl
from experiments import bandits
from jbrl.base.errors import JbrlError
from jbrl.mdp import gittins
from jbrl.mdp.dirichlet import distribution
from jbrl.mdp.gittins import Arm, as_bandit, best_at_most, value
from jbrl.problems.lookup import problem


def bernoulli(wins: float, losses: float) -> Arm:
    return Arm((0.0, 1.0), (float(losses), float(wins)))


# Gittins 1989, table of the Bernoulli reward process, by (wins, losses) of the beta distribution
TABLE = {
    (1, 1, 0.9): 0.7029,
    (2, 2, 0.9): 0.6346,
    (3, 3, 0.9): 0.6010,
    (10, 2, 0.9): 0.8695,
    (1, 1, 0.99): 0.8699,
}


@pytest.mark.parametrize(
    "cell", [pytest.param(c, marks=pytest.mark.slow) if c[2] > 0.9 else c for c in TABLE]
)
def test_indices_are_those_of_the_published_table(cell):
    wins, losses, discount = cell
    low, high = bernoulli(wins, losses).index(discount)
    assert low <= high <= low + 2e-5
    assert (low + high) / 2 == pytest.approx(TABLE[cell], abs=6e-5)


def test_no_limit_exceeds_the_greatest_reward(monkeypatch):
    """Even where the arm is not followed for as long as its discount asks for."""
    monkeypatch.setattr(gittins, "MOST_BELIEFS", 1000)
    low, high = bernoulli(1, 1).index(0.999)
    assert 0.5 < low <= high == 1


def test_what_is_no_arm_is_refused():
    for discount in (1, 1.5, float("nan"), -0.1):
        with pytest.raises(JbrlError, match=r"discount = .*: expected a number from 0 up to"):
            bernoulli(1, 1).index(discount)
    for rewards in ((1.0, 0.0), (0.0, float("nan")), ()):
        with pytest.raises(JbrlError, match=r"rewards = .*: expected numbers in rising order"):
            Arm(rewards, (1.0,) * len(rewards))
    for weights in ((0.0, 1.0), (1.0, -1.0), (1.0, float("inf")), (1.0, 1.0, 1.0)):
        with pytest.raises(JbrlError, match=r"concentrations = .*: expected 2 positive numbers"):
            Arm((0.0, 1.0), weights)


def by_induction(arms: Sequence[Arm], discount: float, pulls: int) -> float:
    """Return the value of the best way to pull so often, by recursion over counts."""

    @functools.cache
    def best(counts: tuple[tuple[float, ...], ...], left: int) -> float:
        if left == 0:
            return 0.0
        found = []
        for k, (arm, weights) in enumerate(zip(arms, counts, strict=True)):
            q = 0.0
            for j, reward in enumerate(arm.rewards):
                more = tuple(w + (i == j) for i, w in enumerate(weights))
                after = best((*counts[:k], more, *counts[k + 1 :]), left - 1)
                q += weights[j] / sum(weights) * (reward + discount * after)
            found.append(q)
        return max(found)

    return best(tuple(arm.concentrations for arm in arms), pulls)


CASES = {
    "alike": ([bernoulli(1, 1)] * 2, 0.5, 18),
    "two kinds": ([bernoulli(1, 1), bernoulli(3, 2), bernoulli(3, 2)], 0.3, 10),
    "three rewards": ([Arm((-1.0, 0.5, 2.0), (1.0, 2.0, 0.5)), bernoulli(4, 1)], 0.4, 11),
    "known": ([bernoulli(1, 2), Arm((0.45,), (1.0,))], 0.5, 20),
}


@pytest.mark.parametrize("case", CASES)
def test_the_value_is_that_of_induction(case):
    """The rest after the pulls is worth at most what the greatest reward for ever is."""
    arms, discount, pulls = CASES[case]
    low, high = value(arms, discount)
    assert low <= high <= low + 3e-6 * (1 + abs(low))
    found, rest = by_induction(arms, discount, pulls), discount**pulls / (1 - discount)
    assert low - 2 * rest - 1e-9 <= found <= high + 1e-9
    assert found >= low - 2 * rest


def test_no_limits_of_a_lifetime_are_false():
    """Of 8 problems with arms that differ, one state or two; nothing is random in the limits."""
    generator = np.random.default_rng(0)
    for number in range(8):
        rows = generator.choice([0.5, 1.0, 2.0, 6.0], (2, 2 + number % 2))
        prior = ";".join(" ".join(map(str, row)) for row in rows)
        states = 1 + number // 2 % 2
        bandit = as_bandit(problem(f'Bandit(prior="{prior}",states={states})').mdps)
        assert (len(bandit.stages), bandit.decisions) == (states, 2)
        horizon = 2 * states * 5
        low, high = bandit.value(0.8, horizon)
        # A stage is come back to after 2 * states decisions, and its pulls bear on it alone.
        exact = sum(
            0.8 ** (2 * k) * by_induction(stage, 0.8 ** (2 * states), 5)
            for k, stage in enumerate(bandit.stages)
        )
        assert low - 1e-9 <= exact <= high + 1e-9
        assert high - low <= 0.8**horizon * states * 2


def test_the_bound_of_the_best_arm_holds():
    draws = np.random.default_rng(1).beta(1, 2, (100_000, 5)).max(1).mean()
    assert draws <= best_at_most((bernoulli(1, 2),) * 5) <= 1


@pytest.mark.parametrize("name", ["GC", "Grid", "GDL", "UGC", "ShortestPath"])
def test_what_is_no_bandit_is_not_taken_for_one(name):
    assert as_bandit(problem(name).mdps) is None


@pytest.mark.parametrize("broken", ["reward", "choice", "first", "sometimes longer"])
def test_a_bandit_must_lead_back_alike_without_a_reward(broken):
    mdps = problem("Bandit").mdps
    weights, rewards = mdps.concentrations.copy(), mdps.rewards.copy()
    first = -1 if broken == "first" else 0
    if broken == "reward":
        rewards[1, 0, 0] = 1
    elif broken == "choice":
        weights[1, 0] = (0, 0, 1)
    elif broken == "sometimes longer":
        weights[1] = (0, 0, 1)
    assert as_bandit(distribution(weights, rewards, first)) is None


def test_outcomes_of_an_arm_that_pay_the_same_are_one():
    """An arm with the outcomes 0, 2, 2 and one that has no weight."""
    weights, rewards = np.zeros((4, 2, 4)), np.zeros((4, 2, 4))
    weights[0], weights[1:, :, 0] = [(0, 2, 3, 1), (0, 1, 0, 4)], 1
    rewards[0] = [(9, 2, 2, 0), (9, 5, 7, 1)]
    bandit = as_bandit(distribution(weights, rewards, 0))
    assert bandit.stages == ((Arm((0.0, 2.0), (1.0, 5.0)), Arm((1.0, 5.0), (4.0, 1.0))),)


def test_symmetric_arms_share_what_they_are_worth():
    """The value does not depend on the order of arms."""
    arms = [bernoulli(1, 1), bernoulli(2, 1), bernoulli(1, 4)]
    found = {value(list(order), 0.7) for order in itertools.permutations(arms)}
    assert np.ptp(np.array(list(found)), axis=0).max() <= 1e-9


@pytest.mark.slow
def test_the_table_of_the_page_is_that_of_the_kept_results():
    found = bandits.shares(jbrl.Results(bandits.KEPT))
    assert bandits.rows_of(found) in bandits.PAGE.read_text(encoding="utf-8")
    gittins = found[found["agent"] == "Gittins"]
    assert (abs(gittins["share"] - 1) <= 4 * gittins["error"]).all()
