"""Terms of the losses of policies: lambda-returns, the generalised advantages that are their
distance from the values, and log-probabilities.
"""

import chex
import jax
import jax.numpy as jnp
from jax import lax


def lambda_returns(
    rewards: jax.Array, discounts: jax.Array, next_values: jax.Array, traces: jax.Array
) -> jax.Array:
    """Return G_t = r_t + g_t ((1 - l_t) v_{t+1} + l_t G_{t+1}) for t < T: [T], of the dtype of
    `rewards`.

    Sutton and Barto 2018, equation 12.19, with a discount and a trace of each step. Where a
    sequence ends, its trace must be 0: so does the last of all, beyond which G is not known.
    Sequences may follow each other.

    Args:
      rewards: r, [T].
      discounts: g, [T]; 0 where the episode has terminated.
      next_values: v_{t+1}, [T], the value of the observation that step t has led to.
      traces: l, [T] in [0, 1]; 0 where the return ends with the value.
    """
    chex.assert_rank([rewards, discounts, next_values, traces], 1)
    chex.assert_equal_shape([rewards, discounts, next_values, traces])

    def step(
        following: jax.Array, terms: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        base, slope = terms
        total = base + slope * following
        return total, total

    slopes = discounts * traces
    bases = rewards + (discounts - slopes) * next_values
    return lax.scan(step, jnp.zeros_like(rewards[0]), (bases, slopes), reverse=True)[1]


def sequence_returns(
    rewards: jax.Array,
    next_values: jax.Array,
    length: jax.Array,
    terminated: jax.Array,
    *,
    discount: float | jax.Array,
    trace_decay: float | jax.Array,
) -> jax.Array:
    """Return the lambda-returns of the first `length` steps of one episode, 0 after them: [T].

    Args:
      rewards, next_values: [T]; what follows the sequence does not matter.
      length: [] int32, from 1 to T.
      terminated: [] bool, the episode has terminated with the last step; otherwise its return ends
        with the value of the observation that it has led to.
      discount, trace_decay: [] in [0, 1].
    """
    step = jnp.arange(rewards.shape[0], dtype=jnp.int32)
    within, last = step < length, step == length - 1
    none = jnp.zeros_like(rewards)
    return lambda_returns(
        jnp.where(within, rewards, none),
        jnp.where(within & ~(last & terminated), none + discount, none),
        jnp.where(within, next_values, none),
        jnp.where(last, none, none + trace_decay),
    )


def generalised_advantages(
    rewards: jax.Array,
    discounts: jax.Array,
    values: jax.Array,
    next_values: jax.Array,
    traces: jax.Array,
) -> jax.Array:
    """Return A_t = d_t + g_t l_t A_{t+1} with d_t = r_t + g_t v_{t+1} - v_t: [T].

    Generalised advantage estimation (Schulman et al. 2016, equation 16), which is `lambda_returns`
    minus `values`, where the value of an observation is the same as the end of one step and as the
    start of the next.

    Args: as `lambda_returns`, and
      values: [T], of the observations that steps start from.
    """
    return lambda_returns(rewards, discounts, next_values, traces) - values


def log_probabilities(logits: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the log-probabilities of actions [T], and the entropies [T] of the policies.

    Args:
      logits: [T, A].
      actions: [T] int32.
    """
    logs = jax.nn.log_softmax(logits)
    chosen = actions[:, None] == jnp.arange(logits.shape[1], dtype=jnp.int32)[None]
    return jnp.where(chosen, logs, jnp.zeros_like(logs)).sum(1), -(jnp.exp(logs) * logs).sum(1)
