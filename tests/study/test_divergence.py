"""Studies in which learning diverges: only the lifetime fails, and its unit says so."""

import dataclasses
import re
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl import bsuite_logs
from jbrl.base.errors import JbrlError
from jbrl.play import experiment
from jbrl.play.protocol import Chunk, check_returns, played
from jbrl.report import sensitivity as page_of_parameters
from jbrl.report.axes import Style
from jbrl.stats import sensitivity
from jbrl.study.resume import conclude
from tests.terminal import entries

NAMES = {
    "bandit": r"lifetime \d+, .* of 'bsuite/bandit/0'",
    "another": r"lifetime \d+, .* of 'bsuite/bandit/1'",
    "GC": r"on MDP \d+ of 'GC'",
}


def tables(names: Collection[str]) -> dict[str, Any]:
    """Two settings played as lanes of one program, and two agents on finite MDPs as one stack."""
    drawn = {"learning_rate": {"choice": [3e-3, 1e9]}, "hidden_width": 8, "sequence_length": 4}
    experiments = [
        {"name": "bandit", "test": "bsuite/bandit/0", "episodes": 200},
        {"name": "another", "test": "bsuite/bandit/1", "episodes": 200},
        {"name": "GC", "test": "GC", "horizon": 60},
    ]
    return {
        "study": {"name": "divergence", "n_environments": 12},
        "experiments": [one for one in experiments if one["name"] in names],
        "agents": [
            {"algorithm": "ActorCritic", **drawn},
            {"algorithm": "ActorCritic", **drawn, "value_cost": 0.5},
            {"algorithm": "Random"},
        ],
    }


@pytest.fixture(scope="module", params=[["GC"], pytest.param(list(NAMES), marks=pytest.mark.slow)])
def results(request, tmp_path_factory):
    """Of finite MDPs, and of all experiments."""
    folder = tmp_path_factory.mktemp("divergence") / "out"
    return jbrl.run(tables(request.param), folder, stack=True, progress=False)


def units_of(results) -> pd.DataFrame:
    return results.units.set_index(["experiment", "algorithm"]).sort_index()


def experiments_of(results) -> list[str]:
    return list(units_of(results).index.unique("experiment"))


def test_units_fail_and_others_go_on(results):
    units = units_of(results)
    for name in experiments_of(results):
        where = NAMES[name]
        assert units.loc[(name, "Random"), "status"] == "done"
        for failed in units.loc[(name, "ActorCritic")].to_dict("records"):
            assert (failed["status"], failed["n"]) == ("failed", 12)
            assert re.fullmatch(
                rf"ActorCritic, {where}.*: its policy is NaN: learning has diverged; a smaller "
                r"learning_rate may help \(\d+ of 12 lifetimes have failed; the others have "
                r"scores\)",
                failed["reason"],
            )


def test_statistics_leave_the_unit_out_and_sensitivity_counts_its_failures(results):
    assert set(results.returns["algorithm"]) == {"Random"}
    means = results.scores.set_index("algorithm")["mean"]
    assert means["ActorCritic"].isna().all() and np.isfinite(means["Random"]).all()
    trials = results.trials
    n = len(experiments_of(results))
    assert set(trials["algorithm"]) == {"ActorCritic"} and len(trials) == 24 * n
    failed = trials["score"].isna()
    assert (trials["learning_rate"][failed] > 1).all() and 6 * n < failed.sum() < 20 * n
    rows = entries("sensitivity", results.store.folder, "--table", "curves")
    assert [row["low"] for row in rows] == 2 * n * [pytest.approx(3e-3), 1e9]
    assert sum(row["failed"] for row in rows) == failed.sum()
    for row in rows:
        assert (row["failed"] > 0) == (row["low"] > 1)
        assert (row["mean"] is None) == (row["n"] == 0)


def test_logs_of_a_unit_that_has_failed_are_left_out(results):
    if experiments_of(results) == ["GC"]:
        pytest.skip("finite MDPs have no logs")
    assert {run.agent for run in bsuite_logs.logs_of(results).runs} == {"Random"}


@pytest.mark.slow
def test_an_error_when_it_is_played_again_leaves_the_scores(results, monkeypatch):
    before = units_of(results)["reason"]["GC", "ActorCritic"]

    def checked(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(experiment.Run, "checked", checked)
    again = jbrl.run(
        tables(experiments_of(results)), results.store.folder, only="GC/.*choice", progress=False
    )
    after = units_of(again)["reason"]["GC", "ActorCritic"]
    assert after.tolist() == before.tolist() and after.str.contains("diverged").all()
    assert again.trials["score"].isna().sum() == results.trials["score"].isna().sum()


def test_a_page_counts_the_trials_that_failed(results, tmp_path):
    trials, drawn = results.trials, ["learning_rate"]
    curves, shares = sensitivity.curves(trials, drawn), sensitivity.shares(trials, drawn)
    page = page_of_parameters.write_page(curves, shares, tmp_path).read_text()
    chosen = curves["parameters"].iloc[0]
    rows = curves[(curves["experiment"] == "GC") & (curves["parameters"] == chosen)]
    drawing = page_of_parameters.sensitivity(
        rows.assign(mean=[0.5, np.nan], n=[12, 0]), shares[:1], Style("tab:blue", "o")
    )
    (axes,) = drawing.figure.axes
    assert [text.get_text() for text in axes.texts] == [f"×{rows['failed'].iloc[1]}"]
    low, high = axes.get_xlim()
    assert low < rows["middle"].min() and high > rows["middle"].max()
    assert "× marks trials of a group that have failed" in page


def test_where_all_lifetimes_fail_there_is_no_outcome_in_python_and_a_failed_unit():
    lost = Chunk(0, np.full(2, np.nan), None, 1.0, 10, failed=np.ones(2, bool), failure="two")
    whole = Chunk(2, np.ones(1), None, 1.0, 10)
    facts = {"offline_seconds": 0.0, "latency_seconds": None, "compile_seconds": 0.0}
    facts |= {"device": "cpu", "batch": 1}
    some = played([lost, whole], **facts)
    assert some.failure == "two" and "3, of which 2 failed and have no score" in repr(some)
    assert played([whole], **facts).failure == ""
    with pytest.raises(JbrlError, match=r"^two$"):
        played([lost], **facts)
    unit, run = SimpleNamespace(latency=False), SimpleNamespace(compile_seconds=0.0)
    for chunks, counted in (
        ([lost], "2 of 2 lifetimes have failed"),
        ([lost, whole], "2 of 3 lifetimes have failed; the others have scores"),
    ):
        known = SimpleNamespace(stacked=False, chunks=chunks, save=lambda *given: given[-1])
        assert conclude(unit, None, run, known, {})["reason"] == f"two ({counted})"


def test_nan_is_a_failure_only_where_a_lifetime_is_known_to_have_failed():
    lost = Chunk(0, np.full(2, np.nan), None, 1.0, 10, failed=np.ones(2, bool), failure="two")
    assert check_returns(lost) is lost
    half = dataclasses.replace(lost, failed=np.array([True, False]))
    with pytest.raises(JbrlError, match="environment 1 is nan: expected a finite number"):
        check_returns(half)
