"""Axes of lanes: moved, merged into one, and split again."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def merge(
    value: jax.Array, outer_mapped: bool, inner_mapped: bool, outer: int, inner: int, axis: int
) -> jax.Array:
    """Make one axis of length outer * inner at `axis`, from an outer axis in front and an inner one
    at `axis`, either possibly missing.
    """
    if not outer_mapped:
        value = jnp.broadcast_to(value, (outer, *value.shape))
    if not inner_mapped:
        value = jnp.expand_dims(value, 1 if axis == 0 else value.ndim)
        shape = list(value.shape)
        shape[1 if axis == 0 else -1] = inner
        value = jnp.broadcast_to(value, shape)
    if axis == 0:
        return value.reshape(outer * inner, *value.shape[2:])
    return jnp.moveaxis(value, 0, -2).reshape(*value.shape[1:-1], outer * inner)


def split(value: jax.Array, outer: int, inner: int, axis: int) -> jax.Array:
    """Undo `merge`: [outer, ..., inner, ...]."""
    if axis == 0:
        return value.reshape(outer, inner, *value.shape[1:])
    return jnp.moveaxis(value.reshape(*value.shape[:-1], outer, inner), -2, 0)


def to_last(value: jax.Array) -> jax.Array:
    """Move the first axis, over lanes, to the end."""
    return jnp.moveaxis(value, 0, -1)


def to_first(value: jax.Array) -> jax.Array:
    """Move the last axis, over lanes, to the front."""
    return jnp.moveaxis(value, -1, 0)


def all_true(tree: Any) -> Any:
    """Return a tree of the same structure with True in each place: all results are mapped."""
    return jax.tree.map(lambda _: True, tree)


def select(condition: jax.Array, new: Any, old: Any) -> Any:
    """Return `new` where `condition` holds, [] bool, else `old`: pytrees of the same shapes."""
    return jax.tree.map(
        lambda a, b: lax.select(jnp.broadcast_to(condition, a.shape), a, b), new, old
    )
