"""Weights of agents trained on the prior: kept beside a study, shared, taken up again after a
kill.
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
from jbrl.cli.app import app
from jbrl.play.unit import Unit
from jbrl.study import resume
from jbrl.study.plan import plan
from jbrl.study.progress import Progress

# The runner treats trainings as searches, of which `test_offline.py` says the same.
pytestmark = pytest.mark.slow

ROUNDS, BATCH = 6, 32


def tables(**values: Any) -> dict[str, Any]:
    agent = {
        "algorithm": "BeliefPPO",
        "budget": ROUNDS * BATCH,
        "batch": BATCH,
        "hidden_width": 8,
        "horizon": 10,
    }
    return {
        "study": {"name": "training", "n_environments": 5, "horizon": 20},
        "experiments": [
            {"name": "right", "prior": "GC", "test": "GC"},
            {"name": "again", "prior": "GC", "test": "GC"},
        ],
        "agents": [agent | values],
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> jbrl.Results:
    return jbrl.run(tables(), tmp_path_factory.mktemp("whole"))


def course(results: jbrl.Results) -> pd.DataFrame:
    return results.strategies.drop(columns="offline_seconds")


def test_one_training_serves_all_experiments_with_the_same_prior(results: jbrl.Results) -> None:
    assert len(list(results.store.knowledge_folder.iterdir())) == 1
    assert results.units["status"].tolist() == ["done"] * 2
    assert (results.units["offline_seconds"] > 0).all()
    table = results.strategies
    assert table["pulls"].sum() == table["consumed"][0] == table["simulated"][0] == ROUNDS * BATCH


def stretches(*numbers: int) -> list[str]:
    return [f"to lifetime {number * BATCH}" for number in numbers]


def test_the_course_of_a_training_is_in_order(results: jbrl.Results, tmp_path: Path) -> None:
    """In the table, in what is printed of it, and in what an archive keeps."""
    table = results.strategies
    assert table["strategy"].tolist() == stretches(1, 2, 3, 4, 5, 6)
    assert table["chosen"].tolist() == [False] * 5 + [True]
    arguments = ["strategies", str(results.store.folder), "--top", "3", "--format", "csv"]
    printed = CliRunner().invoke(app, arguments, catch_exceptions=False)
    rows = csv.DictReader(io.StringIO(printed.stdout))
    assert [row["strategy"] for row in rows] == stretches(2, 4, 6)
    results.archive(tmp_path / "kept")
    kept = jbrl.Results(tmp_path / "kept").strategies
    assert kept["strategy"].tolist() == table["strategy"].tolist()


def test_what_was_trained_plays_again(results: jbrl.Results) -> None:
    found = results.learned("right", "BeliefPPO")
    again = jbrl.play(found.strategy, prior="GC", n_environments=5, horizon=20)
    np.testing.assert_array_equal(
        again.returns, results.returns.query("experiment == 'right'")["score"]
    )


class Killed(Progress):
    """Ends the process after some rounds; no handler of errors sees it, as with `kill -9`."""

    class Gone(BaseException):
        """The end of the process."""

    def __init__(self, rounds: int) -> None:
        self.left, self.seen = rounds, list[int]()

    def searching(self, unit: Unit, consumed: int, budget: int, seconds: float) -> None:
        self.seen.append(consumed)
        self.left -= 1
        if not self.left:
            raise self.Gone


def test_a_training_that_is_killed_goes_on(
    tmp_path: Path, results: jbrl.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "CHECKPOINT_SECONDS", -1.0)
    with pytest.raises(Killed.Gone):
        plan(tables(), tmp_path).execute(Killed(4))
    (left,) = (tmp_path / "knowledge").iterdir()
    assert left.name.endswith(".partial.npz")
    watched = Killed(10**6)
    plan(tables(), tmp_path).execute(watched)
    again = jbrl.Results(tmp_path)
    assert watched.seen[0] >= 2 * BATCH and watched.seen[-1] == ROUNDS * BATCH
    pd.testing.assert_frame_equal(course(again), course(results), check_exact=True)
    pd.testing.assert_frame_equal(again.returns, results.returns, check_exact=True)
    for name, value in results.learned("right", "BeliefPPO").weights.items():
        kept = again.learned("right", "BeliefPPO").weights[name]
        np.testing.assert_array_equal(kept, value)


@pytest.mark.slow
def test_a_training_that_diverges_fails_alone(tmp_path: Path) -> None:
    study = tables(learning_rate=1e9)
    study["agents"].append({"algorithm": "Random"})
    found = jbrl.run(study, tmp_path, only="right/")
    assert sorted(found.units["status"].dropna()) == ["done", "failed", "missing", "missing"]
    reasons = " ".join(str(reason) for reason in found.units["reason"])
    assert "training has diverged; a smaller learning_rate may help" in reasons


def test_the_memory_of_a_run_bounds_its_trainings(tmp_path: Path) -> None:
    study = tables(hidden_width=4096, hidden_layers=4)
    found = jbrl.run(study, tmp_path, only="right/", memory="500MB")
    assert found.units["status"].dropna().tolist() == ["failed", "missing"]
    assert "0.466 GiB, the memory that may be used (--memory)" in str(found.units["reason"][0])
