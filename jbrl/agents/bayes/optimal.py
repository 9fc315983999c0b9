"""Optimal: the upper reference line."""

from typing import Any

import chex

from jbrl.agents.agent import Agent, register_agent
from jbrl.mdp import incremental, sampling
from jbrl.mdp.incremental import Plan
from jbrl.mdp.mdp import MDP, expected_rewards


@register_agent("Optimal", cite="castronovo2016")
class Optimal(Agent[Any, Plan]):
    """The optimal policy of the true MDP, which it alone is shown.

    An oracle, not a competitor: no agent that has to learn can score higher on average. Actions that tie are drawn uniformly. Part of
    the program published with Castronovo et al. 2016.

    Solves one MDP for each trajectory; O(A) per decision.
    """

    oracle = True

    def reveal(self, knowledge: Any, mdp: MDP) -> Plan:
        return incremental.solve(mdp.transitions, expected_rewards(mdp.transitions, mdp.rewards), knowledge.discount)

    def reset(self, knowledge: Plan) -> Plan:
        return knowledge

    def act(self, key: chex.PRNGKey, state: Plan, x: chex.Array) -> tuple[chex.Array, Plan]:
        return incremental.greedy(state, x, sampling.uniforms(key)[0]), state
