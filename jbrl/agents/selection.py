"""Choices of an action from values or preferences that several agents share."""

import jax
import jax.numpy as jnp

from jbrl.mdp import sampling


def epsilon_greedy(
    greedy: jax.Array, n_actions: int, epsilon: float | jax.Array, uniforms: jax.Array
) -> jax.Array:
    """Return `greedy`, or any of the actions with probability `epsilon`: [] int32.

    Args:
      uniforms: [2] float32 in [0, 1): the first decides whether to explore, the second is for
        the action.
    """
    explored = sampling.uniform_index(uniforms[1], n_actions)
    return jnp.where(uniforms[0] < epsilon, explored, greedy)
