"""Common base of agents that plan in the posterior-mean MDP."""

import jax

from jbrl.agents.bayes.stepwise import StepwiseLearner
from jbrl.mdp import belief as beliefs
from jbrl.mdp import incremental
from jbrl.mdp.belief import Belief
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Transition


class Planner(StepwiseLearner[Belief, Belief]):
    """Agent that holds the posterior and the optimal plan of its mean, updated after each
    transition.
    """

    requires = BAYESIAN
    version = 2

    def train(self, key: jax.Array, prior: DirichletPrior) -> Belief:
        return beliefs.believe(prior.mdps, prior.discount)

    def reset(self, key: jax.Array, knowledge: Belief) -> Belief:
        return knowledge

    def note(self, state: Belief, transition: Transition) -> Belief:
        return beliefs.add_transition(
            state, transition.observation, transition.action, transition.next_observation
        )

    def think(self, state: Belief) -> Belief:
        return beliefs.improve(state)

    def ready(self, state: Belief) -> jax.Array:
        return incremental.converged(state.plan)
