"""Lower bounds: what policies earn that are played."""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from jbrl.agents.complete import played_agent
from jbrl.agents.registry import AGENTS, find_agent
from jbrl.base.errors import JbrlError
from jbrl.base.plugins import is_outside, source_digest
from jbrl.bayes_optimal.counts import Layers
from jbrl.bayes_optimal.lifetimes import LANES, Chance, Lifetimes
from jbrl.bayes_optimal.look_ahead import Table, make_table, mean_values
from jbrl.play.play import play
from jbrl.play.protocol import Played, Protocol
from jbrl.play.unit import canonical
from jbrl.rollout.contract import Agent, OfflineSearch, Oracle
from jbrl.study.cost import decision_seconds, search_seconds

TRIAL = 2 * LANES  # MDPs in which candidates are compared
AT_ONCE = 2**16  # lifetimes whose transitions are kept at once
LEAST_PLAYED = 256  # MDPs, however little time there is
DEEPEST, MOST_LEAVES = 30, 50_000  # of the look-ahead whose choices are tabulated
MOST_TABLED_ROWS = 30_000  # uncertain rows of all cells after it: half a millisecond each
ROUNDING = 1e-5  # of returns in single precision
BONUSES = (0.0, 0.03, 0.1, 0.3)  # as a part of the range of rewards

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
    """Return agents by their names: those that are given, or those of the register, with their
    default parameters.

    Raises:
      JbrlError: no such agent, one that cannot use the prior, or one that is shown the MDP.
    """
    if not isinstance(agents, Mapping):
        agents = {name: find_agent(name, Path.cwd()).agent() for name in agents}
    for name, agent in agents.items():
        protocol.check_agent(agent, name)
        if isinstance(agent, Oracle):
            raise JbrlError(f"agent = {name!r}: expected an agent that is not shown the MDP")
    return dict(agents)


def candidates(
    protocol: Protocol, layers: Layers, threads: int, agents: Mapping[str, Agent], training: int
) -> list[Candidate]:
    """Return policies that the look-ahead suggests, and agents by their names.

    Args:
      protocol: that all play by: problem, horizon, discount.
      training: seed of the searches of agents that search on their prior.
    """
    discount, horizon = protocol.discount, protocol.horizon
    decisions = _decisions(layers, horizon)

    @functools.cache
    def lifetimes() -> Lifetimes:
        table = _table(layers, decisions, discount, horizon, threads)
        return Lifetimes(table, discount, horizon)

    chance, policies = Chance(layers.model.mdps, discount, horizon), []
    least = chance.least(layers.model.first_states)
    least -= ROUNDING * max(1.0, abs(least))
    for bonus in sorted({round(share * layers.model.reward_range, 6) for share in BONUSES}):

        def lookahead(n: int, seed: np.random.SeedSequence, bonus: float = bonus) -> np.ndarray:
            return lifetimes().play(bonus, n, seed)

        name = (
            f"look-ahead of {decisions} decisions, then the posterior mean with bonus "
            f"{bonus:g} / (1 + n)"
        )
        policies.append(Candidate(name, lookahead, least))
    for name, agent in agents.items():
        plays = functools.partial(play, prior=protocol.test, horizon=horizon, discount=discount)
        player, digest = _player(agent, plays, training, chance.of), _digest(agent, name)
        search = search_seconds(agent, protocol) / threads
        each = decision_seconds(agent, protocol) * horizon / threads
        policies.append(Candidate(name, player, least, digest, search, each))
    return policies


def _digest(agent: Agent, name: str) -> str:
    """Return what tells an agent of the register, or one outside jbrl, from others of its name:
    eight hexadecimal digits of its version, parameters and source. "" for other names, which stand
    for one policy each.
    """
    if name not in AGENTS and ":" not in name:
        return ""
    base = played_agent(agent)
    source = source_digest(type(base)) if is_outside(type(base)) else ""
    identity = canonical([agent.version, repr(agent), source])
    return hashlib.sha256(identity.encode()).hexdigest()[:8]


def _player(
    agent: Agent,
    plays: Callable[..., Played],
    training: int,
    chance: Callable[[Mapping[str, np.ndarray]], np.ndarray],
) -> Player:
    @functools.cache
    def policy() -> Agent:
        """Return the agent that plays: of one that searches its finding, the same in all calls."""
        searches = isinstance(agent, OfflineSearch)
        learned = plays(agent, n_environments=1, seed=training).learned if searches else None
        return agent if learned is None else learned.strategy

    def player(n: int, seed: np.random.SeedSequence) -> np.ndarray:
        seeds = map(int, seed.generate_state(math.ceil(n / AT_ONCE)))
        sizes = [min(AT_ONCE, n - first) for first in range(0, n, AT_ONCE)]
        returns = []
        for size, own in zip(sizes, seeds, strict=True):
            played = plays(policy(), n_environments=size, seed=own, record=True)
            if played.failure:
                raise JbrlError(played.failure)
            assert played.trajectories is not None
            returns.append(np.asarray(played.returns) - chance(played.trajectories))
        return np.concatenate(returns)

    return player


def _decisions(layers: Layers, horizon: int) -> int:
    """Return the depth of the deepest look-ahead that is small."""
    decisions = 0
    while decisions < min(DEEPEST, horizon) and _is_small(layers, decisions + 1):
        decisions += 1
    return decisions


def _is_small(layers: Layers, decisions: int) -> bool:
    if layers.divisions(decisions) > MOST_LEAVES or layers.count(decisions) > MOST_LEAVES:
        return False
    return len(layers.layer(decisions)) * layers.model.n_uncertain <= MOST_TABLED_ROWS


def _table(layers: Layers, decisions: int, discount: float, horizon: int, threads: int) -> Table:
    """Return the choices of a look-ahead with the values of mean MDPs after it."""
    cells = layers.layer(decisions)
    leaves = mean_values(layers, cells, discount, horizon - decisions, threads)
    return make_table(layers, decisions, leaves, discount, threads)
