"""`jbrl run --executor slurm`: its request, and the messages about it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli.text import count, duration

if TYPE_CHECKING:
    from jbrl.study.plan import RunPlan
    from jbrl.study.slurm.cluster import Request, Submission
    from jbrl.study.slurm.packing import ClusterTask


def asked(
    executor: str,
    *,
    time: str | None,
    array_parallelism: int | None,
    slurm: Sequence[str] | None,
    **given: Any,
) -> "Request | None":
    """Return the request of each task; None when the study is run here.

    Raises:
      JbrlError: an option is not accepted, or makes no sense without SLURM.
    """
    options = {
        "--time": time,
        "--array-parallelism": array_parallelism,
        "--slurm": " ".join(slurm or ()) or None,
    }
    options |= {f"--{name}": value for name, value in given.items()}
    if executor not in ("local", "slurm"):
        raise JbrlError(f"--executor '{executor}': expected local or slurm")
    if executor == "local":
        for name, value in options.items():
            if value is not None:
                raise JbrlError(f"{name} {value}: is for --executor slurm only")
        return None
    from jbrl.study.slurm.cluster import PARALLELISM, Request, minutes

    return Request(
        **given,
        minutes=None if time is None else minutes(time),
        parallelism=array_parallelism or PARALLELISM,
        more=dict(_option(text) for text in slurm or ()),
    )


def _option(text: str) -> tuple[str, str | bool]:
    name, equals, value = text.lstrip("-").partition("=")
    if not name or (equals and not value):
        raise JbrlError(
            f"--slurm '{text}': expected NAME=VALUE, an option of sbatch, for example mem=8G, or "
            "NAME for one without a value"
        )
    return name.replace("-", "_"), value if equals else True


def send(
    plan: "RunPlan", request: "Request", *, dry_run: bool, quiet: bool, **options: Any
) -> None:
    """Submit the remaining units, or print what would be submitted.

    `options` are for where the tasks run; `quiet`: say nothing if all goes well.
    """
    from jbrl.cli.task import work
    from jbrl.study.slurm.cluster import prepare, submit

    found = prepare(plan, request) if dry_run else submit(plan, request, work, options)
    if quiet:
        return
    if found.queued:
        typer.echo(f"{count(found.queued, 'unit')} left out: in tasks that SLURM has already")
    packing = found.packing
    for what, tasks in (
        ("searches", packing.searches),
        ("at once", packing.free),
        ("after the searches", packing.after),
    ):
        if tasks:
            typer.echo(f"{what}: {_described(tasks)}")
    if not packing.tasks:
        typer.echo("nothing to submit")
    elif not dry_run:
        typer.echo(_submitted(plan, found))


def _described(tasks: Sequence["ClusterTask"]) -> str:
    units = count(sum(len(task.units) for task in tasks), "unit")
    return (
        f"{units} in {count(len(tasks), 'task')}, the longest about "
        f"{duration(max(task.seconds for task in tasks))}"
    )


def _submitted(plan: "RunPlan", found: "Submission") -> str:
    folder = plan.store.folder
    return (
        f"submitted as {' and '.join(found.jobs)}. See 'jbrl status {folder}'; what tasks print "
        f"is in {folder / 'slurm'}."
    )
