"""A few rows of what each search on a prior has tried, and of the course of each training."""

import numpy as np
import pandas as pd

SEARCH = ["prior", "algorithm", "parameters", "seed"]  # columns that distinguish searches
STRETCH = "to lifetime "  # what the name of a row begins with that is a stretch of a training


def is_training(rows: pd.DataFrame) -> bool:
    """Return whether the rows of a search are the stretches of a training, in order."""
    return bool(rows["strategy"].str.startswith(STRETCH).all())


def few(strategies: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return at most `n` rows of each search: the first, which were tried most; of a training,
    stretches evenly spaced, the last one among them.

    Args:
      strategies: as `Results.strategies` returns them.
    """
    kept = [
        place[evenly(len(place), n)] if is_training(strategies.iloc[place]) else place[:n]
        for place in strategies.groupby(SEARCH, sort=False).indices.values()
    ]
    return strategies.iloc[np.sort(np.concatenate([np.zeros(0, int), *kept]))]


def evenly(count: int, n: int) -> np.ndarray:
    """Return at most `n` of the numbers 0 to `count` - 1, evenly spaced, the last among them."""
    n = min(n, count)
    return np.arange(1, n + 1) * count // max(n, 1) - 1
