"""Costs of units of work on this machine, from short runs, which are kept for the next time.

The cost of a unit is taken to be the one of the rough rule (`study.cost.estimates`) times a
factor. Short runs of the same algorithm in the same experiment measure the factor for some
parameter values; in between it is interpolated, its logarithm being a mean of theirs weighted by
the inverse square of the distance (`runner.probes.coordinates`). So what the rule knows to be
proportional, as the time of a search to what it simulates, is extrapolated, and what it does not
know is measured.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jbrl.play.batching import lanes_per_device
from jbrl.play.compilation import options_name
from jbrl.play.machine import machine, versions
from jbrl.play.timing import device_name
from jbrl.play.unit import Unit, canonical
from jbrl.study.cost import estimates, probes
from jbrl.study.cost.probes import Measured, Probe
from jbrl.study.cost.report import UnitCost
from jbrl.study.cost.yardstick import Speed

# of the file, and of the rule that its factors refer to; raised when either changes its meaning
FORMAT = 2
SECONDS = 100.0  # limit of a calibration, except for the run in progress
BUSY = 1.5  # times as long as on a machine of its own
NEAR = 1e-3  # a distance that counts as none, squared

Measure = Callable[[Probe, list[jax.Device]], Measured]


@dataclasses.dataclass(frozen=True)
class Outlook:
    """Expected cost of a unit."""

    cost: UnitCost
    bytes: float  # of memory, on all devices
    measured: bool  # whether short runs of its algorithm in its experiment exist


class Calibration:
    """Short runs on this machine, with these versions of everything.

    Args:
      devices: what units are run on.
      folder: where short runs are kept: the user's cache directory unless given.
      recall: know of the short runs made before.
      speed: that of the machine, for what no short run has measured.
    """

    def __init__(
        self,
        devices: list[jax.Device] | None = None,
        folder: Path | None = None,
        *,
        recall: bool = True,
        speed: Speed | None = None,
    ) -> None:
        self.devices = devices or jax.devices()
        self.speed = speed or Speed()
        facts = {name: value for name, value in machine().items() if name in ("processor", "cores")}
        software = {name: value for name, value in versions().items() if name != "commit"}
        self.about = {
            "device": device_name(self.devices),
            "machine": facts,
            "versions": software,
            "format": FORMAT,
        }
        compiled = options_name(self.devices[0].platform)
        self.about |= {"compiled": compiled} if compiled == "quick" else {}
        self.path = (folder or cache_folder()) / f"calibration-{_digest(self.about)}.json"
        self.runs: dict[str, list[Measured]] = _read(self.path) if recall else {}

    def missing(self, units: Sequence[Unit]) -> list[Probe]:
        """Return the short runs to make for units: one of each algorithm in each experiment before
        the second of any, the most expensive first.
        """
        rough, wanted = Calibration(self.devices, recall=False), []
        groups = self._groups(units)
        labour = {
            key: sum(found.cost.seconds for found in rough.outlooks(members).values())
            for key, members in groups.items()
        }
        for key, members in sorted(groups.items(), key=lambda group: -labour[group[0]]):
            known = {canonical(run.parameters) for run in self.runs.get(key, [])}
            wanted.append(
                [
                    p
                    for p in probes.choose(members, self.devices)
                    if canonical(p.parameters) not in known
                ]
            )
        return [p for turn in itertools.zip_longest(*wanted) for p in turn if p]

    def measure(
        self,
        units: Sequence[Unit],
        tell: Callable[[Probe, int, int], None] | None = None,
        *,
        seconds: float = SECONDS,
        run: Measure = probes.measure,
        clock: Callable[[], float] = time.monotonic,
    ) -> list[str]:
        """Make short runs for units, and keep them.

        Args:
          tell: called with the next run, the number done, and the number in all.
          seconds: when to stop, even if runs are left.

        Returns: what could not be measured, and why, one line each.
        """
        wanted, complaints, made = self.missing(units), list[str](), list[tuple[str, Measured]]()
        begun = clock()
        try:
            for done, probe in enumerate(wanted):
                if clock() - begun > seconds:
                    complaints.append(
                        f"{len(wanted) - done} of {len(wanted)} short runs left out: "
                        f"{seconds:g} s are over"
                    )
                    break
                if tell:
                    tell(probe, done, len(wanted))
                try:
                    made.append((self._key(probe.unit), run(probe, self.devices)))
                except (Exception, SystemExit) as error:
                    # for any error of an agent: the unit itself will report it
                    complaints.append(
                        f"{probe.unit.label}: {type(error).__name__}: "
                        f"{(str(error).splitlines() or [''])[0]}"
                    )
        finally:  # also when interrupted
            complaints += self._learn(made)
        return complaints

    def _learn(self, made: Sequence[tuple[str, Measured]]) -> list[str]:
        """Add short runs, and keep them; return the remarks about them."""
        busy = statistics.median([found.busy for _, found in made if found.busy] or [1.0])
        for key, found in made:
            self.runs.setdefault(key, []).append(found.alone(busy))
        complaints = self._keep() if made else []
        if busy > BUSY:
            complaints.append(
                f"the machine was busy, short runs took {busy:.1f} times as long as alone on it; "
                "estimates are for it alone"
            )
        return complaints

    def outlooks(self, units: Sequence[Unit]) -> dict[str, Outlook]:
        """Estimate the cost of each of the units, by its id, when they are run in this order."""
        factors: dict[str, _Factors] = {}
        for key, members in self._groups(units).items():
            factors |= dict(
                zip((unit.id for unit in members), self._factors(key, members), strict=True)
            )
        compiled: set[tuple] = set()
        searched: set[str] = set()
        found = {}
        for unit in units:
            fresh = estimates.program(unit) not in compiled
            found[unit.id] = self._outlook(
                unit, factors[unit.id], fresh=fresh, searched=unit.knowledge_id in searched
            )
            compiled.add(estimates.program(unit))
            searched.add(unit.knowledge_id or "")
        return found

    def resident_bytes(self, units: Iterable[Unit]) -> float:
        """Return the memory by which the process grows through compiling for units; 0 without a
        short run.
        """
        grown = [
            run.resident_bytes
            for runs in self.runs.values()
            for run in runs
            if run.resident_bytes is not None
        ]
        return (
            statistics.mean(grown) * len({estimates.program(unit) for unit in units})
            if grown
            else 0.0
        )

    def _outlook(self, unit: Unit, factors: "_Factors", *, fresh: bool, searched: bool) -> Outlook:
        agent, protocol, n_devices = unit.agent, unit.protocol, len(self.devices)
        decision = estimates.decision_seconds(agent, protocol) * factors.decision
        cost = UnitCost(
            compiling=self._compiling(unit, factors) if fresh else 0.0,
            searching=0.0
            if searched
            else estimates.search_seconds(agent, protocol) * factors.search,
            deciding=estimates.lane_decisions(unit, self.devices) * decision,
            waiting=estimates.lone_seconds(unit, decision),
            other=estimates.SECONDS_PER_UNIT,
        )
        lanes = lanes_per_device(agent, protocol.n_environments, self.devices)
        return Outlook(
            cost,
            estimates.memory_bytes(agent, protocol, lanes, self.devices)
            * factors.memory
            * n_devices,
            factors.measured,
        )

    def _compiling(self, unit: Unit, factors: "_Factors") -> float:
        """Return the seconds that compiling for a unit takes."""
        rough = estimates.compile_seconds(unit.agent, unit.protocol) * self.speed.compiling
        return (factors.compile_seconds or rough) * (2 if unit.latency else 1)

    def _factors(self, key: str, units: Sequence[Unit]) -> list["_Factors"]:
        runs = self.runs.get(key, [])
        if not runs:
            return [_Factors(self.speed.playing, self.speed.playing)] * len(units)
        # The rough rule is no coordinate here: that of earlier runs is not known.
        place = probes.coordinates(
            [*(unit.parameters for unit in units), *(run.parameters for run in runs)],
            [1.0] * (len(units) + len(runs)),
        )
        distances = np.linalg.norm(place[: len(units), None] - place[None, len(units) :], axis=-1)
        weights = 1 / (distances**2 + NEAR)
        compiling = [run.compile_seconds for run in runs if run.compile_seconds is not None]
        seconds = statistics.mean(compiling) if compiling else None

        def between(name: str) -> np.ndarray:
            values = np.array([getattr(run, name) or 1.0 for run in runs])
            return np.exp((weights * np.log(values)).sum(1) / weights.sum(1))

        columns = zip(between("decision"), between("search"), between("memory"), strict=True)
        return [
            _Factors(float(d), float(s), float(m), seconds, measured=True) for d, s, m in columns
        ]

    def _groups(self, units: Sequence[Unit]) -> dict[str, list[Unit]]:
        groups: dict[str, list[Unit]] = defaultdict(list)
        keys: dict[tuple, str] = {}
        for unit in units:
            what = (unit.algorithm, id(unit.protocol))
            if what not in keys:
                keys[what] = self._key(unit)
            groups[keys[what]].append(unit)
        return groups

    def _key(self, unit: Unit) -> str:
        """Return the key that units share when short runs of one inform about another: the
        algorithm in the experiment, for any seed.
        """
        relevant = {
            name: value
            for name, value in unit.configuration.items()
            if name not in ("experiment", "seed", "parameters", "n_mdps")
        }
        if self.devices[0].platform != "cpu":
            relevant["lanes"] = lanes_per_device(
                unit.agent, unit.protocol.n_environments, self.devices
            )
        return _digest(relevant)

    def _keep(self) -> list[str]:
        content = {
            "about": self.about,
            "runs": {
                key: [dataclasses.asdict(run) for run in runs] for key, runs in self.runs.items()
            },
        }
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content, indent=1))
            temporary.replace(self.path)
        except OSError as error:
            return [f"{self.path}: short runs cannot be kept here: {error.strerror}"]
        return []


@dataclasses.dataclass(frozen=True)
class _Factors:
    """Factors by which the rough rule is off for a unit."""

    decision: float = 1.0
    search: float = 1.0
    memory: float = 1.0
    compile_seconds: float | None = None  # None: by the rough rule
    measured: bool = False


def cache_folder() -> Path:
    """Return the folder of data that jbrl can recompute: `$XDG_CACHE_HOME/jbrl`, or
    `~/.cache/jbrl`.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "jbrl"


def _read(path: Path) -> dict[str, list[Measured]]:
    """Read runs kept in a file; none when there is no such file or it is damaged, since they can be
    repeated.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = json.loads(path.read_text())["runs"]
        runs = {str(key): [Measured(**run) for run in found] for key, found in kept.items()}
        if all(_usable(run) for found in runs.values() for run in found):
            return runs
    return {}


def _usable(run: Measured) -> bool:
    factors = (run.decision, run.memory, 1.0 if run.search is None else run.search)
    return isinstance(run.parameters, dict) and all(math.isfinite(f) and f > 0 for f in factors)


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]
