"""Values that XLA computes once, and not in every operation that uses them."""

import chex
import jax.numpy as jnp


def prevent_fusion(value: chex.Array) -> chex.Array:
    """Return `value`, float, computed once and stored, instead of anew inside each operation that
    uses it.

    XLA fuses cheap operations into every consumer, which multiplies the work along a chain of
    selections and sums, and drops `optimization_barrier` on CPUs before it does so. Divisions it
    does not repeat: here one by a 1 that it cannot predict.
    """
    return value / jnp.where(value < jnp.inf, jnp.ones_like(value), jnp.full_like(value, 2))


def prevent_fusion_index(i: chex.Array) -> chex.Array:
    """Apply `prevent_fusion` to integers below 2^24."""
    return prevent_fusion(i.astype(jnp.float32)).astype(i.dtype)
