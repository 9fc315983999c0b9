"""VDBE-e-Greedy: explore where values still change."""

import dataclasses

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.bayes.epsilon_greedy import greedy_or_random
from jbrl.agents.bayes.stepwise import StepwiseLearner
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp import belief as beliefs
from jbrl.mdp import incremental
from jbrl.mdp.belief import Belief
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Transition


@record
class VDBEState:
    belief: Belief
    epsilons: jax.Array  # [S] float32, probability of a random action in each state
    x: jax.Array  # [] int32, where the last transition started
    action: jax.Array  # [] int32, what was done there
    before: jax.Array  # [] float32, its value before that transition was learned


@register_agent("VDBE-e-Greedy", cite="tokic2010")
class VDBE(StepwiseLearner[Belief, VDBEState]):
    """e-Greedy with an epsilon for each state that follows how much the value of what was done
    there changes.

    After a transition from x under u, with Q and Q' the optimal action values of the posterior-mean
    MDP before and after learning from it,

        f = (1 - e) / (1 + e),   e = exp(-|Q'(x, u) - Q(x, u)| / sigma)
        epsilon(x) <- delta f + (1 - delta) epsilon(x)

    Tokic 2010, equations 5 and 6, who recommends delta = 1 / A. (The program published with
    Castronovo et al. 2016 changes epsilon in all states at once.)

    One decision costs a few sweeps of S^2 A multiplications.
    """

    sigma: float = parameter(
        1.0,
        "change of value, in units of return, that calls for exploration; small: explores longer",
        low=1e-6,
    )
    delta: float = parameter(
        0.0, "weight of the last change of value; 0 stands for 1 / A", low=0.0, high=1.0
    )
    epsilon0: float = parameter(1.0, "initial probability of a random action", low=0.0, high=1.0)

    requires = BAYESIAN
    version = 2

    def train(self, key: jax.Array, prior: DirichletPrior) -> Belief:
        return beliefs.believe(prior.mdps, prior.discount)

    def reset(self, key: jax.Array, knowledge: Belief) -> VDBEState:
        epsilons = jnp.full(knowledge.plan.q.shape[0], self.epsilon0, jnp.float32)
        return VDBEState(knowledge, epsilons, jnp.int32(0), jnp.int32(0), jnp.float32(0))

    def act(
        self, key: jax.Array, state: VDBEState, observation: jax.Array
    ) -> tuple[jax.Array, VDBEState]:
        return greedy_or_random(
            key, state.belief.plan, observation, vectorize.get_entry(state.epsilons, observation)
        ), state

    def note(self, state: VDBEState, transition: Transition) -> VDBEState:
        x, action, y = transition.observation, transition.action, transition.next_observation
        new = (x, action, _value(state.belief, x, action))
        kept = (
            jnp.where(self.ready(state), v, old)
            for v, old in zip(new, (state.x, state.action, state.before), strict=True)
        )
        return VDBEState(beliefs.add_transition(state.belief, x, action, y), state.epsilons, *kept)

    def think(self, state: VDBEState) -> VDBEState:
        belief = beliefs.improve(state.belief)
        change = jnp.abs(_value(belief, state.x, state.action) - state.before)
        surprise = jnp.tanh(change / (2 * self.sigma))  # f above
        weight = jnp.where(self.delta > 0, self.delta, jnp.float32(1 / belief.plan.q.shape[1]))
        here = vectorize.get_entry(state.epsilons, state.x)
        learned = ~self.ready(state) & incremental.converged(belief.plan)
        here = jnp.where(learned, weight * surprise + (1 - weight) * here, here)
        return dataclasses.replace(
            state, belief=belief, epsilons=vectorize.set_entry(state.epsilons, state.x, here)
        )

    def ready(self, state: VDBEState) -> jax.Array:
        return incremental.converged(state.belief.plan)


def _value(belief: Belief, x: jax.Array, action: jax.Array) -> jax.Array:
    plan = belief.plan
    return vectorize.get_entry(plan.q.reshape(-1), x * plan.q.shape[1] + action) + plan.level
