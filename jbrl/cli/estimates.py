"""Estimated durations of a study before it runs, and its actual ones beside them afterwards."""

from collections.abc import Collection, Sequence

import typer
from rich import progress as bars
from rich.console import Console

from jbrl.cli.text import complain, count, duration
from jbrl.play.machine import memory_bytes
from jbrl.report.text import ABSENT
from jbrl.study.cost import cost_report, present_busy_text
from jbrl.study.plan import RunPlan
from jbrl.study.storage.store import Store


def measure(planned: RunPlan, *, quiet: bool) -> None:
    """Make the short runs that measure how long units take. Shown on a terminal."""
    console = Console(stderr=True, quiet=quiet)
    shown = bars.Progress(
        bars.TextColumn("short runs"),
        bars.BarColumn(bar_width=24),
        bars.TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.description}", markup=False),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )
    with shown:
        task = shown.add_task("", total=1)
        complaints = planned.calibrate(
            lambda what, done, total: shown.update(
                task, description=what, completed=done, total=max(1, total)
            )
        )
    for text in complaints:
        complain(text, "note")


def foretell(planned: RunPlan, *, units: bool) -> None:
    """Describe a run before it starts: the units if wanted, the time of each algorithm, and on the
    last line the total and its source.
    """
    estimates, seconds = planned.estimates, planned.expected_seconds
    if units:
        for unit in planned.units:
            typer.echo(
                f"{unit.label}: "
                f"{'about ' + duration(seconds[unit.id]) if unit.id in seconds else 'done'}"
            )
        typer.echo()
    rows = [["algorithm", "units", "time", "memory"]]
    for name in dict.fromkeys(unit.algorithm for unit in planned.units):
        left = [estimates[unit.id] for unit in planned.todo if unit.algorithm == name]
        largest = max((found.bytes for found in left), default=0.0)
        rows.append(
            [
                name,
                str(len(left)),
                duration(sum(found.cost.seconds for found in left)),
                size_text(largest),
            ]
        )
    most = max((found.bytes for found in estimates.values()), default=0.0)
    rows.append(["all", str(len(estimates)), duration(sum(seconds.values())), size_text(most)])
    _print(rows)
    typer.echo(_memory_text(planned, most))
    done = len(planned.units) - len(planned.todo)
    ready = f" ({done} done already)" if done else ""
    typer.echo(
        f"{count(len(planned.units), 'unit')}, about "
        f"{duration(sum(seconds.values()))}{present_busy_text()}{ready}{_source(planned)}"
    )


def _memory_text(planned: RunPlan, most: float) -> str:
    """Return the memory of the process."""
    programs = planned.calibration.resident_bytes(planned.todo)
    text = f"memory: of the arrays that one unit needs, up to {size_text(most)}"
    if programs:
        text += f", and about {size_text(programs)} of what is compiled"
    here = memory_bytes()
    return text + (f"; this machine has {size_text(here)}" if here else "")


def _source(planned: RunPlan) -> str:
    """Describe the source of the times."""
    estimates = planned.estimates.values()
    measured = sum(found.measured for found in estimates)
    if not estimates:
        return ""
    if measured == len(estimates):
        return ", by short runs on this machine"
    part = f", {measured} of them by short runs on this machine, the others" if measured else ","
    return f"{part} by a rough rule: --calibrate measures"


def compared(store: Store, ids: Collection[str]) -> list[list[str]]:
    """Return estimated and actual time by algorithm, the last row in all, of the units `ids` as far
    as they are done; no rows if none is.
    """
    table = cost_report(store, ids)
    table = table[table.done > 0]
    rows = [
        [a.algorithm, str(a.done), _about(a.estimated_seconds), duration(a.actual_seconds)]
        for a in table.itertuples()
    ]
    if not rows:
        return []
    total = [
        "all",
        str(table.done.sum()),
        _about(table.estimated_seconds.sum()),
        duration(table.actual_seconds.sum()),
    ]
    return [["algorithm", "units", "estimated", "actual"], *rows, total]


def _about(seconds: float) -> str:
    return duration(seconds) if seconds > 0 else ABSENT


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(t.rjust(w) for t, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]


def _print(rows: Sequence[Sequence[str]]) -> None:
    for line in aligned(rows):
        typer.echo(line)


def size_text(n_bytes: float) -> str:
    """Return bytes in words: `12 MiB`, `1.5 GiB`."""
    if n_bytes < 2**30:
        return f"{n_bytes / 2**20:.0f} MiB"
    return f"{n_bytes / 2**30:.1f} GiB"
