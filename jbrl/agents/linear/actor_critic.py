"""Actor-critics with linear functions as complete algorithms: AC, plain, with scaled step sizes and
with the step size of Parl2; and NAC-TD, which follows the natural gradient.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array, lax

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.linear import complete
from jbrl.agents.linear.features import Features, Orders
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Transition

SHRINKING = 2.0**-80  # the squares of all numbers of float32 times this can be added


@record
class ActorCriticState:
    """A value function and a policy, and how they are being learned."""

    critic: complete.LinearFunction  # one row
    actor: (
        complete.LinearFunction
    )  # of the preferences, a row for each action; its trace: of grad log pi
    here: Array  # the last observation, `encoded`; not that of a first step
    policy_now: selection.SoftmaxPolicy  # in the state of the last decision
    progress: complete.Progress


@record
class Critique:
    """Judgement of a transition by the value function, and the value function after it."""

    error: Array  # [] float32
    critic: complete.LinearFunction
    there: Array  # the next observation, `encoded`
    learns: Array  # [] bool, whether the agent still learns


@record
class LinearActorCritic(complete.CompleteLinear):
    """Base of the actor-critics: a softmax policy over linear preferences, and a critic.

    Class attributes:
      adapts: the step size of the critic is Parl2's, not drawn.
    """

    adapts: ClassVar[bool] = False

    def draw(self, drawing: complete.Drawing) -> None:
        """See `CompleteLinear`."""
        if not self.adapts:
            self.draw_alpha(drawing, "alpha_v", prefix="critic_")
        n_actions = drawing.prior.spec.actions.n
        self.draw_alpha(drawing, "alpha_p", parts=n_actions, prefix="actor_")

    def reset(self, key: Array, knowledge: Prior) -> ActorCriticState:
        """Draw the hyperparameters; all weights are 0."""
        n_actions = knowledge.spec.actions.n
        progress = self.begin(key, knowledge)
        value, policy = (
            jnp.zeros((rows, progress.features.capacity), jnp.float32) for rows in (1, n_actions)
        )
        alpha = progress.drawn.get("alpha_v", jnp.float32(complete.PARL2_START))
        critic = complete.LinearFunction(value, value, alpha)
        actor = complete.LinearFunction(policy, policy, progress.drawn["alpha_p"])
        now = selection.softmax(jnp.zeros(n_actions, jnp.float32))
        return ActorCriticState(critic, actor, progress.features.blank, now, progress)

    def act(
        self, key: Array, state: ActorCriticState, observation: Array
    ) -> tuple[Array, ActorCriticState]:
        """Draw an action from the policy."""
        progress = state.progress
        here = progress.encoded(observation, state.here)
        now = selection.softmax(
            progress.features.values(state.actor.weights, here, progress.orders)
        )
        after = dataclasses.replace(state, here=here, policy_now=now)
        return selection.softmax_draw(now, sampling.uniforms(key)[0]), after

    def observe(
        self, key: Array, state: ActorCriticState, transition: Transition
    ) -> ActorCriticState:
        """Learn the value function, then the policy."""
        progress, now = state.progress, state.policy_now
        critique = self.criticised(state, transition)
        error, learns = critique.error, critique.learns
        gradient = selection.log_gradient(now, transition.action)
        actor = state.actor.learned(progress, state.here, gradient, error, learns)
        after = progress.after(transition, learns, error, now.probabilities)
        return ActorCriticState(critique.critic, actor, critique.there, now, after)

    def criticised(self, state: ActorCriticState, transition: Transition) -> Critique:
        """Return the error of a transition, and the value function that has learned from it."""
        progress = state.progress
        features, orders = progress.features, progress.orders
        here, there = state.here, features.encoded(transition.next_observation, orders)
        before, after = features.products(state.critic.weights, (here, there), orders)
        goes_on = jnp.where(transition.terminated, 0.0, progress.drawn["gamma"])
        future = jnp.where(transition.terminated, 0.0, goes_on * after[0])
        bonus = self.bonus(state, transition)
        error = vectorize.prevent_fusion(transition.reward + bonus + future - before[0])
        learns, one = self.learns(progress), jnp.ones(1, jnp.float32)
        bound = (there, goes_on * one) if self.adapts else None
        critic = state.critic.learned(progress, here, one, error, learns, bound)
        return Critique(error, critic, there, learns)

    def bonus(self, state: ActorCriticState, transition: Transition) -> Array:
        """Return what is added to the reward: [] float32."""
        return jnp.float32(0)


@record
class PlainCritic(LinearActorCritic):
    """Base of those that draw all step sizes from ranges that do not depend on the features."""

    critic_alpha_low: float = complete.table_alpha("least", 1e-3, "critic")
    critic_alpha_high: float = complete.table_alpha("greatest", 0.1, "critic")
    critic_fourier_alpha_low: float = complete.fourier_alpha("least", 1e-6, "critic")
    critic_fourier_alpha_high: float = complete.fourier_alpha("greatest", 1e-3, "critic")
    actor_alpha_low: float = complete.table_alpha("least", 1e-3, "actor")
    actor_alpha_high: float = complete.table_alpha("greatest", 0.1, "actor")
    actor_fourier_alpha_low: float = complete.fourier_alpha("least", 1e-6, "actor")
    actor_fourier_alpha_high: float = complete.fourier_alpha("greatest", 1e-3, "actor")


@record
class ScaledActor(LinearActorCritic):
    """Base of those that divide the step size of the actor for a Fourier basis by its features
    times the actions.
    """

    per_feature = True

    actor_alpha_low: float = complete.table_alpha("least", 1e-3, "actor")
    actor_alpha_high: float = complete.table_alpha("greatest", 0.1, "actor")
    actor_fourier_alpha_low: float = complete.fourier_alpha("least", 1e-3, "actor", divided=True)
    actor_fourier_alpha_high: float = complete.fourier_alpha("greatest", 1.0, "actor", divided=True)


@register_agent("AC", cite="jordan2020,sutton2018")
class LinearAC(PlainCritic):
    """Actor-critic with linear functions, its hyperparameters drawn for each lifetime.

    The critic is TD(lambda); the actor takes steps along the trace of grad log pi(u | x), times the
    error of the critic. Jordan et al. 2020, table 4. A decision is two passes over the weights of
    the actor and one over its trace, O(F A).
    """


@register_agent("AC-s", cite="jordan2020,sutton2018")
class LinearACScaled(ScaledActor):
    """AC with step sizes divided by the number of weights; on tables the same.

    Jordan et al. 2020, table 4. A decision costs what it costs AC.
    """

    critic_alpha_low: float = complete.table_alpha("least", 1e-3, "critic")
    critic_alpha_high: float = complete.table_alpha("greatest", 0.1, "critic")
    critic_fourier_alpha_low: float = complete.fourier_alpha("least", 1e-3, "critic", divided=True)
    critic_fourier_alpha_high: float = complete.fourier_alpha(
        "greatest", 1.0, "critic", divided=True
    )


@register_agent("AC-Parl2", cite="jordan2020,dabney2012")
class LinearACParl2(ScaledActor):
    """AC-s with the step size of Parl2 for the critic, and a bonus for improbable actions.

    Dabney and Barto 2012; Jordan et al. 2020, table 4, and their program. A decision costs what it
    costs AC, and one more pass over the trace of the critic.
    """

    adapts = True

    surprise: float = parameter(
        0.01,
        "times -log pi(u | x) is added to each reward; the paper's text has 0",
        low=0,
        high=1e9,
    )

    def bonus(self, state: ActorCriticState, transition: Transition) -> Array:
        """See `LinearActorCritic`."""
        return -self.surprise * selection.log_probability(state.policy_now, transition.action)


@record
class NaturalState(ActorCriticState):
    """State of an actor-critic, and the weights of its advantages, whose trace is the actor's."""

    advantage: Any = None  # [A, F] float32


@register_agent("NAC-TD", cite="jordan2020,degris2012")
class NacTD(PlainCritic):
    """Natural actor-critic with linear functions, its hyperparameters drawn for each lifetime.

    A linear function w of grad log pi(u | x) learns the advantages, by the errors of a TD(lambda)
    critic; at each step the weights of the policy move along w / |w|. Degris, Pilarski and Sutton
    2012; Jordan et al. 2020, table 4. A decision is two passes over the weights of the actor, four
    over the advantages and one over their trace, O(F A).
    """

    version = 3  # advantages above 1.8e19 move the policy

    advantage_alpha_low: float = complete.table_alpha("least", 1e-3, "advantages")
    advantage_alpha_high: float = complete.table_alpha("greatest", 0.1, "advantages")
    advantage_fourier_alpha_low: float = complete.fourier_alpha("least", 1e-6, "advantages")
    advantage_fourier_alpha_high: float = complete.fourier_alpha("greatest", 1e-3, "advantages")

    def draw(self, drawing: complete.Drawing) -> None:
        """See `CompleteLinear`."""
        super().draw(drawing)
        self.draw_alpha(drawing, "alpha_w", prefix="advantage_")

    def reset(self, key: Array, knowledge: Prior) -> NaturalState:
        """Draw the hyperparameters; all weights are 0."""
        state = super().reset(key, knowledge)
        return NaturalState(**vars(state), advantage=state.actor.weights)

    def observe(
        self, key: Array, state: ActorCriticState, transition: Transition
    ) -> ActorCriticState:
        """Learn the value function, then the advantages, then move the policy."""
        assert isinstance(state, NaturalState)
        progress, now, here = state.progress, state.policy_now, state.here
        features, orders, drawn = progress.features, progress.orders, progress.drawn
        critique = self.criticised(state, transition)
        learns = critique.learns
        gradient = selection.log_gradient(now, transition.action)
        advantages = features.values(state.advantage, here, orders)
        expected = (gradient * advantages).sum()
        error = vectorize.prevent_fusion(critique.error - expected)
        learner = complete.LinearFunction(state.advantage, state.actor.trace, drawn["alpha_w"])
        learned = learner.learned(progress, here, gradient, error, learns)
        move, exists = unit_step(features, learned.weights, orders, drawn["alpha_p"])
        moves = learns & exists
        policy = features.stepped(state.actor.weights, learned.weights, orders, move, moves)
        after = progress.after(transition, learns, error, now.probabilities, advantages)
        actor = dataclasses.replace(state.actor, weights=policy, trace=learned.trace)
        return NaturalState(critique.critic, actor, critique.there, now, after, learned.weights)


def unit_step(
    features: Features, direction: Array, orders: Orders, alpha: Array
) -> tuple[Array, Array]:
    """Return the factor of `direction` [A, F] that makes a step of length `alpha`: [] float32; and
    whether there is one, [] bool: not where the length of `direction` is 0 or NaN.

    Where the sum of the squares overflows, from a length of 1.8e19 on, it is that of the numbers
    times a power of two, which is exact.
    """

    def of_scaled(operand: Any) -> Array:
        return features.squares(operand[0] * SHRINKING, operand[1])

    squares = features.squares(direction, orders)
    large = jnp.isinf(squares)
    length = lax.sqrt(vectorize.computed_where(large, of_scaled, (direction, orders), squares))
    factor = vectorize.prevent_fusion(alpha / length)
    return factor * jnp.where(large, jnp.float32(SHRINKING), 1.0), length > 0
