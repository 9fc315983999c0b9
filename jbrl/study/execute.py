"""The loop over units of work: run what is missing, keep what is there, report progress."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jbrl.play import compilation
from jbrl.play.experiment import Run
from jbrl.play.flight import Flight
from jbrl.play.lifetimes import LifetimeRun
from jbrl.play.play import make_run
from jbrl.play.protocol import Chunk
from jbrl.play.resources import Capacity, Resources, out_of_memory
from jbrl.play.stacking import stacks
from jbrl.play.timing import known
from jbrl.play.unit import Unit
from jbrl.study.played import (
    Outcome,
    Pace,
    Played,
    StackError,
    StoredFindings,
    answers,
    before,
    check_returns,
    conclude,
    guarded,
)
from jbrl.study.progress import Progress
from jbrl.study.several import InCompany, Together
from jbrl.study.stopping import keeping, stop_if_asked
from jbrl.study.storage.store import Result, Store


def is_done(unit: Unit, store: Store) -> bool:
    """Return whether the store holds all that is asked of a unit."""
    found = store.result(unit.id)
    return (
        found is not None
        and found.status == "done"
        and answers(found, unit)
        and _has_latency(found, unit)
    )


def _has_latency(found: Result, unit: Unit) -> bool:
    return found.header.get("latency_seconds") is not None or not unit.latency


def run_units(
    units: Sequence[Unit],
    todo: Sequence[Unit],
    store: Store,
    progress: Progress,
    resources: Resources | None = None,
) -> int:
    """Run `todo`, those of `units` that have no result in `store`, which must be open.

    A unit that fails is recorded and the others go on; if memory does not suffice, it is tried with
    less at once before that. An interrupt (KeyboardInterrupt) writes a checkpoint first; so does a
    signal that `stopping_on` listens to, which lets the current chunk, or the round of a search,
    finish. Run again, everything continues where it was, with the same numbers.

    Returns: how many units failed.

    Raises:
      StoreError: results cannot be written.
      Stopped: a signal came, and something is left to do.
    """
    resources = resources or Resources()
    together = stacks(todo, resources)
    progress.begin(units, [unit for stack in together for unit in stack])
    failed = 0
    for stack in together:
        # another process has run the others
        left = [unit for unit in stack if not is_done(unit, store)]
        if left:
            stop_if_asked()
        for unit, header, returns in _run_together(left, store, progress, resources):
            failed += header["status"] == "failed"
            progress.finished(unit, header, returns)
    return failed


def _run_together(
    units: Sequence[Unit], store: Store, progress: Progress, resources: Resources
) -> Iterator[tuple[Unit, dict[str, Any], np.ndarray]]:
    """Run several units at once; one unit, or the rest when that fails, by itself."""
    left = {unit.id: unit for unit in units}
    together = bool(units) and units[0].protocol.together
    if len(units) > 1 or together:
        kind: Any = InCompany if together else Together
        with contextlib.suppress(StackError):
            for unit, outcome in kind(units, store, progress, resources).run():
                del left[unit.id]
                yield unit, *outcome
    for unit in left.values():
        stop_if_asked()
        progress.started(unit)
        yield (
            unit,
            *guarded(unit, store, functools.partial(_run, unit, store, progress, resources)),
        )


def _run(unit: Unit, store: Store, progress: Progress, resources: Resources) -> Outcome:
    """Run a unit, with less at once as long as memory does not suffice."""
    capacity = Capacity.of(unit.agent, unit.protocol.n_environments, unit.chunk, resources)
    while True:
        run = make_run(
            unit.agent,
            unit.protocol,
            record=unit.record,
            resources=capacity.resources,
            lanes=capacity.max_lanes,
        )
        try:
            return _run_within(run, capacity.chunk, unit, store, progress)
        except Exception as error:
            capacity = capacity.taken(run.batch, run.devices)
            smaller = capacity.smaller()
            if not out_of_memory(error):
                raise
            if not smaller:
                raise MemoryError(
                    f"not even {capacity} fit into memory ({error or type(error).__name__})"
                ) from error
        # after the handler the error is released, and with it the memory of its frames
        capacity = smaller
        del run


def _run_within(
    run: Run, size: int | None, unit: Unit, store: Store, progress: Progress
) -> Outcome:
    """Play what is left of a unit in chunks of `size` lifetimes."""
    platform = run.devices[0].platform
    findings = StoredFindings(unit, store, progress, platform)
    with keeping(findings.keep):
        run.prepare(findings if unit.knowledge_id else None)
    played = before(unit, store, platform)
    facts = {
        "device": run.device,
        "platform": platform,
        "compiled": compilation.options_name(platform),
        "batch": run.batch,
        "offline_seconds": run.offline_seconds,
        "offline_seconds_spread": known(run.offline_spread),
    }
    if run.learned:
        facts |= {"learned": run.learned.describe()}
    work = _Work(run, unit, store, progress, played, {**facts, "status": "partial"})
    try:
        with keeping(work.keep_if_idle):
            stop_if_asked()
            for chunk in work.chunks(size):
                work.add(check_returns(chunk))
                progress.advanced(unit, played.n, played.seconds, played.decisions)
                if played.n < unit.protocol.n_environments:
                    work.pace.keep(work.keep)
                if played.n < unit.protocol.n_environments or unit.latency:
                    stop_if_asked()
            return conclude(unit, store, run, played, facts)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or out_of_memory(error):
            work.keep()
        raise


class _Work:
    """Lifetimes of a running unit, and their checkpoints."""

    def __init__(
        self,
        run: Run,
        unit: Unit,
        store: Store,
        progress: Progress,
        played: Played,
        facts: dict[str, Any],
    ) -> None:
        self.run, self.unit, self.store, self.progress, self.played, self.facts = (
            run,
            unit,
            store,
            progress,
            played,
            facts,
        )
        self.pace = Pace()
        self._flight: Flight | None = None
        self._kept = True  # nothing has been played since the last checkpoint

    def chunks(self, size: int | None) -> Iterator[Chunk]:
        run, played = self.run, self.played
        if not isinstance(run, LifetimeRun):
            yield from run.chunks(played.n, size)
            return
        found = played.flight
        self._flight = run.restored(*found) if found and run.fits(found[0]) else None
        yield from run.chunks(played.n, size, flight=self._flight, between=self._between)

    def add(self, chunk: Chunk) -> None:
        """Take the results of a chunk, which end the running lifetimes."""
        self.played.chunks.append(chunk)
        self._flight, self._kept = None, False

    def _between(self, flight: Flight) -> None:
        """Show progress after each call of the episode driver, write a checkpoint, stop if
        asked.
        """
        self._flight, self._kept = flight, False
        played = self.played
        self.progress.advanced(
            self.unit,
            played.n + flight.finished,
            played.seconds + flight.seconds,
            played.decisions + flight.decisions,
        )
        self.pace.keep(self.keep)
        stop_if_asked()

    def keep(self) -> None:
        """Write a checkpoint of what has been played, lifetimes that are not over included."""
        flight = self._flight
        if flight is None:
            if self.played.n:
                self.played.save(self.unit, self.store, self.facts)
        # otherwise the checkpoint before is better than none of the running lifetimes
        elif flight.whole:
            self.played.save(
                self.unit,
                self.store,
                {**self.facts, "flight_seconds": flight.seconds},
                flight.arrays(),
            )
        else:
            return
        self._kept = True

    def keep_if_idle(self) -> bool:
        """Write a checkpoint, unless there is nothing new or lifetimes are within a call, which
        has taken over their states; return whether all that had been played before is kept.

        For another thread, while this one is within a compiled call or a compilation.
        """
        if not self._kept and self._flight is None:
            self.keep()
        return self._kept
