"""What a unit of work costs: a rough rule, from what its agent does.

The rule is proportional to what an agent says of itself. How far it is off is measured, by short runs (`runner.calibration`) or by earlier
results (`runner.plan`); without either, its constants hold for one core of two, in 2026.
"""

import jax

from jbrl.agents.agent import Agent
from jbrl.agents.searcher import Searcher
from jbrl.runner.play.batching import lanes_per_device
from jbrl.runner.play.experiment import Protocol
from jbrl.runner.storage.unit import LATENCY_TRAJECTORIES, Unit

SECONDS_PER_DECISION = 5e-8
SECONDS_PER_ENTRY = 3e-10  # of the transition tensor, for one decision
SECONDS_PER_STEP = 4e-8  # of `Agent.simulated_steps`
SECONDS_PER_TRIED_DECISION = 1e-7  # of a strategy that a search tries
SECONDS_PER_TRIED_ENTRY = 5e-10
FIRST_PULLS = 400  # trajectories that take as long as getting a search going
SECONDS_TO_COMPILE = 2.0  # one program
SECONDS_PER_UNIT = 0.1  # files, tables, drawing MDPs
SLOWER_ALONE = 8.0  # a decision for one MDP alone, beside its share in one for many


def decision_seconds(agent: Agent, protocol: Protocol) -> float:
    """Of one decision on one MDP, on one device: the rough rule."""
    entries = protocol.test.mdps.concentrations.size
    return SECONDS_PER_DECISION + entries * SECONDS_PER_ENTRY + agent.simulated_steps(protocol.prior.mdps) * SECONDS_PER_STEP


def search_seconds(agent: Agent, protocol: Protocol) -> float:
    """Of a search on the prior: the rough rule, on however many devices; 0 for agents that do not search."""
    if not isinstance(agent, Searcher):
        return 0.0
    entries = protocol.prior.mdps.concentrations.size
    return (agent.budget + FIRST_PULLS) * protocol.horizon * (SECONDS_PER_TRIED_DECISION + entries * SECONDS_PER_TRIED_ENTRY)


def lane_decisions(unit: Unit, devices: list[jax.Device]) -> int:
    """Decisions that one device takes, lanes that do not count included: a call always plays all its lanes."""
    protocol = unit.protocol
    lanes = lanes_per_device(unit.agent, protocol.n_mdps, devices)
    whole, rest = divmod(protocol.n_mdps, unit.chunk or protocol.n_mdps)
    calls = sum(-(-n // (lanes * len(devices))) * times for n, times in ((unit.chunk or protocol.n_mdps, whole), (rest, 1)))
    return calls * lanes * protocol.horizon


def lone_seconds(unit: Unit, decision: float) -> float:
    """Of the decisions that latency is measured by; `decision` is what one takes in company, on one device."""
    alone = unit.agent.fewest_lanes(unit.protocol.test.mdps.n_actions) == 1
    return unit.latency * LATENCY_TRAJECTORIES * unit.protocol.horizon * decision * (1.0 if alone else SLOWER_ALONE)


def memory_bytes(agent: Agent, protocol: Protocol, lanes: int) -> int:
    """That a call takes on each device: the rough rule. MDPs, their cumulative form, a belief and a plan; 16 bytes for each decision."""
    mdps = protocol.test.mdps
    return lanes * (16 * mdps.concentrations.size + 16 * protocol.horizon) + agent.bytes_needed(mdps.n_states, mdps.n_actions)


def program(unit: Unit) -> tuple:
    """What tells apart the programs that units are compiled to, but for what only one of them in an experiment needs."""
    protocol = unit.protocol
    return unit.algorithm, jax.tree.structure(unit.agent), protocol.test.mdps.concentrations.shape, protocol.horizon, unit.record
