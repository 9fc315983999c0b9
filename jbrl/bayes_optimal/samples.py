"""Values at the end of the look-ahead: what an agent earns that is then shown the MDP.

For a state x and counts c the value wanted is E[V(x) | c] = E[w(c) V(x)], with the expectation on
the right over the *prior* and the exact weight w(c) = L(c) / P(c): the likelihood of one sequence
with counts c, over its probability under the prior, which is known in closed form. The average of
w(c) V(x) over MDPs drawn from the prior is therefore unbiased. (An average divided by the sum of
the weights is not.)

A control function takes out most of the variance: a polynomial of degree one or two in the
transition probabilities. Rows are independent and Dirichlet, so its posterior mean is known, and
only what it leaves over is averaged.
"""

import dataclasses
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial

import numpy as np
from scipy.special import betaincinv
from scipy.stats import qmc

from jbrl.bayes_optimal.counts import Cell, Layers, Splits, Total
from jbrl.bayes_optimal.model import Block, Model, sweep

MOST_FREE = qmc.Sobol.MAXDIM  # free transition probabilities, each a dimension of a sequence
SMALLEST_LOG = -700.0  # of a probability: below, exp() is 0 in double precision
MOST_SQUARED = 40  # variables of which products of two are used
CHUNK = 1024  # MDPs at a time
KEPT = 2**27  # bytes of products of weights that are kept for other cells


@dataclasses.dataclass(frozen=True, eq=False)
class SampledMDPs:
    """MDPs drawn from the prior: the logarithms of the rows of each block."""

    log_rows: tuple[np.ndarray, ...]  # by block, [A, K, M] float64

    @property
    def n_mdps(self) -> int:
        return self.log_rows[0].shape[-1] if self.log_rows else 1


def draw(model: Model, n_mdps: int, seed: int | np.random.SeedSequence) -> SampledMDPs:
    """Draw MDPs from the prior, each of them by itself a draw from the prior, together spread
    evenly.

    A scrambled Sobol' sequence (Owen 1998) is uniform in each of its points. The rows are made by
    stick-breaking: the share of successor k of what the earlier ones have left has a
    Beta distribution.

    Args:
      n_mdps: a power of 2.
    """
    generator = np.random.default_rng(seed)
    uniforms = qmc.Sobol(max(model.n_free, 1), scramble=True, rng=generator).random(n_mdps)
    column, blocks = 0, []
    for block in model.blocks:
        log_rows = np.full((*block.concentrations.shape, n_mdps), SMALLEST_LOG)
        for row, weights in enumerate(block.concentrations):
            support = np.flatnonzero(weights)
            n = len(support) - 1
            log_rows[row, support] = log_row(weights[support], uniforms[:, column : column + n].T)
            column += n
        blocks.append(log_rows)
    return SampledMDPs(tuple(blocks))


def log_row(weights: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return the logarithms of Dirichlet draws, [K, M], of uniform numbers [K - 1, M]."""
    left = np.zeros(uniforms.shape[1])
    logs = []
    for k in range(len(weights) - 1):
        rest = weights[k + 1 :].sum()
        inside = np.clip(uniforms[k], 1e-15, 1 - 1e-15)
        share = betaincinv(weights[k], rest, inside)
        other = betaincinv(rest, weights[k], 1 - inside)
        logs.append(np.maximum(left + _log(share), SMALLEST_LOG))
        left = np.maximum(left + _log(other), SMALLEST_LOG)
    return np.stack([*logs, left])


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(values, 1e-300))


def values(
    model: Model, mdps: SampledMDPs, discount: float, steps: tuple[int, ...]
) -> dict[int, np.ndarray]:
    """Return the values of the optimal policy of each MDP with that many decisions left.

    Value iteration from 0, without approximation.

    Returns: for each of `steps` the values of all states, [S, M] float64.
    """
    value = np.zeros((model.n_states, mdps.n_mdps))
    rows = tuple(np.exp(log_rows) for log_rows in mdps.log_rows)
    kept = {0: value} if 0 in steps else {}
    for step in range(1, max(steps, default=0) + 1):
        value = sweep(model, rows, discount, value)
        if step in steps:
            kept[step] = value
    return kept


def free(block: Block) -> list[np.ndarray]:
    """Return the successors of each row but its last one, whose probability follows from theirs."""
    return [np.flatnonzero(row)[:-1] for row in block.possible]


def variables(model: Model, mdps: SampledMDPs) -> np.ndarray:
    """Return the free transition probabilities of MDPs: [V, M] float64, block after block."""
    return variables_of(model, tuple(map(np.exp, mdps.log_rows)), mdps.n_mdps)


def variables_of(model: Model, rows: tuple[np.ndarray, ...], n_mdps: int) -> np.ndarray:
    """Return the free transition probabilities of rows, by block [A, K, M]: [V, M] float64."""
    parts = [
        probabilities[row, some]
        for block, probabilities in zip(model.blocks, rows, strict=True)
        for row, some in enumerate(free(block))
    ]
    return np.concatenate(parts) if parts else np.zeros((0, n_mdps))


def first_moments(splits: Splits) -> np.ndarray:
    """Return the posterior means of the free probabilities of a block: [n, V_b] float64."""
    parts = [splits.predictive[row, some] for row, some in enumerate(free(splits.block))]
    return np.concatenate(parts).T


def second_moments(splits: Splits) -> np.ndarray:
    """Return the posterior means of products of two free probabilities of a block:
    [n, V_b, V_b] float64.
    """
    means = first_moments(splits)
    moments = means[:, :, None] * means[:, None, :]
    after = splits.block.concentrations + splits.counts
    column = 0
    for row, some in enumerate(free(splits.block)):
        inside = slice(column, column + len(some))
        own = means[:, inside]
        total = after[:, row].sum(-1)[:, None, None]
        # E[p_i p_j] = (T m_i m_j + [i = j] m_i) / (T + 1)
        diagonal = own[:, :, None] * np.eye(len(some))
        moments[:, inside, inside] = (total * own[:, :, None] * own[:, None, :] + diagonal) / (
            total + 1
        )
        column += len(some)
    return moments


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
        values = self.constant[:, None] + self.slopes @ p
        for x, curvature in enumerate(() if self.curvatures is None else self.curvatures):
            if curvature.any():
                values[x] += (p * (curvature @ p)).sum(0)
        return values

    def mean(self, cell: Cell) -> np.ndarray:
        """Return its posterior mean in the state of a cell, of the shape of the cell."""
        shape = self.layers.shape(cell)
        sizes = [math.prod(shape[:cut]) + math.prod(shape[cut:]) for cut in range(len(shape) + 1)]
        cut = int(np.argmin(sizes))
        left, left_p = self._joint(cell, 0, cut)
        right, right_p = self._joint(cell, cut, len(shape))
        means = np.zeros((len(left), len(right)))
        if self.curvatures is not None:
            n_left = left_p.shape[1]
            between = self.curvatures[cell.state][:n_left, n_left:]
            means = 2 * (left_p @ between) @ right_p.T
        means += (self.constant[cell.state] + left)[:, None]
        means += right
        return means.reshape(shape)

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
    coefficients = np.linalg.lstsq(features.T, values.T, rcond=1e-8)[0].T
    curvatures = None
    if squared:
        curvatures = np.zeros((len(values), n, n))
        curvatures[:, i, j] += coefficients[:, 1 + n :] / 2
        curvatures[:, j, i] += coefficients[:, 1 + n :] / 2
    return Control(layers, coefficients[:, 0], coefficients[:, 1 : 1 + n], curvatures)


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
    estimates = {cell: control.mean(cell) for cell in cells}
    rest = values - control.of_mdps(variables(layers.model, mdps))
    groups: dict[tuple[int, tuple[Total, ...]], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.state, cell.totals[:cut]), []).append(cell)
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, mdps.n_mdps, CHUNK):
            part = slice(first, first + CHUNK)
            share = (rest[:, part] / mdps.n_mdps).astype(np.float32)
            weights = Weights(layers, [log_rows[..., part] for log_rows in mdps.log_rows])
            list(pool.map(partial(_add, estimates, weights, share, cut), groups.values()))
    return estimates


def _add(
    estimates: dict[Cell, np.ndarray],
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
        estimates[cell] += (left @ right.T).reshape(estimates[cell].shape)


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
        weights = self._products.get(key)
        if weights is None:
            weights = np.ones((1, self._width), np.float32)
            for number, total in enumerate(totals, first):
                if any(total):
                    weights = (weights[:, None] * self.of(number, total)).reshape(-1, self._width)
            if self._left >= weights.nbytes:
                self._left -= weights.nbytes
                self._products[key] = weights
        return weights
