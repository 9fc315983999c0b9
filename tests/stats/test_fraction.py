"""Fractions of the way between two agents: known values, the bootstrap, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from jbrl.base.errors import JbrlError
from jbrl.stats.paired_test import fractions
from tests.stats.tables import returns_of

RANDOM, OPTIMAL, AGENT = ("Random", "{}"), ("Optimal", "{}"), ("A", "{}")


def played(n=200, seed=0):
    rng = np.random.default_rng(seed)
    mdps = rng.gamma(4.0, 5.0, n)
    return {
        RANDOM: mdps + rng.normal(0, 2, n),
        OPTIMAL: 2 * mdps + rng.normal(0, 2, n),
        AGENT: 1.5 * mdps + rng.normal(0, 2, n),
    }


def row(found, who):
    return found.set_index(["algorithm", "parameters"]).loc[who]


def test_ends_and_order():
    found = fractions(returns_of(played()), RANDOM, OPTIMAL)
    assert list(found["algorithm"]) == ["Random", "Optimal", "A"]
    assert tuple(row(found, RANDOM)[["fraction", "ci95"]]) == pytest.approx((0, 0), abs=1e-12)
    assert tuple(row(found, OPTIMAL)[["fraction", "ci95"]]) == pytest.approx((1, 0), abs=1e-12)


def test_the_exact_ratio_where_there_is_no_noise():
    mdps = np.linspace(1, 9, 20)
    found = fractions(
        returns_of({RANDOM: 0 * mdps, OPTIMAL: 2 * mdps, AGENT: 0.5 * mdps}), RANDOM, OPTIMAL
    )
    assert tuple(row(found, AGENT)[["n", "fraction", "ci95"]]) == pytest.approx(
        (20, 0.25, 0), abs=1e-12
    )


def test_the_interval_agrees_with_the_bootstrap():
    samples = played()
    found = row(fractions(returns_of(samples), RANDOM, OPTIMAL), AGENT)
    a, low, high = (samples[who] for who in (AGENT, RANDOM, OPTIMAL))
    draws = np.random.default_rng(1).integers(0, 200, (4000, 200))
    resampled = (a[draws].mean(1) - low[draws].mean(1)) / (high[draws].mean(1) - low[draws].mean(1))
    assert found["fraction"] == pytest.approx((a.mean() - low.mean()) / (high.mean() - low.mean()))
    # 4000 draws: 1.1% standard error
    assert found["ci95"] == pytest.approx(1.96 * resampled.std(ddof=1), rel=0.06)


def test_the_order_of_mdps_does_not_matter():
    returns = returns_of(played())
    shuffled = pd.concat(
        [
            rows.sample(frac=1, random_state=i)
            for i, (_, rows) in enumerate(returns.groupby("algorithm", sort=False))
        ]
    )
    found, again = (fractions(table, RANDOM, OPTIMAL) for table in (returns, shuffled))
    pd.testing.assert_frame_equal(found, again)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r[r["algorithm"] != "Optimal"], r"no returns of Optimal \{\}"),
        (lambda r: r.iloc[:-1], r"A \{\} and Random were not played on the same environments"),
        (
            lambda r: r.assign(score=1.0),
            r"Optimal is not significantly better than Random \(Z = 0.00 over 200 environments\)",
        ),
        (lambda r: r[r["unit"] == 0], r"Z = nan over 1 environments"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(JbrlError, match=message):
        fractions(change(returns_of(played())), RANDOM, OPTIMAL)
