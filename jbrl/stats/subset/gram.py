"""Inner products of columns for every set of complete rows that occurs, made once and shared by all
subsets with these rows.

In a table with holes a subset is fitted on the rows where all its columns are known. Few different
sets of rows occur: 188 among the 3,819,816 subsets of five Atari games. Columns that all subsets
have in common (forced ones, the intercept) are swept out here, by QR, so that the device sees only
what differs between subsets.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.stats.subset.fit import Folds
from jbrl.stats.subset.kernel import SINGULAR, Loss, OwnRows, SharedTables, fold_weights

PADDED = 64  # sets of rows are rounded up to a multiple of this
BYTES = 200e6  # tables may take as much; beyond, subsets sum up their own


def row_masks(
    observed: np.ndarray, start: np.ndarray, size: int, most: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the sets of complete rows of all subsets of at most `size` columns.

    Args:
      observed: [m, P] bool.
      start: [m] bool, the set of no column.
      most: give up (None) beyond that many sets.

    Returns:
      The sets [M, m] bool, the first being `start`, and [M, P] int32, the set that remains when a
      column is added. Sets of `size` columns are not followed further.
    """
    kinds, kind = np.unique(observed.T, axis=0, return_inverse=True)
    bits = [int.from_bytes(np.packbits(row).tobytes()) for row in kinds]
    first = int.from_bytes(np.packbits(start).tobytes())
    number, order, frontier = {first: 0}, [first], [first]
    for _ in range(size):
        reached = dict.fromkeys(mask & bit for mask in frontier for bit in bits)
        frontier = [mask for mask in reached if mask not in number]
        number.update({mask: len(order) + i for i, mask in enumerate(frontier)})
        order += frontier
        if len(order) > most:
            return None
    length = (len(start) + 7) // 8
    packed = np.array([np.frombuffer(mask.to_bytes(length), np.uint8) for mask in order])
    following = np.array([[number.get(mask & bit, 0) for bit in bits] for mask in order], np.int32)
    return np.unpackbits(packed, axis=1, count=len(start)).astype(bool), following[
        :, kind.reshape(-1)
    ]


def make(
    columns: np.ndarray, swept: np.ndarray, size: int, loss: Loss, folds: Folds
) -> SharedTables | OwnRows | None:
    """Make the input of the device: tables, or the rows themselves where there would be too many.

    Args:
      columns: [m, P] float64, NaN where missing; the last is the target, which has no holes.
      swept: [m, Q] float64, columns that every subset has, with holes as well.
      size: free columns of a subset.

    Returns:
      None if there are too many sets of rows for tables.
    """
    observed, start = ~np.isnan(columns), ~np.isnan(swept).any(1)
    n_rows, n_columns = columns.shape
    n_sets = folds.count if loss == "kfold" else 1
    entries = n_columns * (n_columns + 1) / 2 * n_sets * (2 if loss == "kfold" else 1)
    each = 8 * entries + 8 * n_columns * n_rows * (loss == "loo")
    sets = row_masks(observed, start, size, int(BYTES / each))
    if sets is None:
        return None
    masks, following = sets
    parts = [_table(columns, swept, rows, loss, folds) for rows in masks]
    spare = -len(masks) % PADDED  # so that tables of nearly the same size share a program
    arrays = [following, masks.sum(1).astype(np.int32)]
    arrays += [np.stack(part) for part in zip(*parts, strict=True)]
    with jax.enable_x64(True):
        first, count, *tables = (jnp.asarray(_padded(array, spare)) for array in arrays)
        return SharedTables(first, count, jnp.int32(0), *tables)


def _padded(table: np.ndarray, spare: int) -> np.ndarray:
    return np.concatenate([table, np.zeros((spare, *table.shape[1:]), table.dtype)])


def own_rows(columns: np.ndarray, start: np.ndarray, loss: Loss, folds: Folds) -> OwnRows:
    """Return the rows themselves; every column that a subset has must be among `columns` [m, P],
    the target last.
    """
    n = len(columns)
    observed = ~np.isnan(columns)
    if loss != "kfold":
        assigned = np.zeros((1, 1, n), np.int32)
    elif folds.groups is not None:
        assigned = folds.of_rows(np.arange(n))[None]
    else:
        assigned = np.zeros((n + 1, folds.repeats, n), np.int32)
        for count in range(folds.k, n + 1):
            assigned[count, :, :count] = folds.of_rows(np.arange(count))
    with jax.enable_x64(True):
        return OwnRows(
            jnp.asarray(np.where(observed, columns, 0.0).T),
            jnp.asarray(observed.T),
            jnp.asarray(assigned),
            jnp.asarray(start),
        )


def _table(
    columns: np.ndarray, swept: np.ndarray, mask: np.ndarray, loss: Loss, folds: Folds
) -> tuple[np.ndarray, ...]:
    """Return entries of `SharedTables` for one set of rows: train, held, weight, rows, leverage."""
    rows = np.flatnonzero(mask)
    a, z = np.where(np.isnan(columns[rows]), 0.0, columns[rows]), swept[rows]
    above = np.triu_indices(a.shape[1])
    order = np.lexsort(above)  # by b, then a
    upper = (above[0][order], above[1][order])
    if loss != "kfold":
        rest, leverage = sweep(a, z, a, z)
        train = (rest.T @ rest)[upper][:, None]
        n_rows = len(columns) if loss == "loo" else 0
        shown, lever = np.zeros((a.shape[1], n_rows)), np.zeros(n_rows)
        if loss == "loo":
            shown[:, rows], lever[rows] = rest.T, leverage
        return train, np.zeros((len(train), 0)), np.ones(1), shown, lever
    out = folds.held_out(rows)
    train, held = [], []
    for f in range(folds.count):
        inside, outside = (
            sweep(a[~out[:, f]], z[~out[:, f]], a[part], z[part])[0]
            for part in (~out[:, f], out[:, f])
        )
        train.append((inside.T @ inside)[upper])
        held.append((outside.T @ outside)[upper])
    weight = fold_weights(out.sum(0).astype(np.float64), folds.repeats, pooled=folds.pooled)
    return np.stack(train, -1), np.stack(held, -1), weight, np.zeros((a.shape[1], 0)), np.zeros(0)


def sweep(
    a: np.ndarray, z: np.ndarray, shown: np.ndarray, beside: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the residuals of rows of columns after their regression on z, fitted on other rows,
    and the leverages of the rows in that fit.

    Args:
      a, z: [n, P], [n, Q] rows that the regression is fitted on.
      shown, beside: rows of the same columns to be predicted.

    Returns:
      [n', P], NaN where z has not full rank; columns of a that z explains entirely are 0. And [n'].
    """
    if not z.shape[1]:
        return shown, np.zeros(len(shown))
    scale = np.linalg.norm(z, axis=0)
    if len(z) < z.shape[1] or not (scale > 0).all():
        return np.full(shown.shape, np.nan), np.zeros(len(shown))
    q, r = np.linalg.qr(z / scale)
    if (np.diag(r) ** 2 <= SINGULAR).any():
        return np.full(shown.shape, np.nan), np.zeros(len(shown))
    # rows of `beside` in the orthonormal basis of z
    basis = np.linalg.solve(r.T, (beside / scale).T).T
    inner = q.T @ a
    left = (a * a).sum(0) - (inner * inner).sum(0)
    explained = left <= SINGULAR * (a * a).sum(0)
    explained[-1] = False  # the target may be explained
    return np.where(explained, 0.0, shown - basis @ inner), (basis * basis).sum(1)
