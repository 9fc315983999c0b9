"""Reachable totals, layer by layer.

A *cell* is a state and the total of each block. All ways to split its totals among actions are
reachable as soon as one of them is, since each visit of a state is free to take any of its rows;
so the (state, counts) of a cell are the entries of one dense array, with an axis for each block,
and equal counts are merged without being compared.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from jbrl.bayes_optimal.counts import BlockCounts, Total
from jbrl.bayes_optimal.model import Model
from jbrl.bayes_optimal.symmetry import Symmetry, symmetries


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
        self._layers = [self._merged(self.first)]

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
        found = [Cell(row.successor, cell.totals) for row in self.model.certain[cell.state]]
        number = int(self.model.block_of[cell.state])
        if number >= 0:
            count = len(self.blocks[number].block.successors)
            found += [self.successor(cell, k) for k in range(count)]
        return found

    def layer(self, decisions: int) -> list[Cell]:
        """Return the cells after that many decisions."""
        while len(self._layers) <= decisions:
            found = [new for cell in self._layers[-1] for new in self.successors(cell)]
            self._layers.append(self._merged(found))
        return self._layers[decisions]

    def values(self, kept: Mapping[Cell, np.ndarray], cell: Cell) -> np.ndarray:
        """Return the array of a cell, from those of the cells that are kept."""
        found = kept.get(cell)
        if found is not None:
            return found
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
    found = [0] * len(total)
    for amount, k in zip(total, successors, strict=True):
        found[k] = amount
    return tuple(found)


def _image(symmetry: Symmetry, cell: Cell) -> Cell:
    totals: list[Total] = [()] * len(cell.totals)
    for number, total in enumerate(cell.totals):
        totals[symmetry.blocks[number]] = _moved(total, symmetry.successors[number])
    return Cell(symmetry.states[cell.state], tuple(totals))
