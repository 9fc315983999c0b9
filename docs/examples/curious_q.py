"""Q-learning that starts from what the prior says."""

import chex
import jax.numpy as jnp

from jbrl import BAYESIAN, Agent, DirichletPrior, Transition, parameter, planning, record, register_agent, sampling
from jbrl.mdp.dirichlet import mean_transitions
from jbrl.mdp.mdp import expected_rewards


@record
class Table:
    q: chex.Array  # [S, A] float32, estimated action values
    visits: chex.Array  # [S, A] float32
    discount: chex.Array  # [] float32


@register_agent("CuriousQ", cite="@phdthesis{watkins1989, author={Watkins, C.}, title={Learning from Delayed Rewards}, year={1989}}")
class CuriousQ(Agent[Table, Table]):
    """Q-learning from the optimal values of the prior-mean MDP, curious about rare actions. Watkins 1989. O(A) per decision."""

    bonus: float = parameter(1.0, "what trying an action for the first time is worth, in units of return", low=0.0)
    patience: float = parameter(1.0, "visits that the prior counts for: large means a small learning rate", low=0.0)

    requires = BAYESIAN  # a Dirichlet prior over finite MDPs

    def train(self, key: chex.PRNGKey, prior: DirichletPrior) -> Table:
        mean = mean_transitions(prior.mdps.concentrations)
        rewards = expected_rewards(mean, prior.mdps.rewards)
        q = planning.value_iteration(mean, rewards, prior.discount, tolerance=1e-3).q
        return Table(q, jnp.zeros_like(q), prior.discount)

    def reset(self, key: chex.PRNGKey, knowledge: Table) -> Table:
        return knowledge

    def act(self, key: chex.PRNGKey, state: Table, observation: chex.Array) -> tuple[chex.Array, Table]:
        worth = state.q[observation] + self.bonus / (1 + state.visits[observation])
        return sampling.choose_maximiser(worth, sampling.uniforms(key)[0]), state

    def observe(self, key: chex.PRNGKey, state: Table, transition: Transition) -> Table:
        x, action, y = transition.observation, transition.action, transition.next_observation
        visits = state.visits.at[x, action].add(1.0)
        rate = 1 / (self.patience + visits[x, action])
        error = transition.reward + state.discount * state.q[y].max() - state.q[x, action]
        return Table(state.q.at[x, action].add(rate * error), visits, state.discount)
