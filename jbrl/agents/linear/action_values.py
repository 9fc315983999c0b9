"""Tables of action values, one entry for each state and action, and epsilon-greedy choices
among them.

A table is flat, [S * A]: a pass over all of it is then one loop of vector instructions, for any A.
"""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.problems.prior import Prior


def table(prior: Prior, value: float | jax.Array) -> jax.Array:
    """Return a table with `value` in every entry: [S * A] float32."""
    spec = prior.spec
    return jnp.full(spec.observation.n * spec.actions.n, value, jnp.float32)  # type: ignore[union-attr]


def entry(state: jax.Array, action: jax.Array, n_actions: int) -> jax.Array:
    """Return where in a table a state and an action are: [] int32."""
    return state * n_actions + action


def values_of(q: jax.Array, state: jax.Array, n_actions: int) -> jax.Array:
    """Return the values of all actions in a state: [A] float32.

    Args:
      q: [S * A] float32.
      state: [] int32; below 0, as the observation of zeros is, it counts as state 0.
    """
    return vectorize.get_row(q.reshape(-1, n_actions), jnp.maximum(state, 0))


def greedy(values: jax.Array) -> jax.Array:
    """Return the greedy action among `values` [A]: [] int32.

    Ties go to the lowest number; a NaN counts as the greatest of all values.
    """
    return jnp.argmax(values).astype(jnp.int32)


def epsilon_greedy(values: jax.Array, epsilon: float | jax.Array, uniforms: jax.Array) -> jax.Array:
    """Return an action, [] int32: uniform over all of them with probability `epsilon`, else the
    greedy one among `values` [A].

    Args:
      uniforms: [2] float32 in [0, 1): the first decides whether to explore, the second is for
        the action.
    """
    explored = (uniforms[1] * values.shape[0]).astype(jnp.int32)
    action = jnp.where(uniforms[0] < epsilon, explored, greedy(values))
    # or each of the many operations that use it finds the greatest value again
    return vectorize.prevent_fusion_index(action)
