"""Flat Dirichlet-multinomial belief about one MDP, with the optimal plan of its mean."""

import dataclasses

import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.base.pytree import record
from jbrl.mdp import incremental
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.mdp.incremental import Plan


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
    n_states, n_actions = belief.plan.q.shape
    gain = (
        vectorize.get_entry(belief.rewards.reshape(-1), (x * n_actions + u) * n_states + y) + extra
    )
    return dataclasses.replace(belief, plan=incremental.add_transition(belief.plan, x, u, y, gain))


def improve(belief: Belief) -> Belief:
    """Take one step towards a plan that is optimal for the posterior mean."""
    return dataclasses.replace(belief, plan=incremental.improve(belief.plan))


def learn(belief: Belief, x: Array, u: Array, y: Array) -> Belief:
    """Return the belief after one more transition: the count of (x, u, y) grows by one, the plan is
    optimal for the new mean.
    """
    noted = add_transition(belief, x, u, y)
    return dataclasses.replace(noted, plan=incremental.converge(noted.plan))


def add_count(counts: Array, row: Array, y: Array) -> tuple[Array, Array]:
    """Count one transition to `y`.

    Args:
      counts: [R, S] float32, one row for each pair of state and action.
      row: [] int32, number of the pair.
      y: [] int32.

    Returns: the new row, [S], and the table with it, [R, S].
    """
    seen = vectorize.get_row(counts, row) + (
        jnp.arange(counts.shape[1], dtype=jnp.int32) == y
    ).astype(counts.dtype)
    return seen, vectorize.set_row(counts, row, seen)


def count_transition(counts: Array, x: Array, u: Array, y: Array) -> Array:
    """Return `counts` [S, A, S] float32 with one transition more."""
    n_states, n_actions, _ = counts.shape
    _, table = add_count(counts.reshape(-1, n_states), x * n_actions + u, y)
    return table.reshape(counts.shape)
