"""Counts of transitions that are reachable in a lifetime, sorted by totals.

The *total* of a block says how often each successor has followed, whatever the action: [K] numbers.
The ways to divide a total among the rows of the block are its *splits*. Splits that differ by
exchangeable rows are one split: the rows of a group are put into a fixed order.

A *cell* is a state and the total of each block. All ways to split its totals among actions are
reachable as soon as one of them is, since each visit of a state is free to take any of its rows;
so the (state, counts) of a cell are the entries of one dense array, with an axis for each block,
and equal counts are merged without being compared.
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from jbrl.mdp.model import Block, Model, Symmetry, symmetries

Total = tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Splits:
    """All splits of one total: `n` of them, of `A` rows and `K` successors."""

    block: Block
    counts: np.ndarray  # [n, A, K] int16
    codes: np.ndarray  # [n] int64, rising; one for each split

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def predictive(self) -> np.ndarray:
        """Return the probability of each successor of each row after these counts:
        [A, K, n] float64.
        """
        after = self.block.concentrations + self.counts
        return np.ascontiguousarray(np.moveaxis(after / after.sum(-1, keepdims=True), 0, -1))

    @cached_property
    def log_probability(self) -> np.ndarray:
        """Return the log of the probability of one sequence of outcomes with these counts:
        [n] float64.

        That of the Dirichlet-multinomial distribution, without the number of orders.
        """
        entries, rows = self._log_parts
        return entries.sum((-1, -2)) + rows.sum(-1)

    @cached_property
    def log_probability_of_rows(self) -> np.ndarray:
        """Return the part of each row in `log_probability`: [n, A] float64."""
        entries, rows = self._log_parts
        return entries.sum(-1) + rows

    @property
    def _log_parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what concerns each count, [n, A, K], and the sum of each row, [n, A]."""
        prior = self.block.concentrations
        after = prior + self.counts
        some = prior > 0
        entries = np.where(
            some, gammaln(np.where(some, after, 1)) - gammaln(np.where(some, prior, 1)), 0.0
        )
        return entries, gammaln(prior.sum(-1)) - gammaln(after.sum(-1))


class BlockCounts:
    """The splits of each total of a block, and the split that one more transition leads to; made
    when first asked for.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        generator = np.random.default_rng(len(block.actions))
        odd = generator.integers(1, 2**62, len(block.successors) + len(block.actions)) * 2 + 1
        self._of_successor, self._of_row = np.split(odd.astype(np.int64), [len(block.successors)])
        self._splits: dict[Total, Splits] = {}
        self._after: dict[tuple[Total, int, int], np.ndarray] = {}

    @property
    def nothing(self) -> Total:
        """Return the total before the first transition."""
        return (0,) * len(self.block.successors)

    def add(self, total: Total, k: int) -> Total:
        """Return the total after one more transition to successor number `k`."""
        return (*total[:k], total[k] + 1, *total[k + 1 :])

    def splits(self, total: Total) -> Splits:
        """Return the splits of a total."""
        if total not in self._splits:
            self._splits[total] = self._canonical(self._divide(total))
        return self._splits[total]

    def after(self, total: Total, row: int, k: int) -> np.ndarray:
        """Return where the splits of a total go with one more transition of `row` to successor
        number `k`: positions among the splits of the new total, [n] int64.
        """
        places = self._after.get((total, row, k))
        if places is None:
            counts = self.splits(total).counts.copy()
            counts[:, row, k] += 1
            target = self.splits(self.add(total, k))
            counts, codes = self._ordered(counts)
            places = np.searchsorted(target.codes, codes)
            if not np.array_equal(target.counts[places], counts):
                raise AssertionError("two splits of counts have the same code")
            self._after[total, row, k] = places
        return places

    def _divide(self, total: Total) -> np.ndarray:
        """Return all divisions of a total among rows, [n, A, K] int16, exchangeable ones apart."""
        n_rows, n_successors = self.block.possible.shape
        seen = np.flatnonzero(total)
        columns = []
        for k in seen:
            rows = np.flatnonzero(self.block.possible[:, k])
            parts = _compositions(total[k], len(rows))
            column = np.zeros((len(parts), n_rows), np.int16)
            column[:, rows] = parts
            columns.append(column)
        chosen = np.unravel_index(
            np.arange(self.divisions(total)), [len(column) for column in columns] or [1]
        )
        counts = np.zeros((len(chosen[0]), n_rows, n_successors), np.int16)
        for k, column, choice in zip(seen, columns, chosen, strict=False):
            counts[:, :, k] = column[choice]
        return counts

    def divisions(self, total: Total) -> int:
        """Return the number of ways to divide a total among rows, exchangeable ones apart."""
        rows = self.block.possible.sum(0)
        return math.prod(
            math.comb(amount + int(n) - 1, amount) for amount, n in zip(total, rows, strict=True)
        )

    def _canonical(self, counts: np.ndarray) -> Splits:
        counts, codes = self._ordered(counts)
        codes, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        if not np.array_equal(counts[first][inverse], counts):
            raise AssertionError("two splits of counts have the same code")
        return Splits(self.block, counts[first], codes)

    def place(self, total: Total, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the position of counts, [n, A, K], among the splits of their total, [n] int64,
        and the order of rows in which they stand there, [n, A] int64.
        """
        order, codes = self._order(counts)
        return np.searchsorted(self.splits(total).codes, codes), order

    def _ordered(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return counts with exchangeable rows in a fixed order, and their codes."""
        order, codes = self._order(counts)
        return np.take_along_axis(counts, order[:, :, None], 1), codes

    def _order(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the order that rows are put into, [n, A] int64, and the codes then, [n] int64."""
        rows = counts.astype(np.int64) @ self._of_successor  # [n, A], modulo 2^64
        order = np.broadcast_to(np.arange(rows.shape[1]), rows.shape).copy()
        for group in self.block.groups:
            if len(group) > 1:
                members = np.array(group)
                order[:, members] = members[np.argsort(rows[:, members], axis=1, kind="stable")]
        return order, np.take_along_axis(rows, order, 1) @ self._of_row


def _compositions(amount: int, parts: int) -> np.ndarray:
    """Return all ways to write `amount` as an ordered sum of `parts` numbers from 0: [n, parts]."""
    if parts == 0:
        return np.zeros((int(amount == 0), 0), np.int16)
    if parts == 1:
        return np.array([[amount]], np.int16)
    parts_of = []
    for first in range(amount + 1):
        rest = _compositions(amount - first, parts - 1)
        parts_of.append(np.hstack([np.full((len(rest), 1), first, np.int16), rest]))
    return np.concatenate(parts_of)


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    """A state and the totals of all blocks."""

    state: int
    totals: tuple[Total, ...]


class Layers:
    """The cells that are reachable after 0, 1, 2, … decisions.

    Args:
      merge_states: keep one cell of those that symmetries of the states lead to from each other.
    """

    def __init__(self, model: Model, *, merge_states: bool = True) -> None:
        self.model = model
        self.blocks = tuple(BlockCounts(block) for block in model.blocks)
        self.symmetries = symmetries(model) if merge_states else ()
        self._places: dict[tuple[int, int, Total], np.ndarray] = {}
        nothing = tuple(block.nothing for block in self.blocks)
        self.first = [Cell(x, nothing) for x in model.first_states]
        self.ends: Callable[[Cell], bool] = lambda _: False  # whether no decision follows
        self._layers = [self._merged(self.first)]

    def ending(self, ends: Callable[[Cell], bool]) -> "Layers":
        """Return the layers in which no decision follows some cells, with the same blocks."""
        other = copy.copy(self)
        other.ends, other._layers = ends, self._layers[:1]
        return other

    def shape(self, cell: Cell) -> tuple[int, ...]:
        """Return the number of splits of each block."""
        return tuple(
            len(block.splits(total)) for block, total in zip(self.blocks, cell.totals, strict=True)
        )

    def size(self, cell: Cell) -> int:
        """Return the number of (state, counts) in a cell."""
        return math.prod(self.shape(cell))

    def successor(self, cell: Cell, k: int) -> Cell:
        """Return the cell after a transition of an uncertain row to successor number `k`."""
        number = int(self.model.block_of[cell.state])
        block = self.blocks[number]
        totals = list(cell.totals)
        totals[number] = block.add(totals[number], k)
        return Cell(int(block.block.successors[k]), tuple(totals))

    def successors(self, cell: Cell) -> list[Cell]:
        """Return the cells that one decision may lead to."""
        cells = [Cell(row.successor, cell.totals) for row in self.model.certain[cell.state]]
        number = int(self.model.block_of[cell.state])
        if number >= 0:
            count = len(self.blocks[number].block.successors)
            cells += [self.successor(cell, k) for k in range(count)]
        return cells

    def layer(self, decisions: int) -> list[Cell]:
        """Return the cells after that many decisions."""
        while len(self._layers) <= decisions:
            going_on = [cell for cell in self._layers[-1] if not self.ends(cell)]
            reached = [new for cell in going_on for new in self.successors(cell)]
            self._layers.append(self._merged(reached))
        return self._layers[decisions]

    def values(self, kept: Mapping[Cell, np.ndarray], cell: Cell) -> np.ndarray:
        """Return the array of a cell, from those of the cells that are kept."""
        array = kept.get(cell)
        if array is not None:
            return array
        number, to = self._kept(cell)
        return self._seen_from(kept[to], number, cell)

    def count(self, decisions: int) -> int:
        """Return the number of (state, counts) after that many decisions."""
        return sum(map(self.size, self.layer(decisions)))

    def largest(self, decisions: int) -> int:
        """Return the number of (state, counts) of the largest cell after that many decisions."""
        return max(map(self.size, self.layer(decisions)))

    def distinct_splits(self, decisions: int) -> int:
        """Return the number of splits of all totals of blocks after that many decisions."""
        totals = {
            (number, total)
            for cell in self.layer(decisions)
            for number, total in enumerate(cell.totals)
        }
        return sum(len(self.blocks[number].splits(total)) for number, total in totals)

    def divisions(self, decisions: int) -> int:
        """Return the greatest number of divisions of a total after that many decisions: what it
        takes to make its splits.
        """
        return max(
            (
                block.divisions(total)
                for cell in self.layer(decisions)
                for block, total in zip(self.blocks, cell.totals, strict=True)
            ),
            default=1,
        )

    def _merged(self, cells: list[Cell]) -> list[Cell]:
        if not self.symmetries:
            return list(dict.fromkeys(cells))
        return list(dict.fromkeys(self._kept(cell)[1] for cell in dict.fromkeys(cells)))

    def _kept(self, cell: Cell) -> tuple[int, Cell]:
        """Return the cell that stands for a cell, and the number of the symmetry that leads to it;
        -1: none.
        """
        images = [(cell, -1)]
        images += [(_image(one, cell), number) for number, one in enumerate(self.symmetries)]
        to, number = min(images)
        return number, to

    def _seen_from(self, array: np.ndarray, number: int, cell: Cell) -> np.ndarray:
        """Return the array of a cell from that of its image."""
        symmetry = self.symmetries[number]
        places = [self._place(number, axis, total) for axis, total in enumerate(cell.totals)]
        return array.transpose(symmetry.blocks)[np.ix_(*places)]

    def _place(self, number: int, axis: int, total: Total) -> np.ndarray:
        """Return the places of the splits of a block among those of its image."""
        key = (number, axis, total)
        if key not in self._places:
            symmetry, counts = self.symmetries[number], self.blocks[axis].splits(total).counts
            target = self.blocks[symmetry.blocks[axis]]
            moved = np.empty((len(counts), *target.block.concentrations.shape), counts.dtype)
            rows, successors = symmetry.rows[axis], symmetry.successors[axis]
            moved[:, np.array(rows)[:, None], np.array(successors)[None]] = counts
            self._places[key] = target.place(_moved(total, successors), moved)[0]
        return self._places[key]


def _moved(total: Total, successors: tuple[int, ...]) -> Total:
    moved = [0] * len(total)
    for amount, k in zip(total, successors, strict=True):
        moved[k] = amount
    return tuple(moved)


def _image(symmetry: Symmetry, cell: Cell) -> Cell:
    totals: list[Total] = [()] * len(cell.totals)
    for number, total in enumerate(cell.totals):
        totals[symmetry.blocks[number]] = _moved(total, symmetry.successors[number])
    return Cell(symmetry.states[cell.state], tuple(totals))
