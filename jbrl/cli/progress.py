"""Progress of a run: a live display on a terminal, one line per unit elsewhere."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
from rich import progress as bars
from rich.console import Console
from rich.markup import escape

from jbrl.cli.estimates import aligned, compared, size_text
from jbrl.cli.silence import Silence
from jbrl.cli.text import count, duration
from jbrl.play.machine import peak_resident_bytes
from jbrl.play.unit import Unit
from jbrl.report.text import seconds_text
from jbrl.study.cost import TimeLeft, present_busy_text
from jbrl.study.plan import RunPlan
from jbrl.study.progress import Progress


class Steps:
    """Progress bars of long work in a few steps, on a terminal; silent elsewhere.

    Written to standard error.
    """

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (
            bars.TextColumn("{task.description}"),
            bars.BarColumn(bar_width=24),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
        )
        self._bars = bars.Progress(
            *columns, console=console, disable=not console.is_terminal, transient=True
        )
        self._tasks: dict[str, bars.TaskID] = {}

    def __enter__(self) -> "Steps":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def tell(self, name: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of the step `name` are done."""
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total)
        self._bars.update(self._tasks[name], completed=done)


class Display(Progress):
    """Progress of a run: units done, the current unit, its rate, the time left. Written to standard
    error.
    """

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
        self._silence = Silence(self._still)
        self._expected = {id: estimate.cost for id, estimate in plan.estimates.items()}
        self._ran = self._failed = 0

    def __enter__(self) -> "Display":
        self._bars.start()
        self._silence.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._silence.__exit__(kind, error, trace)
        self._bars.stop()
        if error is None:
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
        self._running = unit
        self._silence.news(unit.label)
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
        self._silence.news(unit.label)
        note = f"search {consumed:,}/{budget:,}, {_rate(consumed, seconds)}/s"
        self._bars.update(self._current, completed=consumed, total=budget, note=note)

    def advanced(self, unit: Unit, n: int, seconds: float, decisions: int) -> None:
        """Show the rate of a unit, which may be one of several played at once."""
        self._silence.news(unit.label)
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
        self._silence.news(None)
        self._left.finished(unit.id, header.get("compile_seconds") or 0.0)
        self._ran += 1
        self._failed += header["status"] == "failed"
        number = f"[{self._number(unit):>{len(str(self._units))}}/{self._units}]"
        if header["status"] == "failed":
            self.console.quiet = False  # `quiet` hides successes only
            what = f"[red]failed[/red]: {escape(_indented(header['reason']))}"
        else:
            compiled = (
                f", compiled in {duration(header['compile_seconds'])}"
                if header["compile_seconds"] > 0.05
                else ""
            )
            found = f", found {_strategy(header['learned'])}" if "learned" in header else ""
            what = (
                f"mean {returns.mean():.4g}, {seconds_text(header['online_seconds'])} per "
                f"decision{escape(found)}{compiled}"
            )
        left = f" ({self._left_text()})" if self._left.seconds() else ""
        self.console.print(f"{escape(number)} {escape(unit.label)}: {what}{left}")
        self.console.quiet = self._quiet

    def _still(self, label: str, seconds: float) -> None:
        """Report that a unit is still running: a compiled call gives no news before it ends."""
        expected = duration(self._expected[self._running.id].seconds)
        self.console.print(
            f"{escape(label)}: still running, {duration(seconds)} without news; expected to take "
            f"{expected} in all"
        )

    def _number(self, unit: Unit) -> int:
        """Return the number of a unit, counting those that were done before."""
        return self._units - len(self._todo) + self._todo.index(unit.id) + 1

    def _left_text(self) -> str:
        return f"about {duration(self._left.seconds())} left"

    def _elapsed(self) -> float:
        return max(0.0, time.monotonic() - self._started)

    def _conclude(self) -> None:
        folder = self.plan.store.folder
        failed = f", [red]{self._failed} failed[/red]" if self._failed else ""
        others = len(self.plan.study.units) - self._units
        verb = "belongs" if others == 1 else "belong"
        rest = f" ({count(others, 'more unit')} {verb} to this study)" if others else ""
        if self._todo:
            for line in aligned(compared(self.plan.store, set(self._todo))):
                self.console.print(escape(line))
            peak = peak_resident_bytes()
            memory = f", {size_text(peak)} of memory at most" if peak else ""
            self.console.print(
                f"{count(self._ran - self._failed, 'unit')} done{failed} in "
                f"{duration(self._elapsed())}{memory}{rest}"
            )
        self.console.print(f"See 'jbrl scores {folder}' and 'jbrl report {folder}'.")


def _indented(message: str) -> str:
    """Return a message of several lines, those after the first one indented."""
    return "\n    ".join(message.splitlines())


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
    shown = (
        [f"{name}={text}" for name, text in texts.items()]
        if len(texts) > 1
        else list(texts.values())
    )
    return f"{', '.join(shown)} in {seconds_text(learned['seconds'])}"
