"""`jbrl status`."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from jbrl.cli.text import count, duration, show_warnings

if TYPE_CHECKING:
    from jbrl.study.slurm.status import Status, Worker

FAILURES = 20  # that are listed


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of results.")],
    watch: Annotated[
        int | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            min=1,
            help="Repeat at this interval, until nothing is running or queued.",
        ),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="text|json", help="Output format.")
    ] = "text",
) -> None:
    """Show the progress of a study: done, failed and why, running, queued, left, and the time left.

    Works while it runs, here or on a cluster, and afterwards.

    [bold]Examples[/bold]

    \b
    jbrl status out/quick
    jbrl status out/quick --watch 10
    """
    from jbrl.base.errors import JbrlError
    from jbrl.study.slurm.status import Observer

    if format_ not in ("text", "json"):
        raise JbrlError(f"--format '{format_}': expected text or json")
    show_warnings()
    observer, console = Observer(folder), Console()
    while True:
        found = observer.look()
        if watch and console.is_terminal:
            console.clear()
        typer.echo(
            json.dumps(found.as_dict()) if format_ == "json" else "\n".join(lines(found, folder))
        )
        if not (watch and found.active):
            return
        time.sleep(watch)


def lines(found: "Status", folder: Path) -> list[str]:
    """Describe the state: a summary, and a line for each failure, each process and each group of
    queued tasks.
    """
    at_work = [worker for worker in found.workers if worker.alive]
    counts = [f"{found.done} of {found.units} units done"]
    counts += [f"{len(found.failed)} failed"] if found.failed else []
    counts += [f"{found.left} left"] if found.left else []
    text = [f"{found.study}: {', '.join(counts)}{_time_left(found)}"]
    text += [
        f"  failed   {unit}: {reason.splitlines()[0] if reason else ''}"
        for unit, reason in list(found.failed.items())[:FAILURES]
    ]
    text += (
        [f"  failed   … and {len(found.failed) - FAILURES} more"]
        if len(found.failed) > FAILURES
        else []
    )
    text += [f"  running  {_work(worker, alone=found.seconds_left is None)}" for worker in at_work]
    for group in found.waiting:
        text.append(
            f"  waiting  {count(len(group.tasks), 'task')}, {count(len(group.units), 'unit')} "
            f"({group.why})"
        )
    for worker in found.workers:
        if not worker.alive:
            text.append(
                f"  lost     {_who(worker)}: no heartbeat for {duration(worker.silent)}, at "
                f"{worker.unit or 'the start'}"
            )
    states: dict[str, list[str]] = {}
    for task, state in found.ended.items():
        states.setdefault(state, []).append(task)
    text += [
        (
            f"  ended    {state} before the units were done: {count(len(tasks), 'task')} "
            f"{' '.join(tasks[:8])}"
        )
        for state, tasks in states.items()
    ]
    if found.unheard and found.left:
        text.append(
            "SLURM cannot be asked from here (squeue does not answer): of its queue nothing is "
            "known."
        )
    if (found.left or found.failed) and not found.active:
        text.append(
            f"Nothing is running: 'jbrl run' with --out {folder} goes "
            f"on{' and tries again what failed' if found.failed else ''}."
        )
    return text


def _time_left(found: "Status") -> str:
    if found.seconds_left is not None and found.left:
        return f", about {duration(found.seconds_left)} to go"
    if found.work_left is not None and found.left:
        return f", about {duration(found.work_left)} of work"
    return ""


def _work(worker: "Worker", *, alone: bool) -> str:
    """Describe the work of a process; `alone`: and the time it will take, since that of the whole
    study is not known.
    """
    if worker.unit is None:
        what = "between two units"
    elif worker.search:
        what = f"{worker.unit}: search {worker.search[0]:,}/{worker.search[1]:,}"
    else:
        what = (
            f"{worker.unit}: {worker.n}/{worker.of} lifetimes"
            if worker.n
            else f"{worker.unit}: begins"
        )
    after = f", {count(len(worker.left) - 1, 'unit')} to come" if len(worker.left) > 1 else ""
    rest = (
        f", about {duration(worker.seconds_left)} to go"
        if alone and worker.seconds_left is not None
        else ""
    )
    return f"{what} ({_who(worker)}, for {duration(worker.seconds)}{after}{rest})"


def _who(worker: "Worker") -> str:
    return (
        f"task {worker.task} on {worker.host}"
        if worker.task
        else f"process {worker.pid} on {worker.host}"
    )
