"""The step size of Parl2: the greatest with which an update does not overshoot.

One number for each array of weights. It starts at 1, is never raised, and is not reset between
episodes. Dabney and Barto 2012, alpha-bound, in the form of the program of Jordan et al. 2020.
"""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.linear.features import Features
from jbrl.agents.linear.traces import Orders
from jbrl.base.pytree import record

START = 1.0


@record
class Learner:
    """A linear function that learns with its own step size."""

    weights: jax.Array  # [A, F] float32
    trace: jax.Array  # [A, F] float32
    alpha: jax.Array  # [] float32


@record
class Step:
    """One transition, as a linear function learns from it."""

    decay: jax.Array  # [] float32, of the trace
    here: jax.Array  # [A] float32, rows of the gradient before the transition
    there: jax.Array  # [A] float32, rows of gamma times the gradient after it; 0 at the end
    error: jax.Array  # [] float32
    learns: jax.Array  # [] bool


def bounded(alpha: jax.Array, change: jax.Array) -> jax.Array:
    """Return the step size after a transition: min(alpha, -1 / change) where `change`, the product
    of the trace with gamma phi' - phi, is negative.
    """
    return jnp.where(change < 0, jnp.minimum(alpha, -1 / change), alpha)


def learned(
    features: Features,
    learner: Learner,
    ats: tuple[jax.Array, jax.Array],
    orders: Orders,
    step: Step,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return weights and trace [A, F], and the step size [], after a transition from ats[0] to
    ats[1], both `encoded`.
    """
    trace = features.traced(learner.trace, ats[0], orders, step.decay, step.here)
    before, after = features.products(trace, ats, orders)
    gained = jnp.where(step.there > 0, step.there * after, 0.0)
    lost = jnp.where(step.here != 0, step.here * before, 0.0)
    change = gained.sum() - lost.sum()
    alpha = jnp.where(step.learns, bounded(learner.alpha, change), learner.alpha)
    keeps = step.learns & ~jnp.isnan(step.error)
    moved = vectorize.prevent_fusion(alpha * step.error)
    return features.stepped(learner.weights, trace, orders, moved, keeps), trace, alpha
