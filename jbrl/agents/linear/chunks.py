"""Passes over the last axis of large arrays, in chunks."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap


def in_chunks(
    fn: Callable, width: int, chunks: jax.Array, carry: Any, written: Any, read: Any, consts: Any
) -> tuple[Any, Any]:
    """Pass over the last axis of arrays in chunks of `width`: fn(start, carry, (chunk of `written`,
    chunk of `read`), consts) -> carry, the chunk of `written` anew.

    Mapped, all lanes make as many iterations as the one with most `chunks`, [] int32: `fn` must
    leave alone what lies beyond a lane's own.
    """

    @custom_vmap
    def apply(chunks: jax.Array, carry: Any, written: Any, read: Any, consts: Any) -> Any:
        return looped(fn, width, chunks, (carry, written), read, consts)

    @apply.def_vmap
    def _(size: int, batched: list, *given: Any) -> tuple:
        chunks, *others = jax.tree.map(
            lambda v, b: v if b else jnp.broadcast_to(v, (size, *v.shape)), given, tuple(batched)
        )
        carry, written, read, consts = others
        many = jax.vmap(fn, in_axes=(None, 0, 0, 0))
        result = looped(many, width, chunks.max(), (carry, written), read, consts)
        return result, jax.tree.map(lambda _: True, result)

    return apply(chunks, *jax.tree.map(jnp.asarray, (carry, written, read, consts)))


def looped(
    fn: Callable, width: int, chunks: jax.Array, state: tuple, read: Any, consts: Any
) -> Any:
    """As `in_chunks`, of one lane, with `carry` and `written` as one pair."""

    def body(i: jax.Array, state: tuple) -> tuple:
        carry, written = state
        start = i * width
        parts = jax.tree.map(
            lambda v: lax.dynamic_slice_in_dim(v, start, width, -1), (written, read)
        )
        carry, new = fn(start, carry, parts, consts)
        put = functools.partial(lax.dynamic_update_slice_in_dim, start_index=start, axis=-1)
        return carry, jax.tree.map(put, written, new)

    return lax.fori_loop(0, chunks, body, state)
