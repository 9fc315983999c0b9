"""Optimal: the upper reference line."""

from typing import Any

import jax

from jbrl.agents.registry import register_agent
from jbrl.environments.wrappers import Tabular
from jbrl.mdp import incremental, sampling
from jbrl.mdp.incremental import Plan
from jbrl.mdp.mdp import expected_rewards
from jbrl.rollout.contract import BAYESIAN, Agent, Oracle


@register_agent("Optimal", cite="castronovo2016")
class Optimal(Oracle, Agent[Any, Plan]):
    """The optimal policy of the true MDP, which it alone is shown.

    An oracle, not a competitor: no agent that has to learn can score higher on average. Actions
    that tie are drawn uniformly. Part of the program published with Castronovo et al. 2016.

    Solves one MDP for each trajectory; O(A) per decision.
    """

    requires = BAYESIAN
    version = 2

    def reveal(self, knowledge: Any, environment: Tabular) -> Plan:  # type: ignore[override]  # `requires` leaves no other environment
        mdp = environment.mdp
        rewards = expected_rewards(mdp.transitions, mdp.rewards)
        return incremental.solve(mdp.transitions, rewards, knowledge.discount, mdp.initial_state)

    def reset(self, key: jax.Array, knowledge: Plan) -> Plan:
        return knowledge

    def act(self, key: jax.Array, state: Plan, observation: jax.Array) -> tuple[jax.Array, Plan]:
        return incremental.greedy(state, observation, sampling.uniforms(key)[0]), state
