"""Computation times that a measurement distinguishes, and those that it does not."""

import numpy as np
import pandas as pd

DIGITS = 2  # significant digits of a time that repeat from run to run
# Seconds: the shortest wall time of a single call that says something about the program called.
# Below, dispatch and other work of the machine decide: of 3,000 calls of an empty program on a busy
# machine of two cores the median took 5 µs, one in a thousand more than 69 µs, the longest 4 ms.
DISPATCH = 1e-3
SPREADS = ("offline_seconds_spread", "online_seconds_spread")  # optional columns of scores


def resolved(scores: pd.DataFrame) -> pd.DataFrame:
    """Return `scores` with one value for times that are not distinguished.

    An offline time is that of one call, and `DISPATCH` is its resolution: what lies below is 0. An
    online time is the mean over all decisions.

    Args:
      scores: columns `offline_seconds` and `online_seconds`, finite; `SPREADS` are used where they
        are known (seconds).
    """
    found = {}
    for column, resolution in (("offline_seconds", DISPATCH), ("online_seconds", 0.0)):
        spread = scores.get(f"{column}_spread")
        widths = (
            np.zeros(len(scores))
            if spread is None
            else np.nan_to_num(pd.to_numeric(spread, errors="coerce").to_numpy(np.float64))
        )
        found[column] = merged(scores[column].to_numpy(np.float64), widths, resolution)
    return scores.assign(**found)


def merged(seconds: np.ndarray, spreads: np.ndarray, resolution: float = 0.0) -> np.ndarray:
    """Return the times [n] with each group of ties at the least of its times, rounded.

    Times are taken in increasing order. One joins the group of the time before it when it differs
    from the least of the group by no more than the resolution or the greater of both spreads, or
    when both are the same in `DIGITS` digits. Times up to the resolution are 0.
    """
    found = np.empty(len(seconds))
    first = -1
    for k in np.argsort(seconds, kind="stable"):
        apart = first < 0 or seconds[k] - seconds[first] > max(
            resolution, spreads[k], spreads[first]
        )
        if apart and (first < 0 or rounded(seconds[k]) != rounded(seconds[first])):
            first = k
        found[k] = 0.0 if seconds[first] <= resolution else rounded(seconds[first])
    return found


def rounded(seconds: float) -> float:
    """Return a time to `DIGITS` significant digits."""
    return float(f"{seconds:.{DIGITS}g}")
