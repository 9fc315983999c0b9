"""PSRL: posterior sampling for reinforcement learning."""

import dataclasses

import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp import planning, sampling
from jbrl.mdp.belief import count_transition
from jbrl.mdp.mdp import expected_rewards
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, Cost, HasCost, Transition


@record
class PSRLState:
    counts: Array  # [S, A, S] float32, prior concentrations + transitions seen
    rewards: Array  # [S, A, S] float32, known
    discount: Array  # [] float32
    policy: Array  # [S] int32, optimal in the sampled MDP
    left: Array  # [] int32, decisions until the next sample
    start: Array  # [] int32, where the trajectory starts, -1: anywhere


@register_agent("PSRL", cite="osband2013,strens2000")
class PSRL(HasCost, Agent[DirichletPrior, PSRLState]):
    """Optimal policy of an MDP that is drawn from the posterior every `period` decisions.

    An action is thus played as often as it is thought likely to be optimal; keeping to one sample
    for a while is what lets exploration reach distant states. The first MDP is drawn from the
    prior, at the first decision. Osband, Russo and Van Roy 2013, who sample at the start of each
    episode; Strens 2000 for trajectories without episodes.

    Every `period` decisions: S^2 A gamma variates and the solution of one MDP; O(S) for the others.
    """

    period: int = parameter(5, "decisions between two samples", low=1, high=2**30)

    requires = BAYESIAN
    version = 2

    def cost(self, prior: DirichletPrior) -> Cost:
        """Count one step for each probability drawn."""
        return Cost(steps=prior.mdps.concentrations.size / int(self.period))

    def reset(self, key: Array, knowledge: DirichletPrior) -> PSRLState:
        mdps = knowledge.mdps
        policy = jnp.zeros(mdps.n_states, jnp.int32)
        return PSRLState(
            mdps.concentrations,
            mdps.rewards,
            knowledge.discount,
            policy,
            left=jnp.int32(0),
            start=mdps.initial_state,
        )

    def act(self, key: Array, state: PSRLState, observation: Array) -> tuple[Array, PSRLState]:
        due = state.left == 0
        _, state = vectorize.when_any(due, _sample, (key, state))
        left = jnp.where(due, self.period, state.left) - 1
        return state.policy[observation], dataclasses.replace(state, left=left)

    def observe(self, key: Array, state: PSRLState, transition: Transition) -> PSRLState:
        counts = count_transition(
            state.counts, transition.observation, transition.action, transition.next_observation
        )
        return dataclasses.replace(state, counts=counts)


def _sample(operand: tuple[Array, PSRLState]) -> tuple[Array, PSRLState]:
    """Follow the optimal policy of an MDP drawn from the posterior."""
    key, state = operand
    transitions = sampling.dirichlet(key, state.counts)
    rewards = expected_rewards(transitions, state.rewards)
    policy = planning.policy_iteration(transitions, rewards, state.discount, state.start).policy
    return key, dataclasses.replace(state, policy=policy)
