"""Progress of a study, read from its directory: while it runs or later, from any machine that sees
the files.

DIR/slurm/JOB.json   one submission: its tasks, and the units of each

Needs no more of SLURM than `squeue`: there may be no accounting.
"""

import re
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jbrl.base.files import write_whole
from jbrl.play.machine import SILENT_SECONDS, process_exists
from jbrl.study.storage.files import pack_json, read_json
from jbrl.study.storage.store import Store, saved_estimates

ACTIVE = (
    *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD"),
    *("RESIZING", "SIGNALING", "STOPPED"),
)
SQUEUE_SECONDS = 30.0  # squeue may take
# what squeue says, as an error, when it is asked for one job only that has ended long ago
UNKNOWN_JOB = "Invalid job id"
OUTSIDE = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")  # `module:Class` in the name of a problem


class Submitted(NamedTuple):
    """A task that was submitted to SLURM."""

    task: str  # `12_3`, or `12`
    units: tuple[str, ...]
    parallelism: int  # how many tasks were to run at once


class JobState(NamedTuple):
    """State of a task, as SLURM reports it: PENDING because of Priority, FAILED because of
    NonZeroExitCode.
    """

    name: str
    reason: str

    @property
    def active(self) -> bool:
        """True if the task is queued or runs."""
        return self.name in ACTIVE


def record_tasks(folder: Path, tasks: Mapping[str, Sequence[str]], parallelism: int) -> None:
    """Note what was submitted: the units of each task.

    Raises:
      OSError: it cannot be written.
    """
    job = min(tasks, key=_number).partition("_")[0]
    content = {
        "parallelism": parallelism,
        "tasks": {task: list(units) for task, units in tasks.items()},
    }
    path = folder / "slurm" / f"{job}.json"
    path.parent.mkdir(exist_ok=True)
    write_whole(path, pack_json(content))


def submitted_tasks(folder: Path) -> list[Submitted]:
    """Return all tasks ever submitted for the directory `folder`, in the order of submission."""
    found = [record for path in (folder / "slurm").glob("*.json") if (record := read_json(path))]
    tasks = [
        Submitted(task, tuple(units), one["parallelism"])
        for one in found
        for task, units in one["tasks"].items()
    ]
    return sorted(tasks, key=lambda task: _number(task.task))


def _number(task: str) -> tuple[int, int]:
    job, _, index = task.partition("_")
    return int(job), int(index or 0)


def job_states(tasks: Iterable[str]) -> dict[str, JobState] | None:
    """Return the states of tasks that SLURM reports.

    SLURM removes those that have ended, after about five minutes. None: it does not answer, or not
    here.
    """
    wanted = set(tasks)
    if not wanted:
        return {}
    jobs = ",".join(sorted({task.partition("_")[0] for task in wanted}, key=int))
    command = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r"]
    command.append(f"--jobs={jobs}")
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=SQUEUE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if found.returncode and UNKNOWN_JOB not in found.stderr:
        return None
    rows = [line.split("|", 2) for line in found.stdout.splitlines() if line.count("|") >= 2]
    return {task: JobState(name, reason) for task, name, reason in rows if task in wanted}


@dataclass(frozen=True)
class Worker:
    """A process that runs units, or did until its heartbeat stopped."""

    host: str
    pid: int
    task: str | None  # number of the SLURM task, if it is one
    seconds: float  # since it began
    silent: float  # seconds since its last heartbeat
    alive: bool
    unit: str | None  # label of the current unit
    n: int  # MDPs played of it
    of: int
    search: tuple[int, int] | None  # or trajectories used of the search, and its budget
    left: tuple[str, ...]  # ids of units that it has not finished, the present one first
    seconds_left: float | None  # about; None when it is not known


@dataclass(frozen=True)
class Waiting:
    """Tasks of a cluster that have not begun."""

    # as SLURM says it: Priority, Dependency, COMPLETING; "starting" when SLURM has started them and
    # they have written no heartbeat yet
    why: str
    tasks: tuple[str, ...]
    units: tuple[str, ...]  # ids of those that have no result


@dataclass(frozen=True)
class Status:
    """State of a study.

    Each unit is done, failed or left; those that are left may be running, queued, or neither.
    """

    study: str
    units: int
    done: int
    failed: dict[str, str]  # reason by label; a unit that is tried again is left
    left: int
    begun: int  # of the units left: with a checkpoint
    workers: list[Worker]
    waiting: list[Waiting]
    # by task, what SLURM says of those that ended before their units did: CANCELLED, TIMEOUT
    ended: dict[str, str]
    # seconds of work, about, if one process did it all; None when it is not known
    work_left: float | None
    # until all is done, about; None when it is not known, or part of it is neither
    # running nor queued
    seconds_left: float | None
    unheard: bool  # SLURM was given tasks, and does not answer here
    # classes outside jbrl that units which are done have played, `module:Class`: their source may
    # have changed since
    outside: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        """True if a process runs or a task is in a queue, or may be."""
        return (
            bool(self.waiting)
            or any(worker.alive for worker in self.workers)
            or (self.unheard and self.left > 0)
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"active": self.active}


class Observer:
    """Reader of the state of a study, any number of times; finished parts are read once.

    Raises:
      StoreError: `folder` holds no study.
    """

    def __init__(self, folder: str | Path) -> None:
        self.store = Store(folder)
        self.folder = self.store.folder
        self.store.manifest()
        self._done: set[str] = set()

    def look(self) -> Status:
        """Return the present state.

        Raises:
          StoreError: the directory cannot be read.
        """
        manifest = self.store.manifest()
        labels = {unit["id"]: unit.get("label", unit["id"]) for unit in manifest["units"]}
        reasons = self._reasons([id for id in labels if id not in self._done])
        tasks = submitted_tasks(self.folder)
        answer = job_states(task.task for task in tasks)
        states = answer or {}
        expected = saved_estimates(self.folder)
        workers = self._workers(labels, states)
        open_ = [id for id in labels if id not in self._done]
        held = {id for worker in workers if worker.alive for id in worker.left}
        at_work = {worker.task for worker in workers if worker.alive}
        queued = [
            task
            for task in tasks
            if task.task not in at_work and task.task in states and states[task.task].active
        ]
        waiting = _waiting(queued, states, set(open_) - held)
        held |= {id for group in waiting for id in group.units}
        left = [id for id in open_ if id not in reasons or id in held]
        last = {
            id: task.task for task in tasks for id in task.units if id in left and id not in held
        }
        begun = {
            path.name.partition(".")[0] for path in self.store.units_folder.glob("*.partial.npz")
        }
        work = sum(expected[id] for id in left) if all(id in expected for id in left) else None
        return Status(
            study=manifest["study"]["name"],
            units=len(labels),
            done=len(labels) - len(open_),
            failed={labels[id]: reason for id, reason in reasons.items() if id not in held},
            left=len(left),
            begun=len(begun & set(left)),
            workers=[worker for worker in workers if worker.alive or set(worker.left) - held],
            waiting=waiting,
            ended={
                task: states[task].name
                for task in sorted(set(last.values()))
                if task in states and not states[task].active
            },
            work_left=work,
            seconds_left=_until_done(workers, waiting, expected, queued)
            if work is not None and held >= set(left)
            else None,
            unheard=answer is None,
            outside=_outside(unit for unit in manifest["units"] if unit["id"] in self._done),
        )

    def _reasons(self, ids: list[str]) -> dict[str, str]:
        """Return the reasons why units failed; record those that are done."""
        found = self.store.results(ids)
        self._done |= {id for id, one in found.items() if one.status == "done"}
        failed = (id for id, one in found.items() if one.status == "failed")
        return {id: str(found[id].header.get("reason")) for id in failed}

    def _workers(self, labels: dict[str, str], states: dict[str, JobState]) -> list[Worker]:
        notes = [read_json(path) for path in sorted((self.folder / "running").glob("*.json"))]
        return [self._worker(note, labels, states) for note in notes if note]

    def _worker(
        self, note: dict[str, Any], labels: dict[str, str], states: dict[str, JobState]
    ) -> Worker:
        now = time.time()
        return Worker(
            host=note["host"],
            pid=note["pid"],
            task=note["task"],
            seconds=max(0.0, now - note["started"]),
            silent=max(0.0, now - note["updated"]),
            alive=_alive(note, now, states),
            unit=labels.get(note["unit"]),
            n=note.get("n", 0),
            of=note.get("of", 0),
            search=tuple(note["search"]) if note["search"] else None,
            left=tuple(id for id in note["left"] if id in labels and id not in self._done),
            seconds_left=note.get("seconds_left"),
        )


def _outside(units: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    texts = {unit[name] for unit in units for name in ("algorithm", "prior", "test")}
    return tuple(sorted({name for text in texts for name in OUTSIDE.findall(text)}))


def _alive(note: dict[str, Any], now: float, states: dict[str, JobState]) -> bool:
    """Return whether a process with a heartbeat still exists: ask SLURM, the system on the same
    machine, or the clock.
    """
    state = states.get(note["task"] or "")
    if state and not state.active:
        return False
    if now - note["updated"] > SILENT_SECONDS:
        return False
    return note["machine"] != socket.gethostname() or process_exists(note["pid"])


def _waiting(
    tasks: Sequence[Submitted], states: dict[str, JobState], open_: set[str]
) -> list[Waiting]:
    groups: dict[str, dict[str, list[str]]] = {}
    for task in tasks:
        left = [id for id in task.units if id in open_]
        if left:  # the others have no work left
            state = states[task.task]
            why = {"PENDING": state.reason, "CONFIGURING": "starting", "RUNNING": "starting"}.get(
                state.name, state.name
            )
            groups.setdefault(why, {})[task.task] = left
    return [
        Waiting(why, tuple(group), tuple(id for units in group.values() for id in units))
        for why, group in groups.items()
    ]


def _until_done(
    workers: list[Worker],
    waiting: list[Waiting],
    expected: dict[str, float],
    queued: list[Submitted],
) -> float | None:
    """Estimate the time until all is done: at least that of the longest process, and that of all
    together when the rest is shared among as many as may run at once.
    """
    at_work = [worker.seconds_left for worker in workers if worker.alive]
    if any(seconds is None for seconds in at_work):
        return None
    seconds = [value for value in at_work if value is not None]
    seconds_queued = sum(expected[id] for group in waiting for id in group.units)
    at_once = len(seconds)
    if waiting:
        at_once = max(
            at_once,
            min(
                max(task.parallelism for task in queued),
                at_once + sum(len(group.tasks) for group in waiting),
            ),
        )
    return max([*seconds, (sum(seconds) + seconds_queued) / at_once]) if at_once else None
