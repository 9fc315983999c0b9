"""`jbrl run`: the command, its requests to SLURM, and what a task of SLURM runs.

A task is named by this module in submitit's pickle, and imports what it needs where it runs.
"""

import dataclasses
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli.options import CompileCache, Positive, Quiet
from jbrl.cli.output import complain, count, duration, progress_bars, show_warnings
from jbrl.cli.results import nan_notes

if TYPE_CHECKING:
    from jbrl.study.plan import RunPlan
    from jbrl.study.slurm import Job, Request

FAILED_UNITS = 1
BAD_INPUT = 2
BY_SIGNAL = 128  # added to the number of the signal


@dataclasses.dataclass(frozen=True)
class SlurmOptions:
    """Options of `jbrl run` about SLURM.

    With --executor slurm:
      partition (NAME): SLURM: the partition.
      gpus: SLURM: GPUs of each task.
      cpus: SLURM: cores of each task.
      time (H:MM:SS): SLURM: time limit of each task; interrupted work continues.
      array_parallelism: SLURM: how many tasks run at once (40).
      slurm (NAME=VALUE): SLURM: another option of sbatch: mem=8G, exclusive. May be repeated.
    """

    partition: str | None = None
    gpus: Positive | None = None
    cpus: Positive | None = None
    time: str | None = None
    array_parallelism: Positive | None = None
    slurm: list[str] | None = None


def run(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml")],
    *,
    out: Path,
    set_: list[str] | None = None,
    only: str | None = None,
    shard: str | None = None,
    dry_run: bool = False,
    units: bool = True,
    calibrate: bool | None = None,
    devices: str | None = None,
    memory: str | None = None,
    stack: bool | None = None,
    quiet: Quiet = False,
    executor: Literal["local", "slurm"] = "local",
    slurm: SlurmOptions,
    compile_cache: CompileCache = None,
) -> None:
    """Run a study, or what is left of it.

    A unit of work is one agent with its parameters in one experiment with one seed. Interrupt at
    any time: the same command continues where it was, with the same numbers. SIGTERM, which a batch
    system sends at its time limit, lets the current chunk be finished. Exit code 0: all done; 1:
    some units failed; 2: something in the input is not accepted; 130: interrupted; 143: ended by
    SIGTERM.

    Args:
      study: The study to run.
      out (DIR): Directory of results. If it holds some of them already, only the rest is run.
      set_ (study.FIELD=VALUE): Replace a field of [study], the value written as in TOML. May be
        repeated.
      only (REGEX): Run only units whose label matches; --dry-run prints the labels.
      shard (I/N): Run the I-th of N parts, counting from 1. Parts may share DIR, or be merged
        later.
      dry_run: Print what would be run, how long it may take, in how much memory.
      units: With --dry-run: list the units, not only the algorithms.
      calibrate: Measure the duration of units first, by short runs, two minutes at most. They are
        remembered: without this option, those made before are used; with --no-calibrate, none.
      devices (N|LIST): How many CPU cores or accelerators to use, or which accelerators: 0,2.
        Default: all.
      memory (SIZE): Memory of all arrays, of each accelerator or of the machine: 8GiB, 500MB.
        Default: 80 %.
      stack: Play several units at once, or not. Default: where it helps.
      quiet: Print only warnings and errors.
      executor: Run here, or submit to SLURM and return.

    Examples:
      jbrl run experiments/quick.toml --out out/quick
      jbrl run experiments/quick.toml --out out/try --set study.n_environments=50
      jbrl run experiments/quick.toml --out out/quick --only 'GC/e-Greedy' --dry-run
      jbrl run experiments/quick.toml --out out/quick --shard 2/3
      jbrl run experiments/paper.toml --out out/paper --calibrate --dry-run --no-units
      jbrl run experiments/paper.toml --out out/paper --executor slurm --gpus 1 --time 4:00:00
    """
    from jbrl.cli.progress import Display, print_estimates
    from jbrl.play import compile_cache as kept_programs
    from jbrl.play.resources import check, choose
    from jbrl.rollout.contract import StaysWithNaN
    from jbrl.study.plan import plan
    from jbrl.study.stopping import Stopped, keeping, stopping_on

    request = _request(executor, slurm)
    if request:
        check(devices, memory)  # the devices are found where the tasks run
    resources = choose() if request else choose(devices, memory, stack)
    planned = plan(
        study,
        out,
        overrides=set_ or [],
        only=only,
        shard=shard,
        recall=calibrate is not False,
        resources=resources,
    )
    for text in () if quiet else planned.notices:
        complain(text, "note")
    if calibrate:
        with progress_bars(quiet=quiet) as show:
            complaints = planned.calibrate(
                lambda what, done, total: show("short runs", done, total, what)
            )
        for text in complaints:
            complain(text, "note")
    if dry_run:
        print_estimates(planned, units=units)
    if request:
        _submit(
            planned,
            request,
            dry_run=dry_run,
            quiet=quiet,
            compile_cache=compile_cache,
            devices=devices,
            memory=memory,
            stack=stack,
        )
    if dry_run or request:
        return
    display = Display(planned, quiet=quiet)  # the speed of compilation is measured without a cache
    if compile_cache:
        kept_programs.use(compile_cache)
    kept = f"what is done is kept in {out}; the same command continues from there"
    try:
        with (
            keeping(lambda: True, kept),
            stopping_on(signal.SIGTERM, signal.SIGUSR1),
            display as progress,
        ):
            failed = planned.execute(progress, resources)
    except KeyboardInterrupt as interrupt:
        complain(kept, "stopped" if isinstance(interrupt, Stopped) else "interrupted")
        raise
    if not quiet and any(isinstance(unit.agent, StaysWithNaN) for unit in planned.units):
        from jbrl.results import Results

        for text in nan_notes(Results(out)):
            complain(text, "note")
    if failed:
        raise typer.Exit(FAILED_UNITS)


def _request(executor: str, options: SlurmOptions) -> "Request | None":
    """Return the request of each task; None when the study is run here.

    Raises:
      JbrlError: an option is not accepted, or makes no sense without SLURM.
    """
    if executor == "local":
        for name, value in vars(options).items():
            if value:
                text = " ".join(value) if isinstance(value, list) else value
                raise JbrlError(f"--{name.replace('_', '-')} {text}: is for --executor slurm only")
        return None
    from jbrl.study.slurm import PARALLELISM, Request, minutes

    return Request(
        options.partition,
        options.gpus,
        options.cpus,
        minutes=None if options.time is None else minutes(options.time),
        parallelism=options.array_parallelism or PARALLELISM,
        more=dict(_option(text) for text in options.slurm or ()),
    )


def _option(text: str) -> tuple[str, str | bool]:
    name, equals, value = text.lstrip("-").partition("=")
    if not name or (equals and not value):
        raise JbrlError(
            f"--slurm '{text}': expected NAME=VALUE, an option of sbatch, for example mem=8G, or "
            "NAME for one without a value"
        )
    return name.replace("-", "_"), value if equals else True


def _submit(
    plan: "RunPlan", request: "Request", *, dry_run: bool, quiet: bool, **options: Any
) -> None:
    """Submit the remaining units, or print what would be submitted.

    `options` are for where the tasks run; `quiet`: say nothing if all goes well.
    """
    from jbrl.study.slurm import prepare, submit

    submission = prepare(plan, request) if dry_run else submit(plan, request, work, options)
    if quiet:
        return
    if submission.queued:
        typer.echo(f"{count(submission.queued, 'unit')} left out: in tasks that SLURM has already")
    tasks, folder = submission.tasks, plan.store.folder
    if not tasks:
        typer.echo("nothing to submit")
        return
    units = count(sum(len(task.units) for task in tasks), "unit")
    longest = duration(max(task.seconds for task in tasks))
    typer.echo(f"{units} in {count(len(tasks), 'task')}, the longest about {longest}")
    if not dry_run:
        typer.echo(
            f"submitted as {submission.job}. See 'jbrl status {folder}'; what tasks print is in "
            f"{folder / 'slurm'}."
        )


def work(job: "Job") -> None:
    """Run the units of a task.

    When SLURM signals that the time limit is near (SIGUSR1, SIGUSR2), the task finishes the current
    chunk and returns to the queue. It may take any number of turns; only a turn without progress is
    the last one. SIGTERM (`scancel`) ends it in the same way, without a return to the queue.
    """
    try:
        _work(job)
    except JbrlError as error:
        complain(str(error))
        sys.exit(BAD_INPUT)


def _work(job: "Job") -> None:
    from jbrl.cli.progress import Display
    from jbrl.play import compile_cache
    from jbrl.play.batching import use_all_cores
    from jbrl.play.resources import choose
    from jbrl.study.stopping import Stopped, stopping_on

    show_warnings()
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    if cores and "JAX_NUM_CPU_DEVICES" not in os.environ:
        # as many as the task was given: not every cluster confines a task to its own
        use_all_cores(int(cores))
        os.environ["JAX_NUM_CPU_DEVICES"] = cores
    resources = choose(*(job.options.get(name) for name in ("devices", "memory", "stack")))
    planned = job.plan()
    if where := job.options.get("compile_cache"):
        compile_cache.use(where)
    display = Display(planned, quiet=False)
    try:
        with stopping_on(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM), display:
            failed = planned.execute(display, resources)
    except Stopped as stopped:
        number = _meant(stopped.asked, job.warning)
        _leave(number, display.moved)
        sys.exit(BY_SIGNAL + number)
    finally:
        # a warning that comes now is irrelevant, but would end the process
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    if failed:
        sys.exit(FAILED_UNITS)


def _meant(asked: Sequence[tuple[int, float]], warning: float) -> int:
    """Return the signal that counts: the first, unless SIGTERM came after it and before the time
    limit could be reached: that is `scancel`.

    Args:
      asked: numbers and times of the signals.
      warning: seconds at least between the warning and the limit.
    """
    first, began = asked[0]
    return next(
        (number for number, when in asked if number == signal.SIGTERM and when - began < warning),
        first,
    )


def _leave(number: int, moved: bool) -> None:
    """Return to the queue if that makes sense, and print so."""
    from jbrl.study.slurm import requeue

    if number == signal.SIGTERM:
        complain("what is done is kept; 'jbrl run' again submits the rest", "stopped")
    elif not moved:
        complain(
            "the time limit was too short for anything to be done: give more --time, or a smaller "
            "study.chunk",
            "stopped",
        )
    else:
        complain("the time limit is near: back into the queue", "stopped")
        requeue()
        complain("SLURM does not take this task back: 'jbrl run' again submits the rest", "warning")
