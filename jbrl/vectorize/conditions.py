"""Computations that only some lanes need, written for one lane."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jbrl.vectorize.axes import all_true, select


def when_any(wanted: jax.Array, fn: Callable[[Any], Any], operand: Any) -> Any:
    """Return `fn(operand)` where `wanted` ([] bool), else `operand`, of the same structure.

    Mapped, `fn` runs for all lanes when any lane wants it and not at all otherwise. `fn` must not
    close over traced arrays.
    """

    @custom_vmap
    def apply(wanted: jax.Array, operand: Any) -> Any:
        return lax.cond(wanted, fn, lambda v: v, operand)

    @apply.def_vmap
    def _(size: int, batched: list, wanted: jax.Array, operand: Any) -> tuple:
        operand = jax.tree.map(
            lambda v, b: v if b else jnp.broadcast_to(v, (size, *v.shape)), operand, batched[1]
        )
        wanted = wanted if batched[0] else jnp.broadcast_to(wanted, (size,))
        result, _ = when_any(wanted.any(), jax.vmap(_masked(fn)), (operand, wanted))
        return result, all_true(result)

    return apply(wanted, operand)


def computed_if_any(wanted: jax.Array, fn: Callable[[Any], Any], operand: Any) -> Any:
    """Return `fn(operand)` if `wanted` ([] bool), else zeros of its shapes.

    Mapped, `fn` runs for all lanes when any lane wants it, and a lane that does not may have its
    result too: nothing is selected, nor kept, so nothing is copied. `fn` must not close over traced
    arrays.
    """

    @custom_vmap
    def apply(wanted: jax.Array, operand: Any) -> Any:
        shapes = jax.eval_shape(fn, operand)
        zeros = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), shapes)
        return lax.cond(wanted, fn, lambda _: zeros, operand)

    @apply.def_vmap
    def _(size: int, batched: list, wanted: jax.Array, operand: Any) -> tuple:
        operand = jax.tree.map(
            lambda v, b: v if b else jnp.broadcast_to(v, (size, *v.shape)), operand, batched[1]
        )
        result = computed_if_any(jnp.any(wanted), jax.vmap(fn), operand)
        return result, all_true(result)

    return apply(wanted, jax.tree.map(jnp.asarray, operand))


def updated_where(wanted: jax.Array, fn: Callable[[Any], Any], state: Any) -> Any:
    """Return `fn(state)` where `wanted` ([] bool), else `state`, of the same structure.

    Mapped, `fn` runs for all lanes when any lane wants it and not at all otherwise, in a loop of
    no or one iteration: XLA runs it in the memory of `state`, where a `cond` copies the state. What
    all lanes have in common remains one for all of them.
    """
    return lax.fori_loop(
        0,
        _any_lane(wanted).astype(jnp.int32),
        lambda _, now: select(wanted, fn(now), now),
        jax.tree.map(jnp.asarray, state),
    )


@custom_vmap
def _any_lane(wanted: jax.Array) -> jax.Array:
    """Return whether any lane wants it: [] bool, one for all lanes."""
    return wanted


@_any_lane.def_vmap
def _(size: int, batched: list, wanted: jax.Array) -> tuple:
    del size, batched  # mapped: with nothing else to map, the rule would not be called
    return _any_lane(wanted.any()), False


def computed_where(
    wanted: jax.Array, fn: Callable[[Any], Any], operand: Any, otherwise: Any
) -> Any:
    """Return `fn(operand)` if `wanted` ([] bool), else `otherwise`, of the same structure.

    Mapped, `fn` runs for the lanes that want it, an eighth of all at a time (at least two): for
    large results that few lanes want. Each time copies the operands of these lanes. `fn` must not
    close over traced arrays.
    """

    @custom_vmap
    def apply(wanted: jax.Array, operand: Any, otherwise: Any) -> Any:
        return lax.cond(
            wanted, lambda given: fn(given[0]), lambda given: given[1], (operand, otherwise)
        )

    @apply.def_vmap
    def _(size: int, batched: list, *given: Any) -> tuple:
        wanted, operand, otherwise = jax.tree.map(
            lambda v, b: v if b else jnp.broadcast_to(v, (size, *v.shape)), given, tuple(batched)
        )
        result = _computed_in_turn(wanted, fn, operand, otherwise)
        return result, all_true(result)

    return apply(wanted, *jax.tree.map(jnp.asarray, (operand, otherwise)))


def _computed_in_turn(
    wanted: jax.Array, fn: Callable[[Any], Any], operand: Any, otherwise: Any
) -> Any:
    """Apply `computed_where` to arrays with a leading axis of lanes, of `wanted` [N] as well."""
    size = wanted.shape[0]
    at_once = min(size, max(2, size // 8))
    before = jnp.cumsum(wanted, dtype=jnp.int32) - wanted.astype(jnp.int32)  # lanes that want it
    count = wanted.sum(dtype=jnp.int32)

    def some(i: jax.Array, result: Any) -> Any:
        # the last one again where fewer are left
        turns = jnp.minimum(i * at_once + jnp.arange(at_once, dtype=jnp.int32), count - 1)
        lanes = jnp.argmax(wanted[None] & (before[None] == turns[:, None]), axis=1)
        found = jax.vmap(fn)(jax.tree.map(lambda v: v[lanes], operand))
        return jax.tree.map(
            lambda every, new: every.at[lanes].set(new, mode="promise_in_bounds"), result, found
        )

    return lax.fori_loop(0, -(-count // at_once), some, otherwise)


def _masked(fn: Callable[[Any], Any]) -> Callable[[tuple], tuple]:
    def run(lane: tuple) -> tuple:
        operand, wanted = lane
        return select(wanted, fn(operand), operand), wanted

    return run
