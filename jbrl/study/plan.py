"""Plan of a run: its units, their place and their estimated time."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax

from jbrl.play.compilation import compiling
from jbrl.play.resources import Resources
from jbrl.play.unit import Unit, select
from jbrl.rollout.contract import notice
from jbrl.study.cost import yardstick
from jbrl.study.cost.calibration import Calibration, Outlook
from jbrl.study.cost.report import UnitCost, actual
from jbrl.study.execute import is_done, run_units
from jbrl.study.file import Study, load_study
from jbrl.study.heartbeat import Heartbeat
from jbrl.study.progress import Progress
from jbrl.study.storage.store import Result, Store


@dataclass(frozen=True)
class RunPlan:
    """The units to run and the directory of their results. Making a plan writes nothing."""

    study: Study
    units: list[Unit]
    store: Store
    recall: bool = True  # short runs made on this machine before
    devices: list[jax.Device] | None = None  # that estimates are for; None: all

    @cached_property
    def todo(self) -> list[Unit]:
        """Those of `units` that have no result yet."""
        return [unit for unit in self.units if not is_done(unit, self.store)]

    @cached_property
    def calibration(self) -> Calibration:
        """Short runs on this machine, which measure how long units take; and its speed, where
        something is left to run.
        """
        speed = yardstick.measured(*(self.devices or jax.devices())[:1]) if self.todo else None
        with self._compiling:
            return Calibration(self.devices, recall=self.recall, speed=speed)

    def execute(self, progress: Progress | None = None, resources: Resources | None = None) -> int:
        """Run the remaining units; return the number that failed.

        Args:
          resources: devices and memory that may be used; None: all devices and most of the memory.

        Raises:
          JbrlError: results cannot be written.
        """
        self.store.open(self.study.facts(), self.study.units)
        with (
            self._compiling,
            Heartbeat(self.store.folder, self.estimate, progress or Progress()) as observer,
        ):
            return run_units(self.units, self.todo, self.store, observer, resources)

    @property
    def _compiling(self) -> AbstractContextManager[None]:
        """Compile as the study says within a block."""
        return compiling(self.study.settings.compile)

    @cached_property
    def estimate(self) -> dict[str, float]:
        """About how many seconds each unit of `todo` will take, by its id."""
        return {id: outlook.cost.seconds for id, outlook in self.outlooks.items()}

    @cached_property
    def outlooks(self) -> dict[str, Outlook]:
        """Expected cost of each unit of `todo`, by its id.

        By a rough rule, corrected by what short runs on this machine have measured (`calibration`),
        and by what units of the same algorithm have taken, if this directory holds any: the one
        with the same parameters in the same experiment, or else all in the same experiment, or
        else all.
        """
        return self._outlooks(self.todo)

    @cached_property
    def notices(self) -> list[str]:
        """Notices about the cost of units of `todo`, to read before they run: one sentence for each
        algorithm that gives one, about the first of its units.
        """
        found = defaultdict(list)
        for unit in self.todo:
            if text := notice(unit.agent, unit.protocol.agent_prior()):
                found[unit.algorithm].append(f"{unit.label}: {text}")
        return [
            texts[0] + (f" ({len(texts)} units of {name} are alike)" if len(texts) > 1 else "")
            for name, texts in found.items()
        ]

    def calibrate(self, tell: Callable[[str, int, int], None]) -> list[str]:
        """Make short runs that measure how long units of `todo` take, unless they have been made
        before.

        Args:
          tell: called with what is run, how many short runs are done, and how many there are.

        Returns: what could not be measured, and why, one line each.
        """
        for name in ("estimate", "outlooks", "_earlier"):  # as they were without
            self.__dict__.pop(name, None)
        with self._compiling:
            return self.calibration.measure(
                self.todo, lambda probe, done, total: tell(probe.unit.label, done, total)
            )

    def _outlooks(self, units: Sequence[Unit]) -> dict[str, Outlook]:
        with self._compiling:
            expected = self.calibration.outlooks(units)
        return {unit.id: self._corrected(unit, expected[unit.id]) for unit in units}

    def _corrected(self, unit: Unit, outlook: Outlook) -> Outlook:
        earlier = self._earlier.get((unit.algorithm, unit.experiment)) or self._earlier.get(
            (unit.algorithm, None), []
        )
        like = [row for row in earlier if row[0].agent == unit.agent] or earlier
        cost = outlook.cost
        for part in ("searching", "deciding", "waiting"):
            expected, taken = (sum(getattr(row[column], part) for row in like) for column in (1, 2))
            if expected > 0 and taken > 0:
                cost = replace(cost, **{part: getattr(cost, part) * taken / expected})
        return replace(outlook, cost=cost)

    @cached_property
    def _earlier(self) -> dict[tuple[str, str | None], list[tuple[Unit, UnitCost, UnitCost]]]:
        """Units of the study that are done, what was expected of each and what it has cost, by
        algorithm and experiment; None: any.
        """
        results = {unit.id: result for unit in self.study.units if (result := self._result(unit))}
        done = [unit for unit in self.study.units if unit.id in results]
        expected, searches, found = self.calibration.outlooks(done), set(), defaultdict(list)
        for unit in done:
            was = actual(results[unit.id].header, searched=unit.knowledge_id not in searches)
            searches.add(unit.knowledge_id)
            for experiment in (unit.experiment, None):
                found[unit.algorithm, experiment].append((unit, expected[unit.id].cost, was))
        return found

    def _result(self, unit: Unit) -> Result | None:
        found = self.store.result(unit.id)
        return found if found and found.status == "done" else None


def plan(
    study: str | Path | dict[str, Any],
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    only: str | None = None,
    shard: str | None = None,
    recall: bool = True,
    devices: list[jax.Device] | None = None,
) -> RunPlan:
    """Check a study and the directory for its results, and choose the units to run. Writes nothing.

    Args:
      study: a TOML file, or the same tables as a dict.
      overrides: fields of `[study]` to replace, each `study.field=value`.
      only: regular expression that the labels of units must match.
      shard: `I/N`, the I-th of N parts.
      recall: use earlier short runs on this machine for estimates, not only a rough rule.
      devices: that estimates of time are for; None: all.

    Raises:
      JbrlError: something is not accepted, or `out` holds another study.
    """
    loaded = load_study(study, overrides)
    store = Store(out)
    store.check(loaded.facts()["study"])
    return RunPlan(loaded, select(loaded.units, only, shard), store, recall, devices)
