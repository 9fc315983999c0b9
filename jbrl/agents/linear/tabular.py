"""Q-learning and Sarsa(lambda) on a table of action values, epsilon-greedy.

A table is flat, [S * A]: a pass over all of it is then one loop of vector instructions, for any A.
"""

import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import NO_ACTION, TABULAR, Agent, Transition


def table(prior: Prior, value: float | Array) -> Array:
    """Return a table with `value` in every entry: [S * A] float32."""
    spec = prior.spec
    return jnp.full(spec.observation.n * spec.actions.n, value, jnp.float32)  # type: ignore[union-attr]


def values_of(q: Array, state: Array, n_actions: int) -> Array:
    """Return the values of all actions in a state: [A] float32.

    Args:
      q: [S * A] float32.
      state: [] int32; below 0, as the observation of zeros is, it counts as state 0.
    """
    return vectorize.get_row(q.reshape(-1, n_actions), jnp.maximum(state, 0))


def greedy(values: Array) -> Array:
    """Return the greedy action among `values` [A]: [] int32.

    Ties go to the lowest number; a NaN counts as the greatest of all values.
    """
    return jnp.argmax(values).astype(jnp.int32)


def epsilon_greedy(values: Array, epsilon: float | Array, uniforms: Array) -> Array:
    """Return `selection.epsilon_greedy` among `values` [A]: [] int32."""
    action = selection.epsilon_greedy(greedy(values), values.shape[0], epsilon, uniforms)
    # or each of the many operations that use it finds the greatest value again
    return vectorize.prevent_fusion_index(action)


@record
class QLearningState:
    q: Array  # [S * A] float32
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

    def reset(self, key: Array, knowledge: Prior) -> QLearningState:
        return QLearningState(table(knowledge, self.q0), knowledge.spec.actions.n)

    def act(
        self, key: Array, state: QLearningState, observation: Array
    ) -> tuple[Array, QLearningState]:
        values = values_of(state.q, observation, state.n_actions)
        return epsilon_greedy(values, self.epsilon, sampling.uniforms(key)), state

    def observe(self, key: Array, state: QLearningState, transition: Transition) -> QLearningState:
        q, n_actions = state.q, state.n_actions
        at = transition.observation * n_actions + transition.action
        old = vectorize.get_row(q[:, None], at)[0]
        best = values_of(q, transition.next_observation, n_actions).max()
        error = transition.reward + jnp.where(transition.terminated, 0.0, self.gamma * best) - old
        new = jnp.where(jnp.isnan(error), old, old + self.alpha * error)
        return QLearningState(vectorize.set_row(q[:, None], at, new[None])[:, 0], n_actions)


@record
class SarsaState:
    q: Array  # [S * A] float32
    # [S * A] float32, of the episode so far; what an episode leaves is dropped by the first step of
    # the next
    trace: Array
    # [] int32, chosen when the last transition was learned; NO_ACTION at the start of an episode
    next_action: Array
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

    def reset(self, key: Array, knowledge: Prior) -> SarsaState:
        q = table(knowledge, self.q0)
        return SarsaState(q, jnp.zeros_like(q), jnp.int32(NO_ACTION), knowledge.spec.actions.n)

    def act(self, key: Array, state: SarsaState, observation: Array) -> tuple[Array, SarsaState]:
        values = values_of(state.q, observation, state.n_actions)
        first = epsilon_greedy(values, self.epsilon, sampling.uniforms(key))
        return jnp.where(state.next_action == NO_ACTION, first, state.next_action), state

    def observe(self, key: Array, state: SarsaState, transition: Transition) -> SarsaState:
        q, n_actions = state.q, state.n_actions
        at = transition.observation * n_actions + transition.action
        values = values_of(q, transition.next_observation, n_actions)
        chosen = epsilon_greedy(values, self.epsilon, sampling.uniforms(key))
        following = self.gamma * vectorize.get_row(values[:, None], chosen)[0]
        old = vectorize.get_row(q[:, None], at)[0]
        error = transition.reward + jnp.where(transition.terminated, 0.0, following) - old
        step = jnp.where(jnp.isnan(error), 0.0, self.alpha * error)
        decay = jnp.where(state.next_action == NO_ACTION, 0.0, self.gamma * self.trace_decay)
        taken = jnp.arange(q.shape[0], dtype=jnp.int32) == at
        trace = decay * state.trace + jnp.where(taken, 1.0, 0.0)
        ended = transition.terminated | transition.truncated
        return SarsaState(q + step * trace, trace, jnp.where(ended, NO_ACTION, chosen), n_actions)
