"""The loop over units of work: run what is missing, keep what is there, say how far it has come."""

import contextlib
import functools
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jbrl.agents.offline_search import Findings
from jbrl.runner.play.experiment import Run
from jbrl.runner.play.lifetimes import Flight, LifetimeRun
from jbrl.runner.play.offline import Learned, SearchCheckpoint
from jbrl.runner.play.play import make_run
from jbrl.runner.play.protocol import Chunk, joined
from jbrl.runner.play.resources import Capacity, Resources, out_of_memory
from jbrl.runner.play.stacking import Results, Stack, stacks, times
from jbrl.runner.storage.machine import versions
from jbrl.runner.storage.store import FLIGHT, METRIC, TRAJECTORY, Result, Store, StoreError
from jbrl.runner.storage.unit import Unit
from jbrl.runner.study.stopping import stop_if_asked

CHECKPOINT_SECONDS = 3.0  # between two checkpoints, at least
CHECKPOINT_SHARE = 0.1  # of the time may go into writing them, at most
MAX_CHECKPOINT_SECONDS = 600.0  # between two checkpoints, whatever writing them takes: a clock may have jumped meanwhile


class Progress:
    """What is told while units run. This one is silent; inherit from it to show something."""

    def begin(self, units: Sequence[Unit], todo: Sequence[Unit]) -> None:
        """`todo` are those of `units` that have no result yet."""

    def started(self, unit: Unit) -> None:
        """A unit begins: training and compilation come first."""

    def searching(self, unit: Unit, consumed: int, budget: int, seconds: float) -> None:
        """An agent that searches on the prior has made use of `consumed` trajectories of `budget`, in `seconds`."""

    def advanced(self, unit: Unit, n: int, seconds: float, decisions: int) -> None:
        """`n` lifetimes of a unit are over; `decisions` taken so far, of others too, took `seconds`."""

    def finished(self, unit: Unit, header: dict[str, Any], returns: np.ndarray) -> None:
        """A unit is done or has failed, as `header["status"]` says."""


def is_done(unit: Unit, store: Store) -> bool:
    """Whether the store holds all that is asked of a unit."""
    found = store.result(unit.id)
    return found is not None and found.status == "done" and _answers(found, unit) and _has_latency(found, unit)


def _answers(found: Result, unit: Unit) -> bool:
    return found.recorded or not unit.record


def _has_latency(found: Result, unit: Unit) -> bool:
    return found.header.get("latency_seconds") is not None or not unit.latency


def run_units(units: Sequence[Unit], todo: Sequence[Unit], store: Store, progress: Progress, resources: Resources | None = None) -> int:
    """Run `todo`, those of `units` that have no result in `store`, which must be open.

    A unit that fails is recorded and the others go on; if memory does not suffice, it is tried with less at once before that. An
    interrupt (KeyboardInterrupt) writes a checkpoint first; so does a signal that `stopping_on` listens to, which lets the chunk at
    work, or the round of a search, be finished. Run again, everything continues where it was, with the same numbers.

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
        left = [unit for unit in stack if not is_done(unit, store)]  # for the others another process has been faster
        if left:
            stop_if_asked()
        for unit, header, returns in _run_together(left, store, progress, resources):
            failed += header["status"] == "failed"
            progress.finished(unit, header, returns)
    return failed


_Outcome = tuple[dict[str, Any], np.ndarray]


def _run_together(
    units: Sequence[Unit], store: Store, progress: Progress, resources: Resources
) -> Iterator[tuple[Unit, dict[str, Any], np.ndarray]]:
    """Several units at once; one, or what is left when that fails, by itself."""
    left = {unit.id: unit for unit in units}
    if len(units) > 1:
        with contextlib.suppress(_StackError):
            for unit, outcome in _Together(units, store, progress, resources).run():
                del left[unit.id]
                yield unit, *outcome
    for unit in left.values():
        stop_if_asked()
        progress.started(unit)
        yield unit, *_guarded(unit, store, functools.partial(_run, unit, store, progress, resources))


def _guarded(unit: Unit, store: Store, run: Callable[[], Any]) -> Any:
    """What `run` returns, or, if it fails, a record of that as its outcome."""
    try:
        return run()
    except (StoreError, _StackError):
        raise
    except (Exception, SystemExit) as error:  # whatever an agent does wrong must not stop the study
        header = {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:2000], "traceback": traceback.format_exc()[-20_000:]}
    found = store.result(unit.id)
    if found is None or found.status != "done":  # a result that lacks only its latency is better than none
        store.save(unit, header, np.zeros(0))
    return header, np.zeros(0)


class Pace:
    """When to write the next checkpoint."""

    def __init__(self) -> None:
        self._saved, self._interval = time.monotonic(), CHECKPOINT_SECONDS

    def keep(self, save: Callable[[], Any]) -> None:
        """Call `save`, unless it is too early."""
        now = time.monotonic()
        if not 0 <= now - self._saved <= self._interval:  # a clock that was set back says nothing: better now than never
            save()
            self._saved = time.monotonic()
            self._interval = min(max(CHECKPOINT_SECONDS, (self._saved - now) / CHECKPOINT_SHARE), MAX_CHECKPOINT_SECONDS)


class _StoredFindings(SearchCheckpoint):
    """Keeps what a search finds beside the results, for all units with the same prior."""

    def __init__(self, unit: Unit, store: Store, progress: Progress, platform: str) -> None:
        self.unit, self.store, self.progress = unit, store, progress
        self.id = str(unit.knowledge_id)
        self.facts = {"platform": platform, "algorithm": unit.algorithm, "parameters": unit.parameters, "prior": unit.prior}
        self._pace = Pace()

    def learned(self) -> Learned | None:
        found = self.store.knowledge(self.id)
        if found and found.header["platform"] == self.facts["platform"]:  # times of another kind of device would mean nothing here
            return Learned.read(found.header["learned"], found.arrays)
        return None

    def unfinished(self) -> tuple[Findings, float] | None:
        found = self.store.knowledge(self.id, partial=True)
        if found and found.header["platform"] == self.facts["platform"] and found.header["versions"] == versions():
            consumed, simulated, budget = (found.header[name] for name in ("consumed", "simulated", "budget"))
            return Findings(consumed, simulated, budget, found.arrays), found.header["seconds"]
        return None

    def advanced(self, findings: Findings, seconds: float) -> None:
        self.progress.searching(self.unit, findings.consumed, findings.budget, seconds)
        self._pace.keep(lambda: self.interrupted(findings, seconds))
        stop_if_asked()

    def interrupted(self, findings: Findings, seconds: float) -> None:
        counts = {name: getattr(findings, name) for name in ("consumed", "simulated", "budget")}
        self.store.save_knowledge(self.id, {**self.facts, **counts, "seconds": seconds, "status": "partial"}, findings.arrays)

    def concluded(self, learned: Learned) -> None:
        self.store.save_knowledge(self.id, {**self.facts, "learned": learned.describe(), "status": "done"}, learned.arms)


@dataclass
class _Played:
    """What has been played of a unit so far."""

    chunks: list[Chunk] = field(default_factory=list)
    stacked: int = 0  # units that were played at once; 0: this one alone, and the clock of its chunks is its own
    flight: tuple[dict[str, np.ndarray], float] | None = None  # lifetimes that an interrupted run had begun, and the seconds they took

    @property
    def n(self) -> int:
        return sum(len(chunk.returns) for chunk in self.chunks)

    @property
    def seconds(self) -> float:
        return sum(chunk.online_seconds for chunk in self.chunks)

    @property
    def decisions(self) -> int:
        return sum(chunk.decisions for chunk in self.chunks)

    def save(
        self, unit: Unit, store: Store, header: dict[str, Any], flight: dict[str, np.ndarray] | None = None
    ) -> tuple[dict[str, Any], np.ndarray]:
        header = {"online_seconds": self.seconds / max(1, self.decisions), "decisions": self.decisions, **header}
        header |= {"stacked": self.stacked} if self.stacked else {}
        returns = np.concatenate([np.zeros(0), *(chunk.returns for chunk in self.chunks)])
        arrays = joined([chunk.trajectories for chunk in self.chunks if chunk.trajectories is not None])
        arrays |= {f"{METRIC}{name}": values for name, values in joined([chunk.metrics for chunk in self.chunks]).items()}
        arrays |= {f"{FLIGHT}{name}": values for name, values in (flight or {}).items()}
        store.save(unit, header, returns, arrays)
        return header, returns


def _run(unit: Unit, store: Store, progress: Progress, resources: Resources) -> _Outcome:
    """Run a unit, with less at once as long as memory does not suffice."""
    capacity = Capacity.of(unit.agent, unit.protocol.n_environments, unit.chunk, resources)
    while True:
        run = make_run(unit.agent, unit.protocol, record=unit.record, resources=capacity.resources, lanes=capacity.max_lanes)
        try:
            return _run_within(run, capacity.chunk, unit, store, progress)
        except Exception as error:
            capacity = capacity.taken(run.batch, run.devices)
            smaller = capacity.smaller()
            if not out_of_memory(error):
                raise
            if not smaller:
                raise MemoryError(f"not even {capacity} fit into memory ({error or type(error).__name__})") from error
        capacity = smaller  # out here the error is forgotten, and with it the memory that its frames have held
        del run


def _run_within(run: Run, size: int | None, unit: Unit, store: Store, progress: Progress) -> _Outcome:
    """Play what is left of a unit in chunks of `size` lifetimes."""
    platform = run.devices[0].platform
    run.prepare(_StoredFindings(unit, store, progress, platform) if unit.knowledge_id else None)
    played = _before(unit, store, platform)
    facts = {"device": run.device, "platform": platform, "batch": run.batch, "offline_seconds": run.offline_seconds}
    if run.learned:
        facts |= {"learned": run.learned.describe()}
    work = _Work(run, unit, store, progress, played, {**facts, "status": "partial"})
    try:
        stop_if_asked()
        for chunk in work.chunks(size):
            played.chunks.append(check_returns(chunk))
            progress.advanced(unit, played.n, played.seconds, played.decisions)
            if played.n < unit.protocol.n_environments:
                work.pace.keep(work.keep)
            if played.n < unit.protocol.n_environments or unit.latency:
                stop_if_asked()
        return _conclude(unit, store, run, played, facts)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or out_of_memory(error):
            work.keep()
        raise


class _Work:
    """The lifetimes of a unit at work, and what is written of them when it is time."""

    def __init__(self, run: Run, unit: Unit, store: Store, progress: Progress, played: _Played, facts: dict[str, Any]) -> None:
        self.run, self.unit, self.store, self.progress, self.played, self.facts = run, unit, store, progress, played, facts
        self.pace = Pace()
        self._flight: Flight | None = None

    def chunks(self, size: int | None) -> Iterator[Chunk]:
        run, played = self.run, self.played
        if not isinstance(run, LifetimeRun):
            yield from run.chunks(played.n, size)
            return
        found = played.flight
        flight = run.restored(*found) if found and run.fits(found[0]) else None
        for chunk in run.chunks(played.n, size, flight=flight, between=self._between):
            self._flight = None
            yield chunk

    def _between(self, flight: Flight) -> None:
        """After each call of the episode driver: show progress, write a checkpoint, stop if asked."""
        self._flight = flight
        played = self.played
        self.progress.advanced(self.unit, played.n + flight.finished, played.seconds + flight.seconds, played.decisions + flight.decisions)
        self.pace.keep(self.keep)
        stop_if_asked()

    def keep(self) -> None:
        """Write a checkpoint of what has been played, lifetimes that are not over included."""
        flight = self._flight
        if flight is None:
            if self.played.n:
                self.played.save(self.unit, self.store, self.facts)
            return
        assert isinstance(self.run, LifetimeRun)
        if flight.whole:  # otherwise the checkpoint before is better than none of the lifetimes at work
            self.played.save(self.unit, self.store, {**self.facts, "flight_seconds": flight.seconds}, self.run.saved(flight))


def check_returns(chunk: Chunk) -> Chunk:
    """Return the chunk, if all its scores are finite numbers.

    Raises:
      FloatingPointError: names the first lifetime of which it is not.
    """
    finite = np.isfinite(chunk.returns)
    if not finite.all():
        raise FloatingPointError(f"the score in environment {chunk.start + int(np.argmin(finite))} is not a finite number")
    return chunk


def _conclude(unit: Unit, store: Store, run: Run, played: _Played, facts: dict[str, Any]) -> _Outcome:
    """Take the times that are still missing of a unit that has been played, and save it."""
    found = times(run, unit.latency) if played.stacked else {"latency_seconds": run.latency() if unit.latency else None}
    return played.save(unit, store, {**facts, **found, "compile_seconds": run.compile_seconds, "status": "done"})


class _StackError(Exception):
    """Units cannot be played together."""


def _within_memory(run: Callable[..., Any], *args: Any) -> Any:
    try:
        return run(*args)
    except Exception as error:
        if out_of_memory(error):
            raise _StackError from error
        raise


class _Together:
    """Plays units together; each is saved as soon as it is complete."""

    def __init__(self, units: Sequence[Unit], store: Store, progress: Progress, resources: Resources) -> None:
        self.units, self.store, self.progress = units, store, progress
        self.platform = resources.devices[0].platform
        self.runs = [Run(unit.agent, unit.protocol, record=unit.record, resources=resources) for unit in units]
        self.played = [_before(unit, store, self.platform) for unit in units]
        self.stack = Stack(self.runs, [found.n for found in self.played])
        self.closed: set[int] = set()  # units that are complete or have failed
        self._pace = Pace()

    def run(self) -> Iterator[tuple[Unit, _Outcome]]:
        """Units that are complete or have failed. Those that nothing was left to play of are none of them.

        Raises:
          _StackError: it does not work; what has been played is kept.
        """
        self.progress.started(self.units[0])
        try:
            self.stack.prepare()
            for results in self.stack.calls():
                yield from self._taken(results)
        except StoreError:
            raise
        except (Exception, SystemExit) as error:
            self._keep()
            raise _StackError from error
        except KeyboardInterrupt:
            self._keep()
            raise

    def _taken(self, results: Results) -> Iterator[tuple[Unit, _Outcome]]:
        """Add what a call has brought; the units that it completes.

        Raises:
          _StackError: memory does not suffice; it may when units are played by themselves.
        """
        for add in (self._add, self._conclude):
            for number, result in results:
                if number in self.closed:
                    continue
                outcome = _guarded(self.units[number], self.store, functools.partial(_within_memory, add, number, result))
                if outcome:
                    self.closed.add(number)
                    yield self.units[number], outcome
                if add == self._conclude and len(self.closed) < len(self.units):
                    stop_if_asked()
            self._pace.keep(self._keep)

    def _add(self, number: int, result: Chunk | BaseException) -> None:
        if isinstance(result, BaseException):
            raise result
        played = self.played[number]
        played.chunks.append(check_returns(result))
        played.stacked = self.stack.at_once
        self.progress.advanced(self.units[number], played.n, played.seconds, played.decisions)

    def _conclude(self, number: int, _: Any) -> _Outcome | None:
        unit, played = self.units[number], self.played[number]
        complete = played.n == unit.protocol.n_environments
        return _conclude(unit, self.store, self.runs[number], played, self._facts(number)) if complete else None

    def _facts(self, number: int) -> dict[str, Any]:
        run, stack = self.runs[number], self.stack
        return {"device": stack.device, "platform": self.platform, "batch": stack.batch, "offline_seconds": run.offline_seconds}

    def _keep(self) -> None:
        """Write checkpoints of what has been played."""
        for number, (unit, played) in enumerate(zip(self.units, self.played, strict=True)):
            if played.n > self.stack.starts[number] and number not in self.closed:
                played.save(unit, self.store, {**self._facts(number), "status": "partial"})


def _before(unit: Unit, store: Store, platform: str) -> _Played:
    """What an earlier run has left of a unit: a checkpoint, or a result that lacks its latency."""
    for found, partial in ((store.result(unit.id, arrays=True), False), (store.checkpoint(unit.id), True)):
        # On another kind of device the times would mean nothing, and the last digits might differ.
        if not (found and _answers(found, unit) and found.header.get("platform") == platform):
            continue
        if partial and found.header["versions"] != versions():  # half of a unit from one program, half from another
            continue
        flight = {name.removeprefix(FLIGHT): values for name, values in found.arrays.items() if name.startswith(FLIGHT)}
        if not (found.n or flight):
            continue
        decisions = found.header.get("decisions") or (0 if unit.protocol.in_blocks else found.n * unit.protocol.horizon)
        seconds = found.header["online_seconds"] * decisions
        arrays = {name: found.arrays[name] for name in TRAJECTORY} if unit.record else None
        metrics = {name.removeprefix(METRIC): values for name, values in found.arrays.items() if name.startswith(METRIC)}
        chunks = [Chunk(0, found.returns, arrays, seconds, decisions, metrics)] if found.n else []
        return _Played(chunks, found.header.get("stacked", 0), (flight, found.header["flight_seconds"]) if flight else None)
    return _Played()
