"""The units of a study on SLURM, through submitit: packed into the tasks of job arrays, searches
before the units that need them.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from jbrl.base.errors import JbrlError
from jbrl.study.file import Study
from jbrl.study.plan import RunPlan
from jbrl.study.progress import task_id
from jbrl.study.status import Submitted, job_states, record_tasks, submitted_tasks
from jbrl.study.storage.store import Store, save_estimates

PARALLELISM = 40  # tasks at once
WARNING_SECONDS = 120  # before the time limit, at most, a task is signalled to end
ENDED_SECONDS = 60  # by SLURM, after a task has been put back into the queue
WARNING_SHARE = 0.2  # of the time limit, at most
# tasks of an array that every SLURM takes, unless configured to take fewer (MaxArraySize=1001)
LARGEST_ARRAY = 1000
FILLED = 0.8  # of the time limit, at most, is what a task should take by its estimate


class Piece(NamedTuple):
    """A unit of work, to be packed."""

    id: str
    seconds: float  # that it is expected to take
    # the search that it makes use of, or does itself when it is the first one
    needs: str | None = None


class ClusterTask(NamedTuple):
    """Units that one process runs, one after the other."""

    units: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Packing:
    """All tasks. Those of `after` may start when those of `searches` have ended."""

    searches: list[ClusterTask]  # the first unit of each search that others wait for
    free: list[ClusterTask]  # wait for nothing
    after: list[ClusterTask]

    @property
    def tasks(self) -> list[ClusterTask]:
        return [*self.searches, *self.free, *self.after]


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

    packing: Packing
    queued: int  # units left out, since tasks that wait or run have them
    # tasks that wait or run, and do searches which units of `packing.after` need
    awaited: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()  # numbers, once submitted


def prepare(plan: RunPlan, request: Request) -> Submission:
    """Pack what is left of a plan. Writes nothing.

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
    pieces = [
        Piece(unit.id, plan.expected_seconds[unit.id], unit.knowledge_id)
        for unit in plan.todo
        if unit.id not in queued
    ]
    platform = "gpu" if request.gpus else "cpu"
    wanted = {piece.needs for piece in pieces if piece.needs}
    found = {id: plan.store.knowledge(id) for id in sorted(wanted)}
    known = {id for id, result in found.items() if result and result.header["platform"] == platform}
    limit = request.minutes * 60.0 - _warning(request) if request.minutes else None
    searching = {id: task for id, task in _searching(plan, active).items() if id in wanted - known}
    packed = pack(pieces, request.parallelism, limit, known, searching)
    return Submission(
        packed, len(plan.todo) - len(pieces), tuple(dict.fromkeys(searching.values()))
    )


def _searching(plan: RunPlan, tasks: Sequence[Submitted]) -> dict[str, str]:
    """Return the searches that tasks do, with the task that does each: the first one submitted."""
    needs = {unit.id: unit.knowledge_id for unit in plan.study.units}
    found: dict[str, str] = {}
    for task in tasks:
        for id in task.units:
            if search := needs.get(id):
                found.setdefault(search, task.task)
    return found


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
    if not prepared.packing.tasks:
        return prepared
    plan.store.open(plan.study.facts(), plan.study.units)
    save_estimates(plan.store.folder, plan.expected_seconds)
    facts = (
        plan.study.facts(),
        plan.study.place,
        str(plan.study.folder),
        str(plan.store.folder.resolve()),
    )
    at_once = [*prepared.packing.searches, *prepared.packing.free]
    searching = len(prepared.packing.searches)

    def send(tasks: list[ClusterTask], after: list[str]) -> list[str]:
        executor.update_parameters(additional_parameters=_additional(request, after))
        try:
            with executor.batch():
                sent_jobs = [
                    executor.submit(work, Job(*facts, task.units, options or {}, _warning(request)))
                    for task in tasks
                ]
        except RuntimeError as error:
            held = (
                f"; job {sent[0].partition('_')[0]} is in the queue: run this again for the rest"
                if sent
                else ""
            )
            why = str(error).strip() or "sbatch does not say why"
            raise JbrlError(
                f"SLURM has not accepted {'all of ' if sent else ''}the study: {why}{held}"
            ) from None
        ids = [job.job_id for job in sent_jobs]
        record_tasks(
            plan.store.folder,
            dict(zip(ids, (task.units for task in tasks), strict=True)),
            request.parallelism,
        )
        return ids

    sent: list[str] = []
    if at_once:
        sent += send(at_once, [])
    if prepared.packing.after:
        sent += send(prepared.packing.after, [*sent[:searching], *prepared.awaited])
    numbers = dict.fromkeys(id.partition("_")[0] for id in sent)
    return replace(prepared, jobs=tuple(numbers))


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
        **{name: value for name, value in asked.items() if value is not None},
    )
    return executor


def _additional(request: Request, after: list[str]) -> dict[str, Any]:
    """Return options of sbatch that submitit has no names for."""
    return {
        "requeue": True,
        **request.more,
        **({"dependency": ":".join(["afterany", *after])} if after else {}),
    }


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
    pieces: Sequence[Piece],
    parallelism: int,
    limit: float | None = None,
    known: Collection[str] = (),
    awaited: Collection[str] = (),
) -> Packing:
    """Pack units into tasks of about the same length.

    The first unit that needs a search does it; the others that need the same one come after. A
    search that only one unit needs delays no other unit. There are `parallelism` tasks to be run at
    once, and more when they would take too long otherwise, as many as one array may have.

    Args:
      pieces: in the order of the study.
      parallelism: how many tasks run at once.
      limit: seconds that a task may take.
      known: searches that have been done.
      awaited: searches that others are doing: units that need one come after.
    """
    needs: dict[str, list[Piece]] = {}
    for piece in pieces:
        if piece.needs and piece.needs not in known and piece.needs not in awaited:
            needs.setdefault(piece.needs, []).append(piece)
    shared = [users for users in needs.values() if len(users) > 1]
    searching = {users[0].id for users in shared}
    waiting = {piece.id for users in shared for piece in users[1:]} | {
        piece.id for piece in pieces if piece.needs in awaited
    }
    searches = [piece for piece in pieces if piece.id in searching]
    free = [piece for piece in pieces if piece.id not in searching | waiting]
    after = [piece for piece in pieces if piece.id in waiting]
    max_tasks = max(parallelism, LARGEST_ARRAY)
    first = _balanced(searches, _count(searches, parallelism, limit, max_tasks - bool(free)))
    return Packing(
        first,
        _balanced(
            free, _count(free, max(1, parallelism - len(first)), limit, max_tasks - len(first))
        ),
        _balanced(after, _count(after, parallelism, limit, max_tasks)),
    )


def _count(pieces: Sequence[Piece], parallelism: int, limit: float | None, max_tasks: int) -> int:
    """Return the number of tasks."""
    total = math.fsum(piece.seconds for piece in pieces)
    needed = math.ceil(total / (FILLED * limit)) if limit else 1
    return min(len(pieces), max(parallelism, needed), max_tasks)


def _balanced(pieces: Sequence[Piece], n: int) -> list[ClusterTask]:
    """Make `n` tasks, the longest and the shortest of which differ by no more than the longest
    unit.

    Longest processing time first (Graham 1969, Bounds on multiprocessing timing anomalies): each
    unit, from the longest to the shortest, goes to the task with the least to do. The longest task
    takes at most 4/3 - 1/(3n) of what the best packing would.
    """
    loads = [(0.0, 0, number) for number in range(n)]  # seconds, units, number of the task
    held: list[list[int]] = [[] for _ in range(n)]
    for position in sorted(range(len(pieces)), key=lambda i: -pieces[i].seconds):
        seconds, count, number = loads[0]
        held[number].append(position)
        heapq.heapreplace(loads, (seconds + pieces[position].seconds, count + 1, number))
    return [
        ClusterTask(
            tuple(pieces[i].id for i in sorted(positions)),
            math.fsum(pieces[i].seconds for i in positions),
        )
        for positions in held
    ]
