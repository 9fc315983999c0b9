"""Tables of posterior counts: the prior concentrations plus the transitions seen."""

import chex
import jax.numpy as jnp

from jbrl import vectorize


def add_count(counts: chex.Array, row: chex.Array, y: chex.Array) -> tuple[chex.Array, chex.Array]:
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
