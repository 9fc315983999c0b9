"""Bootstrap intervals of the aggregate scores: percentile, as in the paper, or bias-corrected and
accelerated.

An interval has the level 1 - delta / (n·m), as the published program takes it. For 11 algorithms on
15 environments and delta = 0.05 this leaves 1.5 of 10,000 resamples beyond each end: ends are
Monte-Carlo numbers.

Source: Jordan et al. 2020, section 4.3 and appendix G; Efron 1987 (BCa), its acceleration for
several samples from Davison and Hinkley 1997, section 5.4.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy.special import ndtr, ndtri

from jbrl.base.errors import JbrlError
from jbrl.stats.bands import check_delta
from jbrl.stats.game import Equilibrium, equilibrium
from jbrl.stats.percentiles import Samples, frequencies, payoffs
from jbrl.stats.resampling import resampled_scores

RESAMPLES = 10_000
Interval = Literal["percentile", "bca"]


@dataclasses.dataclass(frozen=True)
class Bootstrap:
    """Resampled aggregate scores and the intervals they give."""

    scores: np.ndarray  # [resamples, n] float64
    lower: np.ndarray  # [n] float64
    upper: np.ndarray  # [n] float64


def bootstrap(
    samples: Samples,
    delta: float = 0.05,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    interval: Interval = "percentile",
    tell: Callable[[int], Any] | None = None,
) -> Bootstrap:
    """Return intervals of all aggregate scores from `resamples` bootstrap resamples.

    Args:
      interval: "percentile" or "bca".
      tell: called with the number of resamples done so far.

    Raises:
      JbrlError: delta is not in (0, 0.5], `resamples` not an integer from 1, `seed` not one from 0,
        or `interval` neither name.
    """
    check_delta(delta)
    check_whole("resamples", resamples, 1)
    check_whole("seed", seed, 0)
    if interval not in ("percentile", "bca"):
        raise JbrlError(f"interval = {interval!r}: expected 'percentile' or 'bca'")
    scores = resampled_scores(samples, resamples, seed, tell)
    n, m = samples.shape
    tail = delta / (n * m) / 2
    levels = np.tile([tail, 1 - tail], (n, 1))
    if interval == "bca":
        levels = _bca_levels(samples, scores, levels)
    ends = np.array([np.quantile(scores[:, i], levels[i]) for i in range(n)])
    return Bootstrap(scores, ends[:, 0], ends[:, 1])


def check_whole(name: str, value: int, low: int) -> None:
    """Refuse a value that is not an integer from `low` up to 2³² - 1."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not low <= value < 2**32
    ):
        raise JbrlError(f"{name} = {value!r}: expected an integer from {low} to {2**32 - 1}")


def _bca_levels(samples: Samples, scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return levels corrected for bias and acceleration, [n, 2]."""
    z = payoffs(samples)
    point = equilibrium(z)
    below = (scores < point.scores).mean(axis=0) + (scores == point.scores).mean(axis=0) / 2
    smallest = 0.5 / len(scores)  # of no resample, or all of them: to the precision of their number
    bias = ndtri(np.clip(below, smallest, 1 - smallest))[:, None]
    a = acceleration(samples, point)[:, None]
    shifted = bias + ndtri(levels)
    return ndtr(bias + shifted / (1 - a * shifted))


def acceleration(samples: Samples, point: Equilibrium) -> np.ndarray:
    """Return the acceleration of each aggregate score, [n] float64.

    What player q plays depends on the order of the payoffs only, hence not on a small change of one
    sample's weight; influences are therefore those of the payoffs, weighed by q, and no sample need
    be left out in turn.
    """
    n, m = samples.shape
    squares, cubes = np.zeros(n), np.zeros(n)
    for j in range(m):
        weights, cdf = frequencies(samples, j), samples.cdf(j)
        above = 1 - cdf + weights  # P(X >= u), the payoff of X against a sample at u
        for i in range(n):
            # opponents whose payoffs depend on samples
            counts = np.where(samples.same[i, j], 0, point.q[j])
            influence = counts[:, None] * above[i]  # on y_i, of a sample of opponent k at u
            influence[i] += counts @ cdf  # of one of its own
            influence -= (influence * weights).sum(axis=1, keepdims=True)
            total = samples.totals[:, j]
            squares[i] += (weights * influence**2).sum(axis=1) @ (1 / total)
            cubes[i] += (weights * influence**3).sum(axis=1) @ (1 / total**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = cubes / (6 * squares**1.5)
    return np.where(squares > 0, found, 0.0)
