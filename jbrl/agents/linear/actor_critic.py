"""Actor-critics with linear functions as complete algorithms: AC, plain, with scaled step sizes and
with the step size of Parl2; and NAC-TD, which follows the natural gradient.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from jbrl import vectorize
from jbrl.agents.linear import parl2, softmax
from jbrl.agents.linear.drawn import CompleteLinear, Drawing, Progress, decay, step_size
from jbrl.agents.linear.features import Features
from jbrl.agents.linear.traces import Orders, TraceStep
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

    value: jax.Array  # [1, F] float32, weights of the value function
    value_trace: jax.Array  # [1, F] float32
    policy: jax.Array  # [A, F] float32, weights of the preferences
    trace: jax.Array  # [A, F] float32, of grad log pi
    alpha_v: jax.Array  # [] float32, step size of the value function
    here: jax.Array  # the last observation, `encoded`; not that of a first step
    policy_now: softmax.Policy  # in the state of the last decision
    progress: Progress


@record
class Critique:
    """Judgement of a transition by the value function, and the value function after it."""

    error: jax.Array  # [] float32
    value: jax.Array  # [1, F] float32
    trace: jax.Array  # [1, F] float32
    alpha: jax.Array  # [] float32
    there: jax.Array  # the next observation, `encoded`
    learns: jax.Array  # [] bool, whether the agent still learns


@record
class LinearActorCritic(CompleteLinear):
    """Base of the actor-critics: a softmax policy over linear preferences, and a critic.

    Class attributes:
      adapts: the step size of the critic is Parl2's, not drawn.
    """

    adapts: ClassVar[bool] = False

    def reset(self, key: jax.Array, knowledge: Prior) -> ActorCriticState:
        """Draw the hyperparameters; all weights are 0."""
        n_actions = knowledge.spec.actions.n
        drawing = self.drawing(key, knowledge)
        self.draw_alphas(drawing, n_actions)
        progress = drawing.progress()
        critic, actor = (
            jnp.zeros((rows, progress.features.capacity), jnp.float32) for rows in (1, n_actions)
        )
        alpha = progress.drawn.get("alpha_v", jnp.float32(parl2.START))
        now = softmax.policy(jnp.zeros(n_actions, jnp.float32))
        here = progress.features.blank
        return ActorCriticState(critic, critic, actor, actor, alpha, here, now, progress)

    def draw_alphas(self, drawing: Drawing, n_actions: int) -> None:
        """Draw the step sizes."""
        if not self.adapts:
            self.draw_alpha(drawing, "alpha_v", prefix="critic_")
        self.draw_alpha(drawing, "alpha_p", parts=n_actions, prefix="actor_")

    def act(
        self, key: jax.Array, state: ActorCriticState, observation: jax.Array
    ) -> tuple[jax.Array, ActorCriticState]:
        """Draw an action from the policy."""
        progress = state.progress
        here = progress.encoded(observation, state.here)
        now = softmax.policy(progress.features.values(state.policy, here, progress.orders))
        after = dataclasses.replace(state, here=here, policy_now=now)
        return softmax.draw(now, sampling.uniforms(key)[0]), after

    def observe(
        self, key: jax.Array, state: ActorCriticState, transition: Transition
    ) -> ActorCriticState:
        """Learn the value function, then the policy."""
        progress = state.progress
        found = self.criticised(state, transition)
        gradient = softmax.gradient(state.policy_now, transition.action)
        step = progress.drawn["alpha_p"] * found.error
        keeps = found.learns & ~jnp.isnan(found.error)
        policy, trace = progress.features.learned(
            state.policy,
            state.trace,
            state.here,
            progress.orders,
            TraceStep(decay(progress), gradient, step, keeps),
        )
        values = (state.policy_now.probabilities,)
        after = progress.after(transition, found.learns, found.error, *values)
        return ActorCriticState(
            found.value,
            found.trace,
            policy,
            trace,
            found.alpha,
            found.there,
            state.policy_now,
            after,
        )

    def criticised(self, state: ActorCriticState, transition: Transition) -> Critique:
        """Return the error of a transition, and the value function that has learned from it."""
        progress = state.progress
        features, orders = progress.features, progress.orders
        here, there = state.here, features.encoded(transition.next_observation, orders)
        before, after = features.products(state.value, (here, there), orders)
        goes_on = jnp.where(transition.terminated, 0.0, progress.drawn["gamma"])
        future = jnp.where(transition.terminated, 0.0, goes_on * after[0])
        bonus = self.bonus(state, transition)
        error = vectorize.prevent_fusion(transition.reward + bonus + future - before[0])
        learns, one = self.learns(progress), jnp.ones(1, jnp.float32)
        if self.adapts:
            learner = parl2.Learner(state.value, state.value_trace, state.alpha_v)
            step = parl2.Step(decay(progress), one, goes_on * one, error, learns)
            learned = parl2.learned(features, learner, (here, there), orders, step)
            return Critique(error, *learned, there, learns)
        keeps = learns & ~jnp.isnan(error)
        rule = TraceStep(decay(progress), one, state.alpha_v * error, keeps)
        value, trace = features.learned(state.value, state.value_trace, here, orders, rule)
        return Critique(error, value, trace, state.alpha_v, there, learns)

    def bonus(self, state: ActorCriticState, transition: Transition) -> jax.Array:
        """Return what is added to the reward: [] float32."""
        del state, transition
        return jnp.float32(0)


@record
class PlainCritic(LinearActorCritic):
    """Base of those that draw all step sizes from ranges that do not depend on the features."""

    critic_alpha_low: float = step_size(
        1e-3, "least step size of the critic for tables, drawn log-uniformly"
    )
    critic_alpha_high: float = step_size(0.1, "greatest step size of the critic for tables")
    critic_fourier_alpha_low: float = step_size(
        1e-6, "least step size of the critic for Fourier bases"
    )
    critic_fourier_alpha_high: float = step_size(
        1e-3, "greatest step size of the critic for Fourier bases"
    )
    actor_alpha_low: float = step_size(
        1e-3, "least step size of the actor for tables, drawn log-uniformly"
    )
    actor_alpha_high: float = step_size(0.1, "greatest step size of the actor for tables")
    actor_fourier_alpha_low: float = step_size(
        1e-6, "least step size of the actor for Fourier bases"
    )
    actor_fourier_alpha_high: float = step_size(
        1e-3, "greatest step size of the actor for Fourier bases"
    )


@record
class ScaledActor(LinearActorCritic):
    """Base of those that divide the step size of the actor for a Fourier basis by its features
    times the actions.
    """

    per_feature = True

    actor_alpha_low: float = step_size(
        1e-3, "least step size of the actor for tables, drawn log-uniformly"
    )
    actor_alpha_high: float = step_size(0.1, "greatest step size of the actor for tables")
    actor_fourier_alpha_low: float = step_size(
        1e-3, "least step size of the actor for Fourier bases, before the division"
    )
    actor_fourier_alpha_high: float = step_size(
        1.0, "greatest step size of the actor for Fourier bases, before the division"
    )


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

    critic_alpha_low: float = step_size(
        1e-3, "least step size of the critic for tables, drawn log-uniformly"
    )
    critic_alpha_high: float = step_size(0.1, "greatest step size of the critic for tables")
    critic_fourier_alpha_low: float = step_size(
        1e-3, "least step size of the critic for Fourier bases, before the division"
    )
    critic_fourier_alpha_high: float = step_size(
        1.0, "greatest step size of the critic for Fourier bases, before the division"
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

    def bonus(self, state: ActorCriticState, transition: Transition) -> jax.Array:
        """See `LinearActorCritic`."""
        return -self.surprise * softmax.log_probability(state.policy_now, transition.action)


@record
class NaturalState(ActorCriticState):
    """State of an actor-critic, and the weights of its advantages."""

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

    advantage_alpha_low: float = step_size(
        1e-3, "least step size of the advantages for tables, drawn log-uniformly"
    )
    advantage_alpha_high: float = step_size(0.1, "greatest step size of the advantages for tables")
    advantage_fourier_alpha_low: float = step_size(
        1e-6, "least step size of the advantages for Fourier bases"
    )
    advantage_fourier_alpha_high: float = step_size(
        1e-3, "greatest step size of the advantages for Fourier bases"
    )

    def draw_alphas(self, drawing: Drawing, n_actions: int) -> None:
        """See `LinearActorCritic`."""
        super().draw_alphas(drawing, n_actions)
        self.draw_alpha(drawing, "alpha_w", prefix="advantage_")

    def reset(self, key: jax.Array, knowledge: Prior) -> NaturalState:
        """Draw the hyperparameters; all weights are 0."""
        state = super().reset(key, knowledge)
        return NaturalState(**vars(state), advantage=state.policy)

    def observe(
        self, key: jax.Array, state: ActorCriticState, transition: Transition
    ) -> ActorCriticState:
        """Learn the value function, then the advantages, then move the policy."""
        assert isinstance(state, NaturalState)
        progress = state.progress
        features, orders = progress.features, progress.orders
        here = state.here
        found = self.criticised(state, transition)
        gradient = softmax.gradient(state.policy_now, transition.action)
        advantages = features.values(state.advantage, here, orders)
        expected = (gradient * advantages).sum()
        error = vectorize.prevent_fusion(found.error - expected)
        keeps = found.learns & ~jnp.isnan(error)
        step = progress.drawn["alpha_w"] * error
        advantage, trace = features.learned(
            state.advantage,
            state.trace,
            here,
            orders,
            TraceStep(decay(progress), gradient, step, keeps),
        )
        move, exists = unit_step(features, advantage, orders, progress.drawn["alpha_p"])
        moves = found.learns & exists
        policy = features.stepped(state.policy, advantage, orders, move, moves)
        after = progress.after(
            transition, found.learns, error, state.policy_now.probabilities, advantages
        )
        return NaturalState(
            found.value,
            found.trace,
            policy,
            trace,
            found.alpha,
            found.there,
            state.policy_now,
            after,
            advantage,
        )


def unit_step(
    features: Features, direction: jax.Array, orders: Orders, alpha: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the factor of `direction` [A, F] that makes a step of length `alpha`: [] float32; and
    whether there is one, [] bool: not where the length of `direction` is 0 or NaN.

    Where the sum of the squares overflows, from a length of 1.8e19 on, it is that of the numbers
    times a power of two, which is exact.
    """

    def of_scaled(operand: Any) -> jax.Array:
        return features.squares(operand[0] * SHRINKING, operand[1])

    squares = features.squares(direction, orders)
    large = jnp.isinf(squares)
    length = lax.sqrt(vectorize.computed_where(large, of_scaled, (direction, orders), squares))
    factor = vectorize.prevent_fusion(alpha / length)
    return factor * jnp.where(large, jnp.float32(SHRINKING), 1.0), length > 0
