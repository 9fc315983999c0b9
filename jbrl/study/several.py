"""Several units at once: stacks of finite MDPs, and lanes of one program of episodes."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jbrl.play import compilation
from jbrl.play.experiment import Run
from jbrl.play.play import make_run
from jbrl.play.protocol import Chunk
from jbrl.play.resources import Resources, out_of_memory
from jbrl.play.stacking import Results, Stack
from jbrl.play.together import Company
from jbrl.play.unit import Unit
from jbrl.study.played import (
    Outcome,
    Pace,
    Played,
    StackError,
    before,
    check_returns,
    conclude,
    guarded,
)
from jbrl.study.progress import Progress
from jbrl.study.stopping import keeping, stop_if_asked
from jbrl.study.storage.files import StoreError
from jbrl.study.storage.store import Store


def _within_memory(run: Callable[..., Any], *args: Any) -> Any:
    try:
        return run(*args)
    except Exception as error:
        if out_of_memory(error):
            raise StackError from error
        raise


class Together:
    """Player of several units together; each is saved as soon as it is complete."""

    def __init__(
        self, units: Sequence[Unit], store: Store, progress: Progress, resources: Resources
    ) -> None:
        self.units, self.store, self.progress = units, store, progress
        self.platform = resources.devices[0].platform
        self.runs = [
            Run(unit.agent, unit.protocol, record=unit.record, resources=resources)
            for unit in units
        ]
        self.played = [before(unit, store, self.platform) for unit in units]
        self.stack = Stack(self.runs, [found.n for found in self.played])
        self.closed: set[int] = set()  # units that are complete or have failed
        self._pace = Pace()

    def run(self) -> Iterator[tuple[Unit, Outcome]]:
        """Yield units that are complete or have failed.

        Units with nothing left to play are not among them.

        Raises:
          StackError: it does not work; what has been played is kept.
        """
        self.progress.started(self.units[0])
        try:
            with keeping(self._keep):
                self.stack.prepare()
                for results in self.stack.calls():
                    yield from self._taken(results)
        except StoreError:
            raise
        except (Exception, SystemExit) as error:
            self._keep()
            raise StackError from error
        except KeyboardInterrupt:
            self._keep()
            raise

    def _taken(self, results: Results) -> Iterator[tuple[Unit, Outcome]]:
        """Add the results of a call; yield the units that it completes.

        Raises:
          StackError: memory does not suffice; it may when units are played by themselves.
        """
        for add in (self._add, self._conclude):
            for number, result in results:
                if number in self.closed:
                    continue
                outcome = guarded(
                    self.units[number],
                    self.store,
                    functools.partial(_within_memory, add, number, result),
                )
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

    def _conclude(self, number: int, _: Any) -> Outcome | None:
        unit, played = self.units[number], self.played[number]
        complete = played.n == unit.protocol.n_environments
        return (
            conclude(unit, self.store, self.runs[number], played, self._facts(number))
            if complete
            else None
        )

    def _facts(self, number: int) -> dict[str, Any]:
        run, stack = self.runs[number], self.stack
        return {
            "device": stack.device,
            "platform": self.platform,
            "compiled": compilation.options_name(self.platform),
            "batch": stack.batch,
            "offline_seconds": run.offline_seconds,
        }

    def _keep(self) -> bool:
        """Write checkpoints of what has been played; return True, since it is all kept then."""
        for number, (unit, played) in enumerate(zip(self.units, self.played, strict=True)):
            if played.n > self.stack.starts[number] and number not in self.closed:
                played.save(unit, self.store, {**self._facts(number), "status": "partial"})
        return True


class InCompany:
    """Player of units whose settings are lanes of one program; each is saved as soon as it is
    complete.

    Units whose lifetimes are all over, or that lack only the latency, are left alone.
    """

    def __init__(
        self, units: Sequence[Unit], store: Store, progress: Progress, resources: Resources
    ) -> None:
        self.store, self.progress = store, progress
        self.platform = resources.devices[0].platform
        found = [(unit, before(unit, store, self.platform)) for unit in units]
        fresh = [(unit, played) for unit, played in found if not played.n]
        self.units = [unit for unit, _ in fresh]
        self.played = [Played() for _ in fresh]
        runs: list[Any] = [make_run(u.agent, u.protocol, resources=resources) for u in self.units]
        befores = [_whole(unit, played) for unit, played in fresh]
        self.company = Company(runs, befores) if runs else None
        self._pace = Pace()
        self._kept = True  # nothing has been played since the last checkpoints

    def run(self) -> Iterator[tuple[Unit, Outcome]]:
        """Yield units that are complete or have failed.

        Raises:
          StackError: it does not work; what has been played is kept.
        """
        company = self.company
        if company is None:
            return
        self.progress.started(self.units[0])
        try:
            with keeping(lambda: self._kept):
                company.prepare()
                stop_if_asked()
                for number, result in company.played(self._between):
                    save = functools.partial(self._conclude, number, result)
                    yield self.units[number], guarded(self.units[number], self.store, save)
        except StoreError:
            raise
        except (Exception, SystemExit) as error:
            self._keep()
            raise StackError from error
        except KeyboardInterrupt:
            self._keep()
            raise

    def _between(self) -> None:
        """Show progress after each call, write checkpoints if it is time, stop if asked."""
        assert self.company is not None
        self._kept = False
        for number, unit in enumerate(self.units):
            if number not in self.company.closed:
                over, decisions = self.company.progress(number)
                self.progress.advanced(unit, over, self.company.seconds[number], decisions)
        self._pace.keep(self._keep)
        stop_if_asked()

    def _conclude(self, number: int, result: Chunk | BaseException) -> Outcome:
        assert self.company is not None
        if isinstance(result, BaseException):
            raise result
        unit, played = self.units[number], self.played[number]
        played.chunks.append(check_returns(result))
        self.progress.advanced(unit, played.n, played.seconds, played.decisions)
        run = self.company.runs[number]
        return conclude(unit, self.store, run, played, self._facts(number))

    def _facts(self, number: int) -> dict[str, Any]:
        assert self.company is not None
        crew, run = self.company.crew, self.company.runs[number]
        return {
            "device": crew.device,
            "platform": self.platform,
            "compiled": compilation.options_name(self.platform),
            "batch": crew.batch,
            "offline_seconds": run.offline_seconds,
            "together": len(self.units),
        }

    def _keep(self) -> None:
        """Write checkpoints of what has been played."""
        company = self.company
        if company is None or company.flight is None or not company.flight.whole:
            return
        for number, (unit, played) in enumerate(zip(self.units, self.played, strict=True)):
            if number not in company.closed:
                facts = {**self._facts(number), "flight_seconds": company.seconds[number]}
                played.save(unit, self.store, {**facts, "status": "partial"}, company.saved(number))
        self._kept = True


def _whole(unit: Unit, played: Played) -> tuple[dict[str, np.ndarray], float] | None:
    """Return the lifetimes that an interrupted run had begun, if they are all of the unit."""
    if played.flight is None:
        return None
    n = unit.protocol.n_environments
    return played.flight if played.flight[0]["span"].tolist() == [0, n] else None
