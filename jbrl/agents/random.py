"""Random: the lower reference line."""

import jax
import jax.numpy as jnp

from jbrl.agents.registry import register_agent
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Agent


@record
class RandomState:
    n_actions: int = static()


@register_agent("Random", cite="castronovo2016")
class Random(Agent[Prior, RandomState]):
    """Uniformly random actions.

    Castronovo et al. 2016, section 5.1.1. Needs no prior and takes any observation. O(1)
    per decision.
    """

    def reset(self, key: jax.Array, knowledge: Prior) -> RandomState:
        return RandomState(knowledge.spec.actions.n)

    def act(
        self, key: jax.Array, state: RandomState, observation: jax.Array
    ) -> tuple[jax.Array, RandomState]:
        return (sampling.uniforms(key)[0] * state.n_actions).astype(jnp.int32), state
