"""Functions on arrays whose last axis runs over lanes, and indexing that stays fast when mapped."""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from jbrl.vectorize.loops import all_true, for_all, merge, split, to_first, to_last

MOST_ENTRIES = 2**31 - 1  # of a flat array that is indexed
# of a table in which one lane writes a slice: `native` takes that, but other programs may pass over
# the whole table to write it
MOST_SLICED = 2**16


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


@custom_vmap
def set_row(table: Array, i: Array, row: Array) -> Array:
    """Return `table` [R, C] with row `i` replaced; `i` must lie in range."""
    if table.size > MOST_SLICED:
        return _set_rows(table, i[None], row[None])
    return lax.dynamic_update_slice(table, row[None], (i, jnp.zeros_like(i)))


@set_row.def_vmap
def _(size: int, batched: list[bool], table: Array, i: Array, row: Array) -> tuple[Array, bool]:
    # one lane, too: a loop over steps would copy the table where it writes a slice
    table, i, row = for_all(size, tuple(batched), (table, i, row))
    return jax.vmap(_set_rows)(table, i[:, None], row[:, None]), True


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
    arrays, where scatters are cheapest, unless they have more entries than 32 bits can count.
    """
    columns = table.shape[1]
    if table.size > MOST_ENTRIES:
        return table.at[rows].set(new, mode="promise_in_bounds", unique_indices=True)
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
FEW = 20
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


def is_passed_over(table: Array, axis: int = 0) -> bool:
    """Return whether `pick` passes over the whole of `table` [..., N]."""
    return table.shape[axis] <= FEW and table.size <= DENSE * table.shape[-1]


def pick(table: Array, i: Array, axis: int = 0) -> Array:
    """Return `table` [..., N] at index i[n] of `axis` in each lane n, which must lie in range; that
    axis disappears.
    """
    if not is_passed_over(table, axis):
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
