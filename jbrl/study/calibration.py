"""Estimates of the cost of units on this machine.

The cost of a unit is the one of the rough rule (`study.cost`) times a factor, which three sources
give: results of this study, short runs on this machine, which are kept for the next time, and,
where there are neither, the speed at which the machine compiles and plays a fixed small program.
Between the units that were measured, the logarithm of the factor is interpolated over that of the
cost by the rule.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl.base.files import write_whole
from jbrl.environments.spec import Steps
from jbrl.play import compilation
from jbrl.play.batching import lanes_on_accelerator, lanes_on_cpu
from jbrl.play.compile_cache import cache_folder
from jbrl.play.machine import machine, versions
from jbrl.play.play import make_run
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources
from jbrl.play.timing import device_name, timed
from jbrl.play.unit import Unit, digest
from jbrl.rollout.contract import Agent, OfflineSearch
from jbrl.rollout.episodes import BLOCK
from jbrl.study import cost
from jbrl.study.cost import UnitCost

# of the file, and of the rule that its factors refer to; raised when either changes its meaning
FORMAT = 4
SECONDS = 100.0  # limit of a calibration, except for the run in progress

RUN_SECONDS = 0.4  # that a short run may take by the rough rule, without compilation
TOO_LONG = 10.0  # times as long: only when nothing shorter is left
MAX_RUNS = 3  # of an algorithm in an experiment
ALIKE = 2.0  # the rough rule distinguishes units when one takes so many times as long as another
REPETITIONS = 3
BLOCKS_RUN = 4  # of a lifetime in blocks

# The constants of the rough rule are those of a machine that takes so many seconds to compile and
# to play the program of `speed_of`.
COMPILING = 1.0
PLAYING = 0.0005
LANES, STEPS, STATES, ACTIONS = 64, 200, 8, 4
# that the program is played for: many turns of the scheduler, where other programs wait for a core
PLAYING_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class Speed:
    """Times as long as on the machine of the constants."""

    compiling: float = 1.0
    playing: float = 1.0


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Expected cost of a unit."""

    cost: UnitCost
    bytes: float  # of memory, on all devices
    measured: bool  # whether short runs of its algorithm in its experiment exist


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """Time of a short run or a result: factors to the rough rule; None: not measured."""

    rule: float  # seconds of a decision and of a search, by the rule
    decision: float | None = None
    search: float | None = None
    memory: float | None = None  # bytes that a call takes
    compile_seconds: float | None = None  # no factor; None: the program was there


@dataclasses.dataclass(frozen=True)
class ShortRun:
    """A unit with fewer MDPs, fewer decisions or a smaller budget of its search, where it would
    take too long itself.
    """

    unit: Unit
    agent: Agent
    lanes: int | None  # of each device; None: as always
    horizon: int

    @classmethod
    def of(cls, unit: Unit, devices: Sequence[jax.Device]) -> "ShortRun":
        """Return the short run of a unit: first fewer MDPs, while the cost of each stays the same,
        then fewer decisions.
        """
        agent, protocol = unit.agent, unit.protocol
        if isinstance(agent, OfflineSearch):
            if not hasattr(agent, "budget"):  # its search tries nothing
                return cls(unit, agent, None, protocol.horizon)
            each = cost.search_seconds(agent, protocol) / (agent.budget + cost.FIRST_PULLS)
            budget = max(1, min(agent.budget, int(RUN_SECONDS / each) - cost.FIRST_PULLS))
            searcher: Any = agent
            smaller = dataclasses.replace(searcher, budget=budget)
            return cls(unit, smaller, None, protocol.horizon)
        if protocol.in_blocks:
            return cls(unit, agent, None, BLOCKS_RUN * BLOCK)
        if devices[0].platform != "cpu":  # a call takes as long with few MDPs as with many
            return cls(unit, agent, None, protocol.horizon)
        each = cost.decision_seconds(agent, protocol)
        fewest = cost.fewest_lanes(agent, protocol)
        most = lanes_on_cpu(agent, protocol.test)
        lanes = int(np.clip(RUN_SECONDS / (each * protocol.horizon), fewest, most))
        longest = 2 * RUN_SECONDS / (each * lanes)
        # few different horizons, because each is a program to compile
        horizons = [protocol.horizon, *(h for h in (50, 10, 2) if h < protocol.horizon)]
        horizon = next((h for h in horizons if h <= longest), horizons[-1])
        return cls(unit, agent, None if lanes == most else lanes, horizon)

    @property
    def protocol(self) -> Protocol:
        return dataclasses.replace(self.unit.protocol, lifetime=Steps(self.horizon))

    @property
    def rule(self) -> float:
        """Features of units: seconds of a decision and of a search by the rule."""
        return _rule(self.agent, self.unit.protocol)

    def expected(self) -> float:
        """Return seconds by the rule, without compilation."""
        lanes = self.lanes or self.agent.lanes
        playing = lanes * self.horizon * cost.decision_seconds(self.agent, self.unit.protocol)
        return playing + cost.search_seconds(self.agent, self.protocol)

    def measure(self, devices: list[jax.Device]) -> Measurement:
        """Play it.

        Raises:
          Exception: any exception of the agent.
        """
        agent, protocol = self.agent, self.protocol
        run = make_run(agent, protocol, resources=Resources(devices), lanes=self.lanes)
        run.prepare()
        seconds = list[float]()
        while len(seconds) < REPETITIONS and sum(seconds) < RUN_SECONDS:
            chunk = next(run.chunks())
            seconds.append(chunk.online_seconds)
        in_blocks, n = protocol.in_blocks, len(run.devices)
        lanes = run.batch // n
        decision = statistics.median(seconds) / (
            chunk.decisions / n if in_blocks else lanes * protocol.horizon
        )
        search = cost.search_seconds(agent, protocol)
        return Measurement(
            rule=self.rule,
            decision=decision / cost.decision_seconds(agent, self.unit.protocol),
            search=(run.learned.seconds / search if run.learned else 0.0) or None,
            memory=run.bytes_per_device / cost.memory_bytes(agent, protocol, lanes)
            or None,  # where the compiler does not say
            compile_seconds=run.compile_seconds or None,
        )


def _rule(agent: Agent, protocol: Protocol) -> float:
    return cost.decision_seconds(agent, protocol) + cost.search_seconds(agent, protocol)


class Calibration:
    """Measured cost of units on this machine, with these versions of everything.

    Args:
      devices: what units are run on.
      folder: where short runs are kept: the user's cache directory unless given.
      recall: know of the short runs made before.
      speed: that of the machine, for what was not measured.
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
        self.about = {
            "device": device_name(self.devices),
            "machine": {k: v for k, v in machine().items() if k in ("processor", "cores")},
            "versions": {k: v for k, v in versions().items() if k != "commit"},
            "format": FORMAT,
            "compiled": compilation.options_name(self.devices[0].platform),
        }
        self.path = (folder or cache_folder()) / f"calibration-{digest(self.about, 16)}.json"
        self.runs: dict[str, list[Measurement]] = _read(self.path) if recall else {}
        # of results: by algorithm and experiment, None for any experiment
        self._results: dict[tuple[str, str | None], list[Measurement]] = defaultdict(list)

    # ---- sources ----

    def add_result(self, unit: Unit, taken: UnitCost) -> None:
        """Add what a unit has cost."""
        decision = cost.decision_seconds(unit.agent, unit.protocol)

        def factor(seconds: float, rule: float) -> float | None:
            return seconds / rule if seconds > 0 and rule > 0 else None

        measured = Measurement(
            rule=_rule(unit.agent, unit.protocol),
            decision=factor(taken.deciding, cost.lane_decisions(unit, self.devices) * decision),
            search=factor(taken.searching, cost.search_seconds(unit.agent, unit.protocol)),
        )
        for experiment in (unit.experiment, None):
            self._results[unit.algorithm, experiment].append(measured)

    def missing(self, units: Sequence[Unit]) -> list[ShortRun]:
        """Return the short runs to make for units: one of each algorithm in each experiment before
        the second of any, the most expensive first.
        """
        groups: dict[str, list[Unit]] = defaultdict(list)
        keys: dict[tuple[str, int], str] = {}
        for unit in units:
            same = (unit.algorithm, id(unit.protocol))
            if same not in keys:
                keys[same] = self._key(unit)
            groups[keys[same]].append(unit)
        work = {
            key: sum(cost.lane_decisions(u, self.devices) * _rule(u.agent, u.protocol) for u in us)
            for key, us in groups.items()
        }
        wanted = [self._missing(k, groups[k]) for k in sorted(groups, key=lambda k: -work[k])]
        return [run for turn in itertools.zip_longest(*wanted) for run in turn if run]

    def _missing(self, key: str, units: Sequence[Unit]) -> list[ShortRun]:
        """Return the short runs of one algorithm in one experiment: the most expensive that stays
        short, the cheapest, and one in between, where they differ by the rule.
        """
        runs = sorted((ShortRun.of(unit, self.devices) for unit in units), key=lambda run: run.rule)
        expected = [run.expected() for run in runs]
        limit = max(TOO_LONG * RUN_SECONDS, min(expected))
        runs = [run for run, seconds in zip(runs, expected, strict=True) if seconds <= limit]
        known, chosen = [run.rule for run in self.runs.get(key, [])], list[ShortRun]()
        for run in (runs[-1], runs[0], runs[len(runs) // 2])[:MAX_RUNS]:
            if all(max(run.rule / rule, rule / run.rule) >= ALIKE for rule in known):
                known.append(run.rule)
                chosen.append(run)
        return chosen

    def measure(
        self,
        units: Sequence[Unit],
        show: Callable[[ShortRun, int, int], None] | None = None,
        *,
        seconds: float = SECONDS,
        run: Callable[[ShortRun, list[jax.Device]], Measurement] = ShortRun.measure,
        clock: Callable[[], float] = time.monotonic,
    ) -> list[str]:
        """Make short runs for units, and keep them.

        Args:
          show: called with the next run, the number done, and the number in all.
          seconds: when to stop, even if runs are left.

        Returns: what could not be measured, and why, one line each.
        """
        wanted, complaints, made = self.missing(units), list[str](), 0
        began = clock()
        try:
            for done, short in enumerate(wanted):
                if clock() - began > seconds:
                    left_out = f"{len(wanted) - done} of {len(wanted)} short runs left out"
                    complaints.append(f"{left_out}: {seconds:g} s are over")
                    break
                if show:
                    show(short, done, len(wanted))
                try:
                    measured = run(short, self.devices)
                except (Exception, SystemExit) as error:
                    # for any error of an agent: the unit itself will report it
                    first = (str(error).splitlines() or [""])[0]
                    complaints.append(f"{short.unit.label}: {type(error).__name__}: {first}")
                    continue
                self.runs.setdefault(self._key(short.unit), []).append(measured)
                made += 1
        finally:  # also when interrupted
            complaints += self._keep() if made else []
        return complaints

    # ---- estimates ----

    def estimates(
        self, units: Sequence[Unit], resources: Resources | None = None
    ) -> dict[str, Estimate]:
        """Estimate the cost of each of the units, by its id, when they are run in this order.

        Args:
          resources: that they are run with; None: these devices, and most of the memory.
        """
        resources = resources or Resources(self.devices)
        # units with the same differ in the seed alone, of which there may be thousands
        alike = [(unit.experiment, id(unit.agent)) for unit in units]
        known = {
            own: cost.program(unit) for own, unit in dict(zip(alike, units, strict=True)).items()
        }
        programs = [known[own] for own in alike]
        beside = Counter[tuple[Any, ...]]()
        for unit, program in zip(units, programs, strict=True):
            beside[program] += unit.protocol.n_environments
        compiled: set[tuple[Any, ...]] = set()
        searched: set[str | None] = {None}
        estimates: dict[str, Estimate] = {}
        found: dict[Any, Estimate] = {}
        for unit, program, own in zip(units, programs, alike, strict=True):
            search = unit.knowledge_id
            case = own, program in compiled, search in searched
            if case not in found:
                parts, factor, measured = self._parts(unit, compiled=case[1], searched=case[2])
                together = unit.protocol.together
                n = beside[program] if together else unit.protocol.n_environments
                size = cost.bytes_at_once(unit, n, factor, resources)
                found[case] = Estimate(parts, size, measured=measured)
            estimates[unit.id] = found[case]
            compiled.add(program)
            searched.add(search)
        return estimates

    def _parts(self, unit: Unit, *, compiled: bool, searched: bool) -> tuple[UnitCost, float, bool]:
        """Return the times of a unit, the factor of its memory, and whether it was measured."""
        agent, protocol, devices = unit.agent, unit.protocol, self.devices
        runs = self.runs.get(self._key(unit), [])
        sources = (
            self._results.get((unit.algorithm, unit.experiment), []),
            runs,
            self._results.get((unit.algorithm, None), []),
        )
        factor = functools.partial(_factor, sources, _rule(agent, protocol))
        rule = cost.decision_seconds(agent, protocol)
        decision = rule * (factor("decision") or self.speed.playing)
        compiling = [run.compile_seconds for run in runs if run.compile_seconds]
        each = (
            statistics.mean(compiling)
            if compiling
            else cost.compile_seconds(agent, protocol) * self.speed.compiling
        )
        searching = cost.search_seconds(agent, protocol) * (factor("search") or self.speed.playing)
        parts = UnitCost(
            compiling=0.0 if compiled else each * (2 if unit.latency else 1),
            searching=0.0 if searched else searching,
            deciding=cost.lane_decisions(unit, devices) * decision,
            waiting=cost.lone_seconds(unit, decision),
            other=cost.SECONDS_PER_UNIT,
        )
        return parts, factor("memory") or 1.0, bool(runs)

    def _key(self, unit: Unit) -> str:
        """Return the key that units share when short runs of one inform about another: the
        algorithm in the experiment, for any seed.
        """
        irrelevant = ("experiment", "seed", "parameters", "n_mdps")
        relevant = {k: v for k, v in unit.configuration.items() if k not in irrelevant}
        if self.devices[0].platform != "cpu":
            count = unit.protocol.n_environments
            relevant["lanes"] = lanes_on_accelerator(count, len(self.devices))
        return digest(relevant, 16)

    # ---- the file ----

    def _keep(self) -> list[str]:
        """Write all short runs; return the complaint if they cannot be written."""
        runs = {key: [dataclasses.asdict(run) for run in runs] for key, runs in self.runs.items()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"about": self.about, "runs": runs}, indent=1)
            write_whole(self.path, text.encode())
        except OSError as error:
            return [f"{self.path}: short runs cannot be kept here: {error.strerror}"]
        return []


def _factor(sources: Iterable[Sequence[Measurement]], rule: float, name: str) -> float | None:
    """Return the factor of a unit from the first source that has measured it; None for none."""
    for source in sources:
        pairs = [(m.rule, value) for m in source if (value := getattr(m, name)) is not None]
        if pairs:
            by_rule: dict[float, list[float]] = defaultdict(list)
            for place, value in sorted(pairs):
                by_rule[place].append(math.log(value))
            means = [statistics.mean(values) for values in by_rule.values()]
            return math.exp(np.interp(math.log(rule), np.log(list(by_rule)), means))
    return None


def _read(path: Path) -> dict[str, list[Measurement]]:
    """Read runs kept in a file; none when there is no such file or it is damaged, since they can be
    repeated.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept: Mapping[str, Any] = json.loads(path.read_text())["runs"]
        runs = {str(key): [Measurement(**run) for run in made] for key, made in kept.items()}
        if all(_usable(run) for made in runs.values() for run in made):
            return runs
    return {}


def _usable(run: Measurement) -> bool:
    factors = (run.rule, run.decision, run.search, run.memory)
    return all(math.isfinite(f) and f > 0 for f in factors if f is not None)


# ---- the speed of the machine ----


@functools.cache
def speed_of(device: jax.Device) -> Speed:
    """Measure the present speed of a device, beside the other work that it does: once for the
    process.

    Two programs are compiled side by side, as those of a unit are, so that the ratio holds for the
    number of cores that there are.
    """
    numbers = np.random.default_rng(0).random((LANES, STEPS), np.float32)
    uniforms = jax.device_put(numbers, device)
    with compilation.compiling("full"):
        (program, _), compiling = compilation.compile_together(
            lambda: compilation.compile_once(_learn_on_a_ring, uniforms),
            lambda: compilation.compile_once(_learn_on_a_ring, uniforms[1:]),  # nearly the same
        )
    seconds = list[float]()
    while sum(seconds) < PLAYING_SECONDS:
        seconds.append(timed(program.call, uniforms)[1])
    return Speed(compiling / COMPILING, statistics.mean(seconds) / PLAYING)


def _learn_on_a_ring(uniforms: Array) -> Array:
    """Return the rewards of learners of action values on a ring of states.

    Args:
      uniforms: [n, STEPS] float32.

    Returns: [n] float32.
    """

    def step(carry: tuple[Any, Any], uniform: Array) -> tuple[tuple[Any, Any], Array]:
        values, state = carry
        action = jnp.argmax(values[state] + jnp.sin(uniform * values[state]))
        slips = (jnp.linspace(0.1, 0.9, STATES) < uniform).sum()
        next_state = (state + action + slips).astype(jnp.int32) % STATES
        reward = jnp.where(next_state == 0, 1.0, jnp.exp(-uniform))
        error = reward + 0.9 * values[next_state].max() - values[state, action]
        return (values.at[state, action].add(0.1 * error), next_state), reward

    def lane(uniforms: Array) -> Array:
        begun = jnp.zeros((STATES, ACTIONS)), jnp.int32(0)
        return lax.scan(step, begun, uniforms)[1].sum()

    return jax.vmap(lane)(uniforms)
