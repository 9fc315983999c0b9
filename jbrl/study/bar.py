"""Progress of a run in a notebook: one bar, the current unit beside it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jbrl.base.notebook import Bar
from jbrl.play.unit import Unit
from jbrl.study.progress import Progress


class NotebookProgress(Progress):
    """One bar over all units; it shows nothing where no notebook is running."""

    def __init__(self) -> None:
        self._bar = Bar()
        self._total = self._done = self._failed = 0

    def begin(self, units: Sequence[Unit], todo: Sequence[Unit]) -> None:
        """Show how many units are done already."""
        self._total, self._done = len(units), len(units) - len(todo)
        self._tell("", 0.0)

    def started(self, unit: Unit) -> None:
        """Show the unit that is compiled."""
        self._tell(f"{unit.label}: compiling", 0.0)

    def searching(self, unit: Unit, consumed: int, budget: int, seconds: float) -> None:
        """Show how much of the budget is spent."""
        self._tell(f"{unit.label}: search {consumed:,}/{budget:,}", 0.0)

    def advanced(self, unit: Unit, n: int, seconds: float, decisions: int) -> None:
        """Show how many lifetimes are over."""
        whole = unit.protocol.n_environments
        self._tell(f"{unit.label}: {n:,}/{whole:,}", n / whole)

    def finished(self, unit: Unit, header: dict[str, Any], returns: np.ndarray) -> None:
        """Count the unit."""
        self._done += 1
        self._failed += header["status"] == "failed"
        self._tell(unit.label, 0.0)

    def _tell(self, text: str, part: float) -> None:
        failed = f", {self._failed} failed" if self._failed else ""
        count = f"{self._done}/{self._total} units{failed}"
        done = min(self._done + part, self._total)
        over = self._done == self._total
        self._bar.update(count if over or not text else f"{count}, {text}", done, self._total)
