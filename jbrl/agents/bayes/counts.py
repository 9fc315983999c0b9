"""Tables of posterior counts: the prior concentrations plus the transitions seen."""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.rollout.contract import Transition


def add_count(counts: jax.Array, row: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
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


def counted(counts: jax.Array, transition: Transition) -> jax.Array:
    """Return `counts` [S, A, S] float32 with one transition more."""
    n_states, n_actions, _ = counts.shape
    pair = transition.observation * n_actions + transition.action
    _, found = add_count(counts.reshape(-1, n_states), pair, transition.next_observation)
    return found.reshape(counts.shape)
