"""Values that XLA computes once or apart, and not in every operation that uses them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def prevent_fusion(value: jax.Array) -> jax.Array:
    """Return `value`, float, computed once and stored, instead of anew inside each operation that
    uses it.

    XLA fuses cheap operations into every consumer, which multiplies the work along a chain of
    selections and sums, and drops `optimization_barrier` on CPUs before it does so. Divisions it
    does not repeat: here one by a 1 that it cannot predict.
    """
    return value / jnp.where(value < jnp.inf, jnp.ones_like(value), jnp.full_like(value, 2))


def prevent_fusion_index(i: jax.Array) -> jax.Array:
    """Apply `prevent_fusion` to integers below 2^24."""
    return prevent_fusion(i.astype(jnp.float32)).astype(i.dtype)


def compute_apart(fn: Callable[..., Any], *operands: Any) -> Any:
    """Return `fn(*operands)`, of which XLA neither moves nor simplifies anything together with what
    is around it, such as the loop that it is in.

    Sums are then taken in the order of `fn` alone. On CPUs XLA drops both barriers after that, and
    may fuse what is left.
    """
    given = lax.optimization_barrier(jax.tree.map(jnp.asarray, operands))
    return lax.optimization_barrier(fn(*given))
