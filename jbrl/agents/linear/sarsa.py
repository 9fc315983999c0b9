"""Sarsa(lambda): the action values of the policy that it follows, learned with
eligibility traces.
"""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.linear import action_values
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import NO_ACTION, TABULAR, Agent, Transition


@record
class SarsaState:
    q: jax.Array  # [S * A] float32
    # [S * A] float32, of the episode so far; what an episode leaves is dropped by the first step of
    # the next
    trace: jax.Array
    # [] int32, chosen when the last transition was learned; NO_ACTION at the start of an episode
    next_action: jax.Array
    n_actions: int = static()


@register_agent("Sarsa", cite="rummery1994,sutton2018")
class Sarsa(Agent[Prior, SarsaState]):
    """Sarsa(lambda) on a table, with accumulating traces, epsilon-greedy.

    e <- gamma lambda e + 1(x, u), then Q <- Q + alpha (r + gamma Q(y, v) - Q(x, u)) e, where v is
    the action to be taken in y. Rummery and Niranjan 1994. A decision is one pass over the table,
    O(S A).
    """

    requires = TABULAR

    alpha: float = parameter(0.1, "step size", low=0, high=1)
    epsilon: float = parameter(0.05, "probability of a uniformly random action", low=0, high=1)
    gamma: float = parameter(
        0.99, "discount factor that it learns with, independent of the criterion's", low=0, high=1
    )
    trace_decay: float = parameter(
        0.9,
        "lambda, by which traces decay at each step, beside the discount factor; 0: one-step Sarsa",
        low=0,
        high=1,
    )
    q0: float = parameter(0.0, "value of every action at the start", low=-1e9, high=1e9)

    def reset(self, key: jax.Array, knowledge: Prior) -> SarsaState:
        q = action_values.table(knowledge, self.q0)
        return SarsaState(q, jnp.zeros_like(q), jnp.int32(NO_ACTION), knowledge.spec.actions.n)

    def act(
        self, key: jax.Array, state: SarsaState, observation: jax.Array
    ) -> tuple[jax.Array, SarsaState]:
        values = action_values.values_of(state.q, observation, state.n_actions)
        first = action_values.epsilon_greedy(values, self.epsilon, sampling.uniforms(key))
        return jnp.where(state.next_action == NO_ACTION, first, state.next_action), state

    def observe(self, key: jax.Array, state: SarsaState, transition: Transition) -> SarsaState:
        q, n_actions = state.q, state.n_actions
        at = action_values.entry(transition.observation, transition.action, n_actions)
        values = action_values.values_of(q, transition.next_observation, n_actions)
        chosen = action_values.epsilon_greedy(values, self.epsilon, sampling.uniforms(key))
        following = vectorize.get_row(values[:, None], chosen)[0]
        old = vectorize.get_row(q[:, None], at)[0]
        error = (
            transition.reward + jnp.where(transition.terminated, 0.0, self.gamma * following) - old
        )
        step = jnp.where(jnp.isnan(error), 0.0, self.alpha * error)
        decay = jnp.where(state.next_action == NO_ACTION, 0.0, self.gamma * self.trace_decay)
        trace = decay * state.trace + jnp.where(
            jnp.arange(q.shape[0], dtype=jnp.int32) == at, 1.0, 0.0
        )
        ended = transition.terminated | transition.truncated
        return SarsaState(q + step * trace, trace, jnp.where(ended, NO_ACTION, chosen), n_actions)
