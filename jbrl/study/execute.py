"""The loop over units of work: run what is missing, keep what is there, report progress."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jbrl.play import compilation
from jbrl.play.batching import lanes_per_device
from jbrl.play.experiment import Run
from jbrl.play.lifetimes import Lifetimes
from jbrl.play.play import make_run
from jbrl.play.protocol import Chunk, check_returns
from jbrl.play.resources import Capacity, Resources, out_of_memory
from jbrl.play.scheduler import Results, at_once
from jbrl.play.timing import known
from jbrl.play.unit import Unit
from jbrl.study.progress import Progress
from jbrl.study.resume import (
    Outcome,
    Pace,
    Played,
    StackError,
    StoredFindings,
    answers,
    before,
    conclude,
    guarded,
)
from jbrl.study.stopping import keeping, stop_if_asked
from jbrl.study.storage.files import StoreError
from jbrl.study.storage.store import Store


def is_done(unit: Unit, store: Store) -> bool:
    """Return whether the store holds all that is asked of a unit."""
    found = store.result(unit.id)
    return (
        found is not None
        and found.status == "done"
        and answers(found, unit)
        and (found.header.get("latency_p99_seconds") is not None or not unit.latency)
    )


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
    stacks = at_once(todo, resources)
    progress.begin(units, [unit for stack in stacks for unit in stack])
    failed = 0
    for stack in stacks:
        # another process has run the others
        left = [unit for unit in stack if not is_done(unit, store)]
        if left:
            stop_if_asked()
        for unit, (header, returns) in _run_stack(left, store, progress, resources):
            failed += header["status"] == "failed"
            progress.finished(unit, header, returns)
    return failed


def _run_stack(
    units: Sequence[Unit], store: Store, progress: Progress, resources: Resources
) -> Iterator[tuple[Unit, Outcome]]:
    """Run several units at once; one unit, or the rest when that fails, by itself."""
    left = {unit.id: unit for unit in units}
    platform = resources.devices[0].platform
    played = {unit.id: before(unit, store, platform) for unit in units if len(units) > 1}
    several = [unit for unit in units if len(units) > 1 and _joins(unit, played[unit.id])]
    if several:
        runs = [
            make_run(u.agent, u.protocol, record=u.record, resources=resources) for u in several
        ]
        work = _Work(several, runs, [played[unit.id] for unit in several], store, progress)
        progress.started(several[0])
        with contextlib.suppress(StackError):
            for unit, outcome in work.outcomes():
                del left[unit.id]
                yield unit, outcome
    for unit in left.values():
        stop_if_asked()
        progress.started(unit)
        run = functools.partial(_run, unit, store, progress, resources)
        yield unit, guarded(unit, store, run)


def _joins(unit: Unit, played: Played) -> bool:
    """Return whether a unit can be played beside others, after what was played before: lifetimes in
    blocks from their beginning alone, or all of them.
    """
    if not unit.protocol.in_blocks:
        return True
    if played.flight and played.flight[0]["span"].tolist() != [0, unit.protocol.n_environments]:
        played.flight = None
    return not played.n


def _run(unit: Unit, store: Store, progress: Progress, resources: Resources) -> Outcome:
    """Run a unit by itself, with less at once as long as memory does not suffice."""
    n, devices = unit.protocol.n_environments, resources.devices
    capacity = Capacity(resources, lanes_per_device(unit.agent, unit.protocol.test, n, devices))
    while True:
        run = make_run(
            unit.agent,
            unit.protocol,
            record=unit.record,
            resources=capacity.resources,
            lanes=capacity.max_lanes,
        )
        try:
            played = before(unit, store, run.scheduler.platform)
            work = _Work([unit], [run], [played], store, progress, unit.chunk)
            ((_, outcome),) = work.outcomes()
            return outcome
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
        del run, work


class _Work:
    """Units that are played at once, one or several, and their checkpoints.

    Args:
      played: what was played of each before.
      size: lifetimes of a call, at most.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        runs: Sequence[Run],
        played: Sequence[Played],
        store: Store,
        progress: Progress,
        size: int | None = None,
    ) -> None:
        self.units, self.runs, self.played = units, runs, played
        self.store, self.progress, self.size = store, progress, size
        self.alone = len(runs) == 1
        self.scheduler = runs[0].scheduler if self.alone else runs[0].schedule(runs)
        self.starts = [part.n for part in played]
        self.closed: set[int] = set()  # units that are complete or have failed
        self._pace = Pace()
        self._lifetimes: Lifetimes | None = None  # of the only unit, that are not over
        self._kept = True  # nothing has been played since the last checkpoint

    def outcomes(self) -> Iterator[tuple[Unit, Outcome]]:
        """Play; yield units that are complete or have failed, each saved before.

        Several units of which nothing is left to play are not among them.

        Raises:
          StackError: several units cannot be played at once; what has been played is kept.
          Exception: the only unit has failed.
        """
        try:
            self._prepare()
            with keeping(self._keep_if_idle):
                stop_if_asked()
                for results in self._results():
                    yield from self._take(results)
                if self.alone and not self.closed:  # only the latency was missing
                    yield self.units[0], self._conclude(0)
        except (Exception, SystemExit) as error:
            if isinstance(error, StoreError):
                raise
            if self.alone and not out_of_memory(error):
                raise
            self._keep()
            if self.alone:
                raise
            raise StackError from error
        except KeyboardInterrupt:
            self._keep()
            raise

    def _prepare(self) -> None:
        unit, run = self.units[0], self.runs[0]
        if not self.alone:
            self.scheduler.prepare()
        elif not unit.knowledge_id:
            run.prepare()
        else:
            findings = StoredFindings(unit, self.store, self.progress, self.scheduler.platform)
            with keeping(findings.keep):
                run.prepare(findings)

    def _results(self) -> Iterator[Results]:
        options: dict[str, Any] = {}
        if self.units[0].protocol.in_blocks:
            flights = [part.flight for part in self.played]
            for part in self.played:
                part.flight = None  # as large as the memory may be: the scheduler's alone
            options = {"checkpoints": flights, "between": self._between}
        if not self.alone:
            yield from self.scheduler.results(self.starts, **options)
            return
        for chunk in self.runs[0].chunks(self.starts[0], self.size, **options):
            yield [(0, chunk)]

    def _take(self, results: Results) -> Iterator[tuple[Unit, Outcome]]:
        """Add the results of a call; yield the units that it completes.

        Raises:
          StackError: memory does not suffice; it may when units are played by themselves.
        """
        for number, result in results:
            outcome = self._guarded(number, functools.partial(self._add, number, result))
            if outcome:
                yield self.units[number], outcome
        if not all(map(self._complete, range(len(self.units)))):
            self._pace.keep(self._keep)
        if self.alone and (self.units[0].latency or not self._complete(0)):
            stop_if_asked()
        for number in dict.fromkeys(number for number, _ in results):
            if number in self.closed or not self._complete(number):
                continue
            outcome = self._guarded(number, functools.partial(self._conclude, number))
            if outcome:
                yield self.units[number], outcome
            if len(self.closed) < len(self.units):
                self._pace.keep(self._keep)
                stop_if_asked()

    def _guarded(self, number: int, step: Callable[[], Outcome | None]) -> Outcome | None:
        """Return the outcome of a unit after a step, if it has one; of several, one that fails does
        not fail the others.
        """
        if self.alone:
            outcome = step()
        else:
            within = functools.partial(_within_memory, step)
            outcome = guarded(self.units[number], self.store, within)
        if outcome:
            self.closed.add(number)
        return outcome

    def _add(self, number: int, result: Chunk | BaseException) -> None:
        if isinstance(result, BaseException):
            raise result
        unit, played = self.units[number], self.played[number]
        played.chunks.append(check_returns(result))
        if not self.alone and not unit.protocol.in_blocks:
            played.stacked = self.scheduler.at_once  # type: ignore[attr-defined]
        if self.alone:
            self._lifetimes = None  # they are over
        self._kept = False
        self.progress.advanced(unit, played.n, played.seconds, played.decisions)

    def _complete(self, number: int) -> bool:
        return self.played[number].n == self.units[number].protocol.n_environments

    def _conclude(self, number: int) -> Outcome:
        unit, run, played = self.units[number], self.runs[number], self.played[number]
        return conclude(unit, self.store, run, played, self._facts(number))

    def _between(self, lifetimes: Lifetimes) -> None:
        """Show progress after a call of lifetimes in blocks, write checkpoints if it is time, stop
        if asked.
        """
        self._kept = False
        if self.alone:
            self._lifetimes = lifetimes
        decisions = lifetimes.decisions()
        for number, (unit, played) in enumerate(zip(self.units, self.played, strict=True)):
            if number not in self.closed:
                self.progress.advanced(
                    unit,
                    played.n + lifetimes.finished(number),
                    played.seconds + lifetimes.seconds[number],
                    played.decisions + int(decisions[number]),
                )
        self._pace.keep(self._keep)
        stop_if_asked()

    def _facts(self, number: int) -> dict[str, Any]:
        run, scheduler = self.runs[number], self.scheduler
        facts = {
            "device": scheduler.device,
            "platform": scheduler.platform,
            "compiled": compilation.options_name(scheduler.platform),
            "batch": scheduler.batch,
            "offline_seconds": run.offline_seconds,
            "offline_seconds_spread": known(run.offline_spread),
            "offline_processor_seconds": known(run.offline_processor),
        }
        if self.units[number].protocol.together:
            facts["together"] = len(self.units)
        if run.learned:
            facts["learned"] = run.learned.describe()
        return facts

    @property
    def _running(self) -> Lifetimes | None:
        """Lifetimes in blocks that a checkpoint holds, over or not."""
        return self._lifetimes if self.alone else self.scheduler.lifetimes

    def _keep(self) -> None:
        """Write checkpoints of what has been played, lifetimes that are not over included."""
        lifetimes = self._running
        if lifetimes is not None and not lifetimes.whole:
            return  # the checkpoint before is better than none of the running lifetimes
        for number, (unit, played) in enumerate(zip(self.units, self.played, strict=True)):
            if number in self.closed:
                continue
            facts = {**self._facts(number), "status": "partial"}
            if lifetimes is not None and number in lifetimes.failed:
                continue
            if lifetimes is not None:
                # of several, all are kept as lifetimes, so that they can be played at once again
                facts["flight_seconds"] = lifetimes.seconds[number]
                part = played if self.alone else Played()
                part.save(unit, self.store, facts, lifetimes.arrays(number))
            elif played.n > self.starts[number]:
                played.save(unit, self.store, facts)
        self._kept = True

    def _keep_if_idle(self) -> bool:
        """Write checkpoints, unless there is nothing new or lifetimes are within a call, which
        has taken over their states; return whether all that had been played before is kept.

        For another thread, while this one is within a compiled call or a compilation.
        """
        if not self._kept and self._running is None:
            self._keep()
        return self._kept


def _within_memory(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception as error:
        if out_of_memory(error):
            raise StackError from error
        raise
