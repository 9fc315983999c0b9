"""Jobs submitted to SLURM, and the states that SLURM reports.

Needs no more than `squeue`: there may be no accounting.

DIR/slurm/JOB.json   one submission: its tasks, and the units of each
"""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jbrl.study.storage.files import pack_json, read_json, write_whole

ACTIVE = frozenset(
    {
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "REQUEUED",
        "REQUEUE_HOLD",
        "RESIZING",
        "SIGNALING",
        "STOPPED",
    }
)
SECONDS = 30.0  # squeue may take
# what squeue says, as an error, when it is asked for one job only that has ended long ago
UNKNOWN_JOB = "Invalid job id"


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


def record(folder: Path, tasks: Mapping[str, Sequence[str]], parallelism: int) -> None:
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


def submitted(folder: Path) -> list[Submitted]:
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


def states(tasks: Iterable[str]) -> dict[str, JobState] | None:
    """Return the states of tasks that SLURM reports.

    SLURM removes those that have ended, after about five minutes. None: it does not answer, or not
    here.
    """
    wanted = set(tasks)
    if not wanted:
        return {}
    jobs = ",".join(sorted({task.partition("_")[0] for task in wanted}, key=int))
    command = [
        "squeue",
        "--noheader",
        "--array",
        "--states=all",
        "--format=%i|%T|%r",
        f"--jobs={jobs}",
    ]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if found.returncode and UNKNOWN_JOB not in found.stderr:
        return None
    rows = [line.split("|", 2) for line in found.stdout.splitlines() if line.count("|") >= 2]
    return {task: JobState(name, reason) for task, name, reason in rows if task in wanted}
