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
import numpy.typing as npt

from jbrl.base.errors import JbrlError

PARTS = 3  # into which a cell is cut, odd: one of them has the centre of the cell


@dataclass(frozen=True)
class PartitionTree:
    """State of a search. M cells, D parameters; a cell comes after its parent."""

    low: npt.NDArray[np.float64]  # [M, D]
    high: npt.NDArray[np.float64]  # [M, D]
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
    in a range of `scale`; n is the budget, delta 1 / sqrt(n), and k the evaluations before a cell
    is cut into `PARTS`.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    budget: int  # evaluations in all
    scale: float = 1.0
    # stay at a depth until a cell of it is cut; published: one evaluation, then on to the
    # next depth
    linger: bool = False
    seed: int = 0  # of the parameter along which each cell is cut

    @property
    def k(self) -> int:
        """Evaluations before a cell is cut: n / log(n)^3."""
        if self.budget < 2:
            return 1
        return max(1, min(self.budget, int(self.budget / math.log(self.budget) ** 3)))

    @property
    def depth(self) -> int:
        """Depth of the smallest cells that are evaluated: sqrt(n / k)."""
        return max(1, math.isqrt(self.budget // self.k))

    @property
    def fewest(self) -> int:
        """Budget below which the answer is the centre of the box, for any values: no part of the
        box is cut before.

        The box and one of its parts take k evaluations each, all other parts one, and a cell is cut
        only if one is left.
        """
        return 2 * self.k + PARTS

    def start(self) -> PartitionTree:
        """Return the tree of the whole box, not evaluated."""
        one = np.zeros(1, np.int64)
        return PartitionTree(
            low=np.array([self.low], float),
            high=np.array([self.high], float),
            depth=one,
            counts=one,
            sums=np.zeros(1),
            cut=np.zeros(1, bool),
            level=0,
            bound=-math.inf,
        )

    def search(
        self,
        evaluate: Callable[[npt.NDArray[np.float64]], float],
        tree: PartitionTree | None = None,
    ) -> Iterator[PartitionTree]:
        """Search until the budget is spent; yields the tree after each evaluation.

        Args:
          evaluate: a value, with noise, at a point [D].
          tree: where to go on; None: from the start.

        Raises:
          JbrlError: a value that is not finite.
        """
        tree = tree or self.start()
        while tree.evaluations < self.budget:
            tree, cell = self._next(tree)
            value = evaluate(tree.centres[cell])
            if not math.isfinite(value):
                raise JbrlError(
                    f"StoSOO: value {value!r} at {tree.centres[cell].tolist()}: expected a finite "
                    "number"
                )
            counts, sums = tree.counts.copy(), tree.sums.copy()
            counts[cell] += 1
            sums[cell] += value
            tree = replace(tree, counts=counts, sums=sums)
            yield tree

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

    def _next(self, tree: PartitionTree) -> tuple[PartitionTree, int]:
        """Return the tree with the cells cut on the way, and the cell to evaluate next."""
        while True:
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

    def _bounds(self, tree: PartitionTree, cells: np.ndarray) -> np.ndarray:
        counts = tree.counts[cells]
        delta = 1 / math.sqrt(self.budget)
        spread = math.log(self.budget * self.k / delta)
        width = self.scale * np.sqrt(spread / (2 * np.maximum(counts, 1)))
        return np.where(counts > 0, tree.means[cells] + width, math.inf)

    def _cut(self, tree: PartitionTree, cell: int) -> PartitionTree:
        axis = int(np.random.default_rng((self.seed, cell)).integers(len(self.low)))
        edges = np.linspace(tree.low[cell, axis], tree.high[cell, axis], PARTS + 1)
        low, high = (
            np.repeat(side[cell : cell + 1], PARTS, axis=0) for side in (tree.low, tree.high)
        )
        low[:, axis], high[:, axis] = edges[:-1], edges[1:]
        cut = np.append(tree.cut, np.zeros(PARTS, bool))
        cut[cell] = True
        return replace(
            tree,
            low=np.concatenate([tree.low, low]),
            high=np.concatenate([tree.high, high]),
            depth=np.append(tree.depth, np.full(PARTS, tree.depth[cell] + 1)),
            counts=np.append(tree.counts, np.zeros(PARTS, np.int64)),
            sums=np.append(tree.sums, np.zeros(PARTS)),
            cut=cut,
        )
