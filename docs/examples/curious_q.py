"""Q-learning that starts from what the prior says."""

import jax
import jax.numpy as jnp

import jbrl

CITE = "@phdthesis{w, author={Watkins, C.}, title={Learning from Delayed Rewards}, year={1989}}"


@jbrl.record
class Table:
    q: jax.Array  # [S, A] float32, estimated action values
    visits: jax.Array  # [S, A] float32
    discount: jax.Array  # [] float32


@jbrl.register_agent("CuriousQ", cite=CITE)
class CuriousQ(jbrl.Agent[Table, Table]):
    """Q-learning from values of the prior-mean MDP, curious about rare actions. Watkins 1989."""

    requires = jbrl.BAYESIAN  # a Dirichlet prior over finite MDPs

    bonus: float = jbrl.parameter(1.0, "worth of an action never tried, in units of return", low=0)
    patience: float = jbrl.parameter(1.0, "visits that the prior counts for", low=0)

    def train(self, key: jax.Array, prior: jbrl.DirichletPrior) -> Table:
        concentrations = prior.mdps.concentrations
        mean = concentrations / concentrations.sum(-1, keepdims=True)
        rewards = (mean * prior.mdps.rewards).sum(-1)
        q = jbrl.planning.value_iteration(mean, rewards, prior.discount, tolerance=1e-3).q
        return Table(q, jnp.zeros_like(q), prior.discount)

    def reset(self, key: jax.Array, knowledge: Table) -> Table:
        return knowledge

    def act(self, key: jax.Array, state: Table, observation: jax.Array) -> tuple[jax.Array, Table]:
        worth = state.q[observation] + self.bonus / (1 + state.visits[observation])
        return jbrl.sampling.choose_maximiser(worth, jbrl.sampling.uniforms(key)[0]), state

    def observe(self, key: jax.Array, state: Table, transition: jbrl.Transition) -> Table:
        x, action, y = transition.observation, transition.action, transition.next_observation
        visits = state.visits.at[x, action].add(1.0)
        rate = 1 / (self.patience + visits[x, action])
        error = transition.reward + state.discount * state.q[y].max() - state.q[x, action]
        return Table(state.q.at[x, action].add(rate * error), visits, state.discount)
