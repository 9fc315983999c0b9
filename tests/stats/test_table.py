"""Means and intervals of agents against analytic values; few rows of what searches have tried;
metrics of rliable's kind.
"""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from jbrl.base.errors import JbrlError
from jbrl.stats.evaluation import metrics as evaluation
from jbrl.stats.evaluation.metrics import metrics, performance_profiles, probability_of_improvement
from jbrl.stats.evaluation.samples import samples_of
from jbrl.stats.table import evenly, factor95, few, is_training, rows_of, samples, summarise
from tests.stats.evaluation_cases import random_samples, table_of
from tests.stats.tables import returns_of

SCORES = arrays(np.float64, st.integers(2, 30), elements=st.floats(-100, 100, width=32))


def test_by_hand():
    # 2, 4, 4, 6, 9: mean 5, squared deviations 9 + 1 + 1 + 1 + 16 = 28, s = √(28 / 4) = √7;
    # Student's quantile at 0.975 for 4 degrees of freedom is 2.776445 (tables), 2.776445 √7 / √5 =
    # 3.285141...
    samples = summarise(returns_of({("Random", "{}"): [2, 4, 4, 6, 9]})).iloc[0]
    assert (samples["n"], samples["mean"]) == (5, 5)
    assert samples["std"] == pytest.approx(math.sqrt(7), rel=1e-15)
    assert samples["ci95"] == pytest.approx(3.285141, abs=1e-5)


def test_rows_are_those_of_the_agents_asked_for():
    table = returns_of({("A", "{}"): [1, 2], ("A", "{1}"): [3], ("B", "{}"): [4]})
    assert rows_of(table, table[table["parameters"] == "{}"])["score"].tolist() == [1, 2, 4]


def test_published_width():
    # 31.12 ± 0.9 for N = 500 (paper, Fig. 9) needs s near 10 with √N; with the printed 2σ/N it
    # would need s = 225, more than the largest possible return, 200.
    spread = np.tile([-10.0, 10.0], 250) + 31.12
    samples = summarise(returns_of({("Random", "{}"): spread})).iloc[0]
    assert round(samples["ci95"], 1) == 0.9


def test_one_row_per_agent_in_order_of_appearance():
    table = returns_of(
        {("e-Greedy", "1"): [1, 2], ("e-Greedy", "0"): [3, 5], ("BEB", "{}"): [0, 0]}
    )
    summary = summarise(table)
    statistics = {"n": "int64", "mean": "float64", "std": "float64", "ci95": "float64"}
    assert list(summary.columns) == ["experiment", "algorithm", "parameters", *statistics]
    assert summary[list(statistics)].dtypes.astype(str).to_dict() == statistics
    assert list(summary["parameters"]) == ["1", "0", "{}"]
    assert list(summary["mean"]) == [1.5, 4, 0]
    assert summary["std"].iloc[2] == 0


def test_scores_of_each_agent_are_those_of_its_own_environments():
    table = returns_of({("e-Greedy", "0"): [1, 2], ("BEB", "{}"): [3, 5], ("Random", "{}"): [4, 6]})
    last = table["algorithm"] == "Random"
    table.loc[last, "unit"] += 7
    first, second, third = samples(table).values()
    assert first.index is second.index
    assert list(third.index.get_level_values("unit")) == list(table.loc[last, "unit"])


def test_one_sample_has_no_spread():
    samples = summarise(returns_of({("Random", "{}"): [3]})).iloc[0]
    assert samples["mean"] == 3
    assert np.isnan(samples["std"])
    assert np.isnan(samples["ci95"])


def test_sums_in_float64():
    table = returns_of({("Random", "{}"): [1e8 + 1, 1e8 + 2, 1e8 + 3]})
    assert summarise(table)["std"].iloc[0] == pytest.approx(1, rel=1e-12)


def test_other_columns_can_group():
    table = pd.concat([returns_of({("a", "{}"): [1, 3]}), returns_of({("b", "{}"): [5, 7]})])
    summary = summarise(table, by=["experiment"])
    assert list(summary.columns) == ["experiment", "n", "mean", "std", "ci95"]
    assert summary["mean"].iloc[0] == 4


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_refuses_what_is_not_finite_and_names_the_row(bad):
    table = returns_of({("Random", "{}"): [1, 2], ("BEB", '{"beta": 2.5}'): [3, 4]})
    table.loc[3, "score"] = bad
    message = rf'row 4 .*algorithm BEB, parameters \{{"beta": 2.5\}}\): score {bad}: .*finite'
    with pytest.raises(JbrlError, match=message):
        summarise(table)


def test_refuses_text_and_counts_the_rest():
    table = returns_of({("Random", "{}"): [1, 2, 3]}).astype({"score": object})
    table.loc[[1, 2], "score"] = "n/a"
    with pytest.raises(JbrlError, match=r"row 2 .*'n/a'.*and 1 more"):
        summarise(table)


def test_missing_column_is_named():
    with pytest.raises(JbrlError, match=r"no column parameters \(columns found: .*algorithm"):
        summarise(returns_of({("Random", "{}"): [1]}).drop(columns="parameters"))


@settings(max_examples=50)
@given(SCORES, st.floats(-50, 50, width=32))
def test_mean_moves_with_the_scores_and_the_width_does_not(scores, shift):
    before = summarise(returns_of({("a", "{}"): scores})).iloc[0]
    after = summarise(returns_of({("a", "{}"): scores + shift})).iloc[0]
    assert after["mean"] == pytest.approx(before["mean"] + shift, abs=1e-9)
    assert after["ci95"] == pytest.approx(before["ci95"], abs=1e-9)


@settings(max_examples=50)
@given(SCORES)
def test_agrees_with_numpy_and_lies_in_the_range(scores):
    samples = summarise(returns_of({("a", "{}"): scores})).iloc[0]
    assert scores.min() - 1e-9 <= samples["mean"] <= scores.max() + 1e-9
    assert samples["ci95"] == pytest.approx(
        stats.t.ppf(0.975, len(scores) - 1) * scores.std(ddof=1) / np.sqrt(len(scores)), abs=1e-9
    )


def test_the_factor_is_students_below_a_hundred_scores():
    factors = factor95(np.array([1, 2, 20, 99, 100, 500]))
    assert np.isnan(factors[0])
    assert factors[1:] == pytest.approx([12.7062, 2.0930, 1.9845, 1.96, 1.96], abs=1e-4)


@pytest.mark.parametrize(
    ("n", "intervals", "seed", "least", "most"),
    [(10, 4000, 1, 0.935, 0.965), (100, 2000, 0, 0.93, 0.965)],
)
def test_intervals_cover_the_truth_95_times_in_100(n, intervals, seed, least, most):
    # Normal samples: of n = 10 coverage .95, standard deviation .0034, with 1.96 for Student's
    # factor .918; of n = 100 coverage .947 (Student against normal), standard deviation .005.
    # Outside with probability below 1e-4 and 0.001.
    scores = np.random.default_rng(seed).normal(7, 3, (intervals, n))
    summary = summarise(returns_of({("a", str(i)): row for i, row in enumerate(scores)}))
    assert least < ((summary["mean"] - 7).abs() <= summary["ci95"]).mean() < most


@pytest.mark.parametrize(
    ("count", "n", "rows"),
    [
        (6, 3, [1, 3, 5]),
        (5, 2, [1, 4]),
        (50, 1, [49]),
        (4, 4, [0, 1, 2, 3]),
        (2, 5, [0, 1]),
        (0, 5, []),
    ],
)
def test_rows_are_evenly_spaced_up_to_the_last(count, n, rows):
    assert evenly(count, n).tolist() == rows


def table() -> pd.DataFrame:
    """A search, a training, another search with fewer rows than are asked for."""
    tried = {
        "OPPS-DS": ["Q0", "to lifetime 1", "Q2", "Q0/Q2"],
        "BeliefPPO": [f"to lifetime {n:,}" for n in range(500, 3500, 500)],
        "OPPS-CS": ["(1, 0, 0)"],
    }
    rows = [
        {"prior": "GC", "algorithm": name, "parameters": "{}", "seed": 0, "strategy": strategy}
        for name, strategies in tried.items()
        for strategy in strategies
    ]
    return pd.DataFrame(rows)


def test_few_rows_of_each_search_stay_in_order():
    assert few(table(), 3)["strategy"].tolist() == [
        *("Q0", "to lifetime 1", "Q2"),
        *("to lifetime 1,000", "to lifetime 2,000", "to lifetime 3,000"),
        "(1, 0, 0)",
    ]
    pd.testing.assert_frame_equal(few(table(), 50), table())
    assert few(table().iloc[:0], 3).empty


def test_a_training_is_told_from_a_search():
    trainings = [is_training(rows) for _, rows in table().groupby("algorithm", sort=False)]
    assert np.array_equal(trainings, [False, True, False])


def values(table, algorithm="A0"):
    return table[table["algorithm"] == algorithm].set_index("metric")["value"].to_dict()


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 13), st.integers(1, 4))
def test_point_values_are_those_of_rliable(seed, runs, m):
    """As rliable defines them: runs x tasks matrices, scipy's trimmed mean over all of them."""
    raw = random_samples(seed, 2, m, sizes=(runs, runs + 1), values=None)
    table = table_of(raw)
    point = values(metrics(samples_of(table), resamples=2))
    scores = table.groupby("environment")["score"]
    scaled = (table["score"] - scores.transform("min")) / scores.transform(np.ptp)
    matrix = scaled[table["algorithm"] == "A0"].to_numpy().reshape(m, runs).T
    assert point["mean"] == pytest.approx(matrix.mean())
    assert point["median"] == pytest.approx(np.median(matrix.mean(axis=0)))
    assert point["iqm"] == pytest.approx(stats.trim_mean(matrix, 0.25, axis=None))
    assert point["optimality_gap"] == pytest.approx(1 - np.minimum(matrix, 1).mean())


def test_environments_weigh_the_same_whatever_their_number_of_samples():
    both = [0.0, 1.0]
    table = table_of({(0, 0): [1] * 90 + [0] * 10, (0, 1): both, (1, 0): both, (1, 1): both})
    point = values(metrics(samples_of(table), resamples=2))
    assert point["mean"] == pytest.approx(0.7)
    assert point["median"] == pytest.approx(0.7)
    assert point["optimality_gap"] == pytest.approx(0.3)


def test_resampling_stays_within_environments_and_honours_the_seed():
    """Constant environments leave no uncertainty, however different they are."""
    samples = samples_of(
        table_of({(i, j): [float(i + j)] * 5 for i in range(2) for j in range(2)}),
        bounds={"E0": (0, 2), "E1": (0, 2)},
    )
    table = metrics(samples, resamples=50)
    for end in ("lower", "upper"):
        assert table[end].to_numpy() == pytest.approx(table["value"].to_numpy())
    other = samples_of(table_of(random_samples(1, 2, 2, values=None)))
    first, again, another = (metrics(other, resamples=50, seed=seed) for seed in (3, 3, 4))
    assert first.equals(again) and not first.equals(another)


@pytest.mark.parametrize(("block", "parts"), [(4_000_000, [9]), (49, [4, 4, 1]), (1, [1] * 9)])
def test_a_seed_draws_the_same_on_any_machine(block, parts, monkeypatch):
    """One environment after the other, for as many resamples of 12 scores as a block holds."""
    monkeypatch.setattr(evaluation, "_BLOCK", block)
    cells = [np.arange(0, 0.5, 0.1) ** 2, np.arange(0.05, 0.7, 0.1) ** 2]
    raw = {(i, j): cells[j] for i in range(2) for j in range(2)}
    samples = samples_of(table_of(raw), bounds={"E0": (0, 1), "E1": (0, 1)})
    generator = np.random.default_rng([3, 1])  # of seed 3, algorithm 1
    drawn = [
        np.mean(
            [x[generator.integers(0, len(x), (n, len(x)), np.uint32)].mean(1) for x in cells], 0
        )
        for n in parts
    ]
    row = metrics(samples, ["mean"], resamples=9, seed=3, delta=0.2).iloc[1]
    ends = np.quantile(np.concatenate(drawn), [0.1, 0.9])
    assert (row["lower"], row["upper"]) == pytest.approx(tuple(ends), rel=1e-12)


@pytest.mark.parametrize(("held", "resamples"), [(10**8, 2000), (3300, 150), (2199, 100)])
def test_an_overview_draws_fewer_resamples_of_many_scores(held, resamples, monkeypatch):
    """22 scores: 3300 make 150 resamples. The better agent stands first."""
    monkeypatch.setattr(evaluation, "_DRAWN", held)
    raw = {(i, 0): np.random.default_rng(i).random(11) + i for i in range(2)}
    samples = samples_of(table_of(raw))
    found = evaluation.overview(samples, seed=3)
    expected = metrics(samples, ["mean"], resamples=resamples, seed=3).iloc[::-1]
    assert found["algorithm"].tolist() == ["A1", "A0"]
    shown = found[["mean", "mean_lower", "mean_upper"]]
    np.testing.assert_array_equal(shown, expected[["value", "lower", "upper"]])
    np.testing.assert_array_equal(found["above_first"], [np.nan, 0])


def test_intervals_are_those_of_scipy():
    """Percentile bootstrap of a mean; both Monte Carlo: ends within a tenth of the
    standard error.
    """
    raw = {(0, 0): np.random.default_rng(0).normal(size=40), (1, 0): np.zeros(3)}
    samples = samples_of(table_of(raw), bounds={"E0": (-5, 5)})
    row = metrics(samples, ["mean"], resamples=4000).iloc[0]
    theirs = stats.bootstrap(
        (raw[0, 0],), np.mean, method="percentile", n_resamples=4000, rng=np.random.default_rng(1)
    )
    ends = theirs.confidence_interval
    assert row["lower"] == pytest.approx((ends.low + 5) / 10, abs=0.1 * theirs.standard_error / 10)
    assert row["upper"] == pytest.approx((ends.high + 5) / 10, abs=0.1 * theirs.standard_error / 10)


def test_profiles():
    samples = samples_of(table_of({(0, 0): [0, 0.5, 1], (1, 0): [0.2, 0.2]}))
    table = performance_profiles(samples, [0, 0.2, 0.5, 1], resamples=20)
    assert table[table["algorithm"] == "A0"]["value"].tolist() == pytest.approx(
        [2 / 3, 2 / 3, 1 / 3, 0]
    )
    assert table[table["algorithm"] == "A1"]["value"].tolist() == pytest.approx([1, 0, 0, 0])
    assert (table["lower"] <= table["value"] + 1e-12).all()
    assert (table["value"] <= table["upper"] + 1e-12).all()
    table = performance_profiles(samples, resamples=2)
    assert table["threshold"].to_numpy() == pytest.approx(np.tile(np.arange(101) / 100, 2))
    assert table.index.equals(pd.RangeIndex(202))


def test_probability_of_improvement_is_mann_whitney():
    raw = random_samples(2, 3, 2, sizes=(17, 31), values=4)
    table = probability_of_improvement(samples_of(table_of(raw)), resamples=40).set_index(
        ["algorithm", "other"]
    )
    for i, k in ((0, 1), (2, 0)):
        u = [
            stats.mannwhitneyu(raw[i, j], raw[k, j]).statistic / (len(raw[i, j]) * len(raw[k, j]))
            for j in range(2)
        ]
        row = table.loc[f"A{i}", f"A{k}"]
        assert row["value"] == pytest.approx(np.mean(u))
        assert row["lower"] <= row["value"] <= row["upper"]
        assert table.loc[f"A{k}", f"A{i}"]["value"] == pytest.approx(1 - np.mean(u))


def test_one_score_leaves_no_interval_of_its_own_agent_alone():
    raw = {(0, 0): [1.0, 2.0], (1, 0): [1.5], (2, 0): [0.5, 3.0]}
    samples = samples_of(table_of(raw))
    for table in (metrics(samples, resamples=9), probability_of_improvement(samples, resamples=9)):
        other = table.get("other", table["algorithm"])
        alone = (table["algorithm"] == "A1") | (other == "A1")
        assert (table["lower"].isna() == alone).all() and (table["upper"].isna() == alone).all()


def test_bad_input():
    samples = samples_of(table_of({(0, 0): [1.0, 1.0], (1, 0): [1.0]}))
    with pytest.raises(JbrlError, match="environment 'E0': all scores are 1: they have no scale"):
        metrics(samples)
    with pytest.raises(JbrlError, match="unknown metric 'iqr'; did you mean 'iqm'"):
        metrics(samples, ["iqr"])
    for measure in (metrics, performance_profiles, probability_of_improvement):
        with pytest.raises(JbrlError, match=r"delta = 1\.0: expected"):
            measure(samples, delta=1.0)
