"""Outcomes as tables, by hand."""

import numpy as np
import pytest

from jbrl.study.storage.tables import Outcomes, Result, with_latency

LISTED = [
    {"id": str(k), "experiment": "e", "algorithm": f"a{k}", "parameters": "{}", "seed": k}
    for k in range(4)
]


@pytest.fixture
def outcomes():
    """Of four units: done, failed with a score, missing, done."""
    found = {
        "0": Result({"status": "done"}, np.array([1.0, 2.0])),
        "1": Result({"status": "failed"}, np.array([3.0, np.nan])),
        "3": Result({"status": "done"}, np.array([4.0, 5.0, 6.0])),
    }
    return Outcomes(LISTED, found)


def test_scores_are_those_of_units_that_are_done(outcomes):
    """Environments of each unit are numbered from 0 on, so that those of one seed can be paired."""
    rows = outcomes.returns()[["algorithm", "unit", "seed", "score"]]
    assert rows.to_numpy().tolist() == [
        ["a0", 0, 0, 1.0],
        ["a0", 1, 0, 2.0],
        ["a3", 0, 3, 4.0],
        ["a3", 1, 3, 5.0],
        ["a3", 2, 3, 6.0],
    ]
    assert outcomes.numbered().to_numpy().tolist() == [[0, 1], [0, 2], [3, 4], [3, 5], [3, 6]]
    assert outcomes.units()["status"].tolist() == ["done", "failed", "missing", "done"]


def test_units_that_failed_with_scores_are_listed_where_they_are_asked_for(outcomes):
    rows = outcomes.returns(failed=True)
    assert rows["algorithm"].tolist() == ["a0"] * 2 + ["a1"] * 2 + ["a3"] * 3
    assert rows["score"].isna().tolist() == [False] * 3 + [True] + [False] * 3


def test_without_results_tables_are_empty():
    nothing = Outcomes(LISTED, {})
    assert len(nothing.returns()) == len(nothing.numbered()) == 0
    assert nothing.units()["status"].tolist() == ["missing"] * 4


def test_a_time_without_a_99th_percentile_is_no_latency():
    """Earlier results hold the time of a compiled lifetime, which has a column of its own."""
    earlier, now = {"latency_seconds": 1e-5}, {"latency_seconds": 2e-4, "latency_p99_seconds": 3e-4}
    done = {"status": "done"}
    found = {"0": Result(done | earlier, np.ones(2)), "3": Result(done | now, np.ones(2))}
    units = Outcomes(LISTED, found).units()
    columns = units[["latency_seconds", "latency_p99_seconds", "alone_seconds"]].astype(float)
    np.testing.assert_array_equal(columns.iloc[0], [np.nan, np.nan, 1e-5])
    np.testing.assert_array_equal(columns.iloc[3], [2e-4, 3e-4, np.nan])
    assert "alone_seconds" not in Outcomes(LISTED, {"3": found["3"]}).units()
    bare = units.drop(columns=["latency_p99_seconds", "alone_seconds"])
    assert with_latency(bare)["latency_seconds"].isna().all()
