"""Display of a run: estimates before, progress and time left meanwhile, actual times afterwards.

Progress is a live display on a terminal, one line per unit elsewhere.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import typer
from rich import progress as bars
from rich.console import Console
from rich.markup import escape

from jbrl.base.errors import bytes_text
from jbrl.cli.output import aligned, count, duration
from jbrl.play.machine import memory_bytes, peak_resident_bytes
from jbrl.play.unit import Unit
from jbrl.report.text import seconds_text
from jbrl.study.cost import TimeLeft, present_busy_text
from jbrl.study.plan import RunPlan
from jbrl.study.progress import Progress

MORE = "a unit that needs more plays less at once, or fails"


def print_estimates(planned: RunPlan, *, units: bool) -> None:
    """Describe a run before it starts: the units if wanted, the time of each algorithm, and on the
    last line the total and its source.
    """
    estimates, seconds = planned.estimates, planned.expected_seconds
    if units:
        for unit in planned.units:
            left = f"about {duration(seconds[unit.id])}" if unit.id in seconds else "done"
            typer.echo(f"{unit.label}: {left}")
        typer.echo()
    rows = [["algorithm", "units", "time", "memory"]]
    for name in dict.fromkeys(unit.algorithm for unit in planned.units):
        costs = [estimates[unit.id] for unit in planned.todo if unit.algorithm == name]
        seconds_of_all = sum(one.cost.seconds for one in costs)
        largest = max((one.bytes for one in costs), default=0.0)
        rows.append([name, str(len(costs)), duration(seconds_of_all), bytes_text(largest)])
    most = max((one.bytes for one in estimates.values()), default=0.0)
    total = duration(sum(seconds.values()))
    rows.append(["all", str(len(estimates)), total, bytes_text(most)])
    typer.echo("\n".join([*aligned(rows), _memory_text(most, planned)]))
    done = len(planned.units) - len(planned.todo)
    ready = f" ({done} done already)" if done else ""
    typer.echo(
        f"{count(len(planned.units), 'unit')}, about {total}{present_busy_text()}{ready}"
        f"{_source(planned)}"
    )


def _memory_text(most: float, planned: RunPlan) -> str:
    """Return the memory of arrays and of the process."""
    here, may = memory_bytes(), planned.resources.memory if planned.resources else 0
    return (
        f"memory: of the arrays that one unit needs, up to {bytes_text(most)}, and about "
        f"{bytes_text(planned.process_bytes)} of the process with what it compiles"
        + (f"; this machine has {bytes_text(here)}" if here else "")
        + (f"; {bytes_text(may)} may be used (--memory): {MORE}" if 0 < may < most else "")
    )


def _source(planned: RunPlan) -> str:
    """Describe the source of the times."""
    estimates = planned.estimates.values()
    measured = sum(one.measured for one in estimates)
    if not estimates:
        return ""
    if measured == len(estimates):
        return ", by short runs on this machine"
    part = f", {measured} of them by short runs on this machine, the others" if measured else ","
    return f"{part} by a rough rule: --calibrate measures"


class Display(Progress):
    """Progress of a run: units done, the current unit, its rate, the time left. Written to standard
    error.

    Attributes:
      moved: whether anything has progressed.
    """

    moved = False

    def __init__(self, plan: RunPlan, *, quiet: bool) -> None:
        self.plan, self._quiet = plan, quiet
        self.console = Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False)
        self._bars = bars.Progress(
            bars.SpinnerColumn(),
            bars.TextColumn("{task.description}"),
            bars.BarColumn(bar_width=24),
            bars.TimeElapsedColumn(),
            bars.TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
            transient=True,
            refresh_per_second=4,  # redrawing would disturb the times that are measured
        )
        self._expected = {id: estimate.cost for id, estimate in plan.estimates.items()}
        self._ran = self._failed = 0

    def __enter__(self) -> "Display":
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bars.stop()
        if kind is None:
            self._conclude()

    def begin(self, units: Sequence[Unit], todo: Sequence[Unit]) -> None:
        """Print how much there is to do."""
        self._started, self._units = time.monotonic(), len(units)
        self._todo = [unit.id for unit in todo]
        self._left = TimeLeft({id: self._expected[id] for id in self._todo})
        self._whole = self._bars.add_task(
            "units", total=len(units), completed=len(units) - len(todo), note=""
        )
        self._current = self._bars.add_task("", visible=False, note="")
        ready = f", {len(units) - len(todo)} of them done already" if len(todo) < len(units) else ""
        left = f": about {duration(self._left.seconds())}{present_busy_text()}" if todo else ""
        self.console.print(f"{count(len(units), 'unit')}{ready}{left}")

    def started(self, unit: Unit) -> None:
        """Show the current unit."""
        self._left.skipped(self._todo[: self._todo.index(unit.id)])
        self._bars.update(
            self._whole,
            completed=self._number(unit) - 1,
            note=f"of {self._units}, {self._left_text()}",
        )
        self._bars.reset(
            self._current,
            total=unit.protocol.n_environments,
            description=escape(unit.label),
            visible=True,
            note="compiling",
        )

    def searching(self, unit: Unit, consumed: int, budget: int, seconds: float) -> None:
        """Show how much of the budget is spent."""
        self.moved = True
        note = f"search {consumed:,}/{budget:,}, {_rate(consumed, seconds)}/s"
        self._bars.update(self._current, completed=consumed, total=budget, note=note)

    def advanced(self, unit: Unit, n: int, seconds: float, decisions: int) -> None:
        """Show the rate of a unit, which may be one of several played at once."""
        self.moved = True
        kind = "lifetimes" if unit.protocol.in_blocks else "MDPs"
        note = f"{n}/{unit.protocol.n_environments} {kind}, {_rate(decisions, seconds)} decisions/s"
        self._bars.update(
            self._current,
            description=escape(unit.label),
            completed=n,
            total=unit.protocol.n_environments,
            note=note,
        )

    def finished(self, unit: Unit, header: dict[str, Any], returns: np.ndarray) -> None:
        """Print one line about the unit."""
        self.moved = True
        self._left.finished(unit.id, header.get("compile_seconds") or 0.0)
        self._ran += 1
        self._failed += header["status"] == "failed"
        number = f"[{self._number(unit):>{len(str(self._units))}}/{self._units}]"
        if header["status"] == "failed":
            self.console.quiet = False  # `quiet` hides successes only
            indented = "\n    ".join(header["reason"].splitlines())
            what = f"[red]failed[/red]: {escape(indented)}"
        else:
            facts = [
                f"mean {returns.mean():.4g}",
                f"{seconds_text(header['online_seconds'])} per decision",
            ]
            if "learned" in header:
                facts.append(f"found {_strategy(header['learned'])}")
            if header["compile_seconds"] > 0.05:
                facts.append(f"compiled in {duration(header['compile_seconds'])}")
            what = escape(", ".join(facts))
        left = f" ({self._left_text()})" if self._left.seconds() else ""
        self.console.print(f"{escape(number)} {escape(unit.label)}: {what}{left}")
        self.console.quiet = self._quiet

    def stalled(self, unit: Unit, seconds: float) -> None:
        """Print that a unit is still running."""
        about, silent = duration(self._expected[unit.id].seconds), duration(seconds)
        self.console.print(
            f"{escape(unit.label)}: still running, {silent} without news; expected to take {about} "
            "in all"
        )

    def _number(self, unit: Unit) -> int:
        """Return the number of a unit, counting those that were done before."""
        return self._units - len(self._todo) + self._todo.index(unit.id) + 1

    def _left_text(self) -> str:
        return f"about {duration(self._left.seconds())} left"

    def _conclude(self) -> None:
        folder = self.plan.store.folder
        failed = f", [red]{self._failed} failed[/red]" if self._failed else ""
        others = len(self.plan.study.units) - self._units
        verb = "belongs" if others == 1 else "belong"
        rest = f" ({count(others, 'more unit')} {verb} to this study)" if others else ""
        if self._todo:
            peak = peak_resident_bytes()
            memory = f", {bytes_text(peak)} of memory at most" if peak else ""
            expected = duration(sum(cost.seconds for cost in self._expected.values()))
            elapsed = max(0.0, time.monotonic() - self._started)
            self.console.print(
                f"{count(self._ran - self._failed, 'unit')} done{failed} in "
                f"{duration(elapsed)} ({expected} estimated){memory}{rest}"
            )
        if self._units - len(self._todo) + self._ran > self._failed:  # else there are no scores
            self.console.print(f"See 'jbrl scores {folder}' and 'jbrl report {folder}'.")


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}" if seconds else "?"


def _strategy(learned: dict[str, Any]) -> str:
    """Describe the strategy that a search has found, and its time: `Q0/Q2 in 0.44 s`."""
    if learned["strategy"].get("weights"):
        return f"{learned['strategy']['weights']:,} weights in {seconds_text(learned['seconds'])}"
    texts = {
        name: f"{value:.3g}" if isinstance(value, float) else str(value)
        for name, value in learned["strategy"]["parameters"].items()
    }
    shown = texts.values() if len(texts) == 1 else [f"{n}={text}" for n, text in texts.items()]
    return f"{', '.join(shown)} in {seconds_text(learned['seconds'])}"
