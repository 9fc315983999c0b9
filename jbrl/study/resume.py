"""Record of what has been played of a unit: checkpoints, resumption, conclusion."""

import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jbrl.base.plugins import explained
from jbrl.play import compilation
from jbrl.play.experiment import Run
from jbrl.play.machine import versions
from jbrl.play.offline import Learned, SearchCheckpoint
from jbrl.play.protocol import Chunk, joined
from jbrl.play.timing import known
from jbrl.play.unit import Unit
from jbrl.rollout.contract import Findings
from jbrl.study.progress import Progress
from jbrl.study.stopping import stop_if_asked
from jbrl.study.storage.files import StoreError, naming_fields, under
from jbrl.study.storage.store import FLIGHT, METRIC, Store
from jbrl.study.storage.tables import TRAJECTORY, Result

CHECKPOINT_SECONDS = 3.0  # between two checkpoints, at least
CHECKPOINT_SHARE = 0.1  # of the time may go into writing them, at most
# between two checkpoints, for any cost of writing them: a clock may have jumped meanwhile
MAX_CHECKPOINT_SECONDS = 600.0

Outcome = tuple[dict[str, Any], np.ndarray]


def answers(found: Result, unit: Unit) -> bool:
    """Return whether a result has the trajectories, where a unit asks for them."""
    return found.recorded or not unit.record


def comparable(header: dict[str, Any], platform: str) -> bool:
    """Return whether times in the header of a file were measured on this kind of device, of
    programs compiled as those of now.
    """
    compiled = header.get("compiled", "full" if platform == "cpu" else "")
    return header.get("platform") == platform and compiled == compilation.options_name(platform)


class Pace:
    """Time of the next checkpoint."""

    def __init__(self) -> None:
        self._saved, self._interval = time.monotonic(), CHECKPOINT_SECONDS

    def keep(self, save: Callable[[], Any]) -> None:
        """Call `save`, unless it is too early."""
        now = time.monotonic()
        # after a clock was set back the age is unknown: write now
        if not 0 <= now - self._saved <= self._interval:
            save()
            self._saved = time.monotonic()
            self._interval = min(
                max(CHECKPOINT_SECONDS, (self._saved - now) / CHECKPOINT_SHARE),
                MAX_CHECKPOINT_SECONDS,
            )


class StoredFindings(SearchCheckpoint):
    """Store for the findings of a search beside the results, for all units with the same prior."""

    def __init__(self, unit: Unit, store: Store, progress: Progress, platform: str) -> None:
        self.unit, self.store, self.progress = unit, store, progress
        self.id = str(unit.knowledge_id)
        self.facts: dict[str, Any] = {
            "platform": platform,
            "compiled": compilation.options_name(platform),
            "algorithm": unit.algorithm,
            "parameters": unit.parameters,
            "prior": unit.prior,
        }
        self._pace = Pace()
        self._new: tuple[Findings, float] | None = None  # not yet kept

    def learned(self) -> Learned | None:
        found = self.store.knowledge(self.id)
        if found and comparable(found.header, self.facts["platform"]):
            with naming_fields(self.store.knowledge_path(self.id)):
                return Learned.read(found.header["learned"], found.arrays)
        return None

    def unfinished(self) -> tuple[Findings, float] | None:
        found = self.store.knowledge(self.id, partial=True)
        if (
            found
            and comparable(found.header, self.facts["platform"])
            and found.header.get("versions") == versions()
        ):
            with naming_fields(self.store.knowledge_path(self.id, partial=True)):
                consumed, simulated, budget, seconds = (
                    found.header[name] for name in ("consumed", "simulated", "budget", "seconds")
                )
                return Findings(consumed, simulated, budget, found.arrays), seconds
        return None

    def advanced(self, findings: Findings, seconds: float) -> None:
        self._new = (findings, seconds)
        self.progress.searching(self.unit, findings.consumed, findings.budget, seconds)
        self._pace.keep(lambda: self.interrupted(findings, seconds))
        stop_if_asked()

    def interrupted(self, findings: Findings, seconds: float) -> None:
        counts = {name: getattr(findings, name) for name in ("consumed", "simulated", "budget")}
        self.store.save_knowledge(
            self.id,
            {**self.facts, **counts, "seconds": seconds, "status": "partial"},
            findings.arrays,
        )
        self._new = None

    def keep(self) -> bool:
        """Keep the findings of all rounds that are over."""
        if self._new:
            self.interrupted(*self._new)
        return True

    def concluded(self, learned: Learned) -> None:
        self.store.save_knowledge(
            self.id, {**self.facts, "learned": learned.describe(), "status": "done"}, learned.arrays
        )
        self._new = None


@dataclass
class Played:
    """Played part of a unit so far."""

    chunks: list[Chunk] = field(default_factory=list)
    # units that were played at once; 0: this one alone, and the clock of its chunks is its own
    stacked: int = 0
    # lifetimes that an interrupted run had begun, and the seconds they took
    flight: tuple[dict[str, np.ndarray], float] | None = None

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
        self,
        unit: Unit,
        store: Store,
        header: dict[str, Any],
        flight: dict[str, np.ndarray] | None = None,
    ) -> tuple[dict[str, Any], np.ndarray]:
        whole = joined(self.chunks)
        n = max(1, whole.decisions)
        header = {
            "online_seconds": whole.online_seconds / n,
            "online_seconds_spread": known(whole.online_spread / n),
            "online_processor_seconds": known(whole.processor_seconds / n),
            "decisions": whole.decisions,
            **header,
            **({"stacked": self.stacked} if self.stacked else {}),
            **({"failure": whole.failure} if whole.failure else {}),
        }
        arrays = {
            **(whole.trajectories or {}),
            **{f"{METRIC}{name}": values for name, values in whole.metrics.items()},
            **{f"{FLIGHT}{name}": values for name, values in (flight or {}).items()},
        }
        store.save(unit, header, whole.returns, arrays)
        return header, whole.returns


def before(unit: Unit, store: Store, platform: str) -> Played:
    """Return the remains of an earlier run of a unit: a checkpoint, or a result that lacks its
    latency.
    """
    result, checkpoint = store.result(unit.id, arrays=True), store.checkpoint(unit.id)
    if checkpoint and checkpoint.header.get("versions") != versions():
        checkpoint = None  # half of a unit would be from one program, half from another
    for found in (result, checkpoint):
        # On another kind of device the last digits might differ, too; what failed is played again.
        if (
            found
            and found.status != "failed"
            and answers(found, unit)
            and comparable(found.header, platform)
        ):
            flight = under(FLIGHT, found.arrays)
            if found.n or flight:
                begun = (flight, found.header["flight_seconds"]) if flight else None
                return Played(_stored(unit, found), found.header.get("stacked", 0), begun)
    return Played()


def _stored(unit: Unit, found: Result) -> list[Chunk]:
    """Return the lifetimes that a result or a checkpoint holds, as a chunk if there are any."""
    header, protocol = found.header, unit.protocol
    decisions = header.get("decisions") or (0 if protocol.in_blocks else found.n * protocol.horizon)

    def in_all(name: str) -> float:
        return math.nan if header.get(name) is None else header[name] * decisions

    chunk = Chunk(
        start=0,
        returns=found.returns,
        trajectories={name: found.arrays[name] for name in TRAJECTORY} if unit.record else None,
        online_seconds=in_all("online_seconds"),
        decisions=decisions,
        metrics=under(METRIC, found.arrays),
        online_spread=in_all("online_seconds_spread"),
        failed=np.isnan(found.returns),
        failure=header.get("failure", ""),
        processor_seconds=in_all("online_processor_seconds"),
    )
    return [chunk] if found.n else []


def conclude(unit: Unit, store: Store, run: Run, played: Played, facts: dict[str, Any]) -> Outcome:
    """Measure the missing times of a unit that has been played, and save it: as failed where
    lifetimes have.
    """
    times = (
        run.times(latency=unit.latency)
        if played.stacked
        else (run.latency().columns() if unit.latency else {})
    )
    facts = {**facts, **times, "compile_seconds": run.compile_seconds, "status": "done"}
    whole = joined(played.chunks)
    if whole.failure:
        lost, n = int(whole.lost.sum()), len(whole.returns)
        others = "; the others have scores" if lost < n else ""
        counted = f" ({lost:,} of {n:,} lifetimes have failed{others})" if n > 1 else ""
        facts |= {"status": "failed", "reason": f"{whole.failure}{counted}"}
    return played.save(unit, store, facts)


class StackError(Exception):
    """Units cannot be played together."""


def guarded(unit: Unit, store: Store, run: Callable[[], Any]) -> Any:
    """Return the outcome of `run` or, if it fails, a record of the failure."""
    try:
        return run()
    except (StoreError, StackError):
        raise
    except (Exception, SystemExit) as error:  # no error of an agent may stop the study
        header = {
            "status": "failed",
            "reason": explained(error)[:10_000],
            "traceback": traceback.format_exc()[-20_000:],
        }
    found = store.result(unit.id)
    # a result that lacks only its latency is better than none, and so are scores of some lifetimes
    if found is None or (found.status != "done" and not found.n):
        store.save(unit, header, np.zeros(0))
    return header, np.zeros(0)
