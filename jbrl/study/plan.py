"""Plan of a run: its units, their place and their estimated time."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax

from jbrl.play.compilation import compiling
from jbrl.play.resources import Resources
from jbrl.play.unit import Unit, select
from jbrl.rollout.contract import notice
from jbrl.study.calibration import Calibration, Estimate, speed_of
from jbrl.study.cost import actual, process_bytes
from jbrl.study.execute import is_done, run_units
from jbrl.study.file import Study, load_study
from jbrl.study.progress import Heartbeat, Progress
from jbrl.study.storage.store import Store


@dataclass(frozen=True)
class RunPlan:
    """The units to run and the directory of their results. Making a plan writes nothing."""

    study: Study
    units: list[Unit]
    store: Store
    recall: bool = True  # short runs made on this machine before
    resources: Resources | None = None  # that estimates are for; None: all

    @cached_property
    def todo(self) -> list[Unit]:
        """Those of `units` that have no result yet."""
        return [unit for unit in self.units if not is_done(unit, self.store)]

    @cached_property
    def calibration(self) -> Calibration:
        """Measured cost of units on this machine: its speed, where something is left
        to run, short runs, and the results that are kept here.
        """
        devices = self.resources.devices if self.resources else jax.devices()
        speed = speed_of(devices[0]) if self.todo else None
        searches = set[str | None]()
        with self._compiling:
            calibration = Calibration(devices, recall=self.recall, speed=speed)
            for unit in self.study.units:
                result = self.store.result(unit.id)
                if result and result.status == "done":
                    fresh = unit.knowledge_id not in searches
                    calibration.add_result(unit, actual(result.header, searched=fresh))
                    searches.add(unit.knowledge_id)
        return calibration

    def execute(self, progress: Progress | None = None, resources: Resources | None = None) -> int:
        """Run the remaining units; return the number that failed.

        Args:
          resources: devices and memory that may be used; None: all devices and most of the memory.

        Raises:
          JbrlError: results cannot be written.
        """
        self.store.open(self.study.facts(), self.study.units)
        expected = {id: estimate.cost for id, estimate in self.estimates.items()}
        with (
            self._compiling,
            Heartbeat(self.store.folder, expected, progress or Progress()) as observer,
        ):
            return run_units(self.units, self.todo, self.store, observer, resources)

    @property
    def _compiling(self) -> AbstractContextManager[None]:
        """Compile as the study says within a block."""
        return compiling(self.study.settings.compile)

    @cached_property
    def expected_seconds(self) -> dict[str, float]:
        """About how many seconds each unit of `todo` will take, by its id."""
        return {id: estimate.cost.seconds for id, estimate in self.estimates.items()}

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Expected cost of each unit of `todo`, by its id (`Calibration`)."""
        with self._compiling:
            return self.calibration.estimates(self.todo, self.resources)

    @property
    def process_bytes(self) -> int:
        """About how much memory the process takes beside the arrays of units."""
        with self._compiling:
            return process_bytes(one.cost for one in self.estimates.values())

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

    def calibrate(self, show: Callable[[str, int, int], None]) -> list[str]:
        """Make short runs that measure how long units of `todo` take, unless they have been made
        before.

        Args:
          show: called with what is run, how many short runs are done, and how many there are.

        Returns: what could not be measured, and why, one line each.
        """
        for name in ("expected_seconds", "estimates"):  # as they were without
            self.__dict__.pop(name, None)
        with self._compiling:
            return self.calibration.measure(
                self.todo, lambda run, done, total: show(run.unit.label, done, total)
            )


def plan(
    study: str | Path | dict[str, Any],
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    only: str | None = None,
    shard: str | None = None,
    recall: bool = True,
    resources: Resources | None = None,
) -> RunPlan:
    """Check a study and the directory for its results, and choose the units to run. Writes nothing.

    Args:
      study: a TOML file, or the same tables as a dict.
      overrides: fields of `[study]` to replace, each `study.field=value`.
      only: regular expression that the labels of units must match.
      shard: `I/N`, the I-th of N parts.
      recall: use earlier short runs on this machine for estimates, not only a rough rule.
      resources: that estimates of time and memory are for; None: all.

    Raises:
      JbrlError: something is not accepted, or `out` holds another study.
    """
    loaded = load_study(study, overrides)
    store = Store(out)
    store.check(loaded.facts()["study"])
    return RunPlan(loaded, select(loaded.units, only, shard), store, recall, resources)
