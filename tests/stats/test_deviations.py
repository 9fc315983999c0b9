"""Deviations from the published comparison, against simulated studies whose truth is known."""

import functools

import numpy as np
import pandas as pd
import pytest

from jbrl.stats import agreement, deviations
from jbrl.stats.table import factor95
from tests.published_study import rows, study


@functools.cache
def whole(shift=0.0):
    returns, units = study(shift)
    scores = agreement.played(returns, units)
    candidates = agreement.with_published(scores)
    return agreement.verdicts(candidates), candidates, scores, returns


def test_a_study_that_is_the_published_one_deviates_by_nothing():
    table, _, _, returns = whole()
    found = deviations.deviations(table, returns)
    assert (found.cells, found.within) == (48, 48)
    assert found.expected == pytest.approx(45.6)
    assert found.mean == pytest.approx(0.0, abs=1e-6)
    assert found.text.startswith("48 of 48 played cells lie within 1.96 combined standard errors")


def test_half_widths_apart_are_counted_in_combined_standard_errors():
    """Off by 1.5 half-widths: 1.5 x 1.96 / √2 = 2.08 errors, which agrees by the sum of
    half-widths.
    """
    table, _, _, returns = whole(1.5)
    found = deviations.deviations(table, returns)
    assert agreement.counts(table)["differs"] == 0
    spread = table["published_ci95"] > 0
    assert found.within == (~spread).sum() < 10
    assert found.mean == pytest.approx(1.5 * 1.96 / np.sqrt(2) * spread.mean(), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "sizes"),
    [(0.0, [400] * 8), (0.9, [400] * 8), (0.9, [400, 50, 400, 25, 100, 400, 50, 200])],
)
def test_the_error_of_the_mean_is_that_of_simulated_pairs_of_studies(share, sizes):
    """2,000 pairs: a standard deviation is known to 1.6%, so 7% is passed by chance once in 10^5.

    The published study plays all 400 MDPs, ours the first ones of them for each agent.
    """
    rng = np.random.default_rng(0)
    n, k = 400, len(sizes)

    def scores(count):
        common = rng.normal(size=(count, n, 1))
        return np.sqrt(share) * common + np.sqrt(1 - share) * rng.normal(size=(count, n, k))

    def means(drawn, sizes):
        return np.stack([drawn[:, :m, j].mean(axis=1) for j, m in enumerate(sizes)], axis=1)

    one = scores(1)[0]
    parts = [rows("accurate", "GC", f"A{j}", {}, one[:m, j]) for j, m in enumerate(sizes)]
    returns = pd.concat(parts, ignore_index=True)
    errors = np.sqrt(1 / np.array(sizes))
    table = pd.DataFrame(
        {
            "case": "accurate",
            "experiment": "GC",
            "played_in": "GC",
            "agent": [f"A{j}" for j in range(k)],
            "parameters": "{}",
            "n": sizes,
            "apart": 0.0,
            "ci95": factor95(np.array(sizes)) * errors,
            "published_ci95": 1.96 / np.sqrt(n),
        }
    )
    error = deviations.deviations(table, returns).standard_error
    pairs = (means(scores(2000), sizes) - means(scores(2000), [n] * k)) / np.hypot(
        errors, 1 / np.sqrt(n)
    )
    assert error == pytest.approx(pairs.mean(axis=1).std(), rel=0.07 if share == 0 else 0.1)


def test_the_best_of_equals_is_too_high_by_what_theory_says():
    """E max of 8 standard normals is 1.4236. The bootstrap sees chance differences as true ones."""
    rng = np.random.default_rng(1)
    found = [deviations.best_of_several(rng.normal(size=(500, 8)), 500) for _ in range(60)]
    true = 1.4236 / np.sqrt(500)
    assert 0.4 * true < np.mean(found) < true
    apart = rng.normal(size=(500, 8)) + 10 * np.arange(8)
    assert abs(deviations.best_of_several(apart, 500)) < 0.05 * true


def test_the_advantage_has_the_size_of_published_samples():
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(2000, 5))
    assert deviations.best_of_several(scores, 500) == pytest.approx(
        2 * deviations.best_of_several(scores, 2000)
    )


def test_cells_with_one_setting_have_no_advantage():
    _, candidates, scores, returns = whole()
    assert deviations.advantages(candidates, scores, returns).empty
    best = scores[(scores["experiment"] == "GC") & (scores["algorithm"] == "BEB")].iloc[0]
    mine = returns[(returns["experiment"] == "GC") & (returns["algorithm"] == "BEB")]
    twin = mine.assign(parameters='{"beta": 77.0}', score=mine["score"].to_numpy()[::-1])
    more = pd.concat([returns, twin], ignore_index=True)
    told = agreement.played(more, more)
    found = deviations.advantages(agreement.with_published(told), told, more)
    assert list(found["algorithm"]) == ["BEB"] and list(found["settings"]) == [2]
    assert 0 < found["advantage"].iloc[0] < best["ci95"]
    table = agreement.verdicts(agreement.with_published(told))
    assert -0.1 < deviations.explained(table, found) < 0
