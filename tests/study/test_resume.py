"""The same numbers, to the last bit, however a study is cut into pieces, killed, resumed
or spread.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.play import experiment
from jbrl.play.compilation import compiling
from jbrl.study import execute
from jbrl.study.plan import plan
from jbrl.study.resume import comparable
from jbrl.study.storage import store
from jbrl.study.storage.store import Store
from tests.faults.cases import Interrupt

N_MDPS = 300  # more than one device plays at once: 256


def tables(**settings: Any) -> dict[str, Any]:
    return {
        "study": {"name": "tiny", "n_environments": N_MDPS, "horizon": 16, **settings},
        "experiments": [{"name": "GC", "prior": "GC", "test": "GC"}],
        "agents": [{"algorithm": "Random"}, {"algorithm": "Q-learning", "alpha": [0.1, 0.5]}],
    }


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "units").iterdir()}


@pytest.fixture(scope="module")
def returns(tmp_path_factory):
    """Returns that everything here must agree with: one process, two devices, one chunk."""
    results = jbrl.run(tables(), tmp_path_factory.mktemp("whole"))
    assert list(results.scores["status"]) == ["done"] * 3
    # no constant column that all would agree with
    assert results.returns.groupby("parameters")["score"].nunique().min() > N_MDPS / 2
    return results.returns


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_three_shards_merged_by_copying(tmp_path, returns):
    folders = [tmp_path / f"shard{i}" for i in (1, 2, 3)]
    for number, folder in enumerate(folders, 1):
        jbrl.run(tables(), folder, shard=f"{number}/3")
        assert len(files(folder)) == 1
    for folder in folders[1:]:
        shutil.copytree(folder / "units", folders[0] / "units", dirs_exist_ok=True)
    same(jbrl.Results(folders[0]).returns, returns)
    for number in (3, 1):  # or played in one directory
        jbrl.run(tables(), folders[1], shard=f"{number}/3")
    same(jbrl.Results(folders[1]).returns, returns)


class Spy:
    """Record of the MDPs that are played, by unit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.starts: list[int] = []
        original = experiment.Run.chunks

        def chunks(run: experiment.Run, start: int = 0, size: int | None = None) -> Any:
            self.starts.append(start)
            return original(run, start, size)

        monkeypatch.setattr(execute.Run, "chunks", chunks)


def test_killed_in_the_middle_of_a_unit_and_resumed(tmp_path, returns, monkeypatch):
    """`kill -9` of a process that has played 100 of 300 MDPs: what it had written is used, and the
    numbers are the same.
    """
    program = f"""
import os, signal
from jbrl.study import resume
from jbrl.study.progress import Progress
from jbrl.study.plan import plan

class Kill(Progress):
    def advanced(self, unit, n, seconds, decisions):
        if n > 100:
            os.kill(os.getpid(), signal.SIGKILL)

resume.CHECKPOINT_SECONDS = 0.0
resume.CHECKPOINT_SHARE = 1e9
plan({tables(chunk=50)!r}, {str(tmp_path)!r}, only="Random").execute(Kill())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = [name for name in files(tmp_path) if not name.startswith(".")]
    assert left.endswith(".partial.npz")
    assert list(Store(tmp_path).units()["status"]) == ["missing"] * 3
    spy = Spy(monkeypatch)
    same(jbrl.run(tables(), tmp_path).returns, returns)
    assert spy.starts == [100, 0, 0]
    assert not any(name.endswith(".partial.npz") for name in files(tmp_path))


def test_interrupted_and_resumed_with_trajectories(tmp_path, returns, monkeypatch):
    study = tables(chunk=100, record=True)
    with pytest.raises(KeyboardInterrupt):
        plan(study, tmp_path, only="Random").execute(Interrupt(played=200))
    spy = Spy(monkeypatch)
    results = jbrl.run(study, tmp_path, only="Random")
    assert spy.starts == [200]
    same(results.returns, returns[:N_MDPS])
    moves = results.trajectories("GC", "Random")
    assert {name: (v.shape, v.dtype.name) for name, v in moves.items()} == {
        "states": ((N_MDPS, 17), "int32"),
        "actions": ((N_MDPS, 16), "int32"),
        "rewards": ((N_MDPS, 16), "float32"),
    }
    discounted = (moves["rewards"].astype(np.float64) * 0.95 ** np.arange(16)).sum(axis=1)
    # 16 terms that are not negative, of which each operation rounds by 2^-53 at most
    np.testing.assert_allclose(discounted, results.returns["score"], rtol=4 * 16 * 2**-53)


def test_a_checkpoint_of_another_version_is_not_continued(tmp_path, returns, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(store, "versions", lambda: {"jbrl": "0.0.1"})
        plan(tables(chunk=100), tmp_path, only="Random").execute(Interrupt(played=200))
    spy = Spy(monkeypatch)
    same(jbrl.run(tables(), tmp_path, only="Random").returns, returns[:N_MDPS])
    assert spy.starts == [0]


def test_results_say_how_programs_were_compiled(tmp_path, returns):
    """The scores are the same; a checkpoint of programs compiled otherwise, whose times are not
    comparable, is not continued.
    """
    found = jbrl.run(tables(compile="quick"), tmp_path, only="Random")
    same(found.returns, returns[:N_MDPS])
    assert found.units["device"][0] == "cpu x 2, quick programs"
    (unit,) = plan(tables(), tmp_path, only="Random").units
    result = Store(tmp_path).result(unit.id)
    header = dict(result.header)
    assert header["compiled"] == "quick" and header["device"] == "cpu x 2"
    with compiling("quick"):
        assert comparable(header, "cpu")
    with compiling("full"):
        assert not comparable(header, "cpu") and not comparable(header, "gpu")
        del header["compiled"]  # as results have it that were written before there was a choice
        assert comparable(header, "cpu")


def test_nothing_is_played_twice(tmp_path, returns, monkeypatch):
    jbrl.run(tables(), tmp_path, only="Random")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "units").iterdir()}
    spy = Spy(monkeypatch)
    same(jbrl.run(tables(), tmp_path).returns, returns)
    assert spy.starts == [0, 0]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_latency_is_added_to_a_result_without_playing_again(tmp_path, returns, monkeypatch):
    jbrl.run(tables(), tmp_path, only="Random")
    before = jbrl.Results(tmp_path).scores
    spy = Spy(monkeypatch)
    results = jbrl.run(tables(latency=True), tmp_path, only="Random")
    assert spy.starts == [N_MDPS]
    same(results.returns, returns[:N_MDPS])
    assert np.isnan(before["latency_seconds"].astype(float)[0])
    row = results.scores.iloc[0]
    assert 0 < row["latency_seconds"] <= row["latency_p99_seconds"]
    assert results.scores["online_seconds"][0] == pytest.approx(before["online_seconds"][0])


def test_a_return_that_is_not_finite_fails_its_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(
        experiment,
        "discounted",
        lambda rewards, discount: np.where(np.arange(len(rewards)) == 3, np.nan, 0.0),
    )
    results = jbrl.run(tables(), tmp_path, only="Random")
    assert list(results.scores["status"]) == ["failed", "missing", "missing"]
    found = Store(tmp_path).result(results.manifest["units"][0]["id"])
    assert (
        found is not None
        and "in environment 3 is nan: expected a finite number" in found.header["reason"]
    )
    assert len(results.returns) == 0


@pytest.mark.parametrize(("kept", "running", "written"), [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_no_checkpoint_is_written_within_a_call_or_twice(kept, running, written):
    calls = []
    work = SimpleNamespace(_kept=kept, _running=running or None, _keep=lambda: calls.append(1))
    execute._Work._keep_if_idle(work)
    assert len(calls) == written
