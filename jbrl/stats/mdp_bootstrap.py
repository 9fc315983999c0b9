r"""Bootstrap resamples of the MDPs of an experiment, all agents keeping their scores side by side.

A resample of N MDPs is how often each of them was drawn, so that the means of all agents are one
matrix product. Sums are exact: scores are first rounded to multiples of a power of two, some 2^-43
of the greatest of them, so few bits that every sum of N fits into a float64. Agents that tie
therefore tie in every resample, and results do not depend on the order in which a library adds.

Source of the intervals: Efron 1987, Better bootstrap confidence intervals, JASA 82(397); the
acceleration of several samples is that of Davison and Hinkley 1997, Bootstrap methods and their
application, section 5.4.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from jbrl.base.errors import JbrlError

RESAMPLES = 10_000
_BLOCK = 4_000_000  # numbers held at once
_GREATEST = 4 * 10**9  # bytes of counts


def draw_counts(n: int, resamples: int, seed: int, stream: int = 0) -> np.ndarray:
    """Draw how often each of `n` MDPs occurs in each resample, [resamples, n]; each row adds up to
    `n`.

    uint16, and uint8 from 65,536 MDPs on, to save memory: one of so many occurs more than 255 times
    with a probability of 10^-507.

    Args:
      stream: different numbers give independent draws of the same seed.

    Raises:
      JbrlError: `resamples` is not an integer from 1, `seed` not one from 0, or they take more than
        4 GB.
    """
    for name, value, low in (("resamples", resamples, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
            raise JbrlError(f"bootstrap: {name} = {value!r}: expected an integer from {low}")
    dtype = np.uint16 if n <= np.iinfo(np.uint16).max else np.uint8
    if resamples * n * np.dtype(dtype).itemsize > _GREATEST:
        accepted = _GREATEST // (n * np.dtype(dtype).itemsize)
        raise JbrlError(
            f"bootstrap: {resamples} resamples of {n} environments: expected at most {accepted}, "
            f"which take {_GREATEST // 10**9} GB"
        )
    generator = np.random.default_rng([seed, stream])
    counts = np.empty((resamples, n), dtype)
    step = max(1, _BLOCK // n)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = generator.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        counts[start : start + rows] = np.bincount(drawn.ravel(), minlength=rows * n).reshape(
            rows, n
        )
    return counts


def resampled_means(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the mean of each column of `values` [N, n] in each resample, [R, n] float64: the sums
    are exact.
    """
    count, n = counts.shape
    whole, unit = whole_numbers(values)
    found = np.empty((count, values.shape[1]))
    step = max(1, _BLOCK // max(n, values.shape[1]))
    for start in range(0, count, step):
        found[start : start + step] = counts[start : start + step].astype(np.float64) @ whole
    return found * (unit / n)


def whole_numbers(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Return `values` [N, n] as whole numbers (in float64) times a unit, such that sums of N of
    them are exact.
    """
    greatest = float(np.abs(values).max(initial=0.0))
    bits = 52 - math.ceil(math.log2(max(len(values), 2)))
    unit = math.ldexp(1.0, max(math.frexp(greatest)[1] - bits, -1000)) if greatest else 1.0
    return np.rint(values / unit), unit


def bca_intervals(
    means: np.ndarray, strata: Sequence[np.ndarray], level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return bias-corrected and accelerated intervals of means, or of sums of means, lower and
    upper ends [n] each.

    One that is the same in all resamples, as the mean of equal values is, has an interval
    without width.

    Args:
      means: on all MDPs and then in each resample, [1 + R, n], by the same exact sums.
      strata: what they are sums of means of, [N, n] each, drawn independently of each other.
    """
    check_level(level)
    point, spread = means[0], np.sort(means[1:], axis=0)
    count = len(spread)
    below = ((spread < point).sum(axis=0) + (spread == point).sum(axis=0) / 2) / count
    smallest = 0.5 / count  # of no resample, or all of them: to the precision of their number
    bias = ndtri(np.clip(below, smallest, 1 - smallest))
    influences = [(values - values.mean(axis=0)) / len(values) for values in strata]
    squares = np.sum([(part**2).sum(axis=0) for part in influences], axis=0)
    cubes = np.sum([(part**3).sum(axis=0) for part in influences], axis=0)
    acceleration = cubes / np.where(squares > 0, squares, 1.0) ** 1.5 / 6
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        shifted = bias + ndtri(tail)
        ends.append(_sorted_quantile(spread, ndtr(bias + shifted / (1 - acceleration * shifted))))
    return ends[0], ends[1]


def studentised_intervals(
    counts: np.ndarray, values: np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return studentised bootstrap intervals (bootstrap-t) of the means of `values` [N, P], ends
    [P] each.

    The mean in each resample is measured in standard errors of that resample, so that the interval
    follows the skewness of the scores as well as the uncertainty of their spread: for few scores it
    covers more often than BCa. Where few different scores make resamples coarse it covers less
    often than Student's interval, so each end is the outer one of the two. Resamples without spread
    carry no information and are left out. Equal values have an interval without width.

    Args:
      counts: [R, N], see `draw_counts`.

    Source: Efron and Tibshirani 1993, An introduction to the bootstrap, section 12.5.
    """
    check_level(level)
    n = len(values)
    centred = values - values.mean(axis=0)
    point = values.mean(axis=0)
    if n < 2:
        return np.full_like(point, np.nan), np.full_like(point, np.nan)
    error = centred.std(axis=0, ddof=1) / np.sqrt(n)
    ends = np.tile(point, (2, 1))
    tails = [(1 + level) / 2, (1 - level) / 2]
    student = float(stdtrit(n - 1, tails[0]))
    times = counts.astype(np.float64) / n
    for place in np.flatnonzero(error > 0):
        column = centred[:, place] / error[place]
        drawn = times @ np.stack([column, column**2], axis=1)
        spread = np.sqrt(np.maximum(drawn[:, 1] - drawn[:, 0] ** 2, 0) / (n - 1))
        told = spread > 1e-9
        t = drawn[told, 0] / spread[told]
        wide = np.quantile(t, tails) if told.any() else np.zeros(2)
        ends[:, place] -= error[place] * np.array([max(wide[0], student), min(wide[1], -student)])
    return ends[0], ends[1]


def check_level(level: float) -> None:
    """Refuse a level of confidence outside (0, 1)."""
    if not 0 < level < 1:
        raise JbrlError(f"level = {level!r}: expected a number between 0 and 1, both excluded")


def _sorted_quantile(rows: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return one quantile of each sorted column, linear between order statistics as
    `numpy.quantile` has it.
    """
    place = levels * (len(rows) - 1)
    low = np.floor(place).astype(np.int64).clip(0, len(rows) - 1)
    high = np.minimum(low + 1, len(rows) - 1)
    column = np.arange(rows.shape[1])
    return rows[low, column] + (place - low) * (rows[high, column] - rows[low, column])
