"""Paired comparisons and ranks under resampling: twins by loops, values worked out by hand,
error rates.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom, kendalltau

from jbrl.base.errors import JbrlError
from jbrl.base.schema import ALL
from jbrl.stats.paired_bootstrap import (
    Paired,
    _measures,
    bca_intervals,
    both_means,
    compare,
    draw_counts,
    effect_size,
    pair,
    resampled,
    resampled_means,
    studentised_intervals,
    whole_numbers,
)
from jbrl.stats.rank_stability import (
    kendall,
    orders_table,
    overall,
    pairs_table,
    rank_stability,
    ranks_of,
    ranks_table,
    resample_all,
)
from tests.reference import ranking
from tests.stats.tables import returns_of

SMALL = arrays(
    np.int64, st.tuples(st.integers(1, 12), st.integers(2, 7)), elements=st.integers(1, 5)
)


def agents(scores, experiment="GC"):
    """Score table of agents a, b, … with the columns of `scores` [N, n]."""
    return returns_of(
        {(chr(ord("a") + k), "{}"): list(column) for k, column in enumerate(np.transpose(scores))},
        experiment,
    )


def stability(scores, resamples=200, seed=0):
    return rank_stability(resample_all(pair(agents(scores)), resamples=resamples, seed=seed))


def test_pairing_sorts_agents_by_mean_and_keeps_rows_together():
    table = returns_of({("a", "{}"): [1, 2, 3], ("b", "{}"): [7, 8, 9], ("c", "{}"): [4, 5, 6]})
    for first in range(9):
        [paired] = pair(table.iloc[(np.arange(9) * 4 + first) % 9], without=["c"])
        assert list(paired.agents["algorithm"]) == ["b", "a"]
        assert paired.scores.tolist() == [[7, 1], [8, 2], [9, 3]]
        assert list(paired.mdps) == [(0, 0), (0, 1), (0, 2)]
        assert list(paired.means) == [8, 2]


def test_champions_are_the_best_of_their_algorithm():
    [paired] = pair(
        returns_of({("a", "1"): [1, 2], ("a", "2"): [5, 2], ("b", "1"): [4, 4], ("b", "2"): [0, 9]})
    )
    assert paired.champions().agents.to_numpy().tolist() == [["b", "2"], ["a", "2"]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t[(t["algorithm"] != "b") | (t["unit"] < 2)],
            "b {} (2 environments) and a {} (3 environments) were not played",
        ),
        (lambda t: t.assign(unit=t["unit"] + 10 * (t["algorithm"] == "b")), "is seed 0, unit 10"),
        (lambda t: t.assign(seed=(t["algorithm"] == "b").astype(int)), "cannot be paired"),
        (lambda t: pd.concat([t, t.head(1)]), "a {} has two scores for seed 0, unit 0"),
        (lambda t: t.head(0), "no scores"),
        (lambda t: t.assign(score=np.nan), "expected a finite number"),
    ],
)
def test_what_cannot_be_paired_is_refused_with_the_reason(change, words):
    with pytest.raises(JbrlError) as error:
        pair(change(returns_of({("a", "{}"): [1, 2, 3], ("b", "{}"): [7, 8, 9]})))
    assert words in str(error.value)


def test_a_hundred_thousand_mdps_can_be_resampled():
    counts = draw_counts(100_000, 20, seed=5)
    assert counts.dtype == np.uint8 and (counts.sum(axis=1) == 100_000).all() and counts.max() < 20
    # The mean of a resample of 100,000 standard normal scores has a standard error of 0.0032 about
    # their mean; one of 20 is beyond 5 of them with p < 2e-5.
    values = np.random.default_rng(6).normal(size=(100_000, 1))
    assert abs(resampled_means(counts, values) - values.mean()).max() < 5 / np.sqrt(100_000)


def test_counts_are_those_of_drawing_with_replacement():
    counts = draw_counts(20, 5000, seed=3)
    assert counts.dtype == np.uint16 and (counts.sum(axis=1) == 20).all()
    # more resamples, the same first ones
    assert np.array_equal(counts[:100], draw_counts(20, 100, seed=3))
    assert not np.array_equal(counts[:100], draw_counts(20, 100, seed=3, stream=1))
    # A count is binomial(20, 1/20): mean 1, variance 0.95. Standard errors of 100,000 counts are
    # 0.003 and 0.006; 5 of them: p < 1e-6.
    assert abs(counts.mean(axis=0) - 1).max() < 5 * np.sqrt(0.95 / 5000)
    assert counts.var() == pytest.approx(0.95, abs=0.03)


@settings(max_examples=50, deadline=None)
@given(
    arrays(
        np.float64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=st.floats(-1e6, 1e6)
    )
)
def test_resampled_means_are_the_means_of_what_was_drawn(values):
    counts = draw_counts(len(values), 7, seed=1)
    slow = [[np.repeat(column, row).mean() for column in values.T] for row in counts]
    np.testing.assert_allclose(
        resampled_means(counts, values), slow, rtol=1e-9, atol=1e-12 * np.abs(values).max() + 1e-300
    )


def test_sums_are_exact_in_any_order():
    values = np.random.default_rng(0).normal(size=(500, 3)) * 50
    whole, unit = whole_numbers(values)
    assert np.abs(whole * unit - values).max() <= unit / 2 <= 50 * 5 * 2.0**-43
    assert np.abs(whole).sum(axis=0).max() < 2**53 and (whole == np.rint(whole)).all()
    counts = draw_counts(500, 300, seed=0)
    backwards = resampled_means(counts[:, ::-1], values[::-1])
    assert np.array_equal(resampled_means(counts, values), backwards)


@settings(max_examples=30, deadline=None)
@given(
    arrays(np.float64, st.integers(2, 15), elements=st.integers(-40, 40).map(lambda k: k / 8)),
    st.sampled_from([0.5, 0.9, 0.95]),
)
def test_bca_is_its_definition_with_a_jackknife(values, level):
    counts = draw_counts(len(values), 150, seed=2)
    column = values[:, None]
    lower, upper = bca_intervals(both_means(counts, column), [column], level)
    np.testing.assert_allclose([lower[0], upper[0]], ranking.bca(values, counts, level), atol=1e-9)


def test_comparison_by_hand():
    # d = 3, 1, 0, -2: mean 1/2; squared deviations 25/4 + 1/4 + 1/4 + 25/4 = 13, s_d = √(13/3),
    # d_z = √3/(2√13) = 0.240192.
    table = returns_of({("a", "{}"): [5, 3, 2, 1], ("b", "{}"): [2, 2, 2, 3]})
    [part] = resample_all(pair(table), resamples=50)
    [row] = compare([part]).to_dict("records")
    assert (row["algorithm"], row["other"], row["n"], row["difference"]) == ("a", "b", 4, 0.5)
    assert row["improvement"] == 0.625 == ranking.improvement([5, 3, 2, 1], [2, 2, 2, 3])
    assert row["effect_size"] == pytest.approx(0.2401922, abs=1e-7)
    assert row["difference_lower"] < 0.5 < row["difference_upper"]


def test_effect_sizes_that_the_formula_does_not_give():
    d = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 3.0]])
    np.testing.assert_array_equal(effect_size(d), [0, np.nan, 2 / np.sqrt(2)])
    np.testing.assert_array_equal(effect_size(d[:1]), [0, np.nan, np.nan])
    assert np.isnan(effect_size(1e-300 * d[:, 2:])).all()  # whose squares are 0


def test_where_all_mdps_agree_intervals_have_no_width():
    table = stability(np.array([[2.0, 1], [3, 2], [4, 3]]))
    row = ranks_table([table]).iloc[1]
    for name in ("best_difference", "best_improvement"):
        assert (row[f"{name}_lower"], row[name], row[f"{name}_upper"]) == (1, 1, 1)
    assert (row["rank_lower"], row["rank_upper"], row["first"]) == (2, 2, 0)


@settings(max_examples=50, deadline=None)
@given(SMALL)
def test_ranks_and_kendalls_tau_by_loops(costs):
    ranks = ranks_of(costs.astype(float))
    assert ranks.tolist() == [ranking.ranks(-row) for row in costs]
    for row, tau in zip(ranks, kendall(ranks[0], ranks), strict=True):
        np.testing.assert_allclose(tau, kendalltau(ranks[0], row).statistic, atol=1e-12)


def test_stability_by_loops():
    scores = np.random.default_rng(5).integers(0, 4, (9, 5)).astype(float)
    order = stability(scores, resamples=40)
    paired, counts = order.parts[0].paired, order.parts[0].counts
    slow = [
        ranking.ranks(
            [sum(c * s for c, s in zip(row, column, strict=True)) for column in paired.scores.T]
        )
        for row in counts
    ]
    assert order.redrawn.tolist() == slow
    assert order.ranks.tolist() == ranking.ranks(paired.scores.sum(axis=0))
    shares = [[np.mean([row[k] == rank for row in slow]) for rank in range(1, 6)] for k in range(5)]
    np.testing.assert_allclose(order.shares(), shares)
    assert list(ranks_table([order])["first"]) == [
        shares[k][0] for k in np.argsort(order.ranks, kind="stable")
    ]


def test_probability_of_being_first_is_a_binomial_one():
    # a wins by 1 on 13 of 20 MDPs and loses by 1 on 7: it is first, or tied, where 10 of 20 draws
    # or more are wins. 20,000 resamples have a standard error of at most 0.0020; 5 of them: false
    # alarm below 1e-6.
    a = np.where(np.arange(20) < 13, 1.0, 0.0)
    order = stability(np.stack([a, 1 - a], axis=1), resamples=20_000)
    table = ranks_table([order]).set_index("algorithm")
    assert table.loc["a", "first"] == pytest.approx(binom.sf(9, 20, 0.65), abs=0.01)
    assert table.loc["b", "first"] == pytest.approx(binom.cdf(10, 20, 0.65), abs=0.01)
    assert (table.loc["a", "rank_lower"], table.loc["a", "rank_upper"]) == (1, 2)


def test_identical_agents_tie_in_every_resample():
    rng = np.random.default_rng(1)
    same = rng.normal(size=200) / 3
    scores = np.stack([same, rng.normal(size=200) / 3, same, same], axis=1)
    order = stability(scores, resamples=3000)
    which = order.parts[0].paired.agents["algorithm"].isin(["a", "c", "d"]).to_numpy()
    assert (np.ptp(order.redrawn[:, which], axis=1) == 0).all()
    pairs = compare(order.parts)
    alike = pairs[pairs["algorithm"].isin(["a", "c"]) & pairs["other"].isin(["c", "d"])]
    assert len(alike) == 3
    values = dict.fromkeys(("difference", "difference_lower", "difference_upper", "effect_size"), 0)
    values |= dict.fromkeys(("improvement", "improvement_lower", "improvement_upper"), 0.5)
    assert (alike[list(values)] == pd.Series(values)).all(axis=None)


def test_experiments_on_the_same_mdps_are_resampled_together():
    scores = np.random.default_rng(2).normal(size=(30, 3))
    tests = {"GC": "GC", "GC-inaccurate": "GC", "GDL": "GDL"}
    table = pd.concat([agents(scores, name) for name in tests])
    parts = resample_all(pair(table), tests=tests, resamples=60)
    assert [part.stream for part in parts] == [0, 0, 1]
    assert np.array_equal(parts[0].counts, parts[1].counts)
    assert not np.array_equal(parts[0].counts, parts[2].counts)
    assert [part.stream for part in resample_all(pair(table), resamples=60)] == [0, 1, 2]
    # Twice the same scores are no more evidence than once, so the mean of the two has the interval
    # of the one.
    once, twice = compare(parts[:1]), compare(parts[:2])
    measures = ["improvement", "improvement_lower", "improvement_upper"]
    np.testing.assert_allclose(twice[measures], once[measures], atol=1e-12)
    assert twice["difference"].isna().all() and twice["effect_size"].isna().all()


def test_overall_ranks_the_mean_ranks_of_agents_in_all_experiments():
    first = returns_of(
        {("a", "1"): [9, 9], ("b", "1"): [8, 8], ("c", "1"): [7, 7], ("d", "1"): [6, 6]}, "E"
    )
    second = returns_of({("b", "2"): [5, 5], ("c", "1"): [4, 4], ("a", "1"): [3, 3]}, "F")
    parts = resample_all(pair(pd.concat([first, second])), resamples=10)
    table = ranks_table([overall(parts, ["algorithm"])]).set_index("algorithm")
    assert table["mean_rank"].to_dict() == {"b": 1.5, "a": 2.0, "c": 2.5}
    assert table["rank"].to_dict() == {"b": 1, "a": 2, "c": 3}
    assert table["parameters"].to_dict() == {"b": "", "a": "1", "c": "1"}
    assert set(table["experiment"]) == {ALL} and set(table["n"]) == {4}
    assert table.loc["a", "best_improvement"] == 0.5 and table.loc["c", "best_improvement"] == 1
    pairs = pairs_table([overall(parts, ["algorithm"])])
    assert list(pairs["algorithm"] + pairs["other"]) == ["ba", "bc", "ac"]
    assert pairs["improvement"].tolist() == [0.5, 1, 0.5]
    with pytest.raises(JbrlError, match="1 agents have scores in all 2 experiments"):
        overall([parts[0].take([0, 1]), parts[1].take([0, 1])], ["algorithm"])


def test_orders_say_how_much_is_left():
    sure = np.arange(4.0) + np.zeros((10, 1))
    row = orders_table([stability(sure, resamples=30)]).iloc[0]
    assert row[["agents", "n", "resamples"]].tolist() == [4, 10, 30]
    shares = ["tau", "tau_lower", "tau_upper", "same_first", "same_order"]
    assert row[shares].tolist() == [1] * 5


@pytest.mark.parametrize("level", [0, 1, 1.5, float("nan")])
def test_bad_levels_are_refused(level):
    order = stability(np.eye(3))
    for table in (ranks_table, pairs_table, orders_table):
        with pytest.raises(JbrlError, match="level"):
            table([order], level)


@pytest.mark.parametrize(("resamples", "seed"), [(0, 0), (10, -1), (1.5, 0), (True, 0)])
def test_bad_options_of_resampling_are_refused(resamples, seed):
    with pytest.raises(JbrlError, match="bootstrap: "):
        draw_counts(5, resamples, seed)
    message = "50000 resamples of 100000 environments: expected at most 40000, which take 4 GB"
    with pytest.raises(JbrlError, match=message):
        draw_counts(100_000, 50_000, 0)


def test_one_mdp_leaves_everything_open():
    """Drawn again and again, it is as certain as it can be."""
    one = stability([[3.0, 2.0, 1.0]])
    ranks, pairs = ranks_table([one]), pairs_table([one])
    assert ranks["rank"].tolist() == [1, 2, 3] and ranks["first"].isna().all()
    assert set(ranks["rank_lower"]) == {1} and set(ranks["rank_upper"]) == {3}
    assert pairs["difference"].tolist() == [1, 2, 1] and set(pairs["improvement"]) == {1}
    ends = [f"{name}_{end}" for name in ("difference", "improvement") for end in ("lower", "upper")]
    assert pairs[ends].isna().all(axis=None)
    assert orders_table([one]).iloc[0, 4:].isna().all()


def test_a_single_agent_has_no_rank():
    with pytest.raises(JbrlError, match=r"a \{\} is the only agent"):
        stability(np.ones((3, 1)))


def replications(n, times, seed):
    """Comparisons of two agents of equal means on `n` MDPs, with differences of skewness 2."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(n, times))
    scores = np.stack([base + rng.exponential(size=(n, times)) - 1, base], axis=2).reshape(n, -1)
    names = pd.DataFrame({"algorithm": np.arange(2 * times), "parameters": ""})
    paired = Paired("GC", names, None, scores, scores.mean(axis=0))
    pairs = [(k, k + 1) for k in range(0, 2 * times, 2)]
    return _measures([resampled(paired, draw_counts(n, 1000, 0))], pairs, 0.95)


def test_intervals_miss_about_as_often_as_they_say():
    # Intervals of level 0.95 that miss in 3 to 9 % of replications would be flagged here with
    # probability below 0.1 at either end.
    measures = replications(60, 400, 11)
    for name, truth in (("difference", 0.0), ("improvement", np.exp(-1))):
        missed = (measures[f"{name}_lower"] > truth) | (measures[f"{name}_upper"] < truth)
        assert 0.02 * 400 <= missed.sum() <= 0.10 * 400, name


def test_differences_of_twenty_environments_are_covered_as_often_as_is_said():
    """Skewness 2: the studentised interval covers 0.957 (4,000 data sets), BCa 0.911.

    1,500 data sets: fewer than 0.935 or more than 0.975 covered has a probability below 1e-4.
    """
    measures = replications(20, 1500, 12)
    covered = (measures["difference_lower"] <= 0) & (measures["difference_upper"] >= 0)
    assert 0.935 < covered.mean() < 0.975


def test_differences_of_few_environments_contain_students_interval():
    d = np.random.default_rng(3).exponential(size=(8, 1))
    low, high = studentised_intervals(draw_counts(8, 500, 0), d)
    half = 2.364624251 * d.std(ddof=1) / np.sqrt(8)  # Student's, 7 degrees of freedom
    assert low[0] <= d.mean() - half + 1e-9 and high[0] >= d.mean() + half - 1e-9
    assert high[0] - d.mean() > d.mean() - low[0]  # to the side of the long tail
    constant = studentised_intervals(draw_counts(8, 50, 0), np.full((8, 1), 3.0))
    assert [end[0] for end in constant] == [3.0, 3.0]


def test_resamples_without_spread_do_not_widen_an_interval():
    """One environment differs: a third of the resamples lack it, and have equal values."""
    d, counts = np.append(np.zeros(23), 0.6), draw_counts(24, 400, 0)
    drawn = [np.repeat(d, times) for times in counts if times[-1]]
    t = [(x.mean() - d.mean()) / (x.std(ddof=1) / np.sqrt(24)) for x in drawn]
    error = d.std(ddof=1) / np.sqrt(24)
    _, high = studentised_intervals(counts, d[:, None])
    assert high[0] == pytest.approx(d.mean() - error * min(np.quantile(t, 0.025), -2.0686576))
