"""Observers of a run: called as units begin, advance and end.

    DIR/running/NAME.json   heartbeat of a process: identity, current unit and remaining units;
                            renewed every few seconds, removed when the process ends

A file that is not renewed belongs to a process that was killed, or to a machine that is gone. These
files are for reading only (`jbrl.study.status`): no result depends on them, and a run goes
on when they cannot be written.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jbrl.base.files import write_whole
from jbrl.base.notebook import Bar
from jbrl.play.machine import FORGOTTEN_SECONDS, process_exists
from jbrl.play.unit import Unit
from jbrl.study.cost import TimeLeft, UnitCost
from jbrl.study.storage.files import pack_json, read_json
from jbrl.study.storage.store import save_estimates, saved_estimates


class Progress:
    """Listener to the events of a run. This one is silent; inherit from it to show something."""

    def begin(self, units: Sequence[Unit], todo: Sequence[Unit]) -> None:
        """Report the beginning of a run: `todo` are those of `units` that have no result yet."""

    def started(self, unit: Unit) -> None:
        """Report that a unit begins: training and compilation come first."""

    def searching(self, unit: Unit, consumed: int, budget: int, seconds: float) -> None:
        """Report that an agent which searches on the prior has used `consumed` trajectories of
        `budget`, in `seconds`.
        """

    def advanced(self, unit: Unit, n: int, seconds: float, decisions: int) -> None:
        """Report that `n` lifetimes of a unit are over; `decisions` taken so far, of others too,
        took `seconds`.
        """

    def stalled(self, unit: Unit, seconds: float) -> None:
        """Report that nothing was reported of a unit for `seconds`, as within a compiled call; from
        another thread.
        """

    def finished(self, unit: Unit, header: dict[str, Any], returns: np.ndarray) -> None:
        """Report that a unit is done or has failed, as `header["status"]` says."""


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


SECONDS = 5.0  # between two heartbeats
STALLED = 30.0  # without news after which a unit is reported; the next time after twice as long


def task_id() -> str | None:
    """Return the number of this process's SLURM task, as SLURM writes it: `12_3`, or `12`."""
    array, number = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{number}" if array and number else os.environ.get("SLURM_JOB_ID")


class Heartbeat(Progress):
    """Listener that forwards everything to another `Progress`, and writes heartbeats in the
    directory of the results.

    Args:
      folder: of the results.
      expected: cost of each unit to run, by its id.
    """

    def __init__(self, folder: Path, expected: Mapping[str, UnitCost], observer: Progress) -> None:
        self.folder, self._observer = folder / "running", observer
        self.expected = {id: cost.seconds for id, cost in expected.items()}
        self._time = TimeLeft(expected)
        host, job = socket.gethostname(), task_id()
        self._path = self.folder / f"{f'task-{job}-' if job else ''}{host}-{os.getpid()}.json"
        self._facts: dict[str, Any] = {
            "host": os.environ.get("SLURMD_NODENAME", host),
            "machine": host,
            "pid": os.getpid(),
            "task": job,
            "started": time.time(),
        }
        self._state: dict[str, Any] = {"unit": None, "n": 0, "of": 0, "search": None, "left": []}
        self._left: list[str] = []
        self._unit: Unit | None = None
        self._news, self._patience = time.monotonic(), STALLED
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "Heartbeat":
        with contextlib.suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            self._tidy()
        save_estimates(self.folder.parent, self.expected)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def begin(self, units: Sequence[Unit], todo: Sequence[Unit]) -> None:
        self._left = [unit.id for unit in todo]
        self._say(None, left=self._left)
        self._observer.begin(units, todo)

    def started(self, unit: Unit) -> None:
        # earlier units were done by another process
        place = self._left.index(unit.id)
        with self._lock:
            self._time.skipped(self._left[:place])
        self._left = self._left[place:]
        of = unit.protocol.n_environments
        self._say(unit, n=0, of=of, search=None, left=self._left)
        self._observer.started(unit)

    def searching(self, unit: Unit, consumed: int, budget: int, seconds: float) -> None:
        with self._lock:
            self._time.advanced(unit.id, consumed / budget, seconds, searching=True)
        self._say(unit, write=False, search=[consumed, budget])
        self._observer.searching(unit, consumed, budget, seconds)

    def advanced(self, unit: Unit, n: int, seconds: float, decisions: int) -> None:
        of = unit.protocol.n_environments
        with self._lock:
            self._time.advanced(unit.id, n / of, seconds)
        self._say(unit, write=False, n=n, of=of, search=None)
        self._observer.advanced(unit, n, seconds, decisions)

    def finished(self, unit: Unit, header: dict[str, Any], returns: np.ndarray) -> None:
        with self._lock:
            self._time.finished(unit.id, header.get("compile_seconds") or 0.0)
        self._left = [id for id in self._left if id != unit.id]
        self._say(None, write=not self._left, n=0, of=0, search=None, left=self._left)
        self._observer.finished(unit, header, returns)

    def _say(self, unit: Unit | None, *, write: bool = True, **state: Any) -> None:
        """Note what happens now, and the unit that runs from now on."""
        with self._lock:
            self._unit, self._news, self._patience = unit, time.monotonic(), STALLED
            self._state |= {"unit": unit and unit.id, **state}
        if write:
            self._write()

    def _beat(self) -> None:
        while not self._ended.wait(SECONDS):
            self._write()
            # another process has written at the same time
            if self.expected.keys() - saved_estimates(self.folder.parent):
                save_estimates(self.folder.parent, self.expected)
            unit, silent = self._unit, time.monotonic() - self._news
            if unit and silent >= self._patience:
                self._patience = STALLED + 2 * self._patience
                self._observer.stalled(unit, silent)

    def _write(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            now = {"seconds_left": self._time.seconds(), "updated": time.time()}
            write_whole(self._path, pack_json({**self._facts, **self._state, **now}))

    def _tidy(self) -> None:
        """Remove the heartbeats of processes that were killed.

        Those of this machine, those of the same task on others (this is its next turn; one that
        still runs writes again soon), and all that are older than a day.
        """
        here, task = self._facts["machine"], self._facts["task"]
        for path in self.folder.glob("*.json"):
            note = read_json(path)
            gone = note and (
                not process_exists(note["pid"])
                if note["machine"] == here
                else task and note["task"] == task
            )
            if not note or gone or time.time() - note["updated"] > FORGOTTEN_SECONDS:
                path.unlink(missing_ok=True)
