"""Flat Dirichlet-multinomial belief about one MDP, with the optimal plan of its mean."""

import dataclasses

import jax

from jbrl import vectorize
from jbrl.base.pytree import record
from jbrl.mdp import incremental
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.mdp.incremental import Plan


@record
class Belief:
    """Posterior over MDPs and the solution of the posterior-mean MDP."""

    plan: Plan  # of the mean MDP; its weights are the posterior counts
    rewards: jax.Array  # [S, A, S] float32, known

    @property
    def counts(self) -> jax.Array:
        """Prior concentrations plus transitions seen, [S, A, S]."""
        return self.plan.weights


def believe(mdps: DirichletMDPs, discount: jax.Array, extra: jax.Array | float = 0.0) -> Belief:
    """Return the belief before the first transition.

    Args:
      extra: added to each gain, that is to expected reward times posterior count, [S, A] or
        a number.
    """
    gains = (mdps.concentrations * mdps.rewards).sum(-1) + extra
    plan = incremental.solve_counts(mdps.concentrations, gains, discount, mdps.initial_state)
    return Belief(plan, mdps.rewards)


def add_transition(
    belief: Belief, x: jax.Array, u: jax.Array, y: jax.Array, extra: jax.Array | float = 0.0
) -> Belief:
    """Return the belief after one more transition, its plan not yet updated (`improve`).

    No effect on a plan not `converged`.

    Args:
      extra: what the gain of (x, u) grows by besides the reward.
    """
    n_states, n_actions = belief.plan.q.shape
    gain = (
        vectorize.get_entry(belief.rewards.reshape(-1), (x * n_actions + u) * n_states + y) + extra
    )
    return dataclasses.replace(belief, plan=incremental.add_transition(belief.plan, x, u, y, gain))


def improve(belief: Belief) -> Belief:
    """Take one step towards a plan that is optimal for the posterior mean."""
    return dataclasses.replace(belief, plan=incremental.improve(belief.plan))


def learn(belief: Belief, x: jax.Array, u: jax.Array, y: jax.Array) -> Belief:
    """Return the belief after one more transition: the count of (x, u, y) grows by one, the plan is
    optimal for the new mean.
    """
    noted = add_transition(belief, x, u, y)
    return dataclasses.replace(noted, plan=incremental.converge(noted.plan))
