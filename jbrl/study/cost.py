"""Cost of units of work: what one is expected to take, what it has taken, and the time left of a
run.

The rough rule is proportional to the cost that an agent declares. Its constants hold for one core
of one machine; by how much it is off is measured (`study.calibration`).
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jbrl.environments.spec import Box
from jbrl.play import compilation
from jbrl.play.batching import lanes_on_cpu, lanes_per_device
from jbrl.play.lifetimes import COPIES, group_width, lane_bytes, layout
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources
from jbrl.play.unit import LATENCY_DECISIONS, Unit
from jbrl.problems.problem import DirichletProblem
from jbrl.rollout.contract import SECONDS_PER_STEP, Agent, OfflineSearch, cost

SECONDS_PER_DECISION = 5e-8
SECONDS_PER_ENTRY = 3e-10  # of the transition tensor, for one decision
SECONDS_PER_TRIED_DECISION = 1.7e-7  # of a strategy that a search tries
SECONDS_PER_TRIED_ENTRY = 5e-10
FIRST_PULLS = 400  # trajectories that take as long as getting a search going
SECONDS_TO_COMPILE = 4.0  # the programs of a plain learner in finite MDPs
SECONDS_TO_COMPILE_BLOCKS = 2.3  # the same in blocks of steps
COMPILING_QUICKLY = 0.6  # times as long
COMPILING_A_SEARCH = 3.0  # times as long, for programs that try strategies or train
SECONDS_PER_UNIT = 0.1  # files, tables, drawing MDPs
SLOWER_ALONE = 8.0  # a decision for one MDP alone, beside its share in one for many

PROCESS_BYTES = 350 << 20  # of Python and its libraries
# of the compiler while it runs, and of the programs of an agent in one kind of environment
COMPILER_BYTES = {"full": 300 << 20, "quick": 50 << 20}
PROGRAM_BYTES = {"full": 50 << 20, "quick": 30 << 20}
MOST_PROGRAMS = 100  # then those that are not in use are forgotten, to free mappings

# Of all that is expected, so much counts as having taken what was expected, so that the first
# units, which are small, do not decide alone.
PRIOR_SHARE = 0.01
LOAD_SECONDS = 60.0  # that the load average covers


@dataclass(frozen=True, kw_only=True)
class UnitCost:
    """Wall seconds of the parts of a unit."""

    compiling: float = 0.0
    searching: float = 0.0  # all that happens offline
    deciding: float = 0.0
    waiting: float = 0.0  # for decisions one at a time, where latency is measured
    other: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compiling + self.searching + self.deciding + self.waiting + self.other


# ---- the rough rule ----


def decision_seconds(agent: Agent, protocol: Protocol) -> float:
    """Estimate the seconds of one decision in one lifetime, on one device."""
    steps = cost(agent, protocol.agent_prior()).steps
    return SECONDS_PER_DECISION + entries(protocol) * SECONDS_PER_ENTRY + steps * SECONDS_PER_STEP


def entries(protocol: Protocol) -> int:
    """Return numbers that an environment is made of, or that a table of its action values has."""
    test = protocol.test
    if isinstance(test, DirichletProblem):
        return int(test.mdps.concentrations.size)
    observation = test.spec.observation
    return test.spec.actions.n * (
        math.prod(observation.shape) if isinstance(observation, Box) else observation.n
    )


def search_seconds(agent: Agent, protocol: Protocol) -> float:
    """Estimate the seconds of a search on the prior, on any number of devices; 0 for agents that do
    not search.
    """
    if not isinstance(agent, OfflineSearch):
        return 0.0
    stated = agent.search_seconds(protocol.agent_prior())
    if stated is not None:
        return stated
    each = SECONDS_PER_TRIED_DECISION + entries(protocol) * SECONDS_PER_TRIED_ENTRY
    return (agent.budget + FIRST_PULLS) * protocol.horizon * each


def lane_decisions(unit: Unit, devices: Sequence[jax.Device]) -> float:
    """Return the decisions that one device takes, lanes that do not count included: a call always
    plays all its lanes.
    """
    protocol = unit.protocol
    if protocol.in_blocks:
        each = -(-protocol.n_environments // len(devices))
        if devices[0].platform == "cpu" and not protocol.together:
            state = lane_bytes(unit.agent, protocol) or 16 * entries(protocol)
            width = group_width(unit.agent, state)
            each = -(-each // width) * width
        return each * protocol.expected_steps
    lanes = lanes_per_device(unit.agent, protocol.test, protocol.n_environments, devices)
    size = unit.chunk or protocol.n_environments
    whole, rest = divmod(protocol.n_environments, size)
    calls = sum(-(-n // (lanes * len(devices))) * times for n, times in ((size, whole), (rest, 1)))
    return calls * lanes * protocol.horizon


def fewest_lanes(agent: Agent, protocol: Protocol) -> int:
    """Return lifetimes that cost each as much as all lanes of a device do, so that a few give the
    time of many.
    """
    return cost(agent, protocol.agent_prior()).fewest_lanes or lanes_on_cpu(agent, protocol.test)


def lone_seconds(unit: Unit, decision: float) -> float:
    """Estimate the seconds of the decisions that latency is measured by; `decision` is the time of
    one among others, on one device.
    """
    alone = fewest_lanes(unit.agent, unit.protocol) == 1
    return unit.latency * LATENCY_DECISIONS * decision * (1.0 if alone else SLOWER_ALONE)


def memory_bytes(agent: Agent, protocol: Protocol, lanes: int) -> int:
    """Estimate the bytes that a call takes on each device.

    The states of all lanes; environments, a belief and a plan or a table; 16 bytes for each
    decision.
    """
    decisions = LATENCY_DECISIONS if protocol.in_blocks else protocol.horizon
    each = 16 * entries(protocol) + 16 * decisions + lane_bytes(agent, protocol)
    return lanes * each + cost(agent, protocol.agent_prior()).memory_bytes


def bytes_at_once(unit: Unit, n: int, factor: float, resources: Resources) -> float:
    """Estimate the bytes on all devices of playing a unit, beside others of its program, or of its
    training, where this takes more.

    Args:
      n: lifetimes of all that are played beside it, its own included.
      factor: measured bytes of a call, for one of `memory_bytes`.
    """
    agent, protocol, devices = unit.agent, unit.protocol, resources.devices
    search = 0
    if isinstance(agent, OfflineSearch):
        search = agent.search_bytes(protocol.agent_prior())
    if not protocol.in_blocks:
        lanes = lanes_per_device(agent, protocol.test, protocol.n_environments, devices)
        return max(search, factor * memory_bytes(agent, protocol, lanes) * len(devices))
    state = lane_bytes(agent, protocol)
    found = layout(agent, protocol, state, n, resources)
    call = factor * memory_bytes(agent, protocol, found.width * found.groups)
    return max(search, call * found.devices, COPIES * state * found.lanes)


def process_bytes(estimates: Iterable[UnitCost]) -> int:
    """Estimate the bytes that a process takes beside the arrays of units, by what these cost: more
    for each of them that has to be compiled.
    """
    effort = compilation.present_effort()
    programs = min(sum(cost.compiling > 0 for cost in estimates), MOST_PROGRAMS)
    return PROCESS_BYTES + COMPILER_BYTES[effort] + PROGRAM_BYTES[effort] * programs


def compile_seconds(agent: Agent, protocol: Protocol) -> float:
    """Estimate the seconds that it takes to compile the programs of a unit."""
    plain = SECONDS_TO_COMPILE_BLOCKS if protocol.in_blocks else SECONDS_TO_COMPILE
    more = cost(agent, protocol.agent_prior()).compiling - 1  # whatever plays it
    searching = COMPILING_A_SEARCH if isinstance(agent, OfflineSearch) else 1.0
    quickly = COMPILING_QUICKLY if compilation.options_name("cpu") == "quick" else 1.0
    return (plain + more * SECONDS_TO_COMPILE_BLOCKS) * searching * quickly


def program(unit: Unit) -> tuple[Any, ...]:
    """Return a key of the programs that a unit is compiled to, except those that only one unit of
    an experiment needs.
    """
    protocol = unit.protocol
    leaves, structure = jax.tree.flatten(
        (unit.agent, protocol.test_prior(), protocol.test.recorder)
    )
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    return unit.algorithm, structure, shapes, protocol.lifetime, unit.record


# ---- what it has taken ----


def actual(header: Mapping[str, Any], *, searched: bool) -> UnitCost:
    """Return the cost of a finished unit, by the header of its result.

    Args:
      searched: whether its search counts; one search serves all units with the same knowledge.
    """
    horizon = header["configuration"].get("horizon", 0)
    decisions = header.get("decisions") or header["n"] * horizon
    return UnitCost(
        compiling=header.get("compile_seconds") or 0.0,
        searching=header["offline_seconds"] if searched else 0.0,
        deciding=header["online_seconds"] * decisions,
        waiting=(header.get("latency_seconds") or 0.0) * LATENCY_DECISIONS,
    )


# ---- the time left ----


class TimeLeft:
    """Estimate of the time left of a run.

    What is left takes as much longer or shorter than expected as what is done, parts of units
    included, compilation and all else apart: they err for different reasons.

    Args:
      expected: cost of each unit to run, by its id.
      clock: returns seconds.
    """

    def __init__(
        self, expected: Mapping[str, UnitCost], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._left, self._clock = dict(expected), clock
        self._began = self._last = self._heard = clock()
        # of units that have begun: seconds that what is done of them was expected to take and took
        # without compilation, and seconds that the rest is expected to take
        self._parts: dict[str, tuple[float, float, float]] = {}
        self._whole, self._done = _parts(expected.values()), np.zeros(2)
        self._compiling = 0.0

    def skipped(self, ids: Iterable[str]) -> None:
        """Leave out units that other processes have run."""
        for id in ids:
            self._left.pop(id, None)

    def advanced(self, id: str, share: float, seconds: float, *, searching: bool = False) -> None:
        """Note that a share of the decisions of a unit is taken, or of its search done, and the
        seconds that it took.
        """
        cost = self._left.get(id)
        if cost:
            done = share * (cost.searching if searching else cost.deciding)
            rest = cost.seconds - cost.compiling - done - (0.0 if searching else cost.searching)
            self._parts[id] = (done, seconds, rest)
        self._heard = self._clock()

    def finished(self, id: str, compiling: float) -> None:
        """Note that a unit is done, or has failed, and the seconds that were spent compiling."""
        if id in self._left:
            self._done = self._done + _parts([self._left.pop(id)])
        self._parts.pop(id, None)
        self._compiling += compiling
        self._last = self._heard = self._clock()

    def seconds(self) -> float:
        """Return the wall seconds left."""
        elapsed = max(0.0, self._last - self._began)
        compiling = min(self._compiling, elapsed)
        begun = {id: part for id, part in self._parts.items() if id in self._left}
        done, took, rest = np.array([*begun.values()]).reshape(-1, 3).sum(0)
        prior = PRIOR_SHARE * self._whole
        taken = np.array([compiling, elapsed - compiling + took]) + prior
        expected = self._done + np.array([0.0, done]) + prior
        times = np.divide(taken, expected, out=np.ones(2), where=expected > 0)
        fresh = _parts(cost for id, cost in self._left.items() if id not in begun)
        left = float((fresh + np.array([0.0, rest])) @ times)
        return max(0.0, left - max(0.0, self._clock() - self._heard))


def _parts(costs: Iterable[UnitCost]) -> np.ndarray:
    """Return the seconds of compilation, and all others: [2] float64."""
    return np.array([(c.compiling, c.seconds - c.compiling) for c in costs]).reshape(-1, 2).sum(0)


def busy_text(load: float, cores: int, own: float = 0.0) -> str:
    """Return what to say after a time if other programs keep the machine busy, with more threads
    than there are cores; otherwise "".

    Args:
      load: threads of all programs that run or wait, the mean of the last minute.
      cores: of the machine.
      own: seconds of processor time that this process has taken, in the last minute or before.
    """
    others = load - min(own / LOAD_SECONDS, cores)
    busy = f" while this machine is busy, load {others:.0f} on {cores} cores"
    return busy if others > cores else ""


def present_busy_text() -> str:
    """Return `busy_text` of this machine; "" where the system does not say."""
    if not hasattr(os, "getloadavg"):
        return ""
    return busy_text(os.getloadavg()[0], os.cpu_count() or 1, time.process_time())
