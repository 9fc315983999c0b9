"""StoSOO: the maximum of a function of a few numbers that can only be evaluated with noise.

Stochastic simultaneous optimistic optimisation, Valko, Carpentier and Munos 2013. The box of
parameters is cut into ever smaller cells, a tree. Sweeps over the depths of the tree take, at each
depth, the cell of the greatest upper confidence bound, provided that it is no smaller than that of
any cell cut in this sweep at a lesser depth; the cell is evaluated at its centre or, once it has
been often enough, cut. How smooth the function is need not be known.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from jbrl.base.errors import JbrlError


@dataclass(frozen=True)
class PartitionTree:
    """State of a search. M cells, D parameters; a cell comes after its parent."""

    low: np.ndarray  # [M, D] float64
    high: np.ndarray  # [M, D] float64
    depth: np.ndarray  # [M] int64
    counts: np.ndarray  # [M] int64, evaluations
    sums: np.ndarray  # [M] float64, of values
    cut: np.ndarray  # [M] bool, the cell has children
    level: int  # depth that the sweep has come to
    bound: float  # greatest bound of a cell cut in this sweep

    @property
    def evaluations(self) -> int:
        return int(self.counts.sum())

    @property
    def centres(self) -> np.ndarray:
        """Points at which the cells are evaluated: [M, D]."""
        return (self.low + self.high) / 2

    @property
    def means(self) -> np.ndarray:
        """Mean values [M], NaN for cells never evaluated."""
        with np.errstate(invalid="ignore"):
            return self.sums / self.counts


@dataclass(frozen=True)
class StoSOO:
    """The rules of a search for the greatest value in a box.

    The bound of a cell evaluated m times is mean + scale sqrt(log(n k / delta) / (2 m)), for values
    in a range of `scale`; n is the budget.

    Raises:
      JbrlError: a box with no inside, a budget below 1, an even number of parts, another setting
        that is out of range.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    budget: int  # evaluations in all
    parts: int = 3  # into which a cell is cut, odd: one of them has the centre of the cell
    per_cell: int | None = None  # k, evaluations before a cell is cut; None: n / log(n)^3
    deepest: int | None = None  # depth of the smallest cells that are evaluated; None: sqrt(n / k)
    delta: float | None = None  # None: 1 / sqrt(n)
    scale: float = 1.0
    # stay at a depth until a cell of it is cut; published: one evaluation, then on to the
    # next depth
    linger: bool = False
    seed: int = 0  # of the parameter along which each cell is cut

    def __post_init__(self) -> None:
        if not self.low or len(self.low) != len(self.high):
            raise JbrlError(
                f"StoSOO: low = {self.low!r}, high = {self.high!r}: expected as many upper as "
                "lower ends, at least one"
            )
        for i, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise JbrlError(
                    f"StoSOO: parameter {i} from {low!r} to {high!r}: expected finite numbers, "
                    "the first below the second"
                )
        for name, value, least in (
            ("budget", self.budget, 1),
            ("per_cell", self.k, 1),
            ("deepest", self.depth, 1),
            ("seed", self.seed, 0),
        ):
            if value < least:
                raise JbrlError(f"StoSOO: {name} = {value!r}: expected an integer from {least}")
        if self.parts < 3 or self.parts % 2 == 0:
            raise JbrlError(f"StoSOO: parts = {self.parts!r}: expected an odd number from 3")
        if not (0 < self.risk <= 1 and math.isfinite(self.scale) and self.scale >= 0):
            raise JbrlError(
                f"StoSOO: delta = {self.risk!r}, scale = {self.scale!r}: expected a delta in (0, "
                "1] and a scale from 0"
            )

    @property
    def k(self) -> int:
        """Evaluations before a cell is cut."""
        if self.per_cell is not None:
            return self.per_cell
        return (
            1
            if self.budget < 2
            else max(1, min(self.budget, int(self.budget / math.log(self.budget) ** 3)))
        )

    @property
    def depth(self) -> int:
        """Depth of the smallest cells that are evaluated."""
        return (
            self.deepest
            if self.deepest is not None
            else max(1, math.isqrt(max(0, self.budget) // max(1, self.k)))
        )

    @property
    def fewest(self) -> int:
        """Budget below which the answer is the centre of the box, for any values: no part of the
        box is cut before.

        The box and one of its parts take k evaluations each, all other parts one, and a cell is cut
        only if one is left.
        """
        return 2 * self.k + self.parts

    @property
    def risk(self) -> float:
        """The delta of the bounds."""
        return self.delta if self.delta is not None else 1 / math.sqrt(max(1, self.budget))

    def start(self) -> PartitionTree:
        """Return the tree of the whole box, not evaluated."""
        one = np.zeros(1, np.int64)
        box = (np.array([self.low], float), np.array([self.high], float))
        return PartitionTree(
            *box,
            depth=one,
            counts=one,
            sums=np.zeros(1),
            cut=np.zeros(1, bool),
            level=0,
            bound=-math.inf,
        )

    def ask(self, tree: PartitionTree) -> tuple[PartitionTree, int | None]:
        """Return the cell to evaluate next, at its centre, and the tree with the cells cut on the
        way; None when nothing is left to evaluate.
        """
        while tree.evaluations < self.budget and (~tree.cut & (tree.depth <= self.depth)).any():
            if tree.level > min(int(tree.depth.max()), self.depth):
                tree = replace(tree, level=0, bound=-math.inf)
            leaves = np.flatnonzero(~tree.cut & (tree.depth == tree.level))
            bounds = self._bounds(tree, leaves)
            deeper = replace(tree, level=tree.level + 1)
            if not len(leaves) or bounds.max() < tree.bound:
                tree = deeper
                continue
            cell = int(leaves[np.argmax(bounds)])
            if tree.counts[cell] < self.k:
                return tree if self.linger else deeper, cell
            tree = replace(self._cut(deeper, cell), bound=float(bounds.max()))
        return tree, None

    def tell(self, tree: PartitionTree, cell: int, value: float) -> PartitionTree:
        """Return the tree with one more value of a cell.

        Raises:
          JbrlError: a value that is not finite.
        """
        if not math.isfinite(value):
            raise JbrlError(
                f"StoSOO: value {value!r} at {tree.centres[cell].tolist()}: expected a finite "
                "number"
            )
        counts, sums = tree.counts.copy(), tree.sums.copy()
        counts[cell] += 1
        sums[cell] += value
        return replace(tree, counts=counts, sums=sums)

    def best(self, tree: PartitionTree) -> int:
        """Return the cell whose centre is the answer: the one of the greatest mean among the
        deepest cells that were cut or, if none was, among all evaluated ones.

        Raises:
          JbrlError: nothing was evaluated.
        """
        candidates = np.flatnonzero(tree.counts > 0)
        if not len(candidates):
            raise JbrlError("StoSOO: no answer before the first evaluation")
        if tree.cut.any():
            candidates = np.flatnonzero(tree.cut & (tree.depth == tree.depth[tree.cut].max()))
        return int(candidates[np.argmax(tree.means[candidates])])

    def search(
        self, evaluate: Callable[[np.ndarray], float], tree: PartitionTree | None = None
    ) -> Iterator[PartitionTree]:
        """Search until the budget is spent; yields the tree after each evaluation.

        Args:
          evaluate: a value, with noise, at a point [D].
          tree: where to go on; None: from the start.
        """
        tree = self.start() if tree is None else tree
        while True:
            tree, cell = self.ask(tree)
            if cell is None:
                return
            tree = self.tell(tree, cell, evaluate(tree.centres[cell]))
            yield tree

    def _bounds(self, tree: PartitionTree, cells: np.ndarray) -> np.ndarray:
        counts = tree.counts[cells]
        spread = math.log(self.budget * self.k / self.risk)
        width = self.scale * np.sqrt(spread / (2 * np.maximum(counts, 1)))
        return np.where(counts > 0, tree.means[cells] + width, math.inf)

    def _cut(self, tree: PartitionTree, cell: int) -> PartitionTree:
        axis = int(np.random.default_rng((self.seed, cell)).integers(len(self.low)))
        edges = np.linspace(tree.low[cell, axis], tree.high[cell, axis], self.parts + 1)
        low, high = (
            np.repeat(side[cell : cell + 1], self.parts, axis=0) for side in (tree.low, tree.high)
        )
        low[:, axis], high[:, axis] = edges[:-1], edges[1:]
        cut = np.append(tree.cut, np.zeros(self.parts, bool))
        cut[cell] = True
        return replace(
            tree,
            low=np.concatenate([tree.low, low]),
            high=np.concatenate([tree.high, high]),
            depth=np.append(tree.depth, np.full(self.parts, tree.depth[cell] + 1)),
            counts=np.append(tree.counts, np.zeros(self.parts, np.int64)),
            sums=np.append(tree.sums, np.zeros(self.parts)),
            cut=cut,
        )
