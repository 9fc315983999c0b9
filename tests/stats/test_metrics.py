"""Metrics of rliable's kind: known values, its definitions written out, and what resampling
must respect.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jbrl.base.errors import JbrlError
from jbrl.stats.evaluation.metrics import (
    METRICS,
    metrics,
    performance_profiles,
    probability_of_improvement,
    to_rliable,
)
from jbrl.stats.evaluation.samples import samples_of
from tests.stats.evaluation_cases import random_samples, table_of


def values(table, algorithm="A0"):
    return table[table["algorithm"] == algorithm].set_index("metric")["value"].to_dict()


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 13), st.integers(1, 4))
def test_point_values_are_those_of_rliable(seed, runs, m):
    """As rliable defines them: runs x tasks matrices, scipy's trimmed mean over all of them."""
    raw = random_samples(seed, 2, m, sizes=(runs, runs + 1), values=None)
    samples = samples_of(table_of(raw))
    point = values(metrics(samples, resamples=2))
    matrix = to_rliable(samples)["A0"]
    assert matrix.shape == (runs, m)
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


def test_bad_input():
    samples = samples_of(table_of({(0, 0): [1.0, 1.0], (1, 0): [1.0]}))
    with pytest.raises(JbrlError, match="environment 'E0': all scores are 1: expected bounds"):
        metrics(samples)
    assert set(metrics(samples, resamples=2, normalise=False)["metric"]) == set(METRICS)
    with pytest.raises(JbrlError, match="unknown metric 'iqr'; did you mean 'iqm'"):
        metrics(samples, ["iqr"])
    with pytest.raises(JbrlError, match="'A0' has 1 to 2 scores on an environment"):
        to_rliable(samples_of(table_of({(0, 0): [1, 2], (0, 1): [1], (1, 0): [1], (1, 1): [0]})))
