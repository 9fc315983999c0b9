"""The loss of many subsets at once, on the device: subsets from their numbers, small systems solved
by unrolled LDL', no LAPACK.

A batch of B subsets with F training sets each is a set of [B, F] arrays, one for each entry of the
C x C systems, so that every operation runs over whole arrays. All numbers are float64: call these
functions within `jax.enable_x64`.
"""

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl.base.pytree import record

Loss = Literal["in-sample", "kfold", "loo"]

TILE = {"cpu": 1024}  # subsets in one batch: on a CPU what stays in its cache
WIDE = 65536  # on other devices
# a pivot below this share of its diagonal entry: the columns are taken for linearly dependent
SINGULAR = 1e-13
FLIPS = 200  # steps of the non-negative solver, far more than it takes
Entry = Callable[[int, int], Array]
Lower = dict[tuple[int, int], Array]


@record
class SharedTables:
    """Data shared by all subsets whose complete rows are the same (`gram.tables`).

    M row masks, P columns, F training sets, m rows.
    """

    following: Array  # [M, P] int32, the mask that remains when a column is added
    count: Array  # [M] int32, rows of a mask
    start: Array  # [] int32, the mask of the forced columns
    # [M, P (P + 1) / 2, F] entries (a, b), a <= b, at b (b + 1) / 2 + a: inner products over
    # training rows
    train: Array
    # [M, P (P + 1) / 2, F] the same over held-out rows; F = 0 where the loss needs none
    held: Array
    weight: Array  # [M, F] of a held-out squared error in the loss
    # [M, P, m] columns at the rows of the mask, 0 elsewhere; m = 0 where the loss needs none
    rows: Array
    leverage: Array  # [M, m] leverage of the rows in the fit of what was swept out


@record
class OwnRows:
    """The data themselves, for tables with too many row masks for shared data.

    P columns, m rows, R repeats.
    """

    columns: Array  # [P, m] missing values are 0; the last is the target
    observed: Array  # [P, m] bool
    # [m + 1, R, m] int32, held-out set of the i-th of n rows, or [1, R, m] for each row
    # independent of the others
    folds: Array
    start: Array  # [m] bool, rows that are complete in the forced columns


@dataclasses.dataclass(frozen=True)
class Shape:
    """Shape that a program is compiled for."""

    loss: Loss
    free: int  # columns that are searched for
    fixed: int  # columns that every subset has, last but the target
    min_rows: int
    non_negative: tuple[bool, ...]  # of each column, the free ones first
    folds: int = 1  # training sets
    repeats: int = 1
    pooled: bool = False  # squared errors of all held-out rows weigh the same, not all folds


@record
class Losses:
    """Losses of subsets, infinite where there is none, and why."""

    loss: Array  # float64
    skipped: Array  # bool, fewer rows than asked for
    singular: Array  # bool, linearly dependent columns in some training set


def binomials(n: int, size: int) -> np.ndarray:
    """Return [size, n + 1] int64: n over 1, …, n over `size`."""
    table = np.ones((size + 1, n + 1), np.int64)
    for k in range(1, size + 1):
        table[k] = np.concatenate([[0], np.cumsum(table[k - 1][:-1])])
    return table[1:]


def unrank(rank: Array, table: Array) -> Array:
    """Return subsets [B, C] int32, ascending, from their numbers [B] in the combinatorial number
    system (Knuth, TAOCP 7.2.1.3, theorem L).

    Number N is the subset c_1 < … < c_C with N = (c_1 over 1) + … + (c_C over C).
    """
    members = []
    for row in reversed(list(table)):
        c = jnp.searchsorted(row, rank, side="right", method="compare_all") - 1
        rank = rank - row[c]
        members.append(c.astype(jnp.int32))
    return jnp.stack(members[::-1], axis=-1)


@partial(jax.jit, static_argnames=("shape", "tiles", "tile"))
def losses_of_ranks(
    data: Any, table: Array, start: Array, *, shape: Shape, tiles: int, tile: int
) -> Losses:
    """Return losses [tiles * tile] of the subsets number start, start + 1, …; those after the last
    one repeat it.
    """
    last = table[-1, -1] - 1

    def batch(first: Array) -> Losses:
        return _losses(data, unrank(jnp.minimum(first + jnp.arange(tile), last), table), shape)

    return _flat(lax.map(batch, start + tile * jnp.arange(tiles)))


@partial(jax.jit, static_argnames=("shape",))
def losses_of_subsets(data: Any, subsets: Array, *, shape: Shape) -> Losses:
    """Return losses [tiles * tile] of subsets [tiles, tile, C] int32, columns ascending."""
    return _flat(lax.map(lambda columns: _losses(data, columns, shape), subsets))


def _flat(losses: Losses) -> Losses:
    return jax.tree.map(lambda v: v.reshape(-1), losses)


def _losses(data: Any, columns: Array, shape: Shape) -> Losses:
    system = (_shared if isinstance(data, SharedTables) else _own)(data, columns, shape)
    b, pivots, lower, singular = solve(system.train, system.size, shape.non_negative)
    if shape.loss == "in-sample":
        squares = system.train(system.size, system.size) - sum(
            b[i] * system.train(i, system.size) for i in range(system.size)
        )
        loss = squares[:, 0] / system.count
    elif shape.loss == "kfold":
        loss = (_held_out_squares(system, b) * system.weight).sum(-1)
    else:
        loss, lost = _leave_one_out(system, b, pivots, lower)
        singular = singular | lost[:, None]
    skipped = system.count < shape.min_rows
    singular = (singular.any(-1) | ~jnp.isfinite(loss)) & ~skipped
    return Losses(jnp.where(skipped | singular, jnp.inf, jnp.maximum(loss, 0.0)), skipped, singular)


@dataclasses.dataclass
class _System:
    """Normal equations of B subsets.

    Entry (i, j) of `train` and `held` is [B, F]; column number `size` is the target.
    """

    size: int
    train: Callable[[int, int], Array]
    held: Callable[[int, int], Array]
    weight: Array  # [B, F]
    count: Array  # [B] float64, rows
    rows: Callable[[int], Array]  # [B, m]
    leverage: Array  # [B, m]


def _shared(data: SharedTables, columns: Array, shape: Shape) -> _System:
    """Return systems looked up in tables."""
    n_columns = data.following.shape[1]
    n_entries = n_columns * (n_columns + 1) // 2
    mask = jnp.broadcast_to(data.start, columns.shape[:1])
    for k in range(shape.free):
        mask = data.following[mask, columns[:, k]]
    fixed = [jnp.full_like(mask, n_columns - 1 - shape.fixed + k) for k in range(shape.fixed + 1)]
    # ascending, as the entries are stored
    places = [columns[:, k] for k in range(shape.free)] + fixed

    def entry(table: Array, i: int, j: int) -> Array:
        a, b = places[min(i, j)], places[max(i, j)]
        return table.reshape(-1, table.shape[-1])[mask * n_entries + b * (b + 1) // 2 + a]

    return _System(
        size=shape.free + shape.fixed,
        train=_once(partial(entry, data.train)),
        held=_once(partial(entry, data.held)),
        weight=data.weight[mask],
        count=data.count[mask].astype(jnp.float64),
        rows=lambda i: data.rows.reshape(-1, data.rows.shape[-1])[mask * n_columns + places[i]],
        leverage=data.leverage[mask],
    )


def _own(data: OwnRows, columns: Array, shape: Shape) -> _System:
    """Return systems summed up from the rows of each subset: some ten times slower, needs no
    table.
    """
    n_columns, n_rows = data.columns.shape
    complete = data.start[None] & data.observed[columns].all(1)  # [B, m]
    count = complete.sum(-1)
    rank = jnp.cumsum(complete, -1) - 1
    fixed = jnp.broadcast_to(
        jnp.arange(n_columns - 1 - shape.fixed, n_columns, dtype=columns.dtype),
        (len(columns), shape.fixed + 1),
    )
    known = complete[:, None].astype(jnp.float64)
    values = data.columns[jnp.concatenate([columns, fixed], 1)] * known  # [B, C + 1, m]
    held = jnp.zeros((len(columns), n_rows, 1), jnp.float64)
    if shape.loss == "kfold":
        if len(data.folds) == 1:
            fold = jnp.broadcast_to(data.folds[0].T[None], (len(columns), n_rows, shape.repeats))
        else:
            by_rank = data.folds[count]  # [B, R, m]
            fold = jnp.take_along_axis(by_rank, jnp.maximum(rank, 0)[:, None, :], 2).swapaxes(1, 2)
        each = jnp.arange(shape.folds // shape.repeats, dtype=fold.dtype)[None, None, None]
        out = (fold[..., None] == each) & complete[:, :, None, None]
        held = out.reshape(len(columns), n_rows, shape.folds).astype(jnp.float64)
    train = complete[:, :, None].astype(jnp.float64) - held

    def entry(use: Array, i: int, j: int) -> Array:
        return jnp.einsum(
            "bm,bmf->bf", values[:, i] * values[:, j], use, precision=lax.Precision.HIGHEST
        )

    return _System(
        size=shape.free + shape.fixed,
        train=_once(partial(entry, train)),
        held=_once(partial(entry, held)),
        weight=fold_weights(held.sum(1), shape.repeats, pooled=shape.pooled),
        count=count.astype(jnp.float64),
        rows=lambda i: values[:, i],
        leverage=jnp.zeros_like(values[:, 0]),
    )


def fold_weights(sizes: Any, repeats: int, *, pooled: bool) -> Any:
    """Return weights [..., F] of squared errors: mean over the folds that are not empty of their
    mean error, or the mean error of all rows.

    Args:
      sizes: [..., F] float64, rows of each held-out set, the folds of a repeat beside each other; a
        NumPy or a JAX array.
    """
    xp = jnp if isinstance(sizes, Array) else np
    if pooled:
        return xp.broadcast_to(1.0 / xp.maximum(sizes.sum(-1, keepdims=True), 1.0), sizes.shape)
    each = sizes.reshape(*sizes.shape[:-1], repeats, -1)
    used = xp.maximum((each > 0).sum(-1, keepdims=True).astype(xp.float64), 1.0)
    weights = xp.where(each > 0, 1.0 / (xp.maximum(each, 1.0) * used * repeats), 0.0)
    return weights.reshape(sizes.shape)


def _once(entry: Callable[[int, int], Array]) -> Callable[[int, int], Array]:
    """Make each entry of a symmetric matrix once."""
    known = cache(entry)
    return lambda i, j: known(min(i, j), max(i, j))


def _held_out_squares(system: _System, b: list[Array]) -> Array:
    """Return the sum of squared errors on the held-out rows, [B, F]."""
    n = system.size
    total = system.held(n, n)
    for i in range(n):
        inner = b[i] * system.held(i, i) - 2.0 * system.held(i, n)
        total = total + b[i] * (
            inner + 2.0 * sum((b[j] * system.held(j, i) for j in range(i)), jnp.zeros_like(total))
        )
    return jnp.maximum(total, 0.0)  # a perfect fit may round to less


def _leave_one_out(
    system: _System, b: list[Array], pivots: list[Array], lower: Lower
) -> tuple[Array, Array]:
    """Return the mean of (e_i / (1 - h_i))^2 with leverages h_i, [B], and where some row alone
    determines a coefficient.
    """
    size = system.size
    error, leverage = system.rows(size), system.leverage
    parts: list[Array] = []
    for i in range(size):
        values = system.rows(i)
        error = error - b[i] * values
        parts.append(
            values - sum((lower[i, q] * parts[q] for q in range(i)), jnp.zeros_like(values))
        )
        leverage = leverage + parts[i] * parts[i] / pivots[i]
    rest = 1.0 - leverage
    errors = error / rest
    return (errors * errors).sum(-1) / system.count, (rest < 1e-9).any(-1)


def solve(
    gram: Entry, size: int, non_negative: tuple[bool, ...]
) -> tuple[list[Array], list[Array], Lower, Array]:
    """Solve least squares by the normal equations: coefficients, pivots and unit lower triangle of
    the LDL' form, and where it is singular.

    Where asked for, coefficients are at least 0.
    """
    rhs = [gram(i, size) for i in range(size)]
    b, pivots, lower, singular = _ldl(gram, rhs)
    if any(non_negative):
        b, stuck = _non_negative(gram, rhs, b, non_negative)
        singular = singular | stuck
    return b, pivots, lower, singular


def _ldl(gram: Entry, rhs: list[Array]) -> tuple[list[Array], list[Array], Lower, Array]:
    size = len(rhs)
    scaled: Lower = {}  # L times D
    lower: Lower = {}
    pivots: list[Array] = []
    singular = jnp.zeros(rhs[0].shape, bool)
    for k in range(size):
        for i in range(k, size):
            scaled[i, k] = gram(i, k) - sum(
                (lower[i, q] * scaled[k, q] for q in range(k)), jnp.zeros_like(rhs[0])
            )
        pivots.append(scaled[k, k])
        singular = singular | ~(pivots[k] > SINGULAR * gram(k, k))
        inverse = 1.0 / pivots[k]
        for i in range(k + 1, size):
            lower[i, k] = scaled[i, k] * inverse
    b: list[Array] = []
    for i in range(size):
        b.append(rhs[i] - sum((lower[i, q] * b[q] for q in range(i)), jnp.zeros_like(rhs[0])))
    b = [b[i] / pivots[i] for i in range(size)]
    for i in reversed(range(size)):
        b[i] = b[i] - sum((lower[q, i] * b[q] for q in range(i + 1, size)), jnp.zeros_like(rhs[0]))
    return b, pivots, lower, singular


def _non_negative(
    gram: Entry, rhs: list[Array], b: list[Array], wanted: tuple[bool, ...]
) -> tuple[list[Array], Array]:
    """Return the best coefficients that are at least 0, from the free ones `b`; and where they were
    not found.

    Principal pivoting: of all columns whose coefficient is negative, or which are left out and
    would reduce the error, the last one changes sides, until there is none. Terminates for positive
    definite systems (Murty 1974).
    """
    size = len(rhs)

    def violated(b: list[Array], inside: list[Array]) -> list[Array]:
        violations = []
        for i in range(size):
            slope = sum((gram(i, j) * b[j] for j in range(size)), -rhs[i])
            outside = slope < -1e-12 * jnp.abs(rhs[i])
            violations.append(
                jnp.where(inside[i], b[i] < 0, outside) if wanted[i] else jnp.zeros_like(inside[i])
            )
        return violations

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        n, b, inside, wrong = carry
        later = jnp.zeros_like(wrong[0])
        flipped = [inside[0]] * size
        for i in reversed(range(size)):
            flipped[i] = inside[i] ^ (wrong[i] & ~later)
            later = later | wrong[i]

        def face(i: int, j: int) -> Array:
            return jnp.where(flipped[i] & flipped[j], gram(i, j), gram(i, i) if i == j else 0.0)

        b = _ldl(face, [jnp.where(flipped[i], rhs[i], 0.0) for i in range(size)])[0]
        b = [jnp.where(flipped[i], b[i], 0.0) for i in range(size)]
        return n + 1, b, flipped, violated(b, flipped)

    def unfinished(carry: tuple[Any, ...]) -> Array:
        n, _, _, wrong = carry
        return (n < FLIPS) & jnp.any(jnp.stack(wrong))

    everything = [jnp.ones(rhs[0].shape, bool)] * size
    start = (jnp.int32(0), b, everything, violated(b, everything))
    _, b, _, wrong = lax.while_loop(unfinished, step, start)
    return b, jnp.stack(wrong).any(0)
