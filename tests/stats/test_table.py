"""Means and intervals of agents against analytic values; few rows of what searches have tried."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from jbrl.base.errors import JbrlError
from jbrl.stats.table import evenly, factor95, few, is_training, samples, summarise
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
    message = r'row 4 .*algorithm BEB, parameters \{"beta": 2.5\}.*finite'
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
def test_rows_are_evenly_spaced_up_to_the_last(count: int, n: int, rows: list[int]) -> None:
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


def test_few_rows_of_each_search_stay_in_order() -> None:
    assert few(table(), 3)["strategy"].tolist() == [
        *("Q0", "to lifetime 1", "Q2"),
        *("to lifetime 1,000", "to lifetime 2,000", "to lifetime 3,000"),
        "(1, 0, 0)",
    ]
    pd.testing.assert_frame_equal(few(table(), 50), table())
    assert few(table().iloc[:0], 3).empty


def test_a_training_is_told_from_a_search() -> None:
    trainings = [is_training(rows) for _, rows in table().groupby("algorithm", sort=False)]
    assert np.array_equal(trainings, [False, True, False])
