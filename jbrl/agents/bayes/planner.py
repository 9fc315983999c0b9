"""What agents that plan in the posterior-mean MDP have in common."""

from typing import Any

import chex

from jbrl import vectorize
from jbrl.agents.agent import Agent, Knowledge, State
from jbrl.mdp import belief as beliefs
from jbrl.mdp import incremental
from jbrl.mdp.belief import Belief
from jbrl.mdp.dirichlet import Prior


class Thinker(Agent[Knowledge, State]):
    """An agent that `thinks`."""

    thinks = True

    def observe(self, state: State, x: chex.Array, action: chex.Array, y: chex.Array, reward: chex.Array) -> State:
        noted = self.note(state, x, action, y, reward)
        return vectorize.while_active(_unready, _think, noted, self, masked=False, lanes_last=True)


def _unready(state: Any, agent: Agent) -> chex.Array:
    return ~agent.ready(state)


def _think(state: Any, agent: Agent) -> Any:
    return agent.think(state)


class Planner(Thinker[Belief, Belief]):
    """Holds the posterior and the optimal plan of its mean, brought up to date after each transition."""

    def train(self, key: chex.PRNGKey, prior: Prior) -> Belief:
        return beliefs.believe(prior.mdps, prior.discount)

    def reset(self, knowledge: Belief) -> Belief:
        return knowledge

    def note(self, state: Belief, x: chex.Array, action: chex.Array, y: chex.Array, reward: chex.Array) -> Belief:
        return beliefs.add_transition(state, x, action, y)

    def think(self, state: Belief) -> Belief:
        return beliefs.improve(state)

    def ready(self, state: Belief) -> chex.Array:
        return incremental.converged(state.plan)
