"""Q-learning and Sarsa(lambda), epsilon-greedy: on a table of action values, and as complete
algorithms with linear functions, plain, with scaled step sizes, and with the step size of Parl2.

A table is flat, [S * A]: a pass over all of it is then one loop of vector instructions, for any A.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.complete import uniform
from jbrl.agents.linear import complete
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


def _place(transition: Transition, n_actions: int) -> Array:
    """Return the entry of a table that a transition is learned at, [] int32; states as in
    `values_of`: below 0 the entry would be that of another lane.
    """
    return jnp.maximum(transition.observation, 0) * n_actions + transition.action


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
        at = _place(transition, n_actions)
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
        at = _place(transition, n_actions)
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


@record
class ActionValueState:
    """Action values, and how they are being learned."""

    values: complete.LinearFunction  # rows are actions
    here: Array  # the last observation, `encoded`; not that of a first step
    next_action: Array  # [] int32, chosen when the last transition was learned
    progress: complete.Progress


@record
class ActionValueLearner(complete.CompleteLinear):
    """Base of Sarsa(lambda) and Q(lambda), which differ in the value of the next state.

    Class attributes:
      greedy_target: the value is that of the greedy action, not of the action to be taken.
      adapts: the step size is Parl2's, not drawn.
    """

    greedy_target: ClassVar[bool] = False
    adapts: ClassVar[bool] = False

    epsilon_low: float = parameter(
        0.0, "least probability of a random action, drawn uniformly", low=0, high=1
    )
    epsilon_high: float = parameter(
        0.1, "greatest probability of a random action; the paper's text has 1", low=0, high=1
    )

    def draw(self, drawing: complete.Drawing) -> None:
        """See `CompleteLinear`."""
        drawing.draw("epsilon", uniform, self.epsilon_low, self.epsilon_high)
        if not self.adapts:
            self.draw_alpha(drawing, "alpha")

    def reset(self, key: Array, knowledge: Prior) -> ActionValueState:
        """Draw the hyperparameters; all weights are 0."""
        progress = self.begin(key, knowledge)
        zeros = jnp.zeros((knowledge.spec.actions.n, progress.features.capacity), jnp.float32)
        alpha = progress.drawn.get("alpha", jnp.float32(complete.PARL2_START))
        values = complete.LinearFunction(zeros, zeros, alpha)
        return ActionValueState(values, progress.features.blank, jnp.int32(0), progress)

    def act(
        self, key: Array, state: ActionValueState, observation: Array
    ) -> tuple[Array, ActionValueState]:
        """Return the action that was chosen with the last update, or one for a first step."""
        progress, weights = state.progress, state.values.weights
        here = progress.encoded(observation, state.here)

        def values(operand: Any) -> Array:
            return progress.features.values(*operand)

        zeros = jnp.zeros(weights.shape[0], jnp.float32)
        first = progress.at_first(values, (weights, here, progress.orders), zeros)
        chosen = self._choice(first, progress, key)
        action = jnp.where(progress.fresh, chosen, state.next_action)
        return action, dataclasses.replace(state, here=here)

    def observe(
        self, key: Array, state: ActionValueState, transition: Transition
    ) -> ActionValueState:
        """Choose the next action, then learn."""
        progress = state.progress
        features, orders = progress.features, progress.orders
        here, there = state.here, features.encoded(transition.next_observation, orders)
        values, following = features.products(state.values.weights, (here, there), orders)
        chosen = self._choice(following, progress, key)
        taken, then = (_one_hot(action, values) for action in (transition.action, chosen))
        future = following.max() if self.greedy_target else _entry(following, then)
        goes_on = jnp.where(transition.terminated, 0.0, progress.drawn["gamma"])
        # not 0 times NaN where the episode has ended
        target = jnp.where(transition.terminated, 0.0, goes_on * future)
        error = vectorize.prevent_fusion(transition.reward + target - _entry(values, taken))
        learns = self.learns(progress)
        bound = (there, goes_on * self._bounding(following, then)) if self.adapts else None
        learned = state.values.learned(progress, here, taken, error, learns, bound)
        after = progress.after(transition, learns, error, values)
        return ActionValueState(learned, there, chosen, after)

    def _bounding(self, following: Array, then: Array) -> Array:
        """Return the row whose features bound the step size, one-hot [A]."""
        return then

    def _choice(self, values: Array, progress: complete.Progress, key: Array) -> Array:
        return epsilon_greedy(values, progress.drawn["epsilon"], sampling.uniforms(key))


def _one_hot(action: Array, values: Array) -> Array:
    here = jnp.arange(values.shape[0], dtype=jnp.int32) == action
    return here.astype(jnp.float32)


def _entry(values: Array, one_hot: Array) -> Array:
    """Return the value of one action, whatever the others are."""
    return jnp.where(one_hot > 0, values, 0.0).sum()


@record
class PlainStep(ActionValueLearner):
    """Base of those that draw their step size."""

    alpha_low: float = complete.table_alpha("least", 1e-3)
    alpha_high: float = complete.table_alpha("greatest", 0.1)
    fourier_alpha_low: float = complete.fourier_alpha("least", 1e-6)
    fourier_alpha_high: float = complete.fourier_alpha("greatest", 1e-3)


@record
class ScaledStep(ActionValueLearner):
    """Base of those that draw their step size and divide it by the number of features of a Fourier
    basis.
    """

    per_feature = True

    alpha_low: float = complete.table_alpha("least", 1e-3)
    alpha_high: float = complete.table_alpha("greatest", 0.1)
    fourier_alpha_low: float = complete.fourier_alpha("least", 1e-3, divided=True)
    fourier_alpha_high: float = complete.fourier_alpha("greatest", 1.0, divided=True)


@register_agent("Sarsa-lambda", cite="jordan2020,rummery1994,konidaris2011")
class SarsaLambda(PlainStep):
    """Sarsa(lambda) with linear action values, its hyperparameters drawn for each lifetime.

    e <- gamma lambda e + phi(x, u), then w <- w + alpha (r + gamma Q(y, v) - Q(x, u)) e, where v is
    the action to be taken in y. Jordan et al. 2020, table 4. A decision is two passes over the
    weights and one over the trace, O(F A).
    """


@register_agent("Sarsa-lambda-s", cite="jordan2020,rummery1994,konidaris2011")
class SarsaLambdaScaled(ScaledStep):
    """Sarsa-lambda with a step size divided by the number of features; on tables the same.

    Jordan et al. 2020, table 4, Sarsa(lambda)-s. A decision costs what it costs Sarsa-lambda.
    """


@register_agent("Sarsa-Parl2", cite="jordan2020,dabney2012")
class SarsaParl2(ActionValueLearner):
    """Sarsa-lambda with the step size of Parl2, which starts at 1 and only falls.

    Dabney and Barto 2012; Jordan et al. 2020, table 4. A decision is two passes over the weights
    and two over the trace, O(F A).
    """

    adapts = True


@register_agent("Q-lambda", cite="jordan2020,watkins1992")
class QLambda(PlainStep):
    """Q(lambda) with linear action values, its hyperparameters drawn for each lifetime.

    As Sarsa-lambda, but r + gamma max_v Q(y, v) is learned from. Traces go on after exploratory
    actions (naive Q(lambda)). Jordan et al. 2020, table 4. A decision costs what it costs
    Sarsa-lambda.
    """

    greedy_target = True


@register_agent("Q-lambda-s", cite="jordan2020,watkins1992")
class QLambdaScaled(ScaledStep):
    """Q-lambda with a step size divided by the number of features; on tables the same.

    Jordan et al. 2020, table 4, Q(lambda)-s. A decision costs what it costs Sarsa-lambda.
    """

    greedy_target = True


@register_agent("Q-Parl2", cite="jordan2020,dabney2012")
class QParl2(ActionValueLearner):
    """Q-lambda with the step size of Parl2, which starts at 1 and only falls.

    Dabney and Barto 2012; Jordan et al. 2020, table 4. A decision costs what it costs Sarsa-Parl2.
    """

    greedy_target = True
    adapts = True

    bound_by_greedy: bool = parameter(
        False, "the greedy action bounds the step size, not the action to be taken"
    )

    def _bounding(self, following: Array, then: Array) -> Array:
        return jnp.where(self.bound_by_greedy, _one_hot(greedy(following), following), then)
