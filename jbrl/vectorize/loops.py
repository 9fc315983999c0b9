"""Loops and conditions that stay fast when mapped, written for one lane."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap


def merge(
    value: Array, outer_mapped: bool, inner_mapped: bool, outer: int, inner: int, axis: int
) -> Array:
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


def split(value: Array, outer: int, inner: int, axis: int) -> Array:
    """Undo `merge`: [outer, ..., inner, ...]."""
    if axis == 0:
        return value.reshape(outer, inner, *value.shape[1:])
    return jnp.moveaxis(value.reshape(*value.shape[:-1], outer, inner), -2, 0)


def to_last(value: Array) -> Array:
    """Move the first axis, over lanes, to the end."""
    return jnp.moveaxis(value, 0, -1)


def to_first(value: Array) -> Array:
    """Move the last axis, over lanes, to the front."""
    return jnp.moveaxis(value, -1, 0)


def for_all(size: int, mapped: Any, tree: Any) -> Any:
    """Give the arrays that are not `mapped`, common to all lanes, a leading axis of lanes."""
    return jax.tree.map(
        lambda v, b: v if b else jnp.broadcast_to(v, (size, *v.shape)), tree, mapped
    )


def all_true(tree: Any) -> Any:
    """Return a tree of the same structure with True in each place: all results are mapped."""
    return jax.tree.map(lambda _: True, tree)


def select(condition: Array, new: Any, old: Any) -> Any:
    """Return `new` where `condition` holds, [] bool, else `old`: pytrees of the same shapes."""
    return jax.tree.map(
        lambda a, b: lax.select(jnp.broadcast_to(condition, a.shape), a, b), new, old
    )


def when_any(wanted: Array, fn: Callable[[Any], Any], operand: Any) -> Any:
    """Return `fn(operand)` where `wanted` ([] bool), else `operand`, of the same structure.

    Mapped, `fn` runs for all lanes when any lane wants it and not at all otherwise. `fn` must not
    close over traced arrays.
    """

    @custom_vmap
    def apply(wanted: Array, operand: Any) -> Any:
        return lax.cond(wanted, fn, lambda v: v, operand)

    @apply.def_vmap
    def _(size: int, batched: list[Any], wanted: Array, operand: Any) -> tuple[Any, ...]:
        wanted, operand = for_all(size, tuple(batched), (wanted, operand))
        result, _ = when_any(wanted.any(), jax.vmap(_masked(fn)), (operand, wanted))
        return result, all_true(result)

    return apply(wanted, operand)


def computed_if_any(wanted: Array, fn: Callable[[Any], Any], operand: Any) -> Any:
    """Return `fn(operand)` if `wanted` ([] bool), else zeros of its shapes.

    Mapped, `fn` runs for all lanes when any lane wants it, and a lane that does not may have its
    result too: nothing is selected, nor kept, so nothing is copied. `fn` must not close over traced
    arrays.
    """

    @custom_vmap
    def apply(wanted: Array, operand: Any) -> Any:
        shapes = jax.eval_shape(fn, operand)
        zeros = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), shapes)
        return lax.cond(wanted, fn, lambda _: zeros, operand)

    @apply.def_vmap
    def _(size: int, batched: list[Any], wanted: Array, operand: Any) -> tuple[Any, ...]:
        operand = for_all(size, batched[1], operand)
        result = computed_if_any(jnp.any(wanted), jax.vmap(fn), operand)
        return result, all_true(result)

    return apply(wanted, jax.tree.map(jnp.asarray, operand))


def updated_where(wanted: Array, fn: Callable[[Any], Any], state: Any) -> Any:
    """Return `fn(state)` where `wanted` ([] bool), else `state`, of the same structure.

    Mapped, `fn` runs for all lanes when any lane wants it and not at all otherwise, in a loop of
    no or one iteration: XLA runs it in the memory of `state`, where a `cond` copies the state. What
    all lanes have in common remains one for all of them.
    """
    its_own = _unless_alone(wanted)
    return lax.fori_loop(
        0,
        _any_lane(wanted).astype(jnp.int32),
        lambda _, now: select(its_own, fn(now), now),
        jax.tree.map(jnp.asarray, state),
    )


@custom_vmap
def _unless_alone(wanted: Array) -> Array:
    """Return `wanted`, or True where there is one lane: what runs then is wanted, and a choice
    between old and new state would make XLA copy the old one.
    """
    return jnp.ones_like(wanted)


@_unless_alone.def_vmap
def _(size: int, batched: list[bool], wanted: Array) -> tuple[Array, bool]:
    del batched  # the only argument is mapped, or the rule would not be called
    return (_unless_alone(wanted[0])[None] if size == 1 else wanted), True


@custom_vmap
def _any_lane(wanted: Array) -> Array:
    """Return whether any lane wants it: [] bool, one for all lanes."""
    return wanted


@_any_lane.def_vmap
def _(size: int, batched: list[Any], wanted: Array) -> tuple[Any, ...]:
    del size, batched  # mapped: with nothing else to map, the rule would not be called
    return _any_lane(wanted.any()), False


def computed_where(wanted: Array, fn: Callable[[Any], Any], operand: Any, otherwise: Any) -> Any:
    """Return `fn(operand)` if `wanted` ([] bool), else `otherwise`, of the same structure.

    Mapped, `fn` runs for the lanes that want it, an eighth of all at a time (at least two): for
    large results that few lanes want. Each time copies the operands of these lanes. `fn` must not
    close over traced arrays.
    """

    @custom_vmap
    def apply(wanted: Array, operand: Any, otherwise: Any) -> Any:
        return lax.cond(
            wanted, lambda given: fn(given[0]), lambda given: given[1], (operand, otherwise)
        )

    @apply.def_vmap
    def _(size: int, batched: list[Any], *given: Any) -> tuple[Any, ...]:
        wanted, operand, otherwise = for_all(size, tuple(batched), given)
        result = _computed_in_turn(wanted, fn, operand, otherwise)
        return result, all_true(result)

    return apply(wanted, *jax.tree.map(jnp.asarray, (operand, otherwise)))


def _computed_in_turn(wanted: Array, fn: Callable[[Any], Any], operand: Any, otherwise: Any) -> Any:
    """Apply `computed_where` to arrays with a leading axis of lanes, of `wanted` [N] as well."""
    size = wanted.shape[0]
    at_once = min(size, max(2, size // 8))
    before = jnp.cumsum(wanted, dtype=jnp.int32) - wanted.astype(jnp.int32)  # lanes that want it
    count = wanted.sum(dtype=jnp.int32)

    def some(i: Array, result: Any) -> Any:
        # the last one again where fewer are left
        turns = jnp.minimum(i * at_once + jnp.arange(at_once, dtype=jnp.int32), count - 1)
        lanes = jnp.argmax(wanted[None] & (before[None] == turns[:, None]), axis=1)
        results = jax.vmap(fn)(jax.tree.map(lambda v: v[lanes], operand))
        return jax.tree.map(
            lambda every, new: every.at[lanes].set(new, mode="promise_in_bounds"), result, results
        )

    return lax.fori_loop(0, -(-count // at_once), some, otherwise)


def _masked(fn: Callable[[Any], Any]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    def run(lane: tuple[Any, ...]) -> tuple[Any, ...]:
        operand, wanted = lane
        return select(wanted, fn(operand), operand), wanted

    return run


Keep = Literal["all", "numbers", "nothing"]


def while_active(
    active: Callable[[Any, Any], Array],
    body: Callable[[Any, Any], Any],
    carry: Any,
    consts: Any = (),
    *,
    keep: Keep = "all",
    lanes_last: bool = False,
) -> Any:
    """Iterate `carry = body(carry, consts)` while `active(carry, consts)`.

    Mapped, the loop runs while any lane is active.

    Args:
      active, body: must not close over traced arrays: pass those as `consts`.
      keep: what a lane that is not active keeps of its carry, by selection: "all"; "numbers", the
        arrays of no dimension alone, where `body` writes nothing that matters to the others; or
        "nothing", where `body` itself returns such a carry unchanged, or harmlessly changed.
        Selecting copies: the less is kept, the better.
      lanes_last: when mapped, keep `carry` and `consts` with the lanes on the last axis: for bodies
        made of `over_lanes` functions.
    """
    # a loop in machine code must use all that it is given
    kept = _unchanged(body, carry, consts) if keep != "numbers" else []
    if kept and all(kept):  # such a loop is over, or never ends
        return carry
    if any(kept):
        return _with_constants(active, body, carry, consts, kept, keep=keep, lanes_last=lanes_last)

    def lane_body(lane: Any, consts: Any) -> Any:
        if keep == "nothing":
            return body(lane, consts)
        live, new = active(lane, consts), body(lane, consts)
        if keep == "all":
            return select(live, new, lane)
        return jax.tree.map(lambda n, o: jnp.where(live, n, o) if n.ndim == 0 else n, new, lane)

    @custom_vmap
    def loop(carry: Any, consts: Any) -> Any:
        return lax.while_loop(lambda c: active(c, consts), lambda c: body(c, consts), carry)

    @loop.def_vmap
    def _(size: int, batched: list[Any], carry: Any, consts: Any) -> tuple[Any, ...]:
        carry = for_all(size, batched[0], carry)
        if lanes_last:
            carry = jax.tree.map(to_last, carry)
            consts = jax.tree.map(lambda v, b: to_last(v) if b else v, consts, batched[1])
        result = _lockstep(active, lane_body, carry, consts, batched[1], -1 if lanes_last else 0)
        return jax.tree.map(to_first, result) if lanes_last else result, all_true(result)

    return loop(carry, consts)


def _unchanged(body: Callable[..., Any], carry: Any, consts: Any) -> list[bool]:
    """Return which leaves of `carry` the body returns unchanged."""
    jaxpr = jax.make_jaxpr(body)(carry, consts).jaxpr
    return [new is old for new, old in zip(jaxpr.outvars, jaxpr.invars, strict=False)]


def _with_constants(
    active: Callable[..., Any],
    body: Callable[..., Any],
    carry: Any,
    consts: Any,
    kept: list[bool],
    **options: Any,
) -> Any:
    """Run `while_active` without carrying the leaves that are `kept`: common to all lanes, they
    stay so.
    """
    leaves, structure = jax.tree.flatten(carry)
    fixed, moving = (
        tuple(v for v, k in zip(leaves, kept, strict=True) if k is wanted)
        for wanted in (True, False)
    )

    def join(moving: tuple[Any, ...], fixed: tuple[Any, ...]) -> Any:
        sources = {True: iter(fixed), False: iter(moving)}
        return jax.tree.unflatten(structure, [next(sources[k]) for k in kept])

    def moving_active(moving: tuple[Any, ...], consts: tuple[Any, ...]) -> Array:
        return active(join(moving, consts[0]), consts[1])

    def moving_body(moving: tuple[Any, ...], consts: tuple[Any, ...]) -> tuple[Any, ...]:
        result = jax.tree.leaves(body(join(moving, consts[0]), consts[1]))
        return tuple(v for v, k in zip(result, kept, strict=True) if not k)

    return join(while_active(moving_active, moving_body, moving, (fixed, consts), **options), fixed)


def _lockstep(
    active: Callable[..., Any],
    body: Callable[..., Any],
    carry: Any,
    consts: Any,
    mapped: Any,
    axis: int,
) -> Any:
    """Loop over many lanes, found along `axis` of `carry` and of those `consts` that are `mapped`,
    while any is active.
    """
    axes = jax.tree.map(lambda m: axis if m else None, mapped)
    size = jax.tree.leaves(carry)[0].shape[axis]
    any_active = jax.vmap(active, in_axes=(axis, axes), axis_size=size)
    step = jax.vmap(body, in_axes=(axis, axes), out_axes=axis, axis_size=size)

    @custom_vmap
    def loop(carry: Any, consts: Any) -> Any:
        return lax.while_loop(
            lambda c: any_active(c, consts).any(), lambda c: step(c, consts), carry
        )

    @loop.def_vmap
    def _(outer: int, batched: list[Any], carry: Any, consts: Any) -> tuple[Any, ...]:
        # Two maps become one over all pairs, so that lanes remain a single axis.
        carry = jax.tree.map(lambda v, b: merge(v, b, True, outer, size, axis), carry, batched[0])
        consts = jax.tree.map(
            lambda v, b, m: merge(v, b, m, outer, size, axis) if b or m else v,
            consts,
            batched[1],
            mapped,
        )
        both = jax.tree.map(lambda b, m: b or m, batched[1], mapped)
        result = _lockstep(active, body, carry, consts, both, axis)
        return jax.tree.map(lambda v: split(v, outer, size, axis), result), all_true(result)

    return loop(carry, consts)
