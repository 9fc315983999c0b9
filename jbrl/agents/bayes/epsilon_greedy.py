"""e-Greedy: the optimal policy of the posterior-mean MDP, with random exploration."""

import jax
import jax.numpy as jnp

from jbrl.agents.bayes.planner import Planner
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.mdp import incremental, sampling
from jbrl.mdp.belief import Belief
from jbrl.mdp.incremental import Plan


@register_agent("e-Greedy", cite="castronovo2016")
class EpsilonGreedy(Planner):
    """Greedy with respect to the posterior-mean MDP, a uniformly random action with
    probability epsilon.

    After each transition the mean MDP is solved again. A random action may happen to be the greedy
    one; greedy actions that tie are drawn uniformly. Castronovo et al. 2016, section 5.1.2.

    One decision costs a few sweeps of S^2 A multiplications.
    """

    epsilon: float = parameter(0.0, "probability of a uniformly random action", low=0.0, high=1.0)

    def act(
        self, key: jax.Array, state: Belief, observation: jax.Array
    ) -> tuple[jax.Array, Belief]:
        return greedy_or_random(key, state.plan, observation, self.epsilon), state


def greedy_or_random(
    key: jax.Array, plan: Plan, x: jax.Array, epsilon: jax.Array | float
) -> jax.Array:
    """Return any action with probability `epsilon`, else an optimal one of `plan` in state `x`: []
    int32.
    """
    coin, uniform = sampling.uniforms(key)
    anything = (uniform * plan.q.shape[1]).astype(jnp.int32)
    return jnp.where(coin < epsilon, anything, incremental.greedy(plan, x, uniform))
