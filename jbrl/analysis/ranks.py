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


def decisive_ends(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals that establish a significant difference from a neighbour, [n] bool for lower and for upper ends.

    A lower end is decisive when another interval lies wholly below it, an upper end when one lies wholly above: bold in tables.
    """
    apart = lower[:, None] > upper[None, :]
    return apart.any(axis=1), apart.any(axis=0)
