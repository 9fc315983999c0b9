"""Studies in which learning diverges: lifetimes fail by themselves, and their unit says so."""

import json
import re
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import jbrl
from jbrl import bsuite_logs
from jbrl.cli.app import app
from jbrl.errors import JbrlError
from jbrl.runner.play.protocol import Chunk, failure_of
from jbrl.runner.study.played import check_returns


def tables() -> dict[str, Any]:
    """Two kinds of lifetimes: episodes, and a number of decisions in finite MDPs."""
    drawn = {"learning_rate": {"choice": [3e-3, 1e9]}, "hidden_width": 8, "sequence_length": 4}
    return {
        "study": {"name": "divergence", "n_environments": 12},
        "experiments": [
            {"name": "bandit", "test": "bsuite/bandit/0", "episodes": 200},
            {"name": "GC", "test": "GC", "horizon": 60},
        ],
        "agents": [{"algorithm": "ActorCritic", **drawn}, {"algorithm": "Random"}],
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> jbrl.Results:
    return jbrl.run(tables(), tmp_path_factory.mktemp("divergence") / "out", progress=False)


def test_units_fail_and_others_go_on(results: jbrl.Results) -> None:
    units = results.units.set_index(["experiment", "algorithm"])
    for name, where in (("bandit", r"lifetime \d+, .* of 'bsuite/bandit/0'"), ("GC", r"on MDP \d")):
        assert units.loc[(name, "Random"), "status"] == "done"
        failed = units.loc[(name, "ActorCritic")]
        assert (failed["status"], failed["n"]) == ("failed", 12)
        assert re.fullmatch(
            rf"ActorCritic, {where}.*: its policy is NaN: learning has diverged; a smaller "
            r"learning_rate may help \(\d of 12 lifetimes have failed; the others have scores\)",
            failed["reason"],
        )


def test_statistics_leave_the_unit_out_and_sensitivity_counts_its_failures(
    results: jbrl.Results,
) -> None:
    assert set(results.returns["algorithm"]) == {"Random"}
    means = results.scores.set_index("algorithm")["mean"]
    assert means["ActorCritic"].isna().all() and np.isfinite(means["Random"]).all()
    trials = results.trials
    assert set(trials["algorithm"]) == {"ActorCritic"} and len(trials) == 24
    failed = trials["score"].isna()
    assert (trials["learning_rate"][failed] > 1).all() and 6 < failed.sum() < 24
    run = CliRunner().invoke(
        app,
        ["sensitivity", str(results.store.folder), "--table", "curves", "--format", "json"],
    )
    assert run.exit_code == 0, run.output
    rows = json.loads(run.stdout)
    assert [row["low"] for row in rows] == 2 * [pytest.approx(3e-3), 1e9]
    assert sum(row["failed"] for row in rows) == failed.sum()
    for row in rows:
        assert (row["failed"] > 0) == (row["low"] > 1)
        assert (row["mean"] is None) == (row["n"] == 0)


def test_logs_of_a_unit_that_has_failed_are_left_out(results: jbrl.Results) -> None:
    assert {run.agent for run in bsuite_logs.logs_of(results).runs} == {"Random"}


def test_a_unit_that_has_failed_is_not_played_again(
    results: jbrl.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("jbrl.runner.play.experiment.Run.checked", checked)
    again = jbrl.run(tables(), results.store.folder, only="GC/.*choice", progress=False)
    before, after = (found.units["reason"].dropna().tolist() for found in (results, again))
    assert before == after and len(before) == 2


def test_without_any_score_a_unit_has_none() -> None:
    lost = Chunk(0, np.full(2, np.nan), None, 1.0, 10, failure="two")
    whole = Chunk(2, np.ones(1), None, 1.0, 10)
    assert failure_of([whole]) == "" and failure_of([lost, whole]) == "two"
    with pytest.raises(JbrlError, match=r"^two$"):
        failure_of([lost, lost])
    assert check_returns(lost) is lost
    with pytest.raises(FloatingPointError, match="environment 3 is not a finite number"):
        check_returns(Chunk(2, np.array([np.nan, np.inf]), None, 1.0, 10, failure="one"))
