"""Lower bounds: what policies earn that are played."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from jbrl.agents.bayes.look_ahead import LookAheadAgent, begin, deepest, plan_ahead
from jbrl.agents.complete import played_agent
from jbrl.agents.registry import AGENTS, named_agent
from jbrl.base.errors import JbrlError, expect
from jbrl.base.plugins import is_outside, source_digest
from jbrl.bayes_optimal.limits import Chance
from jbrl.mdp.counts import Layers
from jbrl.play.play import play
from jbrl.play.protocol import Played, Protocol
from jbrl.play.unit import digest
from jbrl.rollout.contract import Agent, OfflineSearch, Oracle
from jbrl.study.cost import decision_seconds, search_seconds
from jbrl.study.portfolio import setting_name

TRIAL = 8192  # MDPs in which candidates are compared
AT_ONCE = 2**14  # lifetimes whose transitions are kept at once
LEAST_PLAYED = 256  # MDPs, however little time there is
ROUNDING = 1e-5  # relative, of the least return
BONUSES = (0.0, 0.03, 0.1, 0.3)  # as a part of the range of rewards
AHEAD = "Look-ahead"
# Part of a budget for planning a look-ahead; seconds of an uncertain row of a cell on one core.
PLANNING, ROW_SECONDS = 0.03, 1.2e-3

Player = Callable[[int, np.random.SeedSequence], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A policy that may earn the lower bound."""

    name: str
    play: Player  # returns less chance, [N] float64, in N new MDPs, with that seed
    least: float  # none of them is smaller
    digest: str = ""  # of an agent that can change under its name
    search: float = 0.0  # seconds of its search on the prior, estimated
    each: float = 0.0  # seconds of a lifetime, estimated; 0: nothing is to be bounded

    def seconds(self, n_mdps: int) -> float:
        """Estimate how long it takes to search and to play."""
        return self.search + n_mdps * self.each

    def fitting(self, most: int, seconds: float | None, *, searched: bool = False) -> int:
        """Return how many lifetimes fit into a time, from `LEAST_PLAYED` to `most`; without one
        all of them.

        Args:
          searched: it has been tried: what it has found is known.
        """
        if seconds is None or not self.each:
            return most
        left = seconds - (0.0 if searched else self.search)
        return min(most, max(LEAST_PLAYED, int(left / self.each)))


def find_agents(
    agents: Sequence[str] | Mapping[str, Agent], protocol: Protocol
) -> dict[str, Agent]:
    """Return agents by their names: those that are given, or those of the register.

    Raises:
      JbrlError: no such agent, one that cannot use the prior, or one that is shown the MDP.
    """
    agents = [agents] if isinstance(agents, str) else agents
    expect("agents", agents, Sequence | Mapping, "names of agents, or agents by their names")
    for one in agents:
        expect("agents: a name", one, str, "text, for example 'PSRL'")
    if isinstance(agents, Mapping):
        for name, agent in agents.items():
            expect(f"agents[{name!r}]", agent, Agent, "an agent")
    else:
        agents = {name: named_agent(name, Path.cwd())[0] for name in agents}
    for name, agent in agents.items():
        protocol.check_agent(agent, name)
        if isinstance(agent, Oracle):
            raise JbrlError(f"agent = {name!r}: expected an agent that is not shown the MDP")
    return dict(agents)


def candidates(
    protocol: Protocol,
    layers: Layers,
    threads: int,
    agents: Mapping[str, Agent],
    training: int,
    budget: float = math.inf,
) -> list[Candidate]:
    """Return policies that the look-ahead suggests, and agents by their names.

    Args:
      protocol: that all play by: problem, horizon, discount.
      training: seed of the searches of agents that search on their prior.
      budget: seconds of the bracket, of which a look-ahead takes no more than `PLANNING`.
    """
    discount, horizon = protocol.discount, protocol.horizon
    depth, rows = deepest(layers, horizon), PLANNING * budget * threads / ROW_SECONDS
    while depth > 1 and len(layers.layer(depth)) * layers.model.n_uncertain > rows:
        depth -= 1
    ahead = LookAheadAgent(decisions=depth)

    @functools.cache
    def found() -> dict[str, np.ndarray]:
        *_, last = plan_ahead(layers, ahead.decisions, discount, horizon, begin(), threads)
        return ahead.weights(last)

    plays = functools.partial(play, prior=protocol.test, horizon=horizon, discount=discount)
    chance, policies = Chance(layers.model.mdps, discount, horizon), []
    least = chance.least(layers.model.first_states)
    least -= ROUNDING * max(min(1.0, layers.model.reward_size), abs(least))
    most = layers.model.reward_range
    for bonus in sorted({float(f"{share * most:.6g}") for share in BONUSES}):
        one = dataclasses.replace(ahead, beta=bonus)
        player = _player(functools.partial(_trained, one, found), plays, chance.of)
        policies.append(Candidate(setting_name(one), player, least, _digest(one, AHEAD)))
    for name, agent in agents.items():
        policy = functools.partial(_policy, agent, plays, training)
        search = search_seconds(agent, protocol) / threads
        each = decision_seconds(agent, protocol) * horizon / threads
        player = _player(policy, plays, chance.of)
        policies.append(Candidate(name, player, least, _digest(agent, name), search, each))
    return policies


def _digest(agent: Agent, name: str) -> str:
    """Return what tells an agent of the register, or one outside jbrl, from others of its name:
    eight hexadecimal digits of its version, parameters and source. "" for other names, which stand
    for one policy each.
    """
    if name.partition("(")[0].strip() not in AGENTS and ":" not in name:
        return ""
    base = played_agent(agent)
    source = source_digest(type(base)) if is_outside(type(base)) else ""
    return digest([agent.version, repr(agent), source], 8)


def _trained(agent: LookAheadAgent, found: Callable[[], dict[str, np.ndarray]]) -> Agent:
    return agent.trained(found())


def _policy(agent: Agent, plays: Callable[..., Played], training: int) -> Agent:
    """Return the agent that plays: of one that searches its finding."""
    searches = isinstance(agent, OfflineSearch)
    learned = plays(agent, n_environments=1, seed=training).learned if searches else None
    return agent if learned is None else learned.strategy


def _player(
    policy: Callable[[], Agent],
    plays: Callable[..., Played],
    chance: Callable[[Mapping[str, np.ndarray]], np.ndarray],
) -> Player:
    same = functools.cache(policy)  # in all calls

    def player(n: int, seed: np.random.SeedSequence) -> np.ndarray:
        seeds = map(int, seed.generate_state(math.ceil(n / AT_ONCE)))
        sizes = [min(AT_ONCE, n - first) for first in range(0, n, AT_ONCE)]
        returns = []
        for size, own in zip(sizes, seeds, strict=True):
            try:
                played = plays(same(), n_environments=size, seed=own, record=True)
            except FloatingPointError as error:  # of a model that float32 cannot hold
                raise JbrlError(str(error)) from None
            if played.failure:
                raise JbrlError(played.failure)
            assert played.trajectories is not None
            returns.append(np.asarray(played.returns) - chance(played.trajectories))
        return np.concatenate(returns)

    return player
