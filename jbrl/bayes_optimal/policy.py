"""Policies that the look-ahead suggests: greedy in it for D decisions, then greedy in the mean MDP.

A policy may use any approximation, since it is judged by what it earns.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from jbrl.bayes_optimal.induction import back_up_and_choose
from jbrl.bayes_optimal.layers import Cell, Layers

PRECISION = 1e-2  # of values of mean MDPs, as a part of the greatest one
MOST_SWEEPS = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """The greedy choice in each (state, counts) of the first D decisions.

    A choice is the number of a certain row of the state, or the number of its certain rows plus the
    position of an uncertain one.
    """

    layers: Layers
    choices: tuple[dict[Cell, np.ndarray], ...]  # by layer, of the shape of each cell, int8

    @property
    def decisions(self) -> int:
        return len(self.choices)


def make_table(
    layers: Layers,
    decisions: int,
    leaves: dict[Cell, np.ndarray],
    discount: float,
    threads: int,
) -> Table:
    """Return the greedy choices in a look-ahead of D decisions with these values after them."""
    after, found = leaves, []
    with ThreadPoolExecutor(threads) as pool:
        for t in reversed(range(decisions)):
            cells = layers.layer(t)
            results = list(pool.map(partial(back_up_and_choose, layers, after, discount), cells))
            found.append({cell: choice for cell, (_, choice) in zip(cells, results, strict=True)})
            after = {cell: value for cell, (value, _) in zip(cells, results, strict=True)}
    return Table(layers, tuple(reversed(found)))


def mean_values(
    layers: Layers, cells: list[Cell], discount: float, left: int, threads: int
) -> dict[Cell, np.ndarray]:
    """Return the optimal values of the posterior-mean MDPs, of the shape of each cell."""
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(partial(_mean_value, layers, discount, left), cells)
        return dict(zip(cells, found, strict=True))


def _mean_value(layers: Layers, discount: float, left: int, cell: Cell) -> np.ndarray:
    model, shape = layers.model, layers.shape(cell)
    rows = []
    for axis, (block, total) in enumerate(zip(layers.blocks, cell.totals, strict=True)):
        predictive = block.splits(total).predictive  # [A, K, n]
        tail = [1] * axis + [-1] + [1] * (len(shape) - axis - 1)
        rows.append(predictive.reshape(*predictive.shape[:2], *tail))
    value = np.zeros((model.n_states, *shape))
    for _ in range(min(left, MOST_SWEEPS)):
        new = _sweep(layers, rows, discount, value)
        change = new - value
        least, most = change.min(), change.max()
        value = new
        if most - least <= PRECISION * (1 - discount) * np.abs(value).max():
            # The same change at each further sweep: MacQueen 1966.
            value += discount / (1 - discount) * (most + least) / 2
            break
    return value[cell.state]


def _sweep(
    layers: Layers, rows: list[np.ndarray], discount: float, value: np.ndarray
) -> np.ndarray:
    model = layers.model
    new = np.full_like(value, -np.inf)
    for x, certain in enumerate(model.certain):
        for row in certain:
            np.maximum(new[x], row.reward + discount * value[row.successor], out=new[x])
    for block, probabilities in zip(model.blocks, rows, strict=True):
        after = discount * value[block.successors]
        for p, gains in zip(probabilities, block.rewards, strict=True):
            q = p[0] * (gains[0] + after[0])
            for k in range(1, len(gains)):
                q = q + p[k] * (gains[k] + after[k])
            np.maximum(new[block.state], q, out=new[block.state])
    return new
