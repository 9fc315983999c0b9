"""Softmax policies over preferences."""

import jax
import jax.numpy as jnp

from jbrl.base.pytree import record
from jbrl.mdp import sampling

GREATEST = 32.0  # preferences count as at most this, and at least as minus this


@record
class Policy:
    """Softmax policy in one state."""

    probabilities: jax.Array  # [A] float32
    logs: jax.Array  # [A] float32


def policy(preferences: jax.Array) -> Policy:
    """Return the policy of preferences [..., A] float32, limited to [-32, 32]."""
    limited = jnp.clip(preferences, -GREATEST, GREATEST)
    shifted = limited - limited.max(-1, keepdims=True)
    weights = jnp.exp(shifted)
    total = weights.sum(-1, keepdims=True)
    return Policy(weights / total, shifted - jnp.log(total))


def draw(now: Policy, uniform: jax.Array) -> jax.Array:
    """Return an action by a number in [0, 1): [] int32; the first one where a preference is NaN."""
    return sampling.categorical(now.probabilities, uniform)


def log_probability(now: Policy, action: jax.Array) -> jax.Array:
    """Return log pi(action): [] float32."""
    here = jnp.arange(now.logs.shape[-1], dtype=jnp.int32) == action
    return jnp.where(here, now.logs, 0.0).sum()


def gradient(now: Policy, action: jax.Array) -> jax.Array:
    """Return the gradient of log pi(action) by the preferences: [A] float32.

    Limits of the preferences are passed over.
    """
    here = jnp.arange(now.logs.shape[-1], dtype=jnp.int32) == action
    return here.astype(jnp.float32) - now.probabilities
