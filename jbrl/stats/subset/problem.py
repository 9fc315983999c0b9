"""A search as arrays: its checked settings, the columns to choose from, and the program that
computes losses on the device, from inner products of columns.

In a table with holes a subset is fitted on the rows where all its columns are known. Few different
sets of rows occur: 188 among the 3,819,816 subsets of five Atari games. The inner products are made
once for each set and shared by all subsets with these rows. Columns that all subsets have in common
(forced ones, the intercept) are swept out here, by QR, so that the device sees only what differs
between subsets.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.base.errors import JbrlError, check_choice, check_count
from jbrl.stats.subset import kernel
from jbrl.stats.subset.fit import Folds
from jbrl.stats.subset.kernel import SINGULAR, Loss, OwnRows, SharedTables, fold_weights
from jbrl.stats.subset.preparation import Prepared

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
    columns: np.ndarray, swept: np.ndarray, start: np.ndarray, size: int, loss: Loss, folds: Folds
) -> SharedTables | None:
    """Make the tables that subsets share on the device.

    Args:
      columns: [m, P] float64, NaN where missing; the last is the target, which has no holes.
      swept: [m, Q] float64, columns that every subset has, with holes as well.
      start: [m] bool, rows that are complete in all columns that every subset has.
      size: free columns of a subset.

    Returns:
      None if there are too many sets of rows for tables.
    """
    observed, (n_rows, n_columns) = ~np.isnan(columns), columns.shape
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


CRITERIA = ("in-sample", "kfold", "loo")
ROWS = ("subset", "common", "impute")
POOL = 200  # best subsets of the device's list that are fitted again in full precision


@dataclasses.dataclass(frozen=True)
class Search:
    """Target of a search, and the comparison of subsets."""

    size: int = 5
    criterion: kernel.Loss = "kfold"
    folds: Folds = dataclasses.field(default_factory=Folds)
    # compare only so many subsets, those of least in-sample error, by the criterion; 0: all
    shortlist: int = 0
    intercept: bool = False
    non_negative: bool = False
    # complete in the subset, complete in all, or holes filled with means
    rows: Literal["subset", "common", "impute"] = "subset"
    # environments to choose from; None: all that the thresholds leave
    pool: tuple[str, ...] | None = None
    force_in: tuple[str, ...] = ()
    force_out: tuple[str, ...] = ()
    min_rows: int | None = None  # subsets with fewer algorithms are skipped; None: see `least_rows`
    limit: float = 1e9  # subsets; more are refused
    # forward selection with swaps, where an exhaustive search would take too long
    heuristic: bool = False
    top: int = 10  # subsets reported after the best one
    chunk: int = 2**18  # subsets between two signs of progress; changes no result


def least_rows(prepared: Prepared, settings: Search) -> int:
    """Return the number of rows that a subset needs: three for each parameter, two in each fold and
    twenty in all, but not more than half of the algorithms.
    """
    k = settings.folds.k if settings.criterion == "kfold" and settings.folds.groups is None else 0
    wished = max(20, 3 * settings.size, 2 * k) if settings.min_rows is None else settings.min_rows
    most = len(prepared.algorithms) // 2 if settings.min_rows is None else wished
    return max(min(wished, most), settings.size + 2, k)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A search as arrays: the data for the device about the subsets that consist of free columns
    and all forced ones.
    """

    prepared: Prepared
    settings: Search
    free: tuple[int, ...]
    forced: tuple[int, ...]

    @property
    def min_rows(self) -> int:
        """Rows that a subset needs."""
        return least_rows(self.prepared, self.settings)

    def by(self, criterion: kernel.Loss) -> "Problem":
        """Return the same subsets compared by another criterion; rows are counted as before."""
        settings = dataclasses.replace(self.settings, criterion=criterion, min_rows=self.min_rows)
        return dataclasses.replace(self, settings=settings)

    def compiled(self, size: int, *, tables: bool = True) -> "Evaluator":
        """Compile the function that computes the losses of subsets of `size` free columns."""
        settings, loss = self.settings, self.settings.criterion
        folds = settings.folds
        counts = {"folds": folds.count, "repeats": folds.repeats} if loss == "kfold" else {}
        features, target = self.prepared.features, self.prepared.target
        ones = np.ones((len(target), int(settings.intercept)))
        if settings.intercept:  # which makes up for them, and products of large numbers are rounded
            features, target = features - np.nanmean(features, 0), target - target.mean()
        free, forced = features[:, self.free], features[:, self.forced]
        # columns of constrained sign cannot be swept out
        shown = forced if settings.non_negative else forced[:, :0]
        swept = ones if settings.non_negative else np.column_stack([forced, ones])
        signs = (settings.non_negative,) * (size + shown.shape[1])
        start = ~np.isnan(forced).any(1)
        data: Any = None
        if tables:
            data = make(np.column_stack([free, shown, target]), swept, start, size, loss, folds)
        tile, fixed = kernel.TILE.get(jax.default_backend(), kernel.WIDE), shown.shape[1]
        if data is None:
            fixed = len(self.forced) + ones.shape[1]
            every = np.column_stack([free, forced, ones, target])
            data = own_rows(every, start, loss, folds)
            signs = (settings.non_negative,) * (size + len(self.forced)) + (False,) * ones.shape[1]
            # one-hot folds of all rows, 32 MB
            tile = max(16, int(2**22 / (len(target) * counts.get("folds", 1))))
        pooled = folds.pooled
        shape = kernel.Shape(loss, size, fixed, self.min_rows, signs, **counts, pooled=pooled)
        return Evaluator(data, shape, len(self.free), size, tile)

    def columns(self, chosen: np.ndarray) -> tuple[int, ...]:
        """Return columns of the table, free before forced, from numbers of free columns."""
        return (*(self.free[c] for c in chosen), *self.forced)


@dataclasses.dataclass(frozen=True)
class Evaluator:
    """Losses of subsets, on the device."""

    data: kernel.SharedTables | kernel.OwnRows
    shape: kernel.Shape
    n_free: int
    size: int
    tile: int

    def of_subsets(self, subsets: np.ndarray) -> kernel.Losses:
        """Return losses [n] of subsets [n, size] of free columns, ascending."""
        tiles = -(-len(subsets) // self.tile)
        tile = self.tile if tiles > 1 else 1 << (len(subsets) - 1).bit_length()
        padded = np.concatenate([subsets, np.repeat(subsets[-1:], tiles * tile - len(subsets), 0)])
        with jax.enable_x64(True):
            given = jnp.asarray(padded.reshape(tiles, tile, self.size).astype(np.int32))
            losses = kernel.losses_of_subsets(self.data, given, shape=self.shape)
        return jax.tree.map(lambda v: np.asarray(v)[: len(subsets)], losses)

    def all(self, chunk: int) -> Iterator[tuple[int, kernel.Losses]]:
        """Yield losses of all subsets in the order of their numbers: the first number of a chunk,
        and the chunk.
        """
        table = kernel.binomials(self.n_free, self.size)
        total = math.comb(self.n_free, self.size)
        tiles = max(1, -(-min(chunk, total) // self.tile))
        with jax.enable_x64(True):
            numbers = jnp.asarray(table)
        sizes = {"shape": self.shape, "tiles": tiles, "tile": self.tile}
        for start in range(0, total, tiles * self.tile):
            with jax.enable_x64(True):
                losses = kernel.losses_of_ranks(self.data, numbers, jnp.int64(start), **sizes)
            yield start, jax.tree.map(lambda v, n=total - start: np.asarray(v)[:n], losses)


@dataclasses.dataclass(frozen=True)
class RankedSubsets:
    """The best subsets of a list, as numbers of free columns [n, size], best first."""

    subsets: np.ndarray
    counts: dict[str, int]
    quantiles: dict[str, float] | None = None
    better: dict[tuple[str, ...], int] = dataclasses.field(default_factory=dict)


def candidates(prepared: Prepared, settings: Search) -> Problem:
    """Return the search with the free and the forced columns, and the rows and their groups that
    `settings.rows` leaves, once the settings are found valid.
    """
    _check(prepared, settings)
    usable = set(itertools.compress(prepared.environments, prepared.usable))
    forced = tuple(prepared.column(name) for name in dict.fromkeys(settings.force_in))
    for name in settings.force_in:
        if name in settings.force_out:
            raise JbrlError(
                f"subset: environment '{name}' is both forced in and forced out: expected at most "
                "one of them"
            )
        if name not in usable:
            few = prepared.preparation.min_algorithms
            raise JbrlError(
                f"subset: environment '{name}' is forced in, but has scores of fewer than {few} "
                "algorithms"
            )
    if len(forced) > settings.size:
        raise JbrlError(
            f"subset: {len(forced)} environments are forced in: expected at most size = "
            f"{settings.size}"
        )
    out = {prepared.column(name) for name in settings.force_out} | set(forced)
    pool = (
        range(len(prepared.environments))
        if settings.pool is None
        else sorted({prepared.column(name) for name in settings.pool})
    )
    free = tuple(c for c in pool if c not in out and prepared.environments[c] in usable)
    most = len(free) + len(forced)
    if not 1 <= settings.size <= most:
        raise JbrlError(
            f"subset: size = {settings.size}: expected an integer from 1 to {most}, the number of "
            "environments to choose from"
        )
    features = prepared.features
    if settings.rows == "impute":
        filled = np.where(np.isnan(features), np.nanmean(features, 0), features)
        prepared = dataclasses.replace(prepared, features=filled)
    if settings.rows == "common":
        holes = np.isnan(features[:, [*free, *forced]]).any(1)
        prepared = prepared.without(list(itertools.compress(prepared.algorithms, holes)))
        if settings.folds.groups is not None:
            groups = tuple(itertools.compress(settings.folds.groups, ~holes))
            folds = dataclasses.replace(settings.folds, groups=groups)
            settings = dataclasses.replace(settings, folds=folds)
    if len(prepared.algorithms) < settings.size + 2:
        raise JbrlError(
            f"subset: {len(prepared.algorithms)} algorithms for {settings.size} environments: "
            f"expected at least {settings.size + 2}, two more than environments"
        )
    return Problem(prepared, settings, free, forced)


def _check(prepared: Prepared, settings: Search) -> None:
    for name, accepted in (("criterion", CRITERIA), ("rows", ROWS)):
        check_choice(f"subset: {name}", getattr(settings, name), accepted)
    for name, low in (("size", 0), ("top", 0), ("chunk", 1), ("shortlist", 0)):
        check_count(f"subset: {name}", getattr(settings, name), low=low)
    if settings.min_rows is not None:
        check_count("subset: min_rows", settings.min_rows, low=0)
    by_rows = settings.criterion == "kfold" and settings.folds.groups is None
    if by_rows and settings.folds.k > len(prepared.algorithms):
        raise JbrlError(
            f"subset: folds = {settings.folds.k}: expected at most {len(prepared.algorithms)}, "
            "the number of algorithms"
        )
    if settings.criterion == "loo" and settings.non_negative:
        raise JbrlError(
            "subset: criterion = 'loo' with non-negative weights: there is no closed form; use "
            "'kfold' or 'in-sample'"
        )
