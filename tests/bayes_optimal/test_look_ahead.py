"""The look-ahead against expectimax over histories, the properties of its ends, and repeated
outcomes that are chosen.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jbrl
from jbrl.bayes_optimal.look_ahead import LookAhead
from jbrl.bayes_optimal.repeats import repeats
from jbrl.mdp import model
from jbrl.mdp.counts import Layers
from jbrl.mdp.dirichlet import DirichletMDPs, distribution
from jbrl.mdp.model import make_model
from jbrl.problems.lookup import problem as find
from tests import kept
from tests.bayes_optimal.exact import PRIORS, exact, problem

DISCOUNT = 0.9


def look_ahead(mdps: DirichletMDPs, decisions: int, horizon: int, **options: bool) -> LookAhead:
    return LookAhead(Layers(make_model(mdps), **options), DISCOUNT, horizon, decisions, threads=1)


@pytest.mark.parametrize("first", [0, 1, -1])
@pytest.mark.parametrize("name", PRIORS)
def test_equals_the_exact_value_at_the_horizon(name, first):
    mdps = problem(PRIORS[name], first).mdps
    for horizon in (1, 2, 5):
        expected = exact(mdps, DISCOUNT, horizon)
        assert look_ahead(mdps, horizon, horizon).extremes()[0] == pytest.approx(expected, abs=1e-9)


def test_the_rarest_outcome_by_hand():
    """Rows of state 0 have means (2/3, 1/3) and (2/3, 0, 1/3); the others are certain."""
    weights = np.array([[[2, 1, 0], [8, 0, 4]], [[0, 5, 0], [0, 0, 5]], [[1, 0, 0], [1, 0, 0]]])
    assert make_model(distribution(weights, weights, 0)).rarest == pytest.approx(1 / 3)
    weights[0] = weights[1]
    assert make_model(distribution(weights, weights, 0)).rarest == 1


numbers = st.sampled_from([0.0, 0.25, 1.0, 1.0, 1.0, 2.5])


@st.composite
def distributions(draw: st.DrawFn) -> DirichletMDPs:
    n_states, n_actions = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = (n_states, n_actions, n_states)
    size = n_states * n_actions * n_states
    weights = np.array(draw(st.lists(numbers, min_size=size, max_size=size)))
    weights = weights.reshape(shape)
    weights[weights.sum(-1) == 0, 0] = 1
    seed = draw(st.integers(0, 3))
    rewards = np.random.default_rng(seed).integers(-1, 3, shape)
    return distribution(weights, rewards, draw(st.integers(-1, n_states - 1)))


@settings(max_examples=40, deadline=None)
@given(distributions())
def test_any_small_distribution(mdps):
    expected = exact(mdps, DISCOUNT, 3)
    for merge_states in (True, False):
        found = look_ahead(mdps, 3, 3, merge_states=merge_states).extremes()[0]
        assert found == pytest.approx(expected, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(distributions(), st.randoms(use_true_random=False))
def test_permuting_states_and_actions_changes_nothing(mdps, random):
    states, actions = list(range(mdps.n_states)), list(range(mdps.n_actions))
    random.shuffle(states), random.shuffle(actions)  # type: ignore[attr-defined]
    at = np.ix_(states, actions, states)
    first = int(mdps.initial_state)
    moved = distribution(
        np.asarray(mdps.concentrations)[at],
        np.asarray(mdps.rewards)[at],
        first if first < 0 else states.index(first),
    )
    expected = look_ahead(mdps, 4, 6).extremes()[0]
    assert look_ahead(moved, 4, 6).extremes()[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", PRIORS)
def test_the_ends_contain_the_value_and_close(name):
    """Upper ends with a slack of 20 standard errors of four replications: missed by chance in 1 of
    7,000 comparisons (Student, 3 degrees of freedom), with seeds that are fixed.
    """
    horizon, mdps = 5, problem(PRIORS[name]).mdps
    value, widths = exact(mdps, DISCOUNT, horizon), []
    lower_before, upper_before = -np.inf, np.inf
    for decisions in (0, 2, 4):
        ahead = look_ahead(mdps, decisions, horizon)
        control = ahead.control(np.random.SeedSequence(1))
        seeds = np.random.SeedSequence(decisions).spawn(4)
        samples = [ahead.replication(control, 1024, seed).value for seed in seeds]
        lower, upper = ahead.extremes()[0], float(np.mean(samples))
        slack = 20 * float(np.std(samples, ddof=1)) / 4**0.5 + 1e-6
        assert lower <= value + 1e-9
        assert value <= upper + slack
        assert lower >= lower_before - 1e-9
        assert upper <= upper_before + slack
        lower_before, upper_before = lower, upper
        widths.append(upper - lower)
    assert widths[-1] < widths[0]


def test_merging_exchangeable_actions_changes_nothing():
    """The same model, its rows said to be all different, has more counts and the same value."""
    model = make_model(find("GC").mdps)
    blocks = tuple(
        dataclasses.replace(block, groups=tuple((row,) for row in range(len(block.actions))))
        for block in model.blocks
    )
    merged, unmerged = Layers(model), Layers(dataclasses.replace(model, blocks=blocks))
    assert (merged.count(2), unmerged.count(2)) == (6, 33)
    values = [
        LookAhead(layers, DISCOUNT, 7, 7, threads=1).extremes()[0] for layers in (merged, unmerged)
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_two_kinds_of_actions_are_not_mixed_up():
    """By hand, two decisions in GC with one action apart from two equal ones: 4 + 4 + 4 + 5."""
    mdps = find("GC").mdps
    apart = np.asarray(mdps.rewards).copy()
    apart[:, 1] += 1
    assert Layers(make_model(distribution(mdps.concentrations, apart, 0))).count(2) == 17


def test_exchangeable_states_are_merged(monkeypatch):
    """The transposition of the grid is found, and leaves values as they are."""
    mdps = find("Grid(rows=3,columns=3)").mdps
    merged, unmerged = Layers(make_model(mdps)), Layers(make_model(mdps), merge_states=False)
    assert merged.count(5) < 0.6 * unmerged.count(5)
    values = [
        LookAhead(layers, DISCOUNT, 6, 6, threads=1).extremes()[0] for layers in (merged, unmerged)
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-12)
    assert values[0] > 0
    monkeypatch.setattr(model, "MOST_STEPS", 5)  # the search is cut short
    assert not model.symmetries(make_model(mdps))


def test_threads_change_no_bit():
    layers = Layers(make_model(find("GC").mdps))
    found = []
    for threads in (1, 2):
        ahead = LookAhead(layers, 0.95, 250, 6, threads)
        control = ahead.control(np.random.SeedSequence(1))
        found.append(ahead.replication(control, 256, np.random.SeedSequence(2)))
    assert found[0] == found[1]
    numbers = dataclasses.astuple(found[0])
    kept.compare("upper end of GC", {"numbers": ", ".join(f"{v:.5g}" for v in numbers)})


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
def test_lies_above_the_exact_value_and_what_a_choice_earns(mdps, horizon):
    relaxed = repeats(make_model(mdps), DISCOUNT, horizon)
    value = exact(mdps, DISCOUNT, horizon)
    assert value <= chosen(mdps, horizon) + 1e-9 <= relaxed.value() + 2e-9


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_is_the_value_of_the_mean_while_nothing_repeats(horizon):
    """With 10^6 pseudo-counts for each transition nothing is learned."""
    mdps = alike(5, 2, 2, 1e6)
    relaxed = repeats(make_model(mdps), DISCOUNT, horizon)
    mean = exact(mdps, DISCOUNT, horizon)
    assert relaxed.value() == pytest.approx(mean, abs=1e-4)


def test_on_ugrid_learning_adds_less_than_a_tenth():
    model = make_model(jbrl.problem("UGrid").mdps)
    values = [repeats(model, 0.95, horizon).value() for horizon in (60, 250)]  # type: ignore[union-attr]
    assert values[0] < values[1] < 0.661
    assert values[1] > 0.95 * 0.032 / 0.05


@pytest.mark.parametrize("name", ["GC", "Grid", "UGC", "UGDL"])
def test_other_problems_are_left_alone(name):
    assert repeats(make_model(jbrl.problem(name).mdps), 0.95, 250) is None


def test_rows_that_differ_or_pay_in_other_ways_are_left_alone():
    mdps = alike(4, 2, 1, 1.0)
    weights, rewards = np.asarray(mdps.concentrations), np.asarray(mdps.rewards)
    unequal, two, negative = weights.copy(), rewards.copy(), rewards.copy()
    unequal[1, 1, 1], two[3, 0, 1], negative[0, 0, 0] = 2, 1, -1
    ways = [(unequal, rewards, 0), (weights, two, 0), (weights, negative, 0)]
    for one in [*ways, (weights, rewards, 3), (weights, rewards, -1)]:
        assert repeats(make_model(distribution(*one)), DISCOUNT, 5) is None
