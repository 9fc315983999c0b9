"""Functions of an MDP whose posterior mean is known in closed form.

A polynomial of degree one or two in the transition probabilities: rows are independent and
Dirichlet, so their posterior moments are known. An average of values is made of the polynomial's
posterior mean and the average of what the polynomial leaves over, which varies less.
"""

import dataclasses
import itertools
import math
from functools import cached_property

import numpy as np

from jbrl.bayes_optimal.clairvoyant import SampledMDPs
from jbrl.bayes_optimal.counts import Splits, Total
from jbrl.bayes_optimal.layers import Cell, Layers
from jbrl.bayes_optimal.model import Block, Model

MOST_SQUARED = 40  # variables of which products of two are used


def free(block: Block) -> list[np.ndarray]:
    """Return the successors of each row but its last one, whose probability follows from theirs."""
    return [np.flatnonzero(row)[:-1] for row in block.possible]


def variables(model: Model, mdps: SampledMDPs) -> np.ndarray:
    """Return the free transition probabilities of MDPs: [V, M] float64, block after block."""
    return variables_of(model, tuple(map(np.exp, mdps.log_rows)), mdps.n_mdps)


def variables_of(model: Model, rows: tuple[np.ndarray, ...], n_mdps: int) -> np.ndarray:
    """Return the free transition probabilities of rows, by block [A, K, M]: [V, M] float64."""
    found = [
        probabilities[row, some]
        for block, probabilities in zip(model.blocks, rows, strict=True)
        for row, some in enumerate(free(block))
    ]
    return np.concatenate(found) if found else np.zeros((0, n_mdps))


def first_moments(splits: Splits) -> np.ndarray:
    """Return the posterior means of the free probabilities of a block: [n, V_b] float64."""
    parts = [splits.predictive[row, some] for row, some in enumerate(free(splits.block))]
    return np.concatenate(parts).T


def second_moments(splits: Splits) -> np.ndarray:
    """Return the posterior means of products of two free probabilities of a block:
    [n, V_b, V_b] float64.
    """
    means = first_moments(splits)
    found = means[:, :, None] * means[:, None, :]
    after = splits.block.concentrations + splits.counts
    column = 0
    for row, some in enumerate(free(splits.block)):
        inside = slice(column, column + len(some))
        own = means[:, inside]
        total = after[:, row].sum(-1)[:, None, None]
        # E[p_i p_j] = (T m_i m_j + [i = j] m_i) / (T + 1)
        diagonal = own[:, :, None] * np.eye(len(some))
        found[:, inside, inside] = (total * own[:, :, None] * own[:, None, :] + diagonal) / (
            total + 1
        )
        column += len(some)
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Control:
    """c + g p + p' H p for each state x, p being the free probabilities; H may be 0."""

    layers: Layers
    constant: np.ndarray  # [S]
    slopes: np.ndarray  # [S, V]
    curvatures: np.ndarray | None  # [S, V, V], symmetric; None: all are 0
    _found: dict[tuple[int, Total], tuple[np.ndarray, np.ndarray]] = dataclasses.field(
        default_factory=dict, repr=False
    )

    def of_mdps(self, p: np.ndarray) -> np.ndarray:
        """Return its values: [S, M] from [V, M]."""
        found = self.constant[:, None] + self.slopes @ p
        for x, curvature in enumerate(() if self.curvatures is None else self.curvatures):
            if curvature.any():
                found[x] += (p * (curvature @ p)).sum(0)
        return found

    def mean(self, cell: Cell) -> np.ndarray:
        """Return its posterior mean in the state of a cell, of the shape of the cell."""
        shape = self.layers.shape(cell)
        sizes = [math.prod(shape[:cut]) + math.prod(shape[cut:]) for cut in range(len(shape) + 1)]
        cut = int(np.argmin(sizes))
        left, left_p = self._joint(cell, 0, cut)
        right, right_p = self._joint(cell, cut, len(shape))
        found = np.zeros((len(left), len(right)))
        if self.curvatures is not None:
            n_left = left_p.shape[1]
            between = self.curvatures[cell.state][:n_left, n_left:]
            found = 2 * (left_p @ between) @ right_p.T
        found += (self.constant[cell.state] + left)[:, None]
        found += right
        return found.reshape(shape)

    def _joint(self, cell: Cell, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what concerns blocks from number `first` up to `end`: the posterior mean of that
        part, [n], and the means of their variables, [n, V], n being the product of their splits;
        without curvatures no means.
        """
        x = cell.state
        value, p = np.zeros(1), np.zeros((1, 0))
        start = self.slices[first].start if first < end else 0
        for axis in range(first, end):
            own, means = self.own(axis, cell.totals[axis])
            if self.curvatures is None:
                value = (value[:, None] + own[x]).ravel()
                continue
            here = self.slices[axis]
            between = self.curvatures[x][start : here.start, here]
            value = (value[:, None] + own[x] + 2 * (p @ between) @ means.T).ravel()
            p = np.concatenate(
                [np.repeat(p, len(means), axis=0), np.tile(means, (len(p), 1))], axis=1
            )
        return value, p

    @cached_property
    def slices(self) -> list[slice]:
        """Return which variables belong to each block."""
        ends = np.cumsum([0, *(sum(map(len, free(block))) for block in self.layers.model.blocks)])
        return [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]

    def own(self, axis: int, total: Total) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean of what concerns one block alone, [S, n], and the means of its
        variables, [n, V_b].
        """
        if (axis, total) not in self._found:
            splits, here = self.layers.blocks[axis].splits(total), self.slices[axis]
            means = first_moments(splits)
            own = self.slopes[:, here] @ means.T
            if self.curvatures is not None:
                curvatures = self.curvatures[:, here, here]
                if curvatures.any():
                    own += np.tensordot(curvatures, second_moments(splits), ([1, 2], [1, 2]))
            self._found[axis, total] = own, means
        return self._found[axis, total]


def n_features(n: int) -> int:
    """Return the number of terms of the polynomial in `n` variables."""
    return 1 + n + (n * (n + 1) // 2 if n <= MOST_SQUARED else 0)


def fit_control(layers: Layers, mdps: SampledMDPs, values: np.ndarray) -> Control:
    """Fit a polynomial to values, by least squares.

    Args:
      mdps: a sample that is used for nothing else, or what rests on the polynomial is biased.
      values: [S, M].
    """
    p = variables(layers.model, mdps)
    n = len(p)
    squared = n_features(n) > 1 + n
    i, j = np.triu_indices(n) if squared else (np.zeros(0, int), np.zeros(0, int))
    features = np.concatenate([np.ones((1, p.shape[1])), p, p[i] * p[j]])
    found = np.linalg.lstsq(features.T, values.T, rcond=1e-8)[0].T
    curvatures = None
    if squared:
        curvatures = np.zeros((len(values), n, n))
        curvatures[:, i, j] += found[:, 1 + n :] / 2
        curvatures[:, j, i] += found[:, 1 + n :] / 2
    return Control(layers, found[:, 0], found[:, 1 : 1 + n], curvatures)
