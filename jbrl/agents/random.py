"""Random: the lower reference line."""

import chex
import jax.numpy as jnp

from jbrl.agents.agent import Agent, register_agent
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.pytree import record, static


@record
class RandomState:
    n_actions: int = static()


@register_agent("Random", cite="castronovo2016")
class Random(Agent[Prior, RandomState]):
    """Uniformly random actions.

    Castronovo et al. 2016, section 5.1.1. Needs no prior and takes any observation. O(1)
    per decision.
    """

    def reset(self, key: chex.PRNGKey, knowledge: Prior) -> RandomState:
        return RandomState(knowledge.spec.actions.n)

    def act(
        self, key: chex.PRNGKey, state: RandomState, observation: chex.Array
    ) -> tuple[chex.Array, RandomState]:
        return (sampling.uniforms(key)[0] * state.n_actions).astype(jnp.int32), state
