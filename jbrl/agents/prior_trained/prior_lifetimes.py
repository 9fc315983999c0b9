"""Lifetimes in finite MDPs drawn from a Dirichlet prior, thousands side by side.

Written on arrays whose last axis runs over N lifetimes, for training on the prior: the rows of an
MDP that are certain are neither drawn nor stored.
"""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.prior_trained.belief_inputs import Rows
from jbrl.base.pytree import record
from jbrl.mdp import mdp, sampling
from jbrl.mdp.sampling import stream

NEVER = 2.0  # above any uniform number


@record
class Luck:
    """Everything random about N lifetimes of H decisions, except the MDPs."""

    first: jax.Array  # [N] float32 in [0, 1), for the first state
    noise: jax.Array  # [H, N] float32 in [0, 1), for transitions
    choices: jax.Array  # [H, N] float32 in [0, 1), for the decisions


def draw_luck(key: jax.Array, number: jax.Array, horizon: int, width: int) -> Luck:
    """Draw what is random about lifetimes of batch `number`, [] int32: from streams of their own
    for environments and decisions.
    """

    def uniforms(name: str, rows: int) -> jax.Array:
        bits = jax.random.bits(stream(key, number, name), (rows * width,))
        return sampling.words_to_uniforms(bits).reshape(rows, width)

    noise = uniforms("environment", horizon + 1)
    return Luck(noise[-1], noise[:-1], uniforms("agent", horizon))


def draw_thresholds(
    key: jax.Array, number: jax.Array, rows: Rows, width: int, *, unit: bool
) -> jax.Array:
    """Draw the MDPs of batch `number`: cumulative probabilities [R + 1, K - 1, N] of all but the
    last successor of each uncertain row, and a last row that stands for those that are certain.

    Args:
      unit: all concentrations are 0 or 1.
    """
    n_rows, most = rows.shape
    mine = stream(key, number, "mdp")
    if unit:
        drawn = sampling.exponentials(mine, (n_rows, most, width))
        weights = drawn * jnp.asarray(rows.concentrations)[:, :, None]
    else:
        keys = jax.random.split(mine, width)
        weights = jax.vmap(sampling.dirichlet, in_axes=(0, None), out_axes=-1)(
            keys, jnp.asarray(rows.concentrations)
        )
    sums = [weights[:, 0]]
    for k in range(1, most):
        sums.append(sums[-1] + weights[:, k])
    found = jnp.stack(sums[:-1], axis=1) / sums[-1][:, None]
    return jnp.concatenate([found, jnp.full((1, most - 1, width), NEVER, jnp.float32)])


def first_states(initial_state: jax.Array, n_states: int, luck: Luck) -> jax.Array:
    """Return the first states, [N] int32."""
    return jnp.broadcast_to(mdp.start(initial_state, n_states, luck.first), luck.first.shape)


def step(
    rows: Rows, thresholds: jax.Array, pair: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return next states and rewards, [N] int32 and [N] float32.

    Args:
      pair: [N] int32, numbers of (state, action).
      noise: [N] float32 in [0, 1).
    """
    most = rows.shape[1]
    pair = vectorize.prevent_fusion_index(pair)
    row = vectorize.prevent_fusion_index(vectorize.pick(rows.row[:, None], pair))
    found = vectorize.pick(thresholds, row)
    k = vectorize.fold(jnp.add, lambda j: (found[j] <= noise).astype(jnp.float32), most - 1)
    entry = vectorize.prevent_fusion_index(pair * most + k.astype(jnp.int32))
    return (
        vectorize.prevent_fusion_index(vectorize.pick(rows.successor[:, None], entry)),
        vectorize.pick(rows.reward[:, None], entry),
    )
