"""Studies on a real SLURM of three nodes, started here: cancelled, drained, cut off by their time
limit, with the same numbers in the end.

`pytest -m slurm`. Minutes of waiting, little work.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import jbrl
from jbrl.study.status import Observer, Status, Worker
from tests.slurm.cluster import STUDY, Cluster, missing

WHY_NOT = missing() or ("" if importlib.util.find_spec("submitit") else "submitit is not installed")
pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]


PATIENT = """
[[agents]]
algorithm = "patient:Patient"
number = [0, 1, 2]
experiments = ["GC"]
"""
QUICK = ("--only", "Random|Patient")  # what needs no search, which takes long to compile
SECONDS = 300.0  # for anything to happen


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with (
        pytest.MonkeyPatch.context() as patch,
        Cluster(tmp_path_factory.mktemp("cluster")) as running,
    ):
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """Compiled programs of one process serve all others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JBRL_COMPILE_CACHE", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    shutil.copy(Path(__file__).with_name("patient.py"), folder)
    (folder / "study.toml").write_text(STUDY + PATIENT)
    return folder / "study.toml"


@pytest.fixture(scope="module")
def returns(study, tmp_path_factory):
    """Of the same study in one process, without a cluster."""
    out = tmp_path_factory.mktemp("local")
    run(study, out)
    return jbrl.Results(out).returns


def run(study: Path, out: Path, *options: str, seconds: float = 0.0) -> str:
    """`jbrl run`; `seconds` is what a decision of the patient agent takes."""
    command = [sys.executable, "-m", "jbrl", "run", str(study), "--out", str(out), *options]
    environment = {
        **os.environ,
        "PATIENT_SECONDS": str(seconds),
        "PYTHONPATH": str(Path(jbrl.__file__).parent.parent),
    }
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def submit(study: Path, out: Path, *options: str, seconds: float = 0.05) -> str:
    """One task on each of the three nodes at a time."""
    asked = ["--executor", "slurm", "--cpus", "2", "--array-parallelism", "3"]
    return run(study, out, *asked, *options, seconds=seconds)


def until(out: Path, ready: Callable[[Status], bool]) -> Status:
    end = time.monotonic() + SECONDS
    while not (out / "study.json").exists():
        assert time.monotonic() < end, "no task has begun"
        time.sleep(0.3)
    observer = Observer(out)
    while not ready(found := observer.look()):
        logs = "\n".join(path.read_text() for path in sorted((out / "slurm").glob("*.err")))
        assert time.monotonic() < end, f"waited in vain: {found}\n{logs}"
        time.sleep(0.3)
    return found


def playing(found: Status) -> list[Worker]:
    """Processes in the middle of a unit of the patient agent."""
    return [
        worker
        for worker in found.workers
        if worker.alive and worker.unit and "Patient" in worker.unit and 0 < worker.n < 6
    ]


def soon(cluster: Cluster, task: str) -> None:
    """SLURM would wait two minutes with what it took back; within the same second it would refuse
    the task as "credential revoked".
    """
    cluster.ask("scontrol", "update", f"JobId={task}", "StartTime=now+3", check=True)


def over(found: Status) -> bool:
    return not found.active


def same(out: Path, returns: pd.DataFrame, *, quick: bool = True) -> None:
    found = jbrl.Results(out).returns
    expected = (
        returns[returns["algorithm"] != "OPPS-DS"].reset_index(drop=True) if quick else returns
    )
    assert len(expected) == (5 if quick else 7) * 8
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_one_search_serves_all(cluster, study, tmp_path, returns):
    options = "--partition main --gpus 1 --time 0:10:00 --slurm comment=hello"
    assert "7 units in 3 tasks" in submit(study, tmp_path, *options.split(), seconds=0.0)
    until(tmp_path, over)
    same(tmp_path, returns, quick=False)
    assert "Comment=hello" in cluster.ask("scontrol", "show", "job")
    assert len(list((tmp_path / "knowledge").iterdir())) == 1


def test_a_task_cancelled_and_a_node_drained(cluster, study, tmp_path, returns):
    submit(study, tmp_path, *QUICK)
    victim = playing(until(tmp_path, playing))[0]
    cluster.ask("scancel", str(victim.task), check=True)
    drained = next(name for name in cluster.names if name != victim.host)
    cluster.ask(
        "scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=test", check=True
    )
    found = until(tmp_path, over)
    assert found.ended == {victim.task: "CANCELLED"}
    # and the two that were not submitted
    assert found.left == len(victim.left) + 2 and found.begun == 1 and not found.failed
    again = submit(study, tmp_path, *QUICK)
    assert again.startswith(f"{len(victim.left)} unit")
    found = until(tmp_path, over)
    cluster.ask("scontrol", "update", f"NodeName={drained}", "State=RESUME", check=True)
    assert found.done == 5
    same(tmp_path, returns)


def test_a_time_limit_puts_a_task_back_into_the_queue(cluster, study, tmp_path, returns):
    """The signal that SLURM sends before the limit, sent early."""
    submit(study, tmp_path, *QUICK)
    victim = playing(until(tmp_path, playing))[0]
    task = str(victim.task)
    cluster.ask("scancel", "--signal=USR2", task, check=True)
    until(
        tmp_path,
        lambda found: any(
            task in group.tasks and group.why == "BeginTime" for group in found.waiting
        ),
    )
    # what is in the queue is not submitted twice
    assert "nothing to submit" in submit(study, tmp_path, *QUICK)
    soon(cluster, task)
    until(tmp_path, over)
    same(tmp_path, returns)


def test_the_script_for_any_scheduler(cluster, study, tmp_path, returns):
    """`docs/examples/study.sbatch`, without submitit; SIGUSR1 comes early too."""
    script = Path(__file__).parents[2] / "docs" / "examples" / "study.sbatch"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    values = {
        "PATH": path,
        "PATIENT_SECONDS": "0.05",
        "PYTHONPATH": str(Path(jbrl.__file__).parent.parent),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        work = (f"--chdir={tmp_path}", str(script), str(study), str(tmp_path), *QUICK)
        job = cluster.ask("sbatch", "--parsable", *work, check=True)
    victim = playing(until(tmp_path, playing))[0]
    assert str(victim.task).startswith(f"{job}_")
    cluster.ask("scancel", "--signal=USR1", str(victim.task), check=True)
    until(
        tmp_path,
        lambda found: f"{victim.task} PENDING" in cluster.ask("squeue", "-h", "-r", "-o", "%i %T"),
    )
    soon(cluster, str(victim.task))
    until(tmp_path, lambda found: found.done == 5)
    same(tmp_path, returns)
