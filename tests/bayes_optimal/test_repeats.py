"""Repeated outcomes that are chosen: against exact values and a relaxation over histories."""

import numpy as np
import pytest

import jbrl
from jbrl.bayes_optimal.model import make_model
from jbrl.bayes_optimal.repeats import repeats
from jbrl.mdp.dirichlet import DirichletMDPs, distribution
from tests.bayes_optimal.exact import exact

DISCOUNT = 0.9


def alike(n_states: int, n_actions: int, n_targets: int, weight: float) -> DirichletMDPs:
    """Return rows that are alike; by action 0 the last states pay 3 for reaching the first."""
    rewards = np.zeros((n_states, n_actions, n_states))
    rewards[n_states - n_targets :, 0, 0] = 3
    return distribution(np.full(rewards.shape, weight), rewards)


def chosen(mdps: DirichletMDPs, horizon: int) -> float:
    """Return the value where the agent chooses which outcome of a row repeats: one call for each
    history.
    """
    prior, rewards = np.asarray(mdps.concentrations, float), np.asarray(mdps.rewards, float)
    n_states = len(prior)

    def value(x: int, counts: np.ndarray, left: int) -> float:
        if left == 0:
            return 0.0
        found = []
        for u in range(prior.shape[1]):
            after = []
            for y in range(n_states):
                more = counts.copy()
                more[x, u, y] += 1
                after.append(rewards[x, u, y] + DISCOUNT * value(y, more, left - 1))
            n, total = counts[x, u].sum(), prior[x, u].sum()
            best = max((after[y] for y in np.flatnonzero(counts[x, u])), default=0.0)
            found.append((total * np.mean(after) + n * best) / (total + n))
        return max(found)

    return value(0, np.zeros(prior.shape, int), horizon)


@pytest.mark.parametrize(
    ("mdps", "horizon"),
    [
        (alike(3, 1, 1, 1.0), 6),
        (alike(3, 2, 1, 0.5), 4),
        (alike(4, 1, 2, 1.0), 5),
        (alike(4, 2, 1, 3.0), 3),
    ],
)
def test_lies_above_the_exact_value_and_what_a_choice_earns(
    mdps: DirichletMDPs, horizon: int
) -> None:
    relaxed = repeats(make_model(mdps), DISCOUNT, horizon)
    assert relaxed is not None
    value = exact(mdps, DISCOUNT, horizon)
    assert value <= chosen(mdps, horizon) + 1e-9 <= relaxed.value() + 2e-9


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_is_the_value_of_the_mean_while_nothing_repeats(horizon: int) -> None:
    """With 10^6 pseudo-counts for each transition nothing is learned."""
    mdps = alike(5, 2, 2, 1e6)
    relaxed = repeats(make_model(mdps), DISCOUNT, horizon)
    assert relaxed is not None
    mean = exact(mdps, DISCOUNT, horizon)
    assert relaxed.value() == pytest.approx(mean, abs=1e-4)


def test_on_ugrid_learning_adds_less_than_a_tenth() -> None:
    model = make_model(jbrl.problem("UGrid").mdps)
    values = [repeats(model, 0.95, horizon).value() for horizon in (60, 250)]  # type: ignore[union-attr]
    assert values[0] < values[1] < 0.661
    assert values[1] > 0.95 * 0.032 / 0.05


@pytest.mark.parametrize("name", ["GC", "Grid", "UGC", "UGDL"])
def test_other_problems_are_left_alone(name: str) -> None:
    assert repeats(make_model(jbrl.problem(name).mdps), 0.95, 250) is None


def test_rows_that_differ_or_pay_in_other_ways_are_left_alone() -> None:
    mdps = alike(4, 2, 1, 1.0)
    weights, rewards = np.asarray(mdps.concentrations), np.asarray(mdps.rewards)
    unequal, two, negative = weights.copy(), rewards.copy(), rewards.copy()
    unequal[1, 1, 1], two[3, 0, 1], negative[0, 0, 0] = 2, 1, -1
    ways = [(unequal, rewards, 0), (weights, two, 0), (weights, negative, 0)]
    for one in [*ways, (weights, rewards, 3), (weights, rewards, -1)]:
        assert repeats(make_model(distribution(*one)), DISCOUNT, 5) is None
