"""Tables of many trees, with the trees along the last axis: entries that are read and written, and
random choices.
"""

import jax
import jax.numpy as jnp
from jax import lax

from jbrl.agents.search.draws import bits, spread


def take(flat: jax.Array, at: jax.Array) -> jax.Array:
    """Return entries `at`, all of them in range, of a flat array."""
    return flat.at[at].get(mode="promise_in_bounds")


def read(table: jax.Array, at: jax.Array) -> jax.Array:
    """Return row `at` [], the same of all trees, of the first axis, which disappears."""
    return lax.dynamic_index_in_dim(table, at, 0, keepdims=False)


def write(table: jax.Array, new: jax.Array, at: jax.Array) -> jax.Array:
    """Return `table` with row `at` [] of the first axis replaced in all trees."""
    return lax.dynamic_update_index_in_dim(table, new, at, 0)


def put_where(table: jax.Array, at: jax.Array, wanted: jax.Array, values: jax.Array) -> jax.Array:
    """Return `table` [..., B] with one entry of each tree replaced where wanted; `at` [B] counts
    entries of one tree.
    """
    flat = of_tree(jnp.where(wanted, at, table.size // at.shape[0]))  # past the end: dropped
    return (
        table.reshape(-1)
        .at[flat]
        .set(values, mode="drop", unique_indices=True)
        .reshape(table.shape)
    )


def increment(counts: jax.Array, entry: jax.Array) -> jax.Array:
    """Return counts [N B] flat with one more in entry number `entry` [B] of each tree."""
    return counts.at[of_tree(entry)].add(1.0, mode="promise_in_bounds", unique_indices=True)


def entries(block: jax.Array, size: int) -> jax.Array:
    """Return flat places of the entries of block number `block` [B] in a table of blocks of `size`:
    [size, B].
    """
    return block[None, :] * size + jnp.arange(size, dtype=jnp.int32)[:, None]


def of_tree(at: jax.Array) -> jax.Array:
    """Return flat places in a table that has trees last, from places [..., B] in the table of one
    tree.
    """
    trees = jnp.arange(at.shape[-1], dtype=jnp.int32)
    return at * at.shape[-1] + (trees if at.ndim == 1 else trees[None, :])


def one_hot(index: jax.Array, size: int) -> jax.Array:
    """Return a one-hot array along a new first axis: [size, B] bool."""
    return jnp.arange(size, dtype=jnp.int32)[:, None] == index[None, :]


def entry(table: jax.Array, hot: jax.Array) -> jax.Array:
    """Return the entry of [N, B] where `hot` [N, B] holds: [B]."""
    return jnp.where(hot, table, 0).sum(0)


def choose(values: jax.Array, tolerance: jax.Array, seed: jax.Array) -> jax.Array:
    """Return the index along the first axis of a greatest of `values` [N, B], uniformly among those
    within `tolerance`: [B] int32.
    """
    number = jnp.arange(values.shape[0], dtype=jnp.int32)[:, None]
    lot = jnp.where(
        values >= (values.max(0) - tolerance)[None, :], bits(seed[None, :] + spread(number)), -1
    )
    return jnp.where(lot == lot.max(0)[None, :], number, values.shape[0]).min(0)


def thresholds(row: jax.Array) -> jax.Array:
    """Return thresholds for rows of counts [..., S, B]: an outcome is the first whose threshold
    exceeds a number of 24 random bits. int32.

    A count of 0 repeats the threshold before it, so that it never comes up.
    """
    sums = [row[..., 0, :]]
    for y in range(1, row.shape[-2]):
        sums.append(sums[-1] + row[..., y, :])
    share = jnp.stack(sums, axis=-2) / sums[-1][..., None, :]
    return jnp.ceil(share * jnp.float32(1 << 24)).astype(jnp.int32)
