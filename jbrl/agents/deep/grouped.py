"""Groups of lifetimes, computed one after the other: each fits into the caches of a core."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def each(fn: Callable[..., Any], *trees: Any) -> Any:
    """Return the results of `fn(number, *parts)` for each group, stacked along a leading axis.

    Args:
      trees: pytrees with a leading axis of G groups.
    """
    count = jax.tree.leaves(trees)[0].shape[0]
    numbers = jnp.arange(count, dtype=jnp.int32)
    return lax.map(lambda one: fn(*one), (numbers, *trees))


def total(fn: Callable[..., jax.Array], *trees: Any) -> jax.Array:
    """Return the sum of `fn(number, *parts)` over all groups."""
    return each(fn, *trees).sum(0)
