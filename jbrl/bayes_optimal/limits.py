"""Confidence limits of means that assume a range of values, and nothing of their distribution.

A lifetime in which a rare outcome pays may be missing from every sample, and a mean is then far
from normal. What holds all the same rests on what values are possible at all, which rewards and
possible transitions say.
"""

import math

import numpy as np

MOST_STAKE = 0.75  # of the capital that a single value may lose
HALVINGS = 60


def lower_limit(samples: np.ndarray, least: float, confidence: float) -> float:
    """Return a lower confidence limit of the mean of independent samples, by betting.

    Whoever bets, on each sample, that it lies above m keeps a capital that is a supermartingale if
    the mean is at most m: by Ville's inequality it becomes 1 / (1 - confidence) with probability at
    most 1 - confidence. The limit is the greatest m that is refuted so. Stakes depend on earlier
    samples only (Waudby-Smith and Ramdas 2024).

    Args:
      samples: [N] float64, in the order in which they were drawn, N at least 2.
      least: no value is smaller.
    """
    goal = math.log(1 / (1 - confidence))
    stakes = np.sqrt(2 * goal / len(samples)) / _earlier_spread(samples)

    def refuted(mean: float) -> bool:
        most = MOST_STAKE / max(mean - least, 1e-300)
        gains = np.minimum(stakes, most) * (samples - mean)
        return float(np.log1p(gains).sum()) >= goal

    low, high = least, float(samples.max())
    if not refuted(low):
        return least
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _earlier_spread(samples: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the samples before each one, [N]; infinite for two."""
    n = np.arange(1, len(samples))
    shifted = samples - samples[0]
    mean = np.cumsum(shifted[:-1]) / n
    variance = np.maximum(np.cumsum(shifted[:-1] ** 2) / n - mean**2, 0.0)
    spread = np.full(len(samples), np.inf)
    spread[2:] = np.sqrt(variance[1:]) + 1e-300
    return spread


def upper_margin(n: int, deviation: float, value_range: float, confidence: float) -> float:
    """Return how far the mean of n independent values may lie above their average: the empirical
    Bernstein bound (Maurer and Pontil 2009, theorem 4).

    Args:
      deviation: standard deviation of the values, or a number that is not below it.
      value_range: difference of the greatest and the smallest value that are possible.
    """
    log = math.log(2 / (1 - confidence))
    return deviation * math.sqrt(2 * log / n) + 7 * value_range * log / (3 * (n - 1))


def upper_margin_by_moment(n: int, second_moment: float, confidence: float) -> float:
    """Return how far the mean of n independent values of at least 0 may lie above their average
    (Maurer 2003).

    Args:
      second_moment: of a value, or a number that is not below it.
    """
    return math.sqrt(2 * second_moment * math.log(1 / (1 - confidence)) / n)
