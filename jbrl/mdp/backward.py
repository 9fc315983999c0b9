"""Backward induction over (state, counts) for D decisions: values, and the greedy choices."""

import dataclasses
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from jbrl.mdp.counts import Cell, Layers
from jbrl.mdp.model import sweep

PART = 2**16  # (state, counts) at a time: their arrays stay in a core's cache

Values = dict[Cell, np.ndarray]  # by cell, float64 of its shape
Slices = tuple[slice, slice, slice]
PRECISION = 1e-2  # of values of mean MDPs, as a part of the greatest one
MOST_SWEEPS = 1000
# Of the value and of the range of rewards: rows whose values differ by less are equal, and the
# first one is chosen.
TIE = 1e-9


def solve(
    layers: Layers,
    decisions: int,
    leaves: Values,
    discount: float,
    threads: int,
    *,
    paid: bool = True,
) -> float:
    """Return the greatest expected discounted return from the first state on.

    Args:
      decisions: D, how far to look ahead.
      leaves: value of each (state, counts) after D decisions, or after which none follows; emptied,
        to free its memory.
      paid: count the rewards before the leaves, too.
    """
    ended = {cell: value for cell, value in leaves.items() if layers.ends(cell)}
    after = leaves
    with ThreadPoolExecutor(threads) as pool:
        for t in reversed(range(decisions)):
            cells = [cell for cell in layers.layer(t) if not layers.ends(cell)]
            values = list(pool.map(partial(back_up, layers, after, discount, paid=paid), cells))
            after.clear()
            after = dict(zip(cells, values, strict=True)) | ended
    return float(np.mean([layers.values(after, cell).item() for cell in layers.first]))


def back_up(
    layers: Layers, after: Values, discount: float, cell: Cell, *, paid: bool = True
) -> np.ndarray:
    """Return the values of a cell, of its shape, from those one decision later."""
    shape = layers.shape(cell)
    folded = _folded(layers, cell)
    best = np.empty(folded)
    rows = _Rows(layers, after, discount, cell, paid=paid)
    for part in _parts(folded):
        here = best[part]
        for number, q in enumerate(rows.values(part)):
            if number:
                np.maximum(here, q, out=here)
            else:
                here[:] = q
    return best.reshape(shape)


def back_up_and_choose(
    layers: Layers, after: Values, discount: float, cell: Cell
) -> tuple[np.ndarray, np.ndarray]:
    """Return values as `back_up`, and the number of the greedy row, int16: certain rows first, of
    those that tie the first.
    """
    shape = layers.shape(cell)
    folded = _folded(layers, cell)
    best, choice = np.empty(folded), np.zeros(folded, np.int16)
    rows, scale = _Rows(layers, after, discount, cell), layers.model.reward_range
    for part in _parts(folded):
        here, chosen = best[part], choice[part]
        for number, q in enumerate(rows.values(part)):
            if not number:
                here[:] = q
                continue
            chosen[q > here + TIE * np.maximum(scale, np.abs(here))] = number
            np.maximum(here, q, out=here)
    return best.reshape(shape), choice.reshape(shape)


def _folded(layers: Layers, cell: Cell) -> tuple[int, int, int]:
    """Return the shape of a cell with three axes, the block of its state in the middle."""
    shape, number = layers.shape(cell), int(layers.model.block_of[cell.state])
    if number < 0:
        return 1, 1, math.prod(shape)
    return math.prod(shape[:number]), shape[number], math.prod(shape[number + 1 :])


def _parts(folded: tuple[int, int, int]) -> Iterator[Slices]:
    """Yield slices of three axes, of at most `PART` entries."""
    behind = min(folded[2], PART)
    middle = max(1, min(folded[1], PART // behind))
    before = max(1, min(folded[0], PART // (behind * middle)))
    for i in range(0, folded[0], before):
        for j in range(0, folded[1], middle):
            for k in range(0, folded[2], behind):
                yield slice(i, i + before), slice(j, j + middle), slice(k, k + behind)


class _Rows:
    """The rows of the state of a cell, and the values after them."""

    def __init__(
        self, layers: Layers, after: Values, discount: float, cell: Cell, *, paid: bool = True
    ) -> None:
        folded = _folded(layers, cell)
        self._discount = discount
        self._certain = [
            (
                row.reward * paid,
                layers.values(after, Cell(row.successor, cell.totals)).reshape(folded),
            )
            for row in layers.model.certain[cell.state]
        ]
        number = int(layers.model.block_of[cell.state])
        self._uncertain = []
        if number < 0:
            return
        counts, total = layers.blocks[number], cell.totals[number]
        block, predictive = counts.block, counts.splits(total).predictive
        following = [
            layers.values(after, layers.successor(cell, k)).reshape(folded[0], -1, folded[2])
            for k in range(len(block.successors))
        ]
        for row in range(len(block.actions)):
            some = [int(k) for k in np.flatnonzero(block.possible[row])]
            gain = (predictive[row] * block.rewards[row][:, None]).sum(0)[:, None] * paid
            self._uncertain.append(
                (
                    gain,
                    [
                        (
                            following[k],
                            counts.after(total, row, k),
                            discount * predictive[row, k][:, None],
                        )
                        for k in some
                    ],
                )
            )

    def values(self, part: Slices) -> Iterator[np.ndarray]:
        """Yield the values of each row in a part of the cell; the next overwrites the last."""
        for reward, after in self._certain:
            yield reward + self._discount * after[part]
        before, middle, behind = part
        for gain, outcomes in self._uncertain:
            q: np.ndarray | None = None
            for following, places, weight in outcomes:
                reached = following[before, places[middle], behind]
                reached *= weight[middle]
                q = reached if q is None else np.add(q, reached, out=q)
            assert q is not None
            q += gain[middle]
            yield q


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """The greedy choice in each (state, counts) of the first D decisions.

    A choice is the number of a certain row of the state, or the number of its certain rows plus the
    position of an uncertain one.
    """

    layers: Layers
    value: float  # of the first states, by the values after D decisions
    choices: tuple[dict[Cell, np.ndarray], ...]  # by layer, of the shape of each cell, int16


def make_table(
    layers: Layers, decisions: int, leaves: dict[Cell, np.ndarray], discount: float, threads: int
) -> Table:
    """Return the greedy choices in a look-ahead of D decisions with these values after them."""
    after, choices = leaves, []
    with ThreadPoolExecutor(threads) as pool:
        for t in reversed(range(decisions)):
            cells = layers.layer(t)
            results = list(pool.map(partial(back_up_and_choose, layers, after, discount), cells))
            choices.append({cell: choice for cell, (_, choice) in zip(cells, results, strict=True)})
            after = {cell: value for cell, (value, _) in zip(cells, results, strict=True)}
    value = float(np.mean([layers.values(after, cell).item() for cell in layers.first]))
    return Table(layers, value, tuple(reversed(choices)))


def mean_values(
    layers: Layers, cells: list[Cell], discount: float, left: int, threads: int
) -> dict[Cell, np.ndarray]:
    """Return the optimal values of the posterior-mean MDPs, of the shape of each cell."""
    with ThreadPoolExecutor(threads) as pool:
        values = pool.map(partial(_mean_value, layers, discount, left), cells)
        return dict(zip(cells, values, strict=True))


def _mean_value(layers: Layers, discount: float, left: int, cell: Cell) -> np.ndarray:
    model, shape = layers.model, layers.shape(cell)
    rows = []
    for axis, (block, total) in enumerate(zip(layers.blocks, cell.totals, strict=True)):
        predictive = block.splits(total).predictive  # [A, K, n]
        tail = [1] * axis + [-1] + [1] * (len(shape) - axis - 1)
        rows.append(predictive.reshape(*predictive.shape[:2], *tail))
    value = np.zeros((model.n_states, *shape))
    for further in reversed(range(left - min(left, MOST_SWEEPS), left)):
        new = sweep(model, tuple(rows), discount, value)
        change = new - value
        least, most = change.min(), change.max()
        value = new
        if most - least <= PRECISION * (1 - discount) * np.abs(value).max():
            # The same change at each further sweep, discounted: MacQueen 1966.
            value += discount * (1 - discount**further) / (1 - discount) * (most + least) / 2
            break
    return value[cell.state]
