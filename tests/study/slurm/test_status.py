"""Progress of a study, as read from its directory."""

import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jbrl
from jbrl.base.files import write_whole
from jbrl.play import machine as study_status
from jbrl.play.unit import Unit
from jbrl.study import progress
from jbrl.study.cost import UnitCost
from jbrl.study.plan import plan
from jbrl.study.progress import Heartbeat, Progress
from jbrl.study.status import Observer, Status, record_tasks
from jbrl.study.storage import store as store_module
from jbrl.study.storage.files import StoreError, pack_json
from tests.study.slurm.test_cluster import says
from tests.terminal import call, entries, succeeds

HERE = socket.gethostname()
TABLES: dict[str, Any] = {
    "study": {"name": "tiny", "n_environments": 8, "horizon": 12, "chunk": 4, "seed": [0, 1]},
    "experiments": [{"name": "GC", "prior": "GC", "test": "GC"}],
    "agents": [{"algorithm": "Random"}, {"algorithm": "Q-learning", "alpha": [0.1, 0.5]}],
}


class Looking(Progress):
    """Looks at the state in the middle of a unit."""

    def __init__(self, folder: Path) -> None:
        self.observer, self.seen = Observer(folder), []

    def advanced(self, unit: Unit, n: int, seconds: float, decisions: int) -> None:
        self.seen.append(self.observer.look())


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """Three of six units are done; nothing is at work."""
    folder = tmp_path_factory.mktemp("half")
    jbrl.run(TABLES, folder, only="Random|alpha=0.1.* seed 0")
    store_module.save_estimates(folder, {unit.id: 60.0 for unit in plan(TABLES, folder).todo})
    return folder


@pytest.fixture
def folder(half, tmp_path):
    return shutil.copytree(half, tmp_path / "out")


def left(folder: Path) -> list[str]:
    return [unit.id for unit in plan(TABLES, folder).todo]


def note(folder: Path, name: str = "other", **fields: Any) -> None:
    """A process of another machine, half through the first of the two units that it has left."""
    facts = {"host": "n1", "machine": "elsewhere", "pid": 7, "task": None}
    facts |= {"started": time.time() - 100, "updated": time.time() - 3}
    first, second, _ = left(folder)
    state = {"unit": first, "n": 4, "of": 8, "search": None}
    state |= {"left": [first, second], "seconds_left": 160.0}
    (folder / "running").mkdir(exist_ok=True)
    write_whole(folder / "running" / f"{name}.json", pack_json({**facts, **state, **fields}))


def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *lines: str) -> None:
    """A `squeue` that prints `lines`, and nothing unless it is asked as it has to be."""
    program = tmp_path / "bin" / "squeue"
    program.parent.mkdir()
    told = "\n".join(lines)
    program.write_text(
        f"#!/bin/sh\ncase \"$*\" in *--array*--states=all*) cat <<'END'\n{told}\nEND\nesac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


def text(folder: Path) -> list[str]:
    return succeeds("status", folder).output.splitlines()


def test_while_it_runs_and_after(tmp_path):
    planned = plan(TABLES, tmp_path)
    planned.store.open(planned.study.facts(), planned.study.units)
    looking = Looking(tmp_path)
    planned.execute(looking)
    seen: list[Status] = looking.seen
    assert [found.done for found in seen] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert all(found.done + found.left == 6 and found.active for found in seen)
    for found in seen:
        (worker,) = found.workers
        assert (worker.pid, worker.task, worker.alive, worker.of) == (os.getpid(), None, True, 8)
        assert worker.seconds_left is not None and worker.seconds_left > 0
        assert worker.unit == planned.units[found.done].label
        assert len(worker.left) == found.left
    found = looking.observer.look()
    assert (found.done, found.left, found.workers, found.active) == (6, 0, [], False)
    assert text(tmp_path) == ["tiny: 6 of 6 units done"]


def test_what_was_interrupted_is_left(folder):
    found = Observer(folder).look()
    assert (found.units, found.done, found.left, found.begun, found.failed) == (6, 3, 3, 0, {})
    assert (found.work_left, found.seconds_left) == (180.0, None)
    assert text(folder)[0] == "tiny: 3 of 6 units done, 3 left, about 3 min 0 s of work"
    assert text(folder)[1].startswith("Nothing is running: 'jbrl run'")


def test_a_failed_unit_and_why(folder):
    planned = plan(TABLES, folder)
    planned.store.save(
        planned.todo[0], {"status": "failed", "reason": "ValueError: no\nmore"}, np.zeros(0)
    )
    found = Observer(folder).look()
    assert found.failed == {planned.todo[0].label: "ValueError: no\nmore"}
    assert (found.done, found.left) == (3, 2)
    assert text(folder)[1] == f"  failed   {planned.todo[0].label}: ValueError: no"
    note(folder)  # tried again
    assert Observer(folder).look().failed == {}


def test_a_process_elsewhere_is_believed_while_it_gives_signs_of_life(folder):
    note(folder)
    found = Observer(folder).look()
    assert [worker.alive for worker in found.workers] == [True]
    assert found.workers[0].seconds_left == 160
    assert found.seconds_left is None  # nobody has the third
    assert text(folder)[1].endswith(", 1 unit to come, about 2 min 40 s to go)")
    note(folder, updated=time.time() - 2 * study_status.SILENT_SECONDS)
    found = Observer(folder).look()
    assert not found.active
    assert text(folder)[1].startswith("  lost     process 7 on n1: no heartbeat for 4 min")


def test_a_process_here_that_was_killed_is_seen_at_once_and_its_note_removed(folder):
    killed = subprocess.Popen(["true"])
    killed.wait()
    note(folder, machine=HERE, pid=killed.pid)
    assert not Observer(folder).look().active
    note(folder, "long-ago", updated=time.time() - 25 * 3600)
    note(folder, "yesterday")
    jbrl.run(TABLES, folder)
    assert {path.name for path in (folder / "running").iterdir()} == {"yesterday.json"}


def test_tasks_in_the_queue(folder, tmp_path, monkeypatch):
    a, b, c = left(folder)
    record_tasks(folder, {"12_0": [a], "12_1": [a, b]}, 2)  # the first plays already
    record_tasks(folder, {"13": [c]}, 2)
    tasks = ["12_0|RUNNING|None", "12_1|PENDING|Priority"]
    slurm(monkeypatch, tmp_path, *tasks, "13|PENDING|Dependency", "14|PENDING|Resources")
    note(folder, task="12_0", unit=a, left=[a], seconds_left=40.0)
    found = Observer(folder).look()
    assert {group.why: group.tasks for group in found.waiting} == {
        "Priority": ("12_1",),
        "Dependency": ("13",),
    }
    # half of the first, and the others: two at once
    assert found.seconds_left == pytest.approx((40 + 60 + 60) / 2)
    assert text(folder)[0] == "tiny: 3 of 6 units done, 3 left, about 1 min 20 s to go"
    assert "  waiting  1 task, 1 unit (Priority)" in text(folder)


def test_tasks_that_ended_before_their_units(folder, tmp_path, monkeypatch):
    a, b, c = left(folder)
    record_tasks(folder, {"12_0": [a], "12_1": [b], "12_2": [c]}, 3)
    record_tasks(folder, {"15": [c]}, 3)
    done = [unit.id for unit in plan(TABLES, folder).units if unit.id not in (a, b, c)]
    record_tasks(folder, {"11": done}, 3)
    tasks = ["12_0|TIMEOUT|TimeLimit", "12_1|CANCELLED|None", "12_2|TIMEOUT|None"]
    tasks.append("11|COMPLETED|None")
    slurm(monkeypatch, tmp_path, *tasks, "15|RUNNING|None")
    note(folder, task="12_0", unit=a, left=[a])  # its last words
    found = Observer(folder).look()
    # the third unit is in another task
    assert found.ended == {"12_0": "TIMEOUT", "12_1": "CANCELLED"}
    assert [(group.why, group.units) for group in found.waiting] == [("starting", (c,))]
    assert not found.workers[0].alive


def test_a_task_that_slurm_has_is_waiting_whatever_its_state(folder, tmp_path, monkeypatch):
    a, b, c = left(folder)
    record_tasks(folder, {"12_0": [a], "12_1": [b], "12_2": [c]}, 3)
    states = ["COMPLETING", "SUSPENDED", "REQUEUE_HOLD"]
    slurm(monkeypatch, tmp_path, *(f"12_{k}|{state}|None" for k, state in enumerate(states)))
    found = Observer(folder).look()
    waiting = [(group.why, group.units) for group in found.waiting]
    assert waiting == list(zip(states, [(a,), (b,), (c,)], strict=True))
    assert found.active and found.ended == {}


def test_when_slurm_does_not_answer_nothing_is_taken_for_idle(folder, tmp_path, monkeypatch):
    record_tasks(folder, {"12": left(folder)}, 3)
    slurm(monkeypatch, tmp_path)
    squeue = tmp_path / "bin" / "squeue"
    says(squeue, "slurm_load_jobs error: Socket timed out")
    found = Observer(folder).look()
    assert (found.unheard, found.active) == (True, True)
    assert text(folder)[1:] == [
        "SLURM cannot be asked from here (squeue does not answer): of its queue nothing is known."
    ]
    says(squeue, "slurm_load_jobs error: Invalid job id specified")
    found = Observer(folder).look()  # it has forgotten a job that ended long ago
    assert (found.unheard, found.active) == (False, False)


def test_the_lost_are_forgotten_once_others_have_their_units(folder):
    a, b, _ = left(folder)
    note(folder, "gone", left=[a, b], updated=time.time() - 2 * study_status.SILENT_SECONDS)
    assert [worker.alive for worker in Observer(folder).look().workers] == [False]
    note(folder, "next", left=[a, b])
    assert [worker.alive for worker in Observer(folder).look().workers] == [True]


def test_the_next_turn_of_a_task_removes_the_note_of_the_last(folder, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    note(folder, "mine", task="12")
    note(folder, "other", task="13")
    with Heartbeat(folder, {}, Progress()) as pulse:
        pulse.begin([], [])
        names = sorted(path.name for path in (folder / "running").glob("*.json"))
    assert names == ["other.json", f"task-12-{HERE}-{os.getpid()}.json"]


def test_an_estimate_that_another_process_has_overwritten_is_noted_again(folder, monkeypatch):
    monkeypatch.setattr("jbrl.study.progress.SECONDS", 0.02)
    with Heartbeat(folder, {"mine": UnitCost(other=3.0)}, Progress()):
        (folder / store_module.ESTIMATES_FILE).write_bytes(pack_json({"seconds": {"other": 4.0}}))
        end = time.monotonic() + 20
        while "mine" not in store_module.saved_estimates(folder) and time.monotonic() < end:
            time.sleep(0.02)
        assert store_module.saved_estimates(folder) == {"other": 4.0, "mine": 3.0}


class Stalled(Progress):
    """Keeps what is said of units without news, and knows when it is said three times."""

    def __init__(self) -> None:
        self.said: list[tuple[str, float]] = []
        self.thrice = threading.Event()

    def stalled(self, unit: Unit, seconds: float) -> None:
        self.said.append((unit.id, seconds))
        if len(self.said) == 3:
            self.thrice.set()


def test_a_unit_without_news_is_reported_at_intervals_that_double(folder, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.01)
    monkeypatch.setattr(progress, "STALLED", 0.05)
    observer, units = Stalled(), plan(TABLES, folder).todo
    with Heartbeat(folder, {}, observer) as heartbeat:
        heartbeat.begin(units, units)
        assert not observer.thrice.wait(0.3) and not observer.said, "nothing runs"
        heartbeat.started(units[0])
        assert observer.thrice.wait(20)
        heartbeat.finished(units[0], {}, np.zeros(0))
        time.sleep(0.1)  # a report may have been under way
        reported = len(observer.said)
        time.sleep(0.3)
    assert len(observer.said) == reported and {id for id, _ in observer.said} == {units[0].id}
    first, second, third = (seconds for _, seconds in observer.said[:3])
    assert first >= 0.05 and second >= 0.15 and third >= 0.35


def test_a_clock_that_was_set_back_makes_no_time_negative(folder):
    note(folder, started=time.time() + 3600, updated=time.time() + 3600)
    (worker,) = Observer(folder).look().workers
    assert (worker.seconds, worker.silent) == (0.0, 0.0)


def test_as_json(folder):
    note(folder)
    found = entries("status", folder)
    assert (found["done"], found["left"], found["active"]) == (3, 3, True)
    assert found["workers"][0]["n"] == 4


def test_classes_that_may_have_changed_are_named(folder):
    manifest = store_module.Store(folder).manifest()
    for unit in manifest["units"]:
        unit |= {"prior": "walls.long:Corridor", "test": "walls.long:Corridor(length=4)"}
    (folder / "study.json").write_bytes(pack_json(manifest))
    words = "with walls.long:Corridor as the source was then: if it has changed, 'jbrl run' plays"
    assert words in text(folder)[1]
    shutil.rmtree(folder / "units")
    assert "source" not in " ".join(text(folder))  # nothing is done


def test_no_study(tmp_path):
    with pytest.raises(StoreError, match="no results of a study here"):
        Observer(tmp_path)
    assert call("status", tmp_path).exit_code == 2
    assert call("status", tmp_path, "--format", "xml").exit_code == 2


def test_a_run_goes_on_where_nothing_can_be_noted(folder):
    (folder / "running").rmdir()
    (folder / "running").write_text("not a directory")
    (folder / store_module.ESTIMATES_FILE).unlink()
    (folder / store_module.ESTIMATES_FILE).mkdir()
    assert set(jbrl.run(TABLES, folder).scores["status"]) == {"done"}
