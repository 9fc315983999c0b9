"""The units of a study on SLURM, through submitit: packed into the tasks of a job array.

submitit pickles what it submits and what comes back. Here that is a function named by its module, a
`Job` of plain data, and None: which units to run, of which study, and where to. Results go through
the ordinary store, which holds no pickles.
"""

import heapq
import math
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from jbrl.base.errors import JbrlError
from jbrl.study.file import Study
from jbrl.study.plan import RunPlan
from jbrl.study.progress import task_id
from jbrl.study.status import job_states, record_tasks, submitted_tasks
from jbrl.study.storage.store import Store, save_estimates

PARALLELISM = 40  # tasks at once
WARNING_SECONDS = 120  # before the time limit, at most, a task is signalled to end
ENDED_SECONDS = 60  # by SLURM, after a task has been put back into the queue
WARNING_SHARE = 0.2  # of the time limit, at most
# tasks of an array that every SLURM takes, unless configured to take fewer (MaxArraySize=1001)
LARGEST_ARRAY = 1000
FILLED = 0.8  # of the time limit, at most, is what a task should take by its estimate


class ClusterTask(NamedTuple):
    """Units that one process runs, one after the other."""

    units: tuple[str, ...]  # ids
    seconds: float  # that they are expected to take


@dataclass(frozen=True)
class Request:
    """Resources that each task requests from SLURM. None leaves them to the partition."""

    partition: str | None = None
    gpus: int | None = None
    cpus: int | None = None
    minutes: int | None = None
    parallelism: int = PARALLELISM
    # options of sbatch by name, with _ for -; True: without a value
    more: Mapping[str, str | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Work of a task, as plain data: the object that submitit pickles."""

    tables: dict[str, Any]  # of the study
    place: str  # name of the study in messages
    folder: str  # that paths in the study are relative to
    out: str
    units: tuple[str, ...]  # ids
    options: dict[str, Any] = field(default_factory=dict)  # of `jbrl run`, for where the task runs
    warning: float = WARNING_SECONDS  # seconds before the time limit of the signal to end

    def plan(self) -> RunPlan:
        """Return the units of this task.

        Raises:
          JbrlError: something they depend on has changed since they were submitted.
        """
        study = Study(self.tables, place=self.place, folder=Path(self.folder))
        found = {unit.id: unit for unit in study.units}
        if missing := [id for id in self.units if id not in found]:
            raise JbrlError(
                f"{self.place}: {len(missing)} of the {len(self.units)} units of this task are "
                "unknown here: an agent, a distribution or jbrl itself differs from what it was "
                "when the study was submitted; submit it again"
            )
        store = Store(self.out)
        store.check(study.facts()["study"])
        return RunPlan(study, [found[id] for id in self.units], store)


@dataclass(frozen=True)
class Submission:
    """Work that would be, or was, submitted to SLURM."""

    tasks: list[ClusterTask]
    queued: int  # units left out, since tasks that wait or run have them
    job: str = ""  # its number, once submitted


def prepare(plan: RunPlan, request: Request) -> Submission:
    """Pack what is left of a plan, units that need the same search on a prior into one task. Writes
    nothing.

    Raises:
      JbrlError: SLURM does not say what it has already.
    """
    tasks = submitted_tasks(plan.store.folder)
    states = job_states(task.task for task in tasks)
    if states is None:
        raise JbrlError(
            "SLURM does not say what it has in its queue (squeue does not answer): nothing was "
            "submitted, try again"
        )
    active = [task for task in tasks if task.task in states and states[task.task].active]
    queued = {id for task in active for id in task.units}
    left = [unit for unit in plan.todo if unit.id not in queued]
    platform = "gpu" if request.gpus else "cpu"
    searches = {unit.knowledge_id for unit in left if unit.knowledge_id}
    found = {id: plan.store.knowledge(id) for id in sorted(searches)}
    known = {id for id, result in found.items() if result and result.header["platform"] == platform}
    together: dict[str, list[str]] = {}
    for unit in left:
        search = unit.knowledge_id if unit.knowledge_id not in known else None
        together.setdefault(search or unit.id, []).append(unit.id)
    pieces = [
        ClusterTask(tuple(ids), math.fsum(plan.expected_seconds[id] for id in ids))
        for ids in together.values()
    ]
    limit = request.minutes * 60.0 - _warning(request) if request.minutes else None
    return Submission(pack(pieces, request.parallelism, limit), len(plan.todo) - len(left))


def submit(
    plan: RunPlan,
    request: Request,
    work: Callable[[Job], None],
    options: dict[str, Any] | None = None,
) -> Submission:
    """Submit the remaining units of a plan to SLURM.

    Args:
      work: what a task does; a function of a module, which is found by its name where the
        task runs.
      options: plain data for it.

    Raises:
      JbrlError: no submitit or no SLURM here, SLURM refuses, or results cannot be written.
    """
    executor = _executor(plan.store.folder, request)
    prepared = prepare(plan, request)
    if not prepared.tasks:
        return prepared
    plan.store.open(plan.study.facts(), plan.study.units)
    save_estimates(plan.store.folder, plan.expected_seconds)
    facts = (
        plan.study.facts(),
        plan.study.place,
        str(plan.study.folder),
        str(plan.store.folder.resolve()),
    )
    try:
        with executor.batch():
            sent = [
                executor.submit(work, Job(*facts, task.units, options or {}, _warning(request)))
                for task in prepared.tasks
            ]
    except RuntimeError as error:
        why = str(error).strip() or "sbatch does not say why"
        raise JbrlError(f"SLURM has not accepted the study: {why}") from None
    ids = [job.job_id for job in sent]
    units = dict(zip(ids, (task.units for task in prepared.tasks), strict=True))
    record_tasks(plan.store.folder, units, request.parallelism)
    return replace(prepared, job=ids[0].partition("_")[0])


def requeue() -> None:
    """Put the task that this process is back into the queue.

    Returns only if SLURM does not agree: otherwise it ends the process.
    """
    id = task_id()
    try:
        taken = (
            bool(id)
            and not subprocess.run(
                ["scontrol", "requeue", str(id)], capture_output=True, timeout=60, check=False
            ).returncode
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if taken:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # a task that ends by itself in the meantime is taken for failed, and stays out of the queue
        time.sleep(ENDED_SECONDS)


def _executor(folder: Path, request: Request) -> Any:
    try:
        import submitit
    except ImportError:
        raise JbrlError(
            "--executor slurm: needs submitit, which is not installed: pip install submitit"
        ) from None
    try:
        executor = submitit.SlurmExecutor(folder=(folder / "slurm").resolve())
    except RuntimeError:
        raise JbrlError(
            "--executor slurm: no SLURM here ('srun' is not found): expected a machine that may "
            "submit jobs"
        ) from None
    asked = {
        "partition": request.partition,
        "gpus_per_node": request.gpus,
        "cpus_per_task": request.cpus,
    }
    executor.update_parameters(
        job_name="jbrl",
        time=request.minutes,  # None leaves out the five minutes that submitit would ask for
        array_parallelism=request.parallelism,
        signal_delay_s=_warning(request),
        # Since SLURM 22.05, srun does not take the number of CPUs over from sbatch.
        srun_args=[f"--cpus-per-task={request.cpus}"] if request.cpus else [],
        additional_parameters={"requeue": True, **request.more},
        **{name: value for name, value in asked.items() if value is not None},
    )
    return executor


def _warning(request: Request) -> int:
    """Return seconds before the time limit at which a task is signalled to end."""
    return (
        WARNING_SECONDS
        if request.minutes is None
        else math.ceil(min(WARNING_SECONDS, WARNING_SHARE * 60 * request.minutes))
    )


def minutes(text: str) -> int:
    """Return a time limit in SLURM's notation, rounded up to minutes: `30`, `90:00`, `4:00:00`,
    `1-0`, `1-12:30`, `1-12:30:00`.

    Raises:
      JbrlError: it is none of these, or zero.
    """
    forms = (
        r"(?P<m>\d+)(:(?P<s>\d+))?",
        r"(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)",
        r"(?P<d>\d+)-(?P<h>\d+)(:(?P<m>\d+)(:(?P<s>\d+))?)?",
    )
    found = next((match for form in forms if (match := re.fullmatch(form, text.strip()))), None)
    given = {name: int(value or 0) for name, value in found.groupdict().items()} if found else {}
    seconds = sum(
        given.get(name, 0) * length
        for name, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
    )
    if not seconds:
        raise JbrlError(
            f"--time '{text}': expected minutes, H:MM:SS or D-HH:MM:SS, for example 4:00:00"
        )
    return math.ceil(seconds / 60)


def pack(
    pieces: Sequence[ClusterTask], parallelism: int, limit: float | None = None
) -> list[ClusterTask]:
    """Pack units into tasks of about the same length: `parallelism` tasks to be run at once, and
    more when they would take too long otherwise, as many as one array may have.

    The longest and the shortest task differ by no more than the longest piece. Longest processing
    time first (Graham 1969, Bounds on multiprocessing timing anomalies): each piece, from the
    longest to the shortest, goes to the task with the least to do. The longest of n tasks takes at
    most 4/3 - 1/(3n) of what the best packing would.

    Args:
      pieces: units that belong together, in the order of the study.
      limit: seconds that a task may take.
    """
    needed = 1
    if limit:
        needed = math.ceil(math.fsum(piece.seconds for piece in pieces) / (FILLED * limit))
    n = min(len(pieces), max(parallelism, needed), max(parallelism, LARGEST_ARRAY))
    loads = [(0.0, 0, number) for number in range(n)]  # seconds, units, number of the task
    held: list[list[int]] = [[] for _ in range(n)]
    for position in sorted(range(len(pieces)), key=lambda i: -pieces[i].seconds):
        seconds, count, number = loads[0]
        held[number].append(position)
        heapq.heapreplace(loads, (seconds + pieces[position].seconds, count + 1, number))
    return [
        ClusterTask(
            tuple(id for i in sorted(positions) for id in pieces[i].units),
            math.fsum(pieces[i].seconds for i in positions),
        )
        for positions in held
    ]
