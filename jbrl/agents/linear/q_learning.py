"""Q-learning: the action values of an optimal policy, learned one transition at a time."""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.linear import action_values
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import TABULAR, Agent, Transition


@record
class QLearningState:
    q: jax.Array  # [S * A] float32
    n_actions: int = static()


@register_agent("Q-learning", cite="watkins1992")
class QLearning(Agent[Prior, QLearningState]):
    """One-step Q-learning on a table, epsilon-greedy.

    Q(x, u) <- Q(x, u) + alpha (r + gamma max_v Q(y, v) - Q(x, u)) after each transition. Watkins
    and Dayan 1992. O(A) per decision.
    """

    requires = TABULAR

    alpha: float = parameter(0.1, "step size", low=0, high=1)
    epsilon: float = parameter(0.05, "probability of a uniformly random action", low=0, high=1)
    gamma: float = parameter(
        0.99, "discount factor that it learns with, independent of the criterion's", low=0, high=1
    )
    q0: float = parameter(0.0, "value of every action at the start", low=-1e9, high=1e9)

    def reset(self, key: jax.Array, knowledge: Prior) -> QLearningState:
        return QLearningState(action_values.table(knowledge, self.q0), knowledge.spec.actions.n)

    def act(
        self, key: jax.Array, state: QLearningState, observation: jax.Array
    ) -> tuple[jax.Array, QLearningState]:
        values = action_values.values_of(state.q, observation, state.n_actions)
        return action_values.epsilon_greedy(values, self.epsilon, sampling.uniforms(key)), state

    def observe(
        self, key: jax.Array, state: QLearningState, transition: Transition
    ) -> QLearningState:
        q, n_actions = state.q, state.n_actions
        at = action_values.entry(transition.observation, transition.action, n_actions)
        old = vectorize.get_row(q[:, None], at)[0]
        best = action_values.values_of(q, transition.next_observation, n_actions).max()
        error = transition.reward + jnp.where(transition.terminated, 0.0, self.gamma * best) - old
        new = jnp.where(jnp.isnan(error), old, old + self.alpha * error)
        return QLearningState(vectorize.set_row(q[:, None], at, new[None])[:, 0], n_actions)
