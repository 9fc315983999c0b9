"""A portfolio: settings of agents of all families that suit a problem and its limits of time."""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jbrl.agents.complete import is_oracle, plain_parameters, played_agent
from jbrl.agents.registry import AGENTS, shown_name
from jbrl.base.errors import JbrlError
from jbrl.play.batching import lanes_on_cpu
from jbrl.play.lifetimes import group_width, lane_bytes
from jbrl.play.protocol import Protocol
from jbrl.problems.hosted import HostProblem
from jbrl.problems.prior import DirichletPrior
from jbrl.problems.problem import DirichletProblem
from jbrl.rollout.contract import Agent, MadeOfWeights, OfflineSearch, cost
from jbrl.study.cost import compile_seconds, decision_seconds, search_seconds

# of agents that the rule of one setting does not serve
SETTINGS: dict[str, dict[str, tuple[Any, ...]]] = {
    "e-Greedy": {"epsilon": (0.0, 0.05, 0.2)},
    "BEB": {"beta": (0.25, 1.0, 4.0, 16.0)},
    "Look-ahead": {"beta": (0.0, 1.0)},
    "Soft-max": {"tau": (0.05, 0.2, 0.6)},
    "VDBE-e-Greedy": {"sigma": (1.0, 10.0), "delta": (0.01,), "epsilon0": (0.5,)},
    "PSRL": {"period": (5, 20)},
    "Q-learning": {"alpha": (0.1, 0.5)},
    "Sarsa": {"alpha": (0.1, 0.5)},
    "SBOSS": {"epsilon": (0.1,), "delta": (5.0,)},
    "BOSS": {"sampled": (5,)},
}
# parameters that buy a better agent for more time: offline and per decision
BUDGETS: dict[str, tuple[str, tuple[int, ...]]] = {
    "OPPS-DS": ("budget", (1_000, 10_000, 100_000, 1_000_000)),
    "OPPS-CS": ("budget", (5_000, 50_000, 500_000)),
    "ANN": ("budget", (20_000, 200_000)),
    "BeliefPPO": ("budget", (20_000, 100_000, 500_000)),
    "DPT": ("budget", (1_000, 10_000, 40_000, 200_000)),
    "RL2": ("budget", (20_000, 100_000, 500_000)),
    "BAMCP": ("simulations", (10, 50, 250, 1_000, 4_000, 16_000)),
    "BFS3": ("trajectories", (5, 15, 50, 150)),
}
# where rewards are rare, networks need the values of the mean model (docs/trained.md)
RARE = 0.05  # of the possible transitions, that pay
SEES_A_MODEL = {"DPT": "mean and belief", "BeliefPPO": "mean and belief"}
SOONEST = "e-Greedy"  # is ready soon, and seldom far from the best where there is a Dirichlet prior
OPENING = 16  # lifetimes that the order of candidates is judged by
# times longer that a candidate seems to take which leaves a Dirichlet prior unused: in the
# studies of finite MDPs such agents hardly come to learn (docs/published-comparison.md)
UNLIKELY = 4.0
# the best, or tied with it, in most cells of the comparison, of the price of time, or of the
# brackets (docs/which-agent.md, docs/trained.md, docs/bounds.md), and times longer that they seem
FAVOURED = ("BEB", "OPPS-DS", "DPT", "Look-ahead", "BeliefPPO")
LIKELY = 0.2
SHARE = 0.5  # of a limit that a budget may be expected to take
HOPELESS = 10.0  # times a limit: what is expected to take longer is not tried
REFERENCES = ("Random", "Optimal", "Scripted")


class Candidate(NamedTuple):
    """A setting of an agent, and what it is expected to take, in seconds."""

    name: str  # with the parameters that are not the defaults
    agent: Agent
    compiling: float
    searching: float
    decision: float  # on one device, among others
    lanes: int  # that a device plays at once, whether they are needed or not
    blind: bool  # leaves unused what the prior says

    def playing(self, n: int, steps: float, devices: int, decision: float = 0.0) -> float:
        """Return the seconds that n lifetimes of so many steps are expected to take.

        Args:
          decision: that one is known to take by itself.
        """
        together = max(n, devices * self.lanes)
        return steps * max(self.decision * together, decision * n) / devices


def portfolio(protocol: Protocol, offline: float, online: float) -> list[Candidate]:
    """Return the settings that suit a problem, those that are ready soonest first, one
    of each family before further ones, those earlier that are often the best, and those later that
    leave a Dirichlet prior unused.

    Args:
      offline, online: limits, seconds before the first decision and per decision.
    """
    found = []
    for name, entry in AGENTS.items():
        agent = entry.agent()
        if is_reference(agent) or name.endswith("-published"):
            continue
        if not suits(agent, name, protocol):
            continue
        found += [candidate(one, protocol) for one in _settings(name, protocol, offline, online)]
    return in_order(found, protocol)


def in_order(found: Sequence[Candidate], protocol: Protocol) -> list[Candidate]:
    """Return candidates in the order of `portfolio`, behind one that answers soon and well."""
    steps, devices = protocol.expected_steps, len(jax.devices())
    earlier = collections.Counter[type]()
    ranks = {}
    for one in found:
        earlier[type(one.agent)] += 1  # all families come before further settings of one
        seconds = one.compiling + one.searching + one.playing(OPENING, steps, devices)
        likely = LIKELY if shown_name(one.agent) in FAVOURED else UNLIKELY if one.blind else 1.0
        ranks[one.name] = seconds * earlier[type(one.agent)] * likely
    answers = next((one.name for one in found if shown_name(one.agent) == SOONEST), None)
    return sorted(found, key=lambda one: (one.name != answers, ranks[one.name]))


def candidate(agent: Agent, protocol: Protocol, name: str = "") -> Candidate:
    """Return an agent as a candidate."""
    informed = issubclass(agent.requires.prior, DirichletPrior) or isinstance(agent, OfflineSearch)
    lanes = 1 if isinstance(protocol.test, HostProblem) else lanes_on_cpu(agent, protocol.test)
    if protocol.in_blocks and lanes > 1:
        lanes = group_width(agent, lane_bytes(agent, protocol))
    return Candidate(
        name or setting_name(agent),
        agent,
        compile_seconds(agent, protocol),
        search_seconds(agent, protocol),
        decision_seconds(agent, protocol),
        lanes,
        isinstance(protocol.prior, DirichletProblem) and not informed,
    )


def setting_name(agent: Agent) -> str:
    """Return the name of an agent with the parameters that are not the defaults, apart from
    capacities that it has made itself.
    """
    if isinstance(agent, MadeOfWeights):
        return type(agent).__name__
    played: Any = played_agent(agent)
    defaults = {f.name: f.default for f in dataclasses.fields(played)}
    capacities = [name for name in defaults if name.startswith("max_")]
    free = {name: getattr(played, name) for name in defaults if name not in capacities}
    own = type(played)(**free) if capacities else played
    usual = defaults | {name: getattr(own, name) for name in capacities}
    given = {
        name: value for name, value in plain_parameters(agent).items() if value != usual.get(name)
    }
    values = ", ".join(f"{name}={value}" for name, value in given.items())
    return f"{shown_name(agent)}({values})" if values else shown_name(agent)


def is_reference(agent: Agent) -> bool:
    """Return whether an agent is a reference line, and no candidate."""
    return shown_name(agent) in REFERENCES or is_oracle(agent)


def suits(agent: Agent, name: str, protocol: Protocol) -> bool:
    """Return whether an agent can play the problem."""
    try:
        protocol.check_agent(agent, name)
        cost(agent, protocol.agent_prior())
    except JbrlError:
        return False
    return True


def _settings(name: str, protocol: Protocol, offline: float, online: float) -> Iterator[Agent]:
    cls = AGENTS[name].agent
    if name in BUDGETS:
        field, values = BUDGETS[name]
        inputs = _inputs(name, protocol)
        agents = [_made(cls, {field: value, **inputs}) for value in values]
        fitting = [
            agent
            for agent in agents
            if search_seconds(agent, protocol) <= SHARE * offline
            and decision_seconds(agent, protocol) <= SHARE * online
        ]
        # the greatest budget that fits, one before it, which is there sooner, and one that may tell
        # what looser limits would bring
        first = max(0, len(fitting) - 2)
        yield from agents[first : len(fitting) + 1]
        return
    grid = SETTINGS.get(name, {})
    for values in itertools.product(*grid.values()):
        yield _made(cls, dict(zip(grid, values, strict=True)))


def _inputs(name: str, protocol: Protocol) -> dict[str, Any]:
    """Return what a network sees, where the default does not serve."""
    test = protocol.test
    if name not in SEES_A_MODEL or not isinstance(test, DirichletProblem):
        return {}
    rewards, possible = np.asarray(test.mdps.rewards), np.asarray(test.mdps.concentrations) > 0
    rare = np.count_nonzero(rewards[possible]) < RARE * np.count_nonzero(possible)
    return {"inputs": SEES_A_MODEL[name]} if rare else {}


def _made(cls: type[Agent], values: Mapping[str, Any]) -> Agent:
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in values.items() if name in known})


def beyond(agent: Agent, protocol: Protocol, offline: float, online: float) -> str:
    """Return why an agent is not worth trying by what it is expected to take; "": it is."""
    search, decision = search_seconds(agent, protocol), decision_seconds(agent, protocol)
    if search > HOPELESS * offline:
        return f"expected to take {search:.3g} s offline"
    if decision > HOPELESS * online:
        return f"expected to take {decision:.3g} s per decision"
    return ""
