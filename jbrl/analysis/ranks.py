"""Ranks with what an interval leaves open, and which differences are significant.

Source: Jordan et al. 2020, table 1 and appendix I; the formulas reproduce the rank columns of the published tables.
"""

import numpy as np


def ranks(score: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rank, best and worst rank of each of n algorithms, [n] int64 each; 1 is best, ties share the better rank.

    The best rank counts the others whose interval lies above, the worst those whose interval lies below.
    """
    rank = 1 + (score[None, :] > score[:, None]).sum(axis=1)
    above = lower[None, :] >= upper[:, None]  # k is certainly no worse than i
    np.fill_diagonal(above, False)
    worst = len(score) - (lower[:, None] > upper[None, :]).sum(axis=1)
    return rank, 1 + above.sum(axis=1), worst


def significant(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Which pairs of algorithms have intervals that do not meet, [n, n] bool, symmetric."""
    apart = lower[:, None] > upper[None, :]
    return apart | apart.T


def decisive_ends(score: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals that establish the best-ranked significant differences, [n] bool for lower and for upper ends.

    Of the algorithms that are significantly worse than some other, the one with the highest score: its upper end, and the lower ends of
    those it is worse than. Bold in the paper's table 1.
    """
    apart = lower[:, None] > upper[None, :]
    worse = np.asarray(apart.any(axis=0))
    if not worse.any():
        return worse, worse
    first = int(np.argmax(np.where(worse, score, -np.inf)))
    return apart[:, first], np.arange(len(score)) == first
