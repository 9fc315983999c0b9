"""Indexing and loops that stay fast when mapped over many MDPs.

Under `jax.vmap`, a scatter, a `while_loop` or a `cond` copies the whole carried state at each
iteration, and a sum over 5 or 25 states cannot use vector instructions. The functions here are
called for one MDP like any other; mapped, they run their own batching rule. Rules call the function
they belong to, so maps may be nested.

Three layers, the loops first:

- `get_row`, `set_row`, `when_any`, `while_active`: written for one lane.
- `over_lanes`: a decorator for functions written on arrays whose *last* axis runs over lanes, so
  that every operation is a vector instruction across lanes. Called for one lane, such a function
  sees a last axis of length 1. Arrays common to all lanes keep length 1 when mapped: write
  operations that broadcast along the last axis. `while_active(..., lanes_last=True)` keeps what it
  carries in that order, so that nothing is transposed from one iteration to the next.
- `fold`, `pick`, `add_at`, `prevent_fusion`: for use inside such functions.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

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
    return lax.fori_loop(
        0,
        _any_lane(wanted).astype(jnp.int32),
        lambda _, now: select(wanted, fn(now), now),
        jax.tree.map(jnp.asarray, state),
    )


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


def prevent_fusion(value: Array) -> Array:
    """Return `value`, float, computed once and stored, instead of anew inside each operation that
    uses it.

    XLA fuses cheap operations into every consumer, which multiplies the work along a chain of
    selections and sums, and drops `optimization_barrier` on CPUs before it does so. Divisions it
    does not repeat: here one by a 1 that it cannot predict.
    """
    return value / jnp.where(value < jnp.inf, jnp.ones_like(value), jnp.full_like(value, 2))


def prevent_fusion_index(i: Array) -> Array:
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


def get_row(table: Array, i: Array) -> Array:
    """Return table[i]: a row of [R, C] as [C]; `i` must lie in range."""
    return get_rows(table, i[None])[0]


def set_row(table: Array, i: Array, row: Array) -> Array:
    """Return `table` [R, C] with row `i` replaced; `i` must lie in range."""
    return _set_rows(table, i[None], row[None])


@custom_vmap
def get_rows(table: Array, rows: Array) -> Array:
    """Return rows `rows` [K] of `table` [R, C] as [K, C]; they must lie in range."""
    return table.at[rows].get(mode="promise_in_bounds")


@get_rows.def_vmap
def _(size: int, batched: list[bool], table: Array, rows: Array) -> tuple[Any, ...]:
    table_batched, rows_batched = batched
    if not rows_batched:
        rows = jnp.broadcast_to(rows, (size, *rows.shape))
    count, columns = rows.shape[1], table.shape[-1]
    if table_batched:
        rows = rows + _offsets(size, table.shape[1])
        table = table.reshape(-1, columns)
    return get_rows(table, rows.reshape(-1)).reshape(size, count, columns), True


@custom_vmap
def _set_rows(table: Array, rows: Array, new: Array) -> Array:
    """Return `table` [R, C] with the distinct rows `rows` [K] replaced by `new` [K, C]; on flat
    arrays, where scatters are cheapest.
    """
    columns = table.shape[1]
    where = rows[:, None] * columns + jnp.arange(columns, dtype=rows.dtype)[None, :]
    flat = table.reshape(-1).at[where.reshape(-1)]
    new = flat.set(new.reshape(-1), mode="promise_in_bounds", unique_indices=True)
    return new.reshape(table.shape)


@_set_rows.def_vmap
def _(size: int, batched: list[bool], table: Array, rows: Array, new: Array) -> tuple[Any, ...]:
    table, rows, new = for_all(size, tuple(batched), (table, rows, new))
    length, columns = table.shape[1:]
    rows = (rows + _offsets(size, length)).reshape(-1)
    flat = _set_rows(table.reshape(-1, columns), rows, new.reshape(-1, columns))
    return flat.reshape(table.shape), True


def _offsets(size: int, length: int) -> Array:
    """Return the first row of each lane in a table of `size` lanes of `length` rows: [size, 1]
    int32.
    """
    return (jnp.arange(size, dtype=jnp.int32) * length)[:, None]


F = TypeVar("F", bound=Callable[..., Any])

UNROLLED = 32  # terms of a `fold` that become straight code
# rows, and entries per lane, up to which passing over a whole table is cheaper than indexing it
FEW = 10
DENSE = 256


def over_lanes(fn: F) -> F:
    """Call `fn`, written on arrays whose last axis runs over lanes, for one lane: arguments and
    results without that axis.

    Arguments and results are pytrees of arrays. Mapped, `fn` is called once with all lanes;
    arguments common to all lanes have a last axis of length 1. `fn` must treat lanes independently
    and must not close over traced arrays.
    """

    @jax.jit  # traced once for each shape, however often the maps around it are
    def full(*args: Any) -> Any:
        width = max(v.shape[-1] for v in jax.tree.leaves(args))
        return jax.tree.map(lambda v: jnp.broadcast_to(v, (*v.shape[:-1], width)), fn(*args))

    @custom_vmap
    def many(*args: Any) -> Any:
        return full(*args)

    @many.def_vmap
    def _(size: int, batched: list[Any], *args: Any) -> tuple[Any, ...]:
        width = max(v.shape[-1] for v in jax.tree.leaves(args))

        def merged(value: Array, mapped: bool) -> Array:
            if not mapped and value.shape[-1] == 1:
                return value
            shape = (*value.shape[:-1], width)
            return merge(jnp.broadcast_to(value, shape), mapped, True, size, width, -1)

        result = many(*jax.tree.map(merged, args, tuple(batched)))
        return jax.tree.map(lambda v: split(v, size, width, -1), result), all_true(result)

    @custom_vmap
    def one(*args: Any) -> Any:
        return jax.tree.map(lambda v: v[..., 0], many(*jax.tree.map(lambda v: v[..., None], args)))

    @one.def_vmap
    def _(size: int, batched: list[Any], *args: Any) -> tuple[Any, ...]:
        del size
        result = many(
            *jax.tree.map(lambda v, b: to_last(v) if b else v[..., None], args, tuple(batched))
        )
        return jax.tree.map(to_first, result), all_true(result)

    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        return one(*jax.tree.map(jnp.asarray, args))

    return call  # type: ignore[return-value]


def fold(op: Callable[[Array, Array], Array], term: Callable[[Any], Array], count: int) -> Array:
    """Compute op(... op(op(term(0), term(1)), term(2)) ..., term(count - 1)), as straight code when
    `count` is small.

    Compiled for CPUs, this is a single pass with vector instructions across lanes, where a
    reduction such as `sum(0)` is 20 to 80 times slower.

    Args:
      term: of an index, an int or a traced [] int32: use `at` to index with it.
    """
    head = count if count <= UNROLLED else count % UNROLLED or UNROLLED
    result = functools.reduce(op, [term(i) for i in range(head)])
    blocks = (count - head) // UNROLLED
    if blocks == 0:
        return result

    def block(b: Array, result: Array) -> Array:
        return functools.reduce(
            op, [term(head + b * UNROLLED + i) for i in range(UNROLLED)], result
        )

    return lax.fori_loop(0, blocks, block, result)


def at(table: Array, i: Any, axis: int = 0) -> Array:
    """Return `table` at index `i`, the same for all lanes, of one axis, which disappears."""
    return (
        lax.index_in_dim(table, i, axis, keepdims=False)
        if isinstance(i, int)
        else lax.dynamic_index_in_dim(table, i, axis, False)
    )


def like(value: Array, table: Array) -> Array:
    """Return `value` [..., N] with axes of length 1 put in front until it has as many as
    `table`.
    """
    return value.reshape((1,) * (table.ndim - value.ndim) + value.shape)


def pick(table: Array, i: Array, axis: int = 0) -> Array:
    """Return `table` [..., N] at index i[n] of `axis` in each lane n, which must lie in range; that
    axis disappears.
    """
    if table.shape[axis] > FEW or table.size > DENSE * table.shape[-1]:
        return _gather(table, i, axis)
    result = at(table, 0, axis)
    for r in range(1, table.shape[axis]):
        result = jnp.where(like(i == r, result), at(table, r, axis), result)
    return result


def _gather(table: Array, i: Array, axis: int = 0) -> Array:
    """As `pick`, by indices into a flat array."""
    *shape, width = table.shape
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    where = jnp.arange(outer, dtype=i.dtype)[:, None, None] * shape[axis] + i[None, None]
    where = _flat(where * inner + jnp.arange(inner, dtype=i.dtype)[None, :, None], width)
    entries = table.reshape(-1).at[where].get(mode="promise_in_bounds")
    return entries.reshape(*shape[:axis], *shape[axis + 1 :], -1)


def _flat(rows: Array, width: int) -> Array:
    """Return the positions of the rows [..., N] in a flattened array [R, width], lane by lane;
    unsigned, or JAX would test for negative ones.
    """
    if width > 1:
        rows = rows * width + jnp.arange(width, dtype=rows.dtype).reshape(
            (1,) * (rows.ndim - 1) + (width,)
        )
    return rows.astype(jnp.uint32)


def add_at(table: Array, i: Array, amount: Array) -> Array:
    """Return `table` [R, N] with `amount` [N] added at row `i` [N] of each lane; `i` must lie in
    range.
    """
    flat, where, amount = _entries(table, i, amount)
    flat = flat.at[where].add(amount, mode="promise_in_bounds", unique_indices=True)
    return flat.reshape(table.shape[0], -1)


def set_at(table: Array, i: Array, value: Array) -> Array:
    """Return `table` [R, N] with `value` [N] in row `i` [N] of each lane; `i` must lie in range."""
    flat, where, value = _entries(table, i, value)
    flat = flat.at[where].set(value, mode="promise_in_bounds", unique_indices=True)
    return flat.reshape(table.shape[0], -1)


def _entries(table: Array, i: Array, value: Array) -> tuple[Array, Array, Array]:
    """Return the table as a flat array, the position of row i[n] of lane n in it, and one value for
    each lane.
    """
    width = max(table.shape[1], i.shape[0], value.shape[0])
    flat = jnp.broadcast_to(table, (table.shape[0], width)).reshape(-1)
    return flat, _flat(jnp.broadcast_to(i, (width,)), width), jnp.broadcast_to(value, (width,))


@over_lanes
def get_entry(table: Array, i: Array) -> Array:
    """Return table[i]: [...] from [R, ...]; `i` must lie in range.

    Like `get_row`, but quick where lanes are on the last axis.
    """
    return _gather(table, i)


@over_lanes
def set_entry(table: Array, i: Array, value: Array) -> Array:
    """Return `table` [R] with entry `i` replaced by `value` []; `i` must lie in range.

    Quick where lanes are on the last axis.
    """
    return set_at(table, i, value)
