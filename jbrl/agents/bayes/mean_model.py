"""Agents that plan in the posterior-mean MDP, and the one that plans in the true MDP.

`Planner` holds the belief and the optimal plan of its mean, solved again after each transition.
What the agents add is how they explore: e-Greedy, VDBE-e-Greedy and Soft-max choose at random, BEB
raises the rewards of what is little known. Optimal, the upper reference line, has nothing to learn.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Tabular
from jbrl.mdp import incremental, sampling
from jbrl.mdp.dirichlet import GREATEST, DirichletMDPs
from jbrl.mdp.incremental import Plan
from jbrl.mdp.mdp import expected_rewards
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, Oracle, Stepwise, Transition


@record
class Belief:
    """Posterior over MDPs and the solution of the posterior-mean MDP."""

    plan: Plan  # of the mean MDP; its weights are the posterior counts
    rewards: Array  # [S, A, S] float32, known

    @property
    def counts(self) -> Array:
        """Prior concentrations plus transitions seen, [S, A, S]."""
        return self.plan.weights


def prior_belief(mdps: DirichletMDPs, discount: Array, extra: Array | float = 0.0) -> Belief:
    """Return the belief before the first transition.

    Args:
      extra: added to each gain, that is to expected reward times posterior count, [S, A] or
        a number.
    """
    gains = (mdps.concentrations * mdps.rewards).sum(-1) + extra
    plan = incremental.solve_counts(mdps.concentrations, gains, discount, mdps.initial_state)
    return Belief(plan, mdps.rewards)


def add_transition(
    belief: Belief, x: Array, u: Array, y: Array, extra: Array | float = 0.0
) -> Belief:
    """Return the belief after one more transition, its plan not yet updated (`improve`).

    No effect on a plan not `converged`.

    Args:
      extra: what the gain of (x, u) grows by besides the reward.
    """
    gain = _reward(belief, x, u, y) + extra
    return dataclasses.replace(belief, plan=incremental.add_transition(belief.plan, x, u, y, gain))


def _reward(belief: Belief, x: Array, u: Array, y: Array) -> Array:
    n_states, n_actions = belief.plan.q.shape
    return vectorize.get_entry(belief.rewards.reshape(-1), (x * n_actions + u) * n_states + y)


def improve(belief: Belief) -> Belief:
    """Take one step towards a plan that is optimal for the posterior mean."""
    return dataclasses.replace(belief, plan=incremental.improve(belief.plan))


def learn(belief: Belief, x: Array, u: Array, y: Array) -> Belief:
    """Return the belief after one more transition: the count of (x, u, y) grows by one, the plan is
    optimal for the new mean.
    """
    noted = add_transition(belief, x, u, y)
    return dataclasses.replace(noted, plan=incremental.converge(noted.plan))


class Planner(Stepwise[Belief, Belief]):
    """Agent that holds the posterior and the optimal plan of its mean, updated after each
    transition.
    """

    requires = BAYESIAN
    holds_model = True
    version = 2

    def train(self, key: Array, prior: DirichletPrior) -> Belief:
        return prior_belief(prior.mdps, prior.discount)

    def reset(self, key: Array, knowledge: Belief) -> Belief:
        return knowledge

    def add_transition(self, state: Belief, transition: Transition) -> Belief:
        return add_transition(
            state, transition.observation, transition.action, transition.next_observation
        )

    def improve(self, state: Belief) -> Belief:
        return improve(state)

    def converged(self, state: Belief) -> Array:
        return incremental.converged(state.plan)


@register_agent("e-Greedy", cite="castronovo2016")
class EpsilonGreedy(Planner):
    """Greedy with respect to the posterior-mean MDP, a uniformly random action with
    probability epsilon.

    After each transition the mean MDP is solved again. A random action may happen to be the greedy
    one; greedy actions that tie are drawn uniformly. Castronovo et al. 2016, section 5.1.2.

    One decision costs a few sweeps of S^2 A multiplications.
    """

    epsilon: float = parameter(0.0, "probability of a uniformly random action", low=0.0, high=1.0)

    def act(self, key: Array, state: Belief, observation: Array) -> tuple[Array, Belief]:
        return _greedy_or_random(key, state.plan, observation, self.epsilon), state


def _greedy_or_random(key: Array, plan: Plan, x: Array, epsilon: Array | float) -> Array:
    """Return any action with probability `epsilon`, else an optimal one of `plan` in state `x`: []
    int32.
    """
    uniforms = tuple(sampling.uniforms(key))  # taken out once
    greedy = incremental.greedy(plan, x, uniforms[1])
    return selection.epsilon_greedy(greedy, plan.q.shape[1], epsilon, uniforms)


@record
class VDBEState:
    belief: Belief
    epsilons: Array  # [S] float32, probability of a random action in each state
    x: Array  # [] int32, where the last transition started
    action: Array  # [] int32, what was done there
    before: Array  # [] float32, its value before that transition was learned
    moves: Array  # [] bool, whether that transition changes the value


@register_agent("VDBE-e-Greedy", cite="tokic2010")
class VDBE(Stepwise[Belief, VDBEState]):
    """e-Greedy with an epsilon for each state that follows how much the value of what was done
    there changes.

    After a transition from x under u, with Q and Q' the optimal action values of the posterior-mean
    MDP before and after learning from it,

        f = (1 - e) / (1 + e),   e = exp(-|Q'(x, u) - Q(x, u)| / sigma)
        epsilon(x) <- delta f + (1 - delta) epsilon(x)

    Tokic 2010, equations 5 and 6, who recommends delta = 1 / A. A transition that is worth Q(x, u),
    up to rounding, changes no value. (The program published with Castronovo et al. 2016 changes
    epsilon in all states at once.)

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
    version = 3

    def train(self, key: Array, prior: DirichletPrior) -> Belief:
        return prior_belief(prior.mdps, prior.discount)

    def reset(self, key: Array, knowledge: Belief) -> VDBEState:
        epsilons = jnp.full(knowledge.plan.q.shape[0], self.epsilon0, jnp.float32)
        zero = jnp.int32(0)
        return VDBEState(knowledge, epsilons, zero, zero, jnp.float32(0), jnp.bool_(False))

    def act(self, key: Array, state: VDBEState, observation: Array) -> tuple[Array, VDBEState]:
        epsilon = vectorize.get_entry(state.epsilons, observation)
        return _greedy_or_random(key, state.belief.plan, observation, epsilon), state

    def add_transition(self, state: VDBEState, transition: Transition) -> VDBEState:
        x, action, y = transition.observation, transition.action, transition.next_observation
        plan, value = state.belief.plan, _value(state.belief.plan, x, action)
        # rounding errors of Q' - Q grow with the horizon, those of what the transition is worth not
        worth = (
            _reward(state.belief, x, action, y)
            + plan.discount * vectorize.get_entry(plan.values, y)
            - (1 - plan.discount) * plan.level
        )
        moves = jnp.abs(worth - value) > vectorize.get_entry(plan.tolerance, x)
        new = (x, action, value + plan.level, moves)
        old = (state.x, state.action, state.before, state.moves)
        ready = self.converged(state)
        kept = (jnp.where(ready, v, was) for v, was in zip(new, old, strict=True))
        return VDBEState(add_transition(state.belief, x, action, y), state.epsilons, *kept)

    def improve(self, state: VDBEState) -> VDBEState:
        belief = improve(state.belief)
        after = _value(belief.plan, state.x, state.action) + belief.plan.level
        change = jnp.abs(after - state.before)
        surprise = jnp.where(state.moves, jnp.tanh(change / (2 * self.sigma)), 0.0)  # f above
        weight = jnp.where(self.delta > 0, self.delta, jnp.float32(1 / belief.plan.q.shape[1]))
        here = vectorize.get_entry(state.epsilons, state.x)
        learned = ~self.converged(state) & incremental.converged(belief.plan)
        here = jnp.where(learned, weight * surprise + (1 - weight) * here, here)
        return dataclasses.replace(
            state, belief=belief, epsilons=vectorize.set_entry(state.epsilons, state.x, here)
        )

    def converged(self, state: VDBEState) -> Array:
        return incremental.converged(state.belief.plan)


def _value(plan: Plan, x: Array, action: Array) -> Array:
    """Return Q(x, u), less the level."""
    return vectorize.get_entry(plan.q.reshape(-1), x * plan.q.shape[1] + action)


@register_agent("Soft-max", cite="castronovo2016")
class SoftMax(Planner):
    """Random actions with probabilities that grow with their values in the posterior-mean MDP.

        P(u) = exp(Q(x, u) / tau) / sum_v exp(Q(x, v) / tau)

    with Q the optimal action values of the posterior-mean MDP, solved again after each transition.
    Small tau: greedy, ties drawn uniformly; large tau: uniformly random. Castronovo et al. 2016,
    section 5.1.3. (The program published with that paper does not normalise these weights and
    always plays action 0.)

    One decision costs a few sweeps of S^2 A multiplications.
    """

    tau: float = parameter(
        1.0,
        "temperature, in units of return: values closer than this are hardly distinguished",
        low=1e-6,
    )

    def act(self, key: Array, state: Belief, observation: Array) -> tuple[Array, Belief]:
        probabilities = boltzmann(state.plan, observation, self.tau)
        return sampling.categorical(probabilities, sampling.uniforms(key)[0]), state


def boltzmann(plan: Plan, x: Array, tau: Array | float) -> Array:
    """Return probabilities of the actions in state `x` at temperature `tau`: [A] float32.

    Values that tie with the greatest are taken for equal to it: a small tau must not magnify
    rounding errors.
    """
    q, tolerance = vectorize.get_entry(plan.q, x), vectorize.get_entry(plan.tolerance, x)
    regret = q.max() - q
    weights = jnp.exp(-jnp.where(regret <= tolerance, 0.0, regret) / tau)
    return weights / weights.sum()


@register_agent("BEB", cite="kolter2009")
class BEB(Planner):
    """Greedy with respect to the posterior-mean MDP whose rewards are raised where little is known.

    With c(x, u, y) the posterior count of a transition (prior concentration plus times seen), n(x,
    u) = sum_y c(x, u, y) and P = c / n, the reward of (x, u) becomes

        r(x, u) + beta / (1 + n(x, u))                                   bonus = "pair"
        r(x, u) + sum_{y: c > 0} P(x, u, y) beta / c(x, u, y)            bonus = "transition"

    The first is that of Kolter and Ng 2009, section 3, and of the published program; the second
    that of Castronovo et al. 2016, section 5.1.8, whose sum is beta / n(x, u) times the number of
    possible next states; an impossible transition, c = 0, contributes nothing. Actions that tie are
    drawn uniformly. Fully deterministic otherwise. One decision costs a few sweeps of S^2 A
    multiplications.
    """

    beta: float = parameter(2.0, "weight of the bonus", low=0.0, high=GREATEST)
    bonus: str = parameter("pair", "what the bonus counts", choices=("pair", "transition"))

    def train(self, key: Array, prior: DirichletPrior) -> Belief:
        counts = prior.mdps.concentrations
        total = counts.sum(-1)
        extra = self.beta * (
            total / (1 + total)
            if self.bonus == "pair"
            else (counts > 0).sum(-1, dtype=counts.dtype)
        )
        return prior_belief(prior.mdps, prior.discount, extra)

    def act(self, key: Array, state: Belief, observation: Array) -> tuple[Array, Belief]:
        return incremental.greedy(state.plan, observation, sampling.uniforms(key)[0]), state

    def add_transition(self, state: Belief, transition: Transition) -> Belief:
        x, action, y = transition.observation, transition.action, transition.next_observation
        # A plan holds expected rewards times n. Of beta n / (1 + n), or beta times the number of
        # possible next states, what n + 1 adds.
        n_states, n_actions = state.plan.q.shape
        pair = x * n_actions + action
        if self.bonus == "pair":
            total = vectorize.get_entry(state.plan.totals.reshape(-1), pair)
            extra = self.beta / ((1 + total) * (2 + total))
        else:
            extra = jnp.where(
                vectorize.get_entry(state.counts.reshape(-1), pair * n_states + y) > 0,
                0.0,
                self.beta,
            )
        return add_transition(state, x, action, y, extra)


@register_agent("Optimal", cite="castronovo2016")
class Optimal(Oracle, Agent[Any, Plan]):
    """The optimal policy of the true MDP, which it alone is shown.

    An oracle, not a competitor: no agent that has to learn can score higher on average. Actions
    that tie are drawn uniformly. Part of the program published with Castronovo et al. 2016.

    Solves one MDP for each trajectory; O(A) per decision.
    """

    requires = BAYESIAN
    holds_model = True
    version = 2

    def reveal(self, knowledge: Any, environment: Tabular) -> Plan:  # type: ignore[override]  # `requires` leaves no other environment
        mdp = environment.mdp
        rewards = expected_rewards(mdp.transitions, mdp.rewards)
        return incremental.solve(mdp.transitions, rewards, knowledge.discount, mdp.initial_state)

    def reset(self, key: Array, knowledge: Plan) -> Plan:
        return knowledge

    def act(self, key: Array, state: Plan, observation: Array) -> tuple[Array, Plan]:
        return incremental.greedy(state, observation, sampling.uniforms(key)[0]), state
