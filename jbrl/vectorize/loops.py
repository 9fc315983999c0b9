"""Loops that go on as long as a lane is active, written for one lane."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jbrl.vectorize.axes import all_true, merge, select, split, to_first, to_last

Keep = Literal["all", "numbers", "nothing"]


def while_active(
    active: Callable[[Any, Any], jax.Array],
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
    def _(size: int, batched: list, carry: Any, consts: Any) -> tuple:
        carry = jax.tree.map(
            lambda v, b: v if b else jnp.broadcast_to(v, (size, *v.shape)), carry, batched[0]
        )
        if lanes_last:
            carry = jax.tree.map(to_last, carry)
            consts = jax.tree.map(lambda v, b: to_last(v) if b else v, consts, batched[1])
        result = _lockstep(active, lane_body, carry, consts, batched[1], -1 if lanes_last else 0)
        return jax.tree.map(to_first, result) if lanes_last else result, all_true(result)

    return loop(carry, consts)


def _unchanged(body: Callable, carry: Any, consts: Any) -> list[bool]:
    """Return which leaves of `carry` the body returns unchanged."""
    jaxpr = jax.make_jaxpr(body)(carry, consts).jaxpr
    return [new is old for new, old in zip(jaxpr.outvars, jaxpr.invars, strict=False)]


def _with_constants(
    active: Callable, body: Callable, carry: Any, consts: Any, kept: list[bool], **options: Any
) -> Any:
    """Run `while_active` without carrying the leaves that are `kept`: common to all lanes, they
    stay so.
    """
    leaves, structure = jax.tree.flatten(carry)
    fixed, moving = (
        tuple(v for v, k in zip(leaves, kept, strict=True) if k is wanted)
        for wanted in (True, False)
    )

    def join(moving: tuple, fixed: tuple) -> Any:
        sources = {True: iter(fixed), False: iter(moving)}
        return jax.tree.unflatten(structure, [next(sources[k]) for k in kept])

    def moving_active(moving: tuple, consts: tuple) -> jax.Array:
        return active(join(moving, consts[0]), consts[1])

    def moving_body(moving: tuple, consts: tuple) -> tuple:
        result = jax.tree.leaves(body(join(moving, consts[0]), consts[1]))
        return tuple(v for v, k in zip(result, kept, strict=True) if not k)

    return join(while_active(moving_active, moving_body, moving, (fixed, consts), **options), fixed)


def _lockstep(
    active: Callable, body: Callable, carry: Any, consts: Any, mapped: Any, axis: int
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
    def _(outer: int, batched: list, carry: Any, consts: Any) -> tuple:
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
