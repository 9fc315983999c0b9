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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial

import numpy as np
from scipy.special import betaincinv, gammaincinv, ndtri
from scipy.stats import qmc

from jbrl.mdp.counts import Cell, Layers, Splits, Total
from jbrl.mdp.model import Block, Model, sweep

MOST_FREE = qmc.Sobol.MAXDIM  # free transition probabilities, each a dimension of a sequence
SMALLEST_LOG = -700.0  # of a probability: below, exp() is 0 in double precision
GREATEST_LOG = 709.78  # above, exp() is infinite in double precision
NARROW = 1e9  # concentrations of a Beta distribution that is nearly normal
GREAT, SMALL = 1e8, 1e-5  # the greater one, and the other as a part of it: nearly a gamma variate
MOST_SQUARED = 40  # variables of which products of two are used
MOST_VERTICES = 2**15  # of the probabilities of a control function that are tried
CHUNK = 1024  # MDPs at a time
KEPT = 2**27  # bytes of products of weights that are kept for other cells


@dataclasses.dataclass(frozen=True, eq=False)
class SampledMDPs:
    """MDPs drawn from the prior: the logarithms of the rows of each block."""

    log_rows: tuple[np.ndarray, ...]  # by block, [A, K, M] float64

    @property
    def n_mdps(self) -> int:
        return self.log_rows[0].shape[-1] if self.log_rows else 1


def draw(
    model: Model, n_mdps: int, seed: int | np.random.SeedSequence, *, even: bool = False
) -> SampledMDPs:
    """Draw independent MDPs from the prior.

    The rows are made by stick-breaking: the share of successor k of what the earlier ones have left
    has a Beta distribution.

    Args:
      n_mdps: a power of 2 where `even`.
      even: draw MDPs that are together spread evenly, by a scrambled Sobol' sequence (Owen 1998):
        they are no longer independent.
    """
    generator = np.random.default_rng(seed)
    if even:
        sequence = qmc.Sobol(max(model.n_free, 1), scramble=True, rng=generator)
        uniforms = sequence.random(n_mdps)
    else:
        uniforms = generator.random((n_mdps, model.n_free))
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
        share = beta_quantiles(weights[k], rest, inside)
        other = beta_quantiles(rest, weights[k], 1 - inside)
        logs.append(np.maximum(left + _log(share), SMALLEST_LOG))
        left = np.maximum(left + _log(other), SMALLEST_LOG)
    return np.stack([*logs, left])


def beta_quantiles(a: float, b: float, uniforms: np.ndarray) -> np.ndarray:
    """Return quantiles of a Beta distribution. Those of great concentrations are normal, or those
    of a gamma variate where one is far greater, but for a relative error of 1e-9 and `SMALL`:
    `betaincinv` is slow there, or wrong.
    """
    small, great = sorted((a, b))
    if small < NARROW:
        if great < GREAT or small > SMALL * great:
            return np.asarray(betaincinv(a, b, uniforms))
        variate = gammaincinv(small, uniforms if a == small else 1 - uniforms)
        return np.asarray((variate if a == small else great) / (variate + great))
    mean = a / (a + b)
    return np.clip(mean + math.sqrt(mean * (b / (a + b)) / (a + b)) * ndtri(uniforms), 0, 1)


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
    residual: float = 0.0  # mean square of its errors in the first states, where it was fitted
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

    def least(self) -> np.ndarray:
        """Return numbers that it is never below in each state: [S].

        With p_i p_j in [0, 1/4] within a row, and p_i^2 from p_i - 1/4 to p_i, the rest is affine
        in each row and has its extremes where each row has one certain outcome.
        """
        sizes = [len(some) for block in self.layers.model.blocks for some in free(block)]
        ends = np.cumsum([0, *sizes])
        rows = [range(int(a), int(b)) for a, b in itertools.pairwise(ends)]
        found = []
        for x, slopes in enumerate(self.slopes):
            between, least = np.zeros((len(slopes), len(slopes))), self.constant[x]
            slopes = slopes.copy()
            if self.curvatures is not None:
                between = self.curvatures[x].copy()
                for row in rows:
                    inside = between[row.start : row.stop, row.start : row.stop]
                    squares = np.diag(inside).copy()
                    slopes[row.start : row.stop] += squares
                    np.fill_diagonal(inside, 0)
                    least += (np.minimum(inside, 0).sum() - np.maximum(squares, 0).sum()) / 4
                    inside[:] = 0
            found.append(least + _least(slopes, 2 * between, rows))
        return np.array(found)

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


def _least(slopes: np.ndarray, between: np.ndarray, rows: list[range]) -> float:
    """Return a number below s p + p' B p / 2, where B is 0 within rows, and one p of each row is 1
    or none: all ways are tried where they are few.
    """
    low, p = np.zeros(1), np.zeros((1, len(slopes)))
    for number, row in enumerate(rows):
        if len(low) * (len(row) + 1) <= MOST_VERTICES:
            steps = slopes[row.start : row.stop] + p @ between[:, row.start : row.stop]
            steps = np.concatenate([np.zeros((len(p), 1)), steps], 1)
            low = (low[:, None] + steps).reshape(-1)
            p = np.repeat(p, len(row) + 1, axis=0)
            for place, k in enumerate(row):
                p[place + 1 :: len(row) + 1, k] = 1
            continue
        # what this row and each later one adds at least, whatever the others are
        for later, here in enumerate(rows[number:], number):
            less = slopes[here.start : here.stop] + p @ between[:, here.start : here.stop]
            for other in rows[number:later]:
                part = between[other.start : other.stop, here.start : here.stop]
                less += np.minimum(part.min(0), 0)
            low = low + np.minimum(less.min(1), 0)
        break
    return float(low.min())


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
    kinds, rows = _kinds(layers.model)
    slopes = _averaged(coefficients[:, 1 : 1 + n], kinds)
    curvatures = None
    if squared:
        curvatures = np.zeros((len(values), n, n))
        curvatures[:, i, j] += coefficients[:, 1 + n :] / 2
        curvatures[:, j, i] += coefficients[:, 1 + n :] / 2
        pairs = (kinds[:, None] * n + kinds) * 2 + (rows[:, None] == rows)
        curvatures = _averaged(curvatures, pairs)
    first = list(layers.model.first_states)
    residual = float(((values - coefficients @ features)[first] ** 2).mean())
    return Control(layers, coefficients[:, 0], slopes, curvatures, residual)


def _kinds(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for each free probability that those of exchangeable rows share, and the
    number of its row: [V] each.
    """
    kinds, rows, row_number = [], [], 0
    for block in model.blocks:
        first = {row: group[0] for group in block.groups for row in group}
        for row, some in enumerate(free(block)):
            kinds += [(block.state, first[row], int(k)) for k in some]
            rows += [row_number] * len(some)
            row_number += 1
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    return np.array([numbers[kind] for kind in kinds], int), np.array(rows, int)


def _averaged(values: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Return values, [S, …], averaged over those of one kind, kinds being of the shape […]."""
    places = np.unique(kinds, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(places)
    means = [(np.bincount(places, one.reshape(-1)) / sizes)[places] for one in values]
    return np.array(means).reshape(values.shape)


def estimate(
    layers: Layers,
    cells: list[Cell],
    mdps: SampledMDPs,
    values: np.ndarray,
    control: Control,
    threads: int,
) -> tuple[dict[Cell, np.ndarray], dict[Cell, np.ndarray]]:
    """Estimate E[V(x) | c] in all (state, counts) of cells, and the means of the squares of what
    the control leaves over.

    The likelihood of counts is a product over blocks; so for the splits of a cell, the sum over
    MDPs is a product of two matrices, one for the first blocks and one for the others.

    Args:
      values: V of each MDP, [S, M] float64.

    Returns: an array of the shape of each cell, float64; twice.
    """
    rest = values - control.of_mdps(variables(layers.model, mdps))
    found, squares = means(layers, cells, mdps, np.stack([rest, rest**2]), threads)
    return {cell: control.mean(cell) + mean for cell, mean in found.items()}, squares


def means(
    layers: Layers, cells: list[Cell], mdps: SampledMDPs, values: np.ndarray, threads: int
) -> list[dict[Cell, np.ndarray]]:
    """Estimate, without bias, the posterior means of values in all (state, counts) of cells.

    Args:
      values: of each MDP, several kinds of them, [P, S, M] float64.

    Returns: for each kind an array of the shape of each cell, float64.
    """
    cut = cut_blocks(layers, cells)
    found = [{cell: np.zeros(layers.shape(cell)) for cell in cells} for _ in values]
    groups: dict[tuple[int, tuple[Total, ...]], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.state, cell.totals[:cut]), []).append(cell)
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, mdps.n_mdps, CHUNK):
            part = slice(first, first + CHUNK)
            share = (values[..., part] / mdps.n_mdps).astype(np.float32)
            weights = Weights(layers, [log_rows[..., part] for log_rows in mdps.log_rows])
            list(pool.map(partial(_add, found, weights, share, cut), groups.values()))
    return found


def _add(
    found: list[dict[Cell, np.ndarray]],
    weights: "Weights",
    share: np.ndarray,
    cut: int,
    group: list[Cell],
) -> None:
    """Add the part of some MDPs to the estimates of cells with the same state and the same totals
    of the first `cut` blocks.
    """
    left = weights.product(0, group[0].totals[:cut])
    both = (left * share[:, group[0].state, None]).reshape(-1, left.shape[-1])
    for cell in group:
        products = both @ weights.product(cut, cell.totals[cut:]).T
        for means_of_kind, product in zip(found, np.split(products, len(found)), strict=True):
            means_of_kind[cell] += product.reshape(means_of_kind[cell].shape)


def _mean_likelihood(counts: np.ndarray, log_rows: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Return the likelihood of counts, [n, M], on average over all ways to assign rows to them: the
    permanent of the likelihoods of each with each, by subsets.

    Args:
      counts: [n, A, K].
      log_rows: [A, K, M].
      logs: of what the likelihood of each row of counts is divided by, [n, A].
    """
    a = len(log_rows)
    by_subset = {0: np.ones((len(counts), log_rows.shape[-1]))}
    for number in range(a):
        each = [np.exp(counts[:, number] @ row - logs[:, number, None]) for row in log_rows]
        larger: dict[int, np.ndarray] = {}
        for taken, value in by_subset.items():
            for row in range(a):
                if not taken >> row & 1:
                    share = value * each[row] / (a - number)
                    subset = taken | 1 << row
                    larger[subset] = larger[subset] + share if subset in larger else share
        by_subset = larger
    return by_subset[(1 << a) - 1]


def cut_blocks(layers: Layers, cells: list[Cell], together: Sequence[int] = ()) -> int:
    """Return how many blocks form the first factor, so that the factors are small and some blocks
    are in the same one.
    """
    shapes = np.array([layers.shape(cell) for cell in cells], float).reshape(len(cells), -1)
    costs = [
        (shapes[:, :cut].prod(1) + shapes[:, cut:].prod(1)).sum()
        if len({number < cut for number in together}) <= 1
        else np.inf
        for cut in range(shapes.shape[1] + 1)
    ]
    return int(np.argmin(costs))


class Weights:
    """Likelihood over probability of the splits of each total, for some MDPs: on average over all
    ways to exchange rows that are exchangeable.

    Counts stand for all that rows and their order make of them. Without this average the weights
    of an MDP would not have the sum 1 over what a policy may have seen, and what an MDP adds to
    the value of a policy would not lie between the least and the greatest of its values.
    """

    def __init__(self, layers: Layers, log_rows: list[np.ndarray]) -> None:
        self._layers, self._log_rows = layers, log_rows
        self._width = log_rows[0].shape[-1] if log_rows else 1
        self._found: dict[tuple[int, Total], np.ndarray] = {}
        self._products: dict[tuple[int, tuple[Total, ...]], np.ndarray] = {}
        self._left = KEPT  # bytes

    def of(self, number: int, total: Total) -> np.ndarray:
        """Return the weights of the splits of a total of one block: [n, M] float32."""
        if (number, total) not in self._found:
            splits, log_rows = self._layers.blocks[number].splits(total), self._log_rows[number]
            counts = splits.counts.astype(np.float64)
            log = splits.log_probability
            rare = log < -GREATEST_LOG  # divided row by row, as exp() would overflow
            logs = np.where(rare[:, None], splits.log_probability_of_rows, 0.0)
            weights = np.exp(np.where(rare, 0.0, -log))[:, None] * np.ones(self._width)
            for group in splits.block.groups:
                some = list(group)
                weights *= _mean_likelihood(counts[:, some], log_rows[some], logs[:, some])
            self._found[number, total] = weights.astype(np.float32)
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
