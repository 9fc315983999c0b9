"""Values at the end of the look-ahead: what an agent earns that is then shown the MDP.

For a state x and counts c the value wanted is E[V(x) | c] = E[w(c) V(x)], with the expectation on
the right over the *prior* and the exact weight w(c) = L(c) / P(c): the likelihood of one sequence
with counts c, over its probability under the prior, which is known in closed form. The average of
w(c) V(x) over MDPs drawn from the prior is therefore unbiased. (An average divided by the sum of
the weights is not.)
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from jbrl.bayes_optimal.clairvoyant import SampledMDPs
from jbrl.bayes_optimal.control import Control, variables
from jbrl.bayes_optimal.counts import Total
from jbrl.bayes_optimal.layers import Cell, Layers

CHUNK = 1024  # MDPs at a time
KEPT = 2**27  # bytes of products of weights that are kept for other cells


def estimate(
    layers: Layers,
    cells: list[Cell],
    mdps: SampledMDPs,
    values: np.ndarray,
    control: Control,
    threads: int,
) -> dict[Cell, np.ndarray]:
    """Estimate E[V(x) | c] in all (state, counts) of cells.

    The likelihood of counts is a product over blocks; so for the splits of a cell, the sum over
    MDPs is a product of two matrices, one for the first blocks and one for the others.

    Args:
      values: V of each MDP, [S, M] float64.

    Returns: an array of the shape of each cell, float64.
    """
    cut = cut_blocks(layers, cells)
    found = {cell: control.mean(cell) for cell in cells}
    rest = values - control.of_mdps(variables(layers.model, mdps))
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.state, cell.totals[:cut]), []).append(cell)
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, mdps.n_mdps, CHUNK):
            part = slice(first, first + CHUNK)
            share = (rest[:, part] / mdps.n_mdps).astype(np.float32)
            weights = Weights(layers, [log_rows[..., part] for log_rows in mdps.log_rows])
            list(pool.map(partial(_add, found, weights, share, cut), groups.values()))
    return found


def _add(
    found: dict[Cell, np.ndarray],
    weights: "Weights",
    share: np.ndarray,
    cut: int,
    group: list[Cell],
) -> None:
    """Add the part of some MDPs to the estimates of cells with the same state and the same totals
    of the first `cut` blocks.
    """
    left = weights.product(0, group[0].totals[:cut]) * share[group[0].state]
    for cell in group:
        right = weights.product(cut, cell.totals[cut:])
        found[cell] += (left @ right.T).reshape(found[cell].shape)


def cut_blocks(layers: Layers, cells: list[Cell]) -> int:
    """Return how many blocks form the first factor, so that the factors are small."""
    shapes = np.array([layers.shape(cell) for cell in cells], float).reshape(len(cells), -1)
    costs = [
        (shapes[:, :cut].prod(1) + shapes[:, cut:].prod(1)).sum()
        for cut in range(shapes.shape[1] + 1)
    ]
    return int(np.argmin(costs))


class Weights:
    """Likelihood over probability of the splits of each total, for some MDPs."""

    def __init__(self, layers: Layers, log_rows: list[np.ndarray]) -> None:
        self._layers, self._log_rows = layers, log_rows
        self._width = log_rows[0].shape[-1] if log_rows else 1
        self._found: dict[tuple[int, Total], np.ndarray] = {}
        self._products: dict[tuple[int, tuple[Total, ...]], np.ndarray] = {}
        self._left = KEPT  # bytes

    def of(self, number: int, total: Total) -> np.ndarray:
        """Return the weights of the splits of a total of one block: [n, M] float32."""
        if (number, total) not in self._found:
            splits = self._layers.blocks[number].splits(total)
            counts = splits.counts.reshape(len(splits), -1).astype(np.float64)
            logs = counts @ self._log_rows[number].reshape(counts.shape[1], -1)
            logs -= splits.log_probability[:, None]
            self._found[number, total] = np.exp(logs.astype(np.float32))
        return self._found[number, total]

    def product(self, first: int, totals: tuple[Total, ...]) -> np.ndarray:
        """Return the product of the weights of blocks from number `first` on: [n, M] float32, n
        being the product of the numbers of splits.
        """
        key = (first, totals)
        found = self._products.get(key)
        if found is None:
            found = np.ones((1, self._width), np.float32)
            for number, total in enumerate(totals, first):
                if any(total):
                    found = (found[:, None] * self.of(number, total)).reshape(-1, self._width)
            if self._left >= found.nbytes:
                self._left -= found.nbytes
                self._products[key] = found
        return found
