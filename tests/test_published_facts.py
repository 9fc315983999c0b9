"""The published comparison as a whole: published means, its distance, against simulated studies of
known truth, and winners from left to right.
"""

import functools

import numpy as np
import pandas as pd
import pytest

from experiments import castronovo2016, published
from jbrl.stats import two_studies
from jbrl.stats.published import castronovo2016 as data
from jbrl.stats.table import factor95
from tests.published_study import rows, sample, study

N = 200


@functools.cache
def whole(shift=0.0):
    returns, units = study(shift)
    scores = two_studies.played(returns, units)
    candidates = data.with_published(scores)
    return data.verdicts(candidates), candidates, scores, returns


def test_a_study_that_is_the_published_one_deviates_by_nothing():
    table, _, _, returns = whole()
    found = castronovo2016.deviations(table, returns)
    assert (found.cells, found.within) == (48, 48)
    assert found.expected == pytest.approx(45.6)
    assert found.mean == pytest.approx(0.0, abs=1e-6)
    assert found.text.startswith("48 of 48 played cells lie within 1.96 combined standard errors")


def test_half_widths_apart_are_counted_in_combined_standard_errors():
    """Off by 1.5 half-widths: 1.5 x 1.96 / √2 = 2.08 errors, which agrees by the sum of
    half-widths.
    """
    table, _, _, returns = whole(1.5)
    found = castronovo2016.deviations(table, returns)
    assert data.counts(table)["differs"] == 0
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
    columns = {"case": "accurate", "experiment": "GC", "played_in": "GC", "parameters": "{}"}
    columns |= {"agent": [f"A{j}" for j in range(k)], "n": sizes, "apart": 0.0}
    columns |= {"ci95": factor95(np.array(sizes)) * errors, "published_ci95": 1.96 / np.sqrt(n)}
    table = pd.DataFrame(columns)
    error = castronovo2016.deviations(table, returns).standard_error
    pairs = (means(scores(2000), sizes) - means(scores(2000), [n] * k)) / np.hypot(
        errors, 1 / np.sqrt(n)
    )
    assert error == pytest.approx(pairs.mean(axis=1).std(), rel=0.07 if share == 0 else 0.1)


def test_the_best_of_equals_is_too_high_by_what_theory_says():
    """E max of 8 standard normals is 1.4236. The bootstrap sees chance differences as true ones."""
    rng = np.random.default_rng(1)
    found = [castronovo2016.best_of_several(rng.normal(size=(500, 8)), 500) for _ in range(60)]
    true = 1.4236 / np.sqrt(500)
    assert 0.4 * true < np.mean(found) < true
    apart = rng.normal(size=(500, 8)) + 10 * np.arange(8)
    assert abs(castronovo2016.best_of_several(apart, 500)) < 0.05 * true


def test_cells_with_one_setting_have_no_advantage():
    _, candidates, scores, returns = whole()
    assert castronovo2016.advantages(candidates, scores, returns).empty
    best = scores[(scores["experiment"] == "GC") & (scores["algorithm"] == "BEB")].iloc[0]
    mine = returns[(returns["experiment"] == "GC") & (returns["algorithm"] == "BEB")]
    twin = mine.assign(parameters='{"beta": 77.0}', score=mine["score"].to_numpy()[::-1])
    more = pd.concat([returns, twin], ignore_index=True)
    told = two_studies.played(more, more)
    found = castronovo2016.advantages(data.with_published(told), told, more)
    assert list(found["algorithm"]) == ["BEB"] and list(found["settings"]) == [2]
    assert 0 < found["advantage"].iloc[0] < best["ci95"]
    table = data.verdicts(data.with_published(told))
    assert -0.1 < castronovo2016.explained(table, found) < 0


def contest(levels, case="accurate", experiment="GC"):
    """(played, returns): agents (name, mean, online seconds, offline seconds) with the same noise
    on every MDP.
    """
    noise = sample(0.0, 1.0, n=N)
    parts = [rows(case, experiment, name, {}, mean + noise) for name, mean, *_ in levels]
    first = pd.concat([part.iloc[:1] for part in parts])
    units = first.assign(
        online_seconds=[on for _, _, on, _ in levels], offline_seconds=[off for *_, off in levels]
    )
    returns = pd.concat(parts)
    return two_studies.played(returns, units), returns


LEVELS = [
    ("Random", 1.0, 1e-8, 0.0),
    ("SBOSS", 2.0, 1e-7, 0.0),
    ("SBOSS-published", 1.0, 1e-9, 0.0),
    ("e-Greedy", 3.0, 1e-6, 0.0),
    ("BEB", 3.0, 2e-6, 0.0),
    ("BEB-published", 4.0, 3e-6, 0.0),
    ("OPPS-DS", 9.0, 1e-9, 10.0),
    ("Formula", 9.0, 1e-9, 0.0),
    ("BAMCP", 9.0, 1e-9, 10.0),
]


@pytest.fixture(scope="module")
def steps():
    found = castronovo2016.winners(*contest(LEVELS))
    return found[(found["case"] == "accurate") & (found["experiment"] == "GC")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("paper", ["Random", "SBOSS", "BEB e-Greedy", "BEB BFS3 e-Greedy"]),
        # what costs as much offline as OPPS-DS is out
        ("as described", ["Random", "SBOSS", "e-Greedy", "BEB e-Greedy"]),
        ("as published", ["SBOSS", "Random SBOSS", "e-Greedy", "BEB"]),
    ],
)
def test_winners(steps, source, expected):
    mine = steps[steps["source"] == source]
    assert [" ".join(sorted(names)) for names in mine["algorithms"]] == expected
    assert list(mine["place"]) == list(range(1, len(expected) + 1))


def test_in_words(steps):
    told = castronovo2016.in_words(steps).set_index("source")["winners"]
    assert told["paper"] == "(Random), (SBOSS), (BEB, e-Greedy), (BEB, BFS3, e-Greedy)"
    assert told["as described"] == "(Random), (SBOSS), (e-Greedy), (BEB, e-Greedy)"


def test_all_experiments_of_a_whole_study():
    returns, units = study()
    found = castronovo2016.in_words(
        castronovo2016.winners(two_studies.played(returns, units), returns)
    )
    assert list(found["source"]) == ["paper", "as described", "as published"] * 6
    printed = [
        ", ".join(f"({', '.join(names)})" for names in rows["algorithms"]) for _, rows in _lists()
    ]
    assert list(found.loc[found["source"] == "paper", "winners"]) == printed


def _lists():
    return castronovo2016.printed_winners().groupby(["case", "experiment"], sort=False)


def test_lists_of_winners_begin_with_random_and_hold_known_names():
    steps = castronovo2016.printed_winners()
    lists = {
        key: list(rows["algorithms"])
        for key, rows in steps.groupby(["case", "experiment"], sort=False)
    }
    assert [len(found) for found in lists.values()] == [4, 5, 4, 5, 6, 4]
    assert all(found[0] == ("Random",) for found in lists.values())
    assert all(
        set(names) <= set(data.cells()["algorithm"]) - {"OPPS-DS", "Soft-max"}
        for names in steps["algorithms"]
    )


def test_all_cells_are_there():
    cells = pd.concat([published.cells(), published.cells(long=True)])
    assert cells.groupby("source").size().to_dict() == {"C++": 25, "paper": 42}
    assert set(cells.experiment) == {"GC", "GDL", "Grid"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "cells"),
    [
        ({}, 52),
        # those with the larger budgets take hours: `experiments/published.py --long` plays them
        ({"n_environments": 100, "long": True, "only": r"BFS3 K=1;|SBOSS epsilon=0\.1"}, 3),
    ],
    ids=["all", "searches"],
)
def test_means_agree_with_the_published_ones(options, cells):
    table = pd.DataFrame(published.compare(**options))
    assert len(table) == cells
    far = table[table["standard errors apart"].abs() > 3]
    assert far.empty, far.to_string()
