"""Scores of algorithms on environments as counts, and performance percentiles: the probability that
a score of one algorithm is at least as good as one of another.

Samples of all algorithms on an environment share one support, the distinct scores in increasing
order, on which distribution functions are rows of a matrix and all comparisons are matrix products.
Ranks within an environment are all that counts: a strictly increasing change of its scores changes
nothing here.

Time and memory of an evaluation are known before it starts; the constants are rounded up from
`benchmarks/evaluation.py` on two cores of 2024.

Source: Jordan, Chandak, Cohen, Zhang, Thomas (2020), Evaluating the Performance of Reinforcement
Learning Algorithms, ICML, sections 3 and 4; ties, self-comparisons and bounds as their published
program has them.
"""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from jbrl.base.errors import JbrlError, nearest
from jbrl.stats.score_table import check_score_table

GREATEST = 6e9  # bytes that an evaluation may take
PRODUCT = 3e-6  # seconds of one core for each joint strategy, level of the lists, and end
RATE = 2.5e-8  # seconds of a resample for each rate of its game
DRAW = 4e-8  # and for each score drawn
ENTRY = 40  # bytes for each joint strategy and level of the lists
DENSE = 3 * 8  # bytes for each rate of a resampled game
TABLE = 6 * 8  # bytes for each algorithm and distinct score of one environment


@dataclasses.dataclass(frozen=True)
class Effort:
    """The cost of a method, estimated."""

    method: str
    seconds: float
    bytes: float


def workers(n: int, m: int) -> int:
    """Return the number of threads that bounds are propagated in: one for each core, fewer where
    memory is short.
    """
    return max(1, min(os.cpu_count() or 1, 8, int(GREATEST / 2 / _lists(n, m))))


def effort(
    n: int, m: int, scores: int, methods: Sequence[str], resamples: int = 10_000
) -> list[Effort]:
    """Estimate the cost of each method for n algorithms on m environments with so many scores in
    all.
    """
    cores, used, rates = os.cpu_count() or 1, workers(n, m), n * (n * m) ** 2
    resampled = resamples * (RATE * rates + DRAW * scores) / cores
    propagated = PRODUCT * 2 * n * n * n * m * math.log2(n * m + 1) / used
    return [
        Effort(method, resampled, cores * DENSE * rates)
        if method == "bootstrap"
        else Effort(method, propagated, used * _lists(n, m))
        for method in methods
    ]


def check_effort(costs: Sequence[Effort], n: int, m: int, minutes: float) -> None:
    """Refuse what takes too much memory or time.

    Raises:
      JbrlError: a method takes more than `GREATEST` bytes or `minutes`.
    """
    for cost in costs:
        if cost.bytes > GREATEST:
            raise JbrlError(
                f"{cost.method}: {n:,} algorithms on {m:,} environments need about "
                f"{cost.bytes / 1e9:,.0f} GB: expected at most {GREATEST / 1e9:.0f} GB; leave some "
                "out with --algorithms or --environments, or take another --method"
            )
        if cost.seconds > 60 * minutes:
            raise JbrlError(
                f"{cost.method}: {n:,} algorithms on {m:,} environments take about "
                f"{cost.seconds / 60:,.0f} minutes: expected at most {minutes:g}; leave some out, "
                "take another --method or fewer --resamples, or raise --minutes"
            )


def check_table(n: int, distinct: int, environment: str) -> None:
    """Refuse an environment whose distribution functions do not fit into memory.

    Raises:
      JbrlError: n algorithms with so many distinct scores take more than `GREATEST` bytes.
    """
    needed = TABLE * n * distinct
    if needed > GREATEST:
        raise JbrlError(
            f"score table: {n:,} algorithms with {distinct:,} different scores on environment "
            f"'{environment}' need about {needed / 1e9:,.0f} GB: expected at most "
            f"{GREATEST / 1e9:.0f} GB; leave some algorithms out with --algorithms"
        )


def _lists(n: int, m: int) -> float:
    """Return bytes of the lists of one policy at worst: two quadrants of each player."""
    return ENTRY * n * n * m * 2 * (math.log2(n) + math.log2(n * m) + 2)


Bounds = Mapping[str, tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class Samples:
    """Scores of n algorithms on m environments, as counts on the support U_j of each environment j.

    `same[i, j, k]` says that algorithms i and k are the same definition on environment j: their
    comparison is 1/2 by definition. True for i = k, unless the plug-in value is asked for.
    """

    algorithms: tuple[str, ...]  # n names
    environments: tuple[str, ...]  # m names
    supports: tuple[np.ndarray, ...]  # for each environment [U_j] float64, increasing
    counts: tuple[np.ndarray, ...]  # for each environment [n, U_j] int32
    bounds: np.ndarray  # [m, 2] float64: lowest and highest score possible
    same: np.ndarray  # [n, m, n] bool

    @cached_property
    def totals(self) -> np.ndarray:
        """Samples in each cell, [n, m] int64."""
        return np.stack([counts.sum(axis=1) for counts in self.counts], axis=1)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, m)."""
        return len(self.algorithms), len(self.environments)

    def cdf(self, environment: int) -> np.ndarray:
        """Return empirical distribution functions on the support, right-continuous, [n, U]
        float64.
        """
        counts = self.counts[environment]
        return np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)

    def sample(self, algorithm: int, environment: int) -> np.ndarray:
        """Return sorted scores of a cell, [T] float64."""
        return np.repeat(self.supports[environment], self.counts[environment][algorithm])


def samples_of(
    table: pd.DataFrame,
    *,
    bounds: Bounds | None = None,
    identical: Iterable[tuple[str, str, str]] = (),
    self_half: bool = True,
) -> Samples:
    """Return the samples of a score table; algorithms and environments in order of first
    appearance.

    Args:
      table: columns algorithm, environment, score; one row per sample. Cells may differ in size.
      bounds: for each environment the lowest and highest score possible (default: the extremes
        observed, over all algorithms, as the published program has it; the guarantee of intervals
        holds for true bounds).
      identical: (environment, algorithm, algorithm) of cells that are the same definition. Taken as
        an equivalence.
      self_half: a comparison of an algorithm with itself is 1/2, as in the published program; False
        gives the paper's plug-in value, 1/2 and half the probability of a tie.

    Raises:
      JbrlError: a bad row (see `check_score_table`), fewer than two algorithms, a cell without
        samples, bounds that are missing or that a score exceeds, an unknown name.
    """
    table = check_score_table(table)
    who, algorithms = pd.factorize(table["algorithm"])
    where, environments = pd.factorize(table["environment"])
    if len(algorithms) < 2:
        raise JbrlError(
            f"score table: one algorithm only ('{algorithms[0]}'): expected at least two to compare"
        )
    n, m = len(algorithms), len(environments)
    _check_cells(who, where, algorithms, environments)
    scores = table["score"].to_numpy() + 0.0  # no negative zero
    supports: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    ends = np.cumsum(np.bincount(where, minlength=m))
    for rows in np.split(np.argsort(where, kind="stable"), ends[:-1]):
        support, place = np.unique(scores[rows], return_inverse=True)
        check_table(n, len(support), str(environments[len(supports)]))
        number = np.bincount(who[rows] * len(support) + place, minlength=n * len(support))
        supports.append(support)
        counts.append(number.astype(np.int32).reshape(n, len(support)))
    limits = _limits(environments, supports, bounds)
    same = _same(list(algorithms), list(environments), identical, self_half=self_half)
    names = (tuple(map(str, algorithms)), tuple(map(str, environments)))
    return Samples(*names, tuple(supports), tuple(counts), limits, same)


def percentile(
    samples: Samples, environment: str, score: float, weights: Mapping[str, float] | None = None
) -> float:
    """Return the performance percentile of a score: how much of a mixture of the algorithms' scores
    is at or below it.

    Args:
      weights: of the algorithms in the mixture, summing to one (default: all equal).

    Raises:
      JbrlError: an unknown environment or algorithm, or weights that are no probabilities.

    Source: Jordan et al. 2020, section 4.1.
    """
    j = _index(environment, samples.environments, "environment")
    n = len(samples.algorithms)
    w = np.full(n, 1 / n)
    if weights is not None:
        w = np.zeros(n)
        for name, weight in weights.items():
            w[_index(name, samples.algorithms, "algorithm")] = weight
        if (w < 0).any() or not abs(w.sum() - 1) <= 1e-9:
            raise JbrlError(f"weights = {dict(weights)}: expected numbers from 0 that sum to 1")
    place = int(np.searchsorted(samples.supports[j], score, side="right"))
    return float(w @ samples.cdf(j)[:, place - 1]) if place else 0.0


def payoffs(samples: Samples) -> np.ndarray:
    """Return z[i, j, k], the mean over the samples x of algorithm i on environment j of F_kj(x):
    [n, m, n] float64 in [0, 1].

    An estimate of P(X_kj <= X_ij), ties counted fully: z[i, j, k] + z[k, j, i] = 1 + P(tie). Cells
    of `same` are 1/2.

    Source: Jordan et al. 2020, section 4.2.
    """
    n, m = samples.shape
    z = np.empty((n, m, n))
    for j, counts in enumerate(samples.counts):
        pairs = product(counts, np.cumsum(counts, axis=1))  # integers: exact
        z[:, j] = pairs / np.outer(samples.totals[:, j], samples.totals[:, j])
    z[samples.same] = 0.5
    return z


def product(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return weights [n, U] @ values [n, U] transposed, [n, n] float64, where most weights are 0: a
    score in the support is one of few algorithms. Sums are in one order, whatever the processor.
    """
    right = np.ascontiguousarray(values.T, np.float64)
    return np.asarray(csr_matrix(weights.astype(np.float64)) @ right)


def frequencies(samples: Samples, environment: int) -> np.ndarray:
    """Return relative frequencies on the support, [n, U] float64."""
    counts = samples.counts[environment]
    return counts / counts.sum(axis=1, keepdims=True)


def _index(name: str, known: Sequence[str], what: str) -> int:
    if name not in known:
        raise JbrlError(f"unknown {what} '{name}'{nearest(name, known)}")
    return list(known).index(name)


def _check_cells(
    who: np.ndarray, where: np.ndarray, algorithms: pd.Index, environments: pd.Index
) -> None:
    empty = np.ones((len(algorithms), len(environments)), bool)
    empty[who, where] = False
    if empty.any():
        i, j = np.argwhere(empty)[0]
        more = f" (and {empty.sum() - 1} more cells are empty)" if empty.sum() > 1 else ""
        raise JbrlError(
            f"score table: algorithm '{algorithms[i]}' has no score on environment "
            f"'{environments[j]}': expected every algorithm on the same environments{more}; leave "
            "some out with --algorithms or --environments"
        )


def _limits(
    environments: pd.Index, supports: list[np.ndarray], bounds: Bounds | None
) -> np.ndarray:
    observed = np.array([(support[0], support[-1]) for support in supports])
    if bounds is None:
        return observed
    for j, name in enumerate(environments):
        if name not in bounds:
            raise JbrlError(
                f"bounds: environment '{name}' is missing: expected low and high of every "
                f"environment{nearest(name, bounds)}"
            )
        low, high = bounds[name]
        if not low < high:
            raise JbrlError(
                f"bounds: environment '{name}': low = {low:g}, high = {high:g}: expected low "
                "below high"
            )
        outside = [score for score in observed[j] if not low <= score <= high]
        if outside:
            raise JbrlError(
                f"bounds: environment '{name}': score {outside[0]!s} lies outside [{low:g}, "
                f"{high:g}]: expected wider bounds"
            )
        observed[j] = low, high
    return observed


def _same(
    algorithms: list[str],
    environments: list[str],
    identical: Iterable[tuple[str, str, str]],
    *,
    self_half: bool,
) -> np.ndarray:
    n, m = len(algorithms), len(environments)
    same = np.tile(np.eye(n, dtype=bool), (m, 1, 1))
    for environment, first, second in identical:
        j = _index(environment, environments, "environment in the list of identical definitions,")
        i, k = (
            _index(name, algorithms, "algorithm in the list of identical definitions,")
            for name in (first, second)
        )
        mine = same[j, i] | same[j, k]  # the two classes become one
        same[j] |= np.outer(mine, mine)
    if not self_half:
        same[:, range(n), range(n)] = False
    return same.transpose(1, 0, 2)
