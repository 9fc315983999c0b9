"""What running a study comes to: which units, where to, and about how long."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jbrl.runner.execute import Progress, is_done, run_units
from jbrl.runner.pulse import Pulse
from jbrl.runner.store import Result, Store
from jbrl.runner.study import Study, load_study
from jbrl.runner.unit import Unit, select

# A rough rule for what no earlier result tells: fitted to the agents of quick.toml on two CPU cores (docs/studies.md).
SECONDS_PER_ENTRY = 1e-9  # of the transition tensor, for one decision
SECONDS_PER_STEP = 3e-8  # simulated by a tree search
SECONDS_TO_COMPILE = 1.5  # each algorithm at each size
SECONDS_PER_UNIT = 0.2  # files, tables, the first call


@dataclass(frozen=True)
class Plan:
    """The units to run and the directory of their results. Making a plan writes nothing."""

    study: Study
    units: list[Unit]
    store: Store

    @cached_property
    def todo(self) -> list[Unit]:
        """Those of `units` that have no result yet."""
        return [unit for unit in self.units if not is_done(unit, self.store)]

    def execute(self, progress: Progress | None = None) -> int:
        """Run what is left; how many units failed.

        Raises:
          JbrlError: results cannot be written.
        """
        self.store.open(self.study.facts(), self.study.units)
        with Pulse(self.store.folder, self.estimate, progress or Progress()) as told:
            return run_units(self.units, self.todo, self.store, told)

    @cached_property
    def estimate(self) -> dict[str, float]:
        """About how many seconds each unit of `todo` will take, by its id.

        As long per decision as the unit of the same algorithm, experiment and parameters took, or else as those of the same algorithm
        and experiment took on average, when this directory holds such results. Without any, a rough rule: it grows with the
        number of transitions of the MDP and of the steps that a tree search simulates; each algorithm is compiled once for each size.
        """
        known = [(unit, found) for unit in self.study.units if (found := self._result(unit))]
        compiled: set[tuple] = set()
        seconds = {}
        for unit in self.todo:
            size = unit.protocol.test.mdps.concentrations.shape
            first = (unit.algorithm, size) not in compiled
            compiled.add((unit.algorithm, size))
            like = [found for other, found in known if (other.algorithm, other.experiment) == (unit.algorithm, unit.experiment)]
            alike = [found for other, found in known if other.experiment == unit.experiment and other.agent == unit.agent]
            seconds[unit.id] = _seconds(unit, alike or like, first)
        return seconds

    def _result(self, unit: Unit) -> Result | None:
        found = self.store.result(unit.id)
        return found if found and found.status == "done" else None


def _seconds(unit: Unit, earlier: Sequence[Result], first: bool) -> float:
    entries = unit.protocol.test.mdps.concentrations.size
    compiling = first * SECONDS_TO_COMPILE * (2 if unit.latency else 1)
    if not earlier:
        searching = getattr(unit.agent, "budget", 0) * unit.protocol.horizon
        steps = unit.decisions * unit.agent.simulated_steps(unit.protocol.test.mdps.n_actions)
        return (unit.decisions + searching) * entries * SECONDS_PER_ENTRY + steps * SECONDS_PER_STEP + compiling + SECONDS_PER_UNIT
    headers: list[dict[str, Any]] = [found.header for found in earlier]
    online = sum(header["online_seconds"] for header in headers) / len(headers)
    offline = sum(header["offline_seconds"] for header in headers) / len(headers)
    return unit.decisions * online + offline + compiling + SECONDS_PER_UNIT


def plan(
    study: str | Path | dict[str, Any],
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    only: str | None = None,
    shard: str | None = None,
) -> Plan:
    """Check a study and the directory for its results, and choose the units to run. Writes nothing.

    Args:
      study: a TOML file, or the same tables as a dict.
      overrides: fields of `[study]` to replace, each `study.field=value`.
      only: regular expression that the labels of units must match.
      shard: `I/N`, the I-th of N parts.

    Raises:
      JbrlError: something is not accepted, or `out` holds another study.
    """
    loaded = load_study(study, overrides)
    store = Store(out)
    store.check(loaded.settings.facts())
    return Plan(loaded, select(loaded.units, only, shard), store)
