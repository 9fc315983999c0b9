"""Ranks, the ranks that intervals leave open, and significant differences.

Source: Jordan et al. 2020, table 1 and appendix I; the formulas reproduce the rank columns of the
published tables.
"""

import numpy as np

ROUNDING = 1e-9  # of ends and scores, relative to the largest of them


def ranks(
    score: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rank, best and worst rank of each of n algorithms, [n] int64 each; 1 is best, ties
    share the better rank.

    The best rank counts the others whose interval lies above, the worst those whose interval does
    not lie below. Two algorithms whose intervals are the same number tie: neither is above.
    """
    tiny = _tiny(score, lower, upper)
    rank = 1 + (score[None, :] > score[:, None] + tiny).sum(axis=1)
    above = lower[None, :] >= upper[:, None] - tiny  # k is certainly no worse than i
    tied = above & above.T
    best = 1 + (above & ~tied).sum(axis=1)
    below = lower[:, None] > upper[None, :] + tiny
    others_tied = tied.sum(axis=1) - np.diag(tied)
    return rank, best, len(score) - below.sum(axis=1) - others_tied


def significant(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return pairs of algorithms whose intervals do not meet, [n, n] bool, symmetric."""
    apart = lower[:, None] > upper[None, :] + _tiny(lower, upper)
    return apart | apart.T


def _tiny(*values: np.ndarray) -> float:
    return ROUNDING * max((float(np.abs(v).max(initial=0.0)) for v in values), default=0.0)


def decisive_ends(
    score: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of intervals that establish the best-ranked significant differences, [n] bool
    for lower and for upper ends.

    Of the algorithms that are significantly worse than some other, the one with the highest score:
    its upper end, and the lower ends of those it is worse than. Bold in the paper's table 1.
    """
    apart = lower[:, None] > upper[None, :] + _tiny(score, lower, upper)
    worse = np.asarray(apart.any(axis=0))
    if not worse.any():
        return worse, worse
    first = int(np.argmax(np.where(worse, score, -np.inf)))
    return apart[:, first], np.arange(len(score)) == first
