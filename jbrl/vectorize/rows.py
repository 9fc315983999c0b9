"""Rows of tables by index, written for one lane."""

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


def get_row(table: jax.Array, i: jax.Array) -> jax.Array:
    """Return table[i]: a row of [R, C] as [C]; `i` must lie in range."""
    return _get_rows(table, i[None])[0]


def get_rows(table: jax.Array, rows: jax.Array) -> jax.Array:
    """Return rows `rows` [K] of `table` [R, C] as [K, C]; they must lie in range."""
    return _get_rows(table, rows)


def set_row(table: jax.Array, i: jax.Array, row: jax.Array) -> jax.Array:
    """Return `table` [R, C] with row `i` replaced; `i` must lie in range."""
    return _set_rows(table, i[None], row[None])


@custom_vmap
def _get_rows(table: jax.Array, rows: jax.Array) -> jax.Array:
    """Return rows `rows` [K] of `table` [R, C]: [K, C]."""
    return table.at[rows].get(mode="promise_in_bounds")


@_get_rows.def_vmap
def _(size: int, batched: list[bool], table: jax.Array, rows: jax.Array) -> tuple:
    table_batched, rows_batched = batched
    if not rows_batched:
        rows = jnp.broadcast_to(rows, (size, *rows.shape))
    count, columns = rows.shape[1], table.shape[-1]
    if table_batched:
        rows = rows + _offsets(size, table.shape[1])
        table = table.reshape(-1, columns)
    return _get_rows(table, rows.reshape(-1)).reshape(size, count, columns), True


@custom_vmap
def _set_rows(table: jax.Array, rows: jax.Array, new: jax.Array) -> jax.Array:
    """Return `table` [R, C] with the distinct rows `rows` [K] replaced by `new` [K, C]; on flat
    arrays, where scatters are cheapest.
    """
    columns = table.shape[1]
    at = rows[:, None] * columns + jnp.arange(columns, dtype=rows.dtype)[None, :]
    flat = (
        table.reshape(-1)
        .at[at.reshape(-1)]
        .set(new.reshape(-1), mode="promise_in_bounds", unique_indices=True)
    )
    return flat.reshape(table.shape)


@_set_rows.def_vmap
def _(size: int, batched: list[bool], table: jax.Array, rows: jax.Array, new: jax.Array) -> tuple:
    table, rows, new = (
        v if b else jnp.broadcast_to(v, (size, *v.shape))
        for v, b in zip((table, rows, new), batched, strict=True)
    )
    length, columns = table.shape[1:]
    rows = (rows + _offsets(size, length)).reshape(-1)
    return _set_rows(table.reshape(-1, columns), rows, new.reshape(-1, columns)).reshape(
        table.shape
    ), True


def _offsets(size: int, length: int) -> jax.Array:
    """Return the first row of each lane in a table of `size` lanes of `length` rows: [size, 1]
    int32.
    """
    return (jnp.arange(size, dtype=jnp.int32) * length)[:, None]
