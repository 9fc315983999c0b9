"""Rough rule for the cost of a unit of work, from the operations of its agent.

The rule is proportional to the cost that an agent declares. Its error is measured, by short runs
(`study.cost.calibration`) or by earlier results (`study.plan`); without either, times are
those of its constants, which hold for one core, times the speed of the machine
(`study.cost.yardstick`).
"""

import math
from collections.abc import Sequence

import jax
import numpy as np

from jbrl.environments.spec import Box
from jbrl.play import compilation
from jbrl.play.batching import lanes_per_device
from jbrl.play.lifetimes import group_width
from jbrl.play.protocol import Protocol
from jbrl.play.unit import LATENCY_STEPS, LATENCY_TRAJECTORIES, Unit
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


def decision_seconds(agent: Agent, protocol: Protocol) -> float:
    """Estimate the seconds of one decision in one lifetime, on one device: the rough rule."""
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
    """Estimate the seconds of a search on the prior: the rough rule, on any number of devices; 0
    for agents that do not search.
    """
    if not isinstance(agent, OfflineSearch):
        return 0.0
    stated = agent.search_seconds(protocol.agent_prior())
    if stated is not None:
        return stated
    each = SECONDS_PER_TRIED_DECISION + entries(protocol) * SECONDS_PER_TRIED_ENTRY
    return (agent.budget + FIRST_PULLS) * protocol.horizon * each


def lane_decisions(unit: Unit, devices: list[jax.Device]) -> float:
    """Return the decisions that one device takes, lanes that do not count included: a call always
    plays all its lanes.
    """
    protocol = unit.protocol
    if protocol.in_blocks:
        each = -(-protocol.n_environments // len(devices))
        if devices[0].platform == "cpu" and not protocol.together:
            lane_bytes = cost(unit.agent, protocol.agent_prior()).lane_bytes
            width = group_width(unit.agent, lane_bytes or 16 * entries(protocol))
            each = -(-each // width) * width
        return each * protocol.expected_steps
    lanes = lanes_per_device(unit.agent, protocol.n_environments, devices)
    whole, rest = divmod(protocol.n_environments, unit.chunk or protocol.n_environments)
    calls = sum(
        -(-n // (lanes * len(devices))) * times
        for n, times in ((unit.chunk or protocol.n_environments, whole), (rest, 1))
    )
    return calls * lanes * protocol.horizon


def fewest_lanes(agent: Agent, protocol: Protocol) -> int:
    """Return lifetimes that cost each as much as all lanes of a device do, so that a few give the
    time of many.
    """
    return cost(agent, protocol.agent_prior()).fewest_lanes or agent.lanes


def lone_seconds(unit: Unit, decision: float) -> float:
    """Estimate the seconds of the decisions that latency is measured by; `decision` is the time of
    one among others, on one device.
    """
    alone = fewest_lanes(unit.agent, unit.protocol) == 1
    decisions = LATENCY_TRAJECTORIES * (
        LATENCY_STEPS if unit.protocol.in_blocks else unit.protocol.horizon
    )
    return unit.latency * decisions * decision * (1.0 if alone else SLOWER_ALONE)


def memory_bytes(
    agent: Agent, protocol: Protocol, lanes: int, devices: Sequence[jax.Device]
) -> int:
    """Estimate the bytes that a call takes on each device, by the rough rule.

    Environments, a belief and a plan or a table; 16 bytes for each decision; the states of one
    group of lanes, where agents state their size.
    """
    decisions = LATENCY_STEPS if protocol.in_blocks else protocol.horizon
    found = cost(agent, protocol.agent_prior())
    on_cpu = devices[0].platform == "cpu"
    group = group_width(agent, found.lane_bytes) if protocol.in_blocks and on_cpu else lanes
    return (
        lanes * (16 * entries(protocol) + 16 * decisions)
        + found.memory_bytes
        + min(group, lanes) * found.lane_bytes
    )


def compile_seconds(agent: Agent, protocol: Protocol) -> float:
    """Estimate the seconds that it takes to compile the programs of a unit: the rough rule."""
    plain = SECONDS_TO_COMPILE_BLOCKS if protocol.in_blocks else SECONDS_TO_COMPILE
    searching = COMPILING_A_SEARCH if isinstance(agent, OfflineSearch) else 1.0
    quickly = COMPILING_QUICKLY if compilation.options_name("cpu") == "quick" else 1.0
    return plain * searching * quickly * cost(agent, protocol.agent_prior()).compiling


def program(unit: Unit) -> tuple:
    """Return a key of the programs that a unit is compiled to, except those that only one unit of
    an experiment needs.
    """
    protocol = unit.protocol
    leaves, structure = jax.tree.flatten(
        (unit.agent, protocol.test_prior(), protocol.test.recorder)
    )
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    return unit.algorithm, structure, shapes, protocol.lifetime, unit.record
