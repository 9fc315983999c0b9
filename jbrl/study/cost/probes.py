"""Short runs that measure the cost of long ones: their choice, and their execution."""

import dataclasses
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jbrl.environments.spec import Steps
from jbrl.play.machine import resident_bytes
from jbrl.play.play import make_run
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources
from jbrl.play.unit import Unit, canonical
from jbrl.rollout.contract import Agent, OfflineSearch
from jbrl.rollout.episodes import BLOCK
from jbrl.study.cost import estimates

SECONDS = 0.4  # that a short run may take by the rough rule, without compilation
TOO_LONG = 10.0  # times as long: only when nothing shorter is left
MAX_PROBES = 6  # of an algorithm in an experiment
MAX_PROGRAMS = 3  # to compile for them
ALIKE = 2.0  # the rough rule distinguishes units when one takes so many times as long as another
REPETITIONS = 3
BLOCKS_PROBED = 4  # of a lifetime in blocks
TELLING = 0.05  # seconds from which on CPU time says how busy the machine is


@dataclasses.dataclass(frozen=True)
class Probe:
    """A short run: fewer MDPs, fewer decisions, a smaller budget of a search, where the unit itself
    would take too long.
    """

    unit: Unit
    agent: Agent
    lanes: int | None  # of each device; None: as always
    horizon: int

    @property
    def parameters(self) -> dict[str, Any]:
        """Those of the unit, but for the budget."""
        budget = {"budget": self.agent.budget} if isinstance(self.agent, OfflineSearch) else {}
        return {**self.unit.parameters, **budget}

    @property
    def protocol(self) -> Protocol:
        return dataclasses.replace(self.unit.protocol, lifetime=Steps(self.horizon))

    def expected(self) -> float:
        """Return seconds by the rough rule, without compilation."""
        lanes = self.lanes or self.agent.lanes
        playing = lanes * self.horizon * estimates.decision_seconds(self.agent, self.unit.protocol)
        return playing + estimates.search_seconds(self.agent, self.protocol)


@dataclasses.dataclass(frozen=True)
class Measured:
    """Result of a short run: ratios to the rough rule."""

    parameters: dict[str, Any]
    decision: float  # seconds of a decision
    search: float | None  # seconds of a search; None: there is none
    memory: float  # bytes that a call takes
    compile_seconds: float | None  # None: the program was there
    resident_bytes: float | None  # by which the process has grown, as far as the system says
    # how many times longer it took because the machine did other things; None: too short to measure
    busy: float | None = None

    def alone(self, busy: float) -> "Measured":
        """Return the result without the machine's other work; `busy` is used unless the run has
        measured its own.
        """
        times = self.busy or busy
        return dataclasses.replace(
            self,
            decision=self.decision / times,
            search=self.search and self.search / times,
            compile_seconds=self.compile_seconds and self.compile_seconds / times,
            busy=times,
        )


def probe(unit: Unit, devices: Sequence[jax.Device]) -> Probe:
    """Return the short run for a unit: first fewer MDPs, while the cost of each stays the same,
    then fewer decisions.
    """
    agent, protocol = unit.agent, unit.protocol
    if isinstance(agent, OfflineSearch):
        each = estimates.search_seconds(agent, protocol) / (agent.budget + estimates.FIRST_PULLS)
        budget: Any = {
            "budget": max(1, min(agent.budget, int(SECONDS / each) - estimates.FIRST_PULLS))
        }
        return Probe(unit, dataclasses.replace(agent, **budget), None, protocol.horizon)  # type: ignore[type-var]
    if protocol.in_blocks:
        return Probe(unit, agent, None, BLOCKS_PROBED * BLOCK)
    if devices[0].platform != "cpu":  # a call takes as long with few MDPs as with many
        return Probe(unit, agent, None, protocol.horizon)
    each = estimates.decision_seconds(agent, protocol)
    fewest = estimates.fewest_lanes(agent, protocol)
    lanes = int(np.clip(SECONDS / (each * protocol.horizon), fewest, agent.lanes))
    share = SECONDS / (each * lanes * protocol.horizon)
    # Few different horizons, because each is a program to compile.
    horizons = [protocol.horizon, *(h for h in (50, 10, 2) if h < protocol.horizon)]
    horizon = next((h for h in horizons if h <= 2 * share * protocol.horizon), horizons[-1])
    return Probe(unit, agent, None if lanes == agent.lanes else lanes, horizon)


def choose(units: Sequence[Unit], devices: Sequence[jax.Device]) -> list[Probe]:
    """Return short runs for units of one algorithm in one experiment: one if they cost the same, or
    else some that lie far apart.
    """
    found = {canonical(p.parameters): p for p in (probe(unit, devices) for unit in units)}
    seconds = {key: p.expected() for key, p in found.items()}
    cheapest = min(seconds, key=lambda key: seconds[key])
    worth = {key: _worth(p) for key, p in found.items()}
    if max(worth.values()) < ALIKE * min(worth.values()):
        return [found[cheapest]]
    candidates = [key for key in found if seconds[key] < TOO_LONG * SECONDS] or [cheapest]
    place = coordinates(
        [found[key].parameters for key in candidates], [worth[key] for key in candidates]
    )
    short = [key for key in candidates if seconds[key] < 2 * SECONDS] or candidates
    # if it remains the only one, measure what takes long
    first = max(short, key=lambda key: worth[key])
    chosen, programs = [candidates.index(first)], {_program(found[first])}
    while len(chosen) < MAX_PROBES:
        far = np.linalg.norm(place[:, None] - place[chosen][None], axis=-1).min(1)
        for n, key in enumerate(candidates):
            if len(programs) == MAX_PROGRAMS and _program(found[key]) not in programs:
                far[n] = 0.0
        if not far.max() > 0:
            break
        chosen.append(int(far.argmax()))
        programs.add(_program(found[candidates[chosen[-1]]]))
    return [found[candidates[n]] for n in chosen]


def _worth(chosen: Probe) -> float:
    """Return the quantity that distinguishes units: the rough rule for a decision plus that for a
    search.
    """
    return estimates.decision_seconds(
        chosen.agent, chosen.unit.protocol
    ) + estimates.search_seconds(chosen.agent, chosen.unit.protocol)


def _program(chosen: Probe) -> tuple:
    return *estimates.program(chosen.unit), chosen.lanes, chosen.horizon


def coordinates(parameters: Sequence[dict[str, Any]], worth: Sequence[float]) -> np.ndarray:
    """Return places of parameter values, [n, d]: numbers by their rank from 0 to 1, all else 1
    apart, and the logarithm of `worth` from 0 to 1.
    """
    columns = [_scaled(np.log(np.asarray(worth, float)))]
    for name in parameters[0]:
        values = [p.get(name) for p in parameters]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            columns.append(
                _scaled(np.unique(np.asarray(values, float), return_inverse=True)[1].astype(float))
            )
        else:
            texts = np.array([canonical(v) for v in values])
            columns += [(texts == text) / math.sqrt(2) for text in np.unique(texts)]
    return np.stack(columns, axis=-1)


def _scaled(values: np.ndarray) -> np.ndarray:
    spread = values.max() - values.min()
    return (values - values.min()) / spread if spread > 0 else np.zeros_like(values)


def measure(chosen: Probe, devices: list[jax.Device]) -> Measured:
    """Make a short run.

    Raises:
      Exception: any exception of the agent.
    """
    agent, protocol = chosen.agent, chosen.protocol
    before = resident_bytes()
    run = make_run(agent, protocol, resources=Resources(devices), lanes=chosen.lanes)
    run.prepare()
    wall, cpu, seconds = time.perf_counter(), time.process_time(), list[float]()
    while len(seconds) < REPETITIONS and sum(seconds) < SECONDS:
        chunk = next(run.chunks())
        seconds.append(chunk.online_seconds)
    busy = busyness(time.perf_counter() - wall, time.process_time() - cpu, run.devices)
    lanes, grown = run.batch // len(run.devices), resident_bytes() - before
    played = chunk.decisions / len(run.devices) if protocol.in_blocks else lanes * protocol.horizon
    decision = statistics.median(seconds) / played
    return Measured(
        parameters=chosen.parameters,
        decision=decision / estimates.decision_seconds(agent, chosen.unit.protocol),
        search=run.learned.seconds / estimates.search_seconds(agent, protocol)
        if run.learned
        else None,
        memory=run.bytes_per_device / estimates.memory_bytes(agent, protocol, lanes, devices),
        compile_seconds=run.compile_seconds or None,
        resident_bytes=max(0, grown) if before and run.compile_seconds else None,
        busy=busy,
    )


def busyness(wall: float, cpu: float, devices: Sequence[jax.Device]) -> float | None:
    """Estimate how many times longer a run has taken than on an idle machine, when all its CPU
    devices work all the time; None: unknown.

    Args:
      wall, cpu: seconds of the run, and of all its threads together.
    """
    if devices[0].platform != "cpu" or wall < TELLING or not cpu > 0:
        return None
    return max(1.0, wall * len(devices) / cpu)
