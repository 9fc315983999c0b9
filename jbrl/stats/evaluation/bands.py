r"""Uncertainty from the samples of one cell: bands for distribution functions, intervals for means
and for comparisons.

All that is claimed at once, a band for each of the n·m cells, holds together with probability 1 -
delta: each has the level delta' = delta / (n·m). On the support of an environment (and the two
bounds) everything is a matrix product.

Source: Jordan et al. 2020, section 4.3 and appendices D and G; Massart 1990 for the band, Anderson
1969 for the mean.
"""

from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from jbrl.base.errors import JbrlError
from jbrl.stats.evaluation.samples import Samples, frequencies, product

Quantile = Literal["code", "paper"]


def check_delta(delta: float) -> float:
    """Refuse a value that is no failure probability.

    Raises:
      JbrlError: delta is not in (0, 0.5].
    """
    if not (isinstance(delta, int | float) and 0 < delta <= 0.5):
        raise JbrlError(f"delta = {delta!r}: expected a number above 0 up to 0.5")
    return float(delta)


def half_widths(samples: Samples, delta: float) -> np.ndarray:
    """Return the half-width of the Dvoretzky-Kiefer-Wolfowitz band of each cell, sqrt(ln(2/delta')
    / (2T)): [n, m] float64.
    """
    n, m = samples.shape
    return np.sqrt(np.log(2 * n * m / check_delta(delta)) / (2 * samples.totals))


def cdf_band(
    samples: Samples, environment: int, delta: float, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points of an environment [V] (its support and bounds), lower and upper band [n, V] of
    all distribution functions at them.

    Both are 1 from the upper bound on, and jump at the points only.
    """
    low, high = samples.bounds[environment]
    points = np.union1d(samples.supports[environment], (low, high))
    place = np.searchsorted(samples.supports[environment], points, side="right")
    cdf = np.pad(samples.cdf(environment), ((0, 0), (1, 0)))[:, place]
    width = scale * half_widths(samples, delta)[:, environment, None]
    lower, upper = np.maximum(0, cdf - width), np.minimum(1, cdf + width)
    lower[:, -1] = upper[:, -1] = 1
    return points, lower, upper


def payoff_bounds(
    samples: Samples, delta: float, *, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return intervals [Z-, Z+] of the payoffs, each [n, m, n] float64, that hold together with
    probability 1 - delta.

    A score distribution within its band is worst when its upper band is its distribution function;
    the opponent's is then its lower band. That gives Z-, and the reverse Z+. Cells of `same` are
    1/2 without width.

    Args:
      scale: factor of the half widths of the bands, for the effect of more samples.
    """
    n, m = samples.shape
    low, high = np.empty((n, m, n)), np.empty((n, m, n))
    for j in range(m):
        _, lower, upper = cdf_band(samples, j, delta, scale)
        low[:, j] = product(np.diff(upper, prepend=0), lower)
        high[:, j] = product(np.diff(lower, prepend=0), upper)
    low[samples.same] = high[samples.same] = 0.5
    return low, high


def payoff_t_intervals(
    samples: Samples, delta: float, quantile: Quantile = "code"
) -> tuple[np.ndarray, np.ndarray]:
    """Return Student intervals of the payoffs, each [n, m, n] float64: a heuristic that ignores the
    opponent's sampling error.

    Mean over the samples x of F_k(x), plus and minus t·s/√T with T - 1 degrees of freedom. Ends may
    lie outside [0, 1].

    Args:
      quantile: "code" takes t at 1 - delta'/2, as the published program and its tables; "paper" at
        1 - delta', as appendix G.

    Raises:
      JbrlError: a cell has one sample only, or `quantile` is neither.
    """
    if quantile not in ("code", "paper"):
        raise JbrlError(f"quantile = {quantile!r}: expected 'code' or 'paper'")
    _check_two(samples)
    n, m = samples.shape
    level = check_delta(delta) / (n * m)
    t = stats.t.ppf(1 - level / (2 if quantile == "code" else 1), samples.totals - 1)
    middle, width = np.empty((n, m, n)), np.empty((n, m, n))
    for j in range(m):
        cdf, weights = samples.cdf(j), frequencies(samples, j)
        middle[:, j] = product(weights, cdf)
        for i in range(n):
            total = samples.totals[i, j]
            variance = ((cdf - middle[i, j][:, None]) ** 2) @ weights[i] * total / (total - 1)
            width[i, j] = t[i, j] * np.sqrt(variance / total)
    middle[samples.same], width[samples.same] = 0.5, 0
    return middle - width, middle + width


def mean_table(samples: Samples, delta: float) -> pd.DataFrame:
    """Return the mean score of each cell with its interval (Anderson 1969), all intervals together
    at level 1 - delta.

    Returns:
      Columns environment, algorithm, n (int64), mean, lower, upper (float64); environments, then
      algorithms, in the samples' order.
    """
    rows = []
    for j, environment in enumerate(samples.environments):
        points, lower, upper = cdf_band(samples, j, delta)
        mean = frequencies(samples, j) @ samples.supports[j]
        low, high = np.diff(upper, prepend=0) @ points, np.diff(lower, prepend=0) @ points
        columns: dict[str, Any] = {"environment": environment, "algorithm": samples.algorithms}
        columns |= {"n": samples.totals[:, j], "mean": mean, "lower": low, "upper": high}
        rows.append(pd.DataFrame(columns))
    return pd.concat(rows, ignore_index=True)


def _check_two(samples: Samples) -> None:
    single = np.argwhere(samples.totals < 2)
    if single.size:
        i, j = single[0]
        raise JbrlError(
            f"pbp-t: algorithm '{samples.algorithms[i]}' has one sample on environment "
            f"'{samples.environments[j]}': expected at least two, or the method pbp"
        )
