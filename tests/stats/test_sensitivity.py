"""Sensitivity of scores to drawn parameters: formulas, intervals, tests, groups."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, t

from jbrl.base.errors import JbrlError
from jbrl.stats import sensitivity


def naive_share(scores, which):
    """The adjusted R² of a one-way analysis of variance, term by term."""
    groups = [scores[which == g] for g in np.unique(which)]
    within = sum(((g - g.mean()) ** 2).sum() for g in groups)
    whole = ((scores - scores.mean()) ** 2).sum()
    n, k = len(scores), len(groups)
    return 1 - (within / (n - k)) / (whole / (n - 1))


def naive_jackknife(scores, which):
    n = len(scores)
    shares = [naive_share(np.delete(scores, i), np.delete(which, i)) for i in range(n)]
    return naive_half(np.log(1 - np.array(shares)))


def naive_half(without):
    """The half-width of a jackknife interval, with the degrees of freedom of its squares."""
    n, squares = len(without), (without - np.mean(without)) ** 2
    degrees = max(1, np.sum(squares) ** 2 / np.sum(squares**2) - 1)
    return t.ppf(0.975, degrees) * np.sqrt((n - 1) / n * np.sum(squares))


def test_the_share_and_its_interval_are_those_of_the_definition():
    generator = np.random.default_rng(0)
    which = np.array([0] * 7 + [1] * 12 + [2] * 20 + [3])
    scores = generator.normal(size=40) + which
    share, low, high = sensitivity.share_explained(scores, which)
    assert share == pytest.approx(naive_share(scores, which), rel=1e-12)
    half = naive_jackknife(scores, which)
    ends = 1 - (1 - share) * np.exp([half, -half])
    assert (low, high) == pytest.approx((max(0, ends[0]), ends[1]), rel=1e-6)
    which, scores = np.repeat([0, 1], 3), np.array([0, 0, 1, 5, 6, 5.0])
    scores[4] = 5  # without the third score groups explain all: no logarithm
    share, low, high = sensitivity.share_explained(scores, which)
    without = [1 - naive_share(np.delete(scores, i), np.delete(which, i)) for i in range(6)]
    half = naive_half(without)
    assert (low, high) == pytest.approx((max(0, share - half), min(1, share + half)), rel=1e-6)


@pytest.mark.parametrize(("between", "spread"), [(0.5, "normal"), (0.5, "exponential")])
def test_intervals_cover_the_true_share(between, spread):
    # 300 replications; coverage of 0.94 would be below 0.9 by chance in 0.3 % of all seeds
    generator = np.random.default_rng(1)
    which = np.arange(400) % 8
    levels = np.arange(8) - 3.5
    levels *= np.sqrt(between / (1 - between) / np.mean(levels**2))
    inside = 0
    for _ in range(300):
        exponential = spread == "exponential"
        noise = generator.exponential(size=400) - 1 if exponential else generator.normal(size=400)
        _, low, high = sensitivity.share_explained(levels[which] + noise, which)
        inside += low <= between <= high
    assert inside / 300 >= 0.9


@pytest.mark.parametrize("differ", [10, 20])
def test_intervals_hold_nearly_where_few_scores_differ(differ):
    """Of 1,000, and most of these in one group of ten: 0.82 and 0.87 with 999 degrees of freedom.
    300 replications: if 0.92 are right, fewer than 265 are in 1 % of all seeds.
    """
    generator, inside = np.random.default_rng(8), 0
    chances = differ / 1000 * np.array([5.5, *[0.5] * 9])
    true = chances.var() / (chances.mean() * 2 - chances.mean() ** 2)
    for _ in range(300):
        which = generator.integers(0, 10, 1000)
        scores = (generator.random(1000) < chances[which]) * generator.exponential(1, 1000)
        _, low, high = sensitivity.share_explained(scores, which)
        inside += low <= true <= high
    assert inside >= 265


def test_few_scores_that_differ_are_said():
    table = trials().assign(score=0.0)
    assert not list(sensitivity.few_differ(table))
    table.loc[table.index[:7], "score"] = 1.0
    table.loc[table.index[7], "score"] = np.nan
    (text,) = sensitivity.few_differ(table)
    assert f": 7 of {len(table) - 1} scores differ from 0: intervals of shares are too" in text
    table.loc[table.index[:20], "score"] = 1.0
    assert not list(sensitivity.few_differ(table))


@pytest.mark.parametrize("noise", ["jump", "student"])
def test_intervals_hold_where_a_score_jumps_and_where_its_tails_are_heavy(noise):
    """Groups are deciles of the distribution that values are drawn from: with deciles of the values
    a jump at the edge of a group had 0.31 in place of 0.95. 300 replications: if 0.945 are
    right, fewer than 270 are in 0.1 % of all seeds.
    """
    generator, inside = np.random.default_rng(6), 0
    for _ in range(300):
        values = generator.uniform(size=300)
        if noise == "jump":
            scores = (values > 0.3) + 0.05 * generator.normal(size=300)
            true = 0.21 / (0.21 + 0.05**2)
        else:
            scores = 3 * values + generator.standard_t(5, size=300)
            true = 0.7425 / (0.75 + 5 / 3)
        which = sensitivity.grouped(values, 10, {"uniform": [0, 1]})
        _, low, high = sensitivity.share_explained(scores, which)
        inside += low <= true <= high
    assert inside >= 270


@pytest.mark.parametrize(
    ("distribution", "values", "edges"),
    [
        ({"uniform": [2, 4]}, [2.4, 2.6, 3.6, 3.7], [1, 1, 2]),
        ({"log_uniform": [0.01, 100]}, [0.09, 0.11, 0.9, 1.1, 9.0, 11.0], [1, 2, 2, 1]),
        ({"uniform": [1, 20]}, [1, 5, 6, 10, 11, 15, 16, 20], [2, 2, 2, 2]),
        ({"uniform": [1, 4]}, [1, 2, 4], [1, 1, 1]),
        ({"choice": [0.1, 0.5]}, [0.1, 0.5], [1, 1]),
        ({"choice": [1, 2, 4, 8, 16, 32, 64, 128]}, [2, 4, 8, 16, 64, 128], [1, 2, 1, 2]),
    ],
)
def test_groups_are_quantiles_of_the_distribution(distribution, values, edges):
    """Four groups, for any values; `edges` counts those in each group that has one."""
    every = np.repeat(np.array(values, float), 40)
    which = sensitivity.grouped(every, 4, distribution)
    assert (np.bincount(which) / 40).tolist() == edges


def test_tables_know_the_distribution_of_a_study():
    table = trials().assign(parameters='{"rate": {"uniform": [0, 2]}, "useless": 3}')
    shares = sensitivity.shares(table, ["rate"], permutations=20)
    assert shares["groups"].item() == 5  # the upper half of the values was not drawn


def test_without_dependence_the_test_is_right_and_the_share_about_zero():
    # 400 tests at 5 %: more than 33 rejections, or fewer than 8, by chance in 0.5 % of all seeds
    generator = np.random.default_rng(2)
    which = np.arange(60) % 5
    p = [
        sensitivity.permutation_p(generator.exponential(size=60), which, 199, generator)
        for _ in range(400)
    ]
    rejections = int((np.array(p) <= 0.05).sum())
    assert binom.ppf(0.0025, 400, 0.05) <= rejections <= binom.ppf(0.9975, 400, 0.05)


def test_the_p_value_is_that_of_all_permutations():
    scores = np.array([0.1, 0.9, 0.4, 2.0, 2.2, 1.7])
    which = np.array([0, 0, 0, 1, 1, 1])

    def between(values):
        return sum(3 * (values[which == g].mean() - scores.mean()) ** 2 for g in (0, 1))

    every = [between(scores[list(order)]) for order in itertools.permutations(range(6))]
    exact = np.mean(np.array(every) >= between(scores) - 1e-12)  # 0.1
    p_value = sensitivity.permutation_p(scores, which, 20_000, np.random.default_rng(3))
    assert p_value == pytest.approx(exact, abs=4 * np.sqrt(0.09 / 20_000))


@given(
    st.lists(st.integers(-5, 40) | st.floats(0, 1, width=32), min_size=20, max_size=200),
    st.integers(2, 12),
)
def test_groups_are_in_order_and_equal_values_stay_together(values, groups):
    values = np.array(values, float)
    which = sensitivity.grouped(values, groups)
    assert set(which) == set(range(which.max() + 1)) and which.max() < groups
    order = np.argsort(values, kind="stable")
    assert (np.diff(which[order]) >= 0).all()
    assert all(len(set(which[values == v])) == 1 for v in set(values))


def trials(n=200, seed=4):
    generator = np.random.default_rng(seed)
    rate, useless = generator.uniform(size=n), generator.integers(0, 3, n)
    frame = pd.DataFrame({"rate": rate, "useless": useless, "other": np.nan})
    frame["score"] = 3 * rate + generator.normal(size=n)
    return frame.assign(experiment="E", algorithm="A", parameters="{}")


def test_tables_of_an_algorithm():
    table = trials()
    shares = sensitivity.shares(table, ["useless", "rate", "other"], permutations=200)
    assert list(shares["parameter"]) == ["rate", "useless"]
    assert list(shares["significant"]) == [True, False]
    assert list(shares["groups"]) == [10, 3]
    curves = sensitivity.curves(table, ["useless", "rate", "other"])
    rates = curves[curves["parameter"] == "rate"]
    assert rates["n"].sum() == 200 and (rates["n"] == 20).all()
    first = table[table["rate"] <= rates["high"].iloc[0]]["score"]
    assert rates["mean"].iloc[0] == pytest.approx(first.mean())
    assert (rates["low"].iloc[1:].to_numpy() > rates["high"].iloc[:-1].to_numpy()).all()


def test_equal_scores_have_no_share():
    table = trials().assign(score=1.0)
    shares = sensitivity.shares(table, ["rate"], permutations=20)
    assert shares["share"].isna().all() and (shares["p_value"] == 1).all()


def test_bad_numbers_are_refused():
    for function, options, message in (
        (sensitivity.curves, {"groups": 1}, "groups = 1"),
        (sensitivity.shares, {"permutations": 0}, "permutations = 0"),
        (sensitivity.shares, {"level": 1.5}, r"level = 1\.5"),
    ):
        with pytest.raises(JbrlError, match=message):
            function(trials(), ["rate"], **options)
