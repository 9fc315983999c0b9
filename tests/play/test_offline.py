"""Findings of a search: they are kept, shared by all experiments with the same prior, and reused
after a kill.
"""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import jbrl
from jbrl.agents.opps.ranking import Formula
from jbrl.cli.app import app
from jbrl.play.unit import Unit
from jbrl.study import resume
from jbrl.study.plan import plan
from jbrl.study.progress import Progress
from jbrl.study.storage.store import ResultWarning

SPACE = "Q2/Q0; Q0/Q1*Q1; Q0/Q2"
BUDGET = 900


def tables(budget: int = BUDGET) -> dict[str, Any]:
    return {
        "study": {"name": "search", "n_environments": 5, "horizon": 60},
        "experiments": [
            {"name": "one", "prior": "GC", "test": "GC"},
            {"name": "two", "prior": "GC", "test": "GC"},
        ],
        "agents": [{"algorithm": "OPPS-DS", "space": SPACE, "budget": budget, "c": 60.0}],
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> jbrl.Results:
    return jbrl.run(tables(), tmp_path_factory.mktemp("whole"))


def files(results: jbrl.Results) -> list[str]:
    return sorted(path.name for path in results.store.knowledge_folder.iterdir())


def findings(results: jbrl.Results) -> pd.DataFrame:
    return results.strategies.drop(columns="offline_seconds")


@pytest.mark.slow
def test_one_search_serves_all_experiments_with_the_same_prior(results: jbrl.Results) -> None:
    assert len(files(results)) == 1
    searched = results.strategies["offline_seconds"].iloc[0]
    # counted for each, with the plan of the mean model on top
    assert (results.units["offline_seconds"] > searched).all()
    assert (results.units["offline_seconds"] < searched + 0.5).all()
    ids = [unit["knowledge"] for unit in results.manifest["units"]]
    assert ids == [files(results)[0].removesuffix(".npz")] * 2


def test_what_was_tried_is_a_table(results: jbrl.Results) -> None:
    table = results.strategies
    assert set(table["strategy"]) == {"Q2/Q0", "Q0/Q1*Q1", "Q0/Q2"}
    assert table["strategy"][0] == "Q0/Q2" and table["chosen"].tolist() == [True, False, False]
    assert table["pulls"].sum() == table["consumed"][0] == BUDGET <= table["simulated"][0]
    assert table["pulls"].is_monotonic_decreasing
    np.testing.assert_allclose(
        table["ci95"][0], 1.96 * table["std"][0] / np.sqrt(table["pulls"][0])
    )


def test_what_was_tried_is_printed(results: jbrl.Results) -> None:
    printed = CliRunner().invoke(
        app,
        ["strategies", str(results.store.folder), "--top", "2", "--format", "csv"],
        catch_exceptions=False,
    )
    rows = list(csv.DictReader(io.StringIO(printed.stdout)))
    assert [row["strategy"] for row in rows] == results.strategies["strategy"].tolist()[:2]
    assert rows[0]["chosen"] == "True" and rows[0]["pulls"] == str(results.strategies["pulls"][0])


def test_what_was_found_plays_again(results: jbrl.Results) -> None:
    found = results.learned("one", "OPPS-DS")
    assert found.strategy == Formula("Q0/Q2")
    played = jbrl.play(found.strategy, prior="GC", n_environments=5, horizon=60)
    np.testing.assert_array_equal(
        played.returns, results.returns.query("experiment == 'one'")["score"]
    )


def test_agents_that_do_not_search_have_found_nothing(results: jbrl.Results) -> None:
    with pytest.raises(jbrl.JbrlError, match="0 units fit"):
        results.learned("one", "Random")


class Gone(BaseException):
    """Exception that no handler of errors sees: as good as `kill -9`."""


class Killed(Progress):
    """Ends the process after some rounds, in one of two ways."""

    def __init__(self, how: type[BaseException], rounds: int) -> None:
        self.how, self.left, self.seen = how, rounds, list[int]()

    def searching(self, unit: Unit, consumed: int, budget: int, seconds: float) -> None:
        self.seen.append(consumed)
        self.left -= 1
        if not self.left:
            raise self.how


@pytest.mark.parametrize("how", [KeyboardInterrupt, pytest.param(Gone, marks=pytest.mark.slow)])
def test_a_search_that_is_killed_goes_on(
    tmp_path: Path, results: jbrl.Results, how: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "CHECKPOINT_SECONDS", -1.0)
    with pytest.raises(how):
        plan(tables(), tmp_path).execute(Killed(how, 4))
    (left,) = (tmp_path / "knowledge").iterdir()
    assert left.name.endswith(".partial.npz")
    watched = Killed(how, 10**6)
    plan(tables(), tmp_path).execute(watched)
    again = jbrl.Results(tmp_path)
    assert watched.seen[0] > 200 and watched.seen[-1] == BUDGET
    pd.testing.assert_frame_equal(findings(again), findings(results), check_exact=True)
    pd.testing.assert_frame_equal(again.returns, results.returns, check_exact=True)
    assert files(again) == files(results)


def test_damaged_findings_are_searched_again(tmp_path: Path, results: jbrl.Results) -> None:
    jbrl.run(tables(), tmp_path, only="one/")
    (file,) = (tmp_path / "knowledge").iterdir()
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.warns(ResultWarning, match="damaged"):
        again = jbrl.run(tables(), tmp_path)
    pd.testing.assert_frame_equal(findings(again), findings(results), check_exact=True)


def test_another_budget_is_another_search(tmp_path: Path) -> None:
    jbrl.run(tables(50), tmp_path, only="one/")
    found = jbrl.run(tables(60), tmp_path, only="one/")
    assert len(files(found)) == 2
    assert found.strategies["consumed"].unique().tolist() == [60]


def test_a_search_that_finds_nothing_fails_alone(tmp_path: Path) -> None:
    study = tables()
    study["agents"] = [{"algorithm": "OPPS-DS", "space": "Q0/Q1*Q1", "budget": 30}]
    found = jbrl.run(study, tmp_path)
    assert found.units["status"].tolist() == ["failed"] * 2
    assert "no arm to recommend" in found.units["reason"][0]
