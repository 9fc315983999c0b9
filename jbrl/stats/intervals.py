"""Mean, spread and 95% interval of each agent's returns."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from jbrl.stats.table import AGENT, check_returns

Z95 = 1.96  # as the published program has it; the exact quantile is 1.95996
FEW = 100  # scores; below, the factor is Student's


def factor95(n: np.ndarray | pd.Series | int) -> np.ndarray:
    """Return the half-width of a 95% interval of a mean of n scores, in standard errors: float64.

    Student's quantile for n below `FEW` (NaN for one score), else `Z95` as in the published
    program: for n = 100 the two differ by 1.2%, for the paper's 500 by 0.2%.
    """
    n = np.asarray(n, np.float64)
    student = stdtrit(np.where(n > 1, n - 1.0, np.nan), 0.975)
    return np.where(n < FEW, student, Z95)


def summarise(returns: pd.DataFrame, by: Iterable[str] = AGENT) -> pd.DataFrame:
    """Return one row per agent, in order of first appearance.

    The interval of the mean is mean ± ci95 with ci95 = `factor95`(n) s / √n, s having n - 1 in its
    denominator. One sample has no spread: its `std` and `ci95` are NaN.

    Args:
      returns: score table with the columns `by` and `score`; one row per environment drawn.
      by: columns that distinguish agents.

    Returns:
      Columns `by`, then `n` (int64), `mean`, `std`, `ci95` (float64).

    Raises:
      JbrlError: a column is missing, or a score is not a finite number.

    Source: Castronovo et al. 2016, section 3.2, with the standard error corrected and
    Student's factor for few scores (docs/statistics.md).
    """
    by = list(by)
    groups = check_returns(returns, [*by, "score"]).groupby(by, sort=False, dropna=False)["score"]
    found = groups.agg(n="size", mean="mean", std="std").reset_index()
    found["n"] = found["n"].astype(np.int64)
    return found.assign(ci95=factor95(found["n"]) * found["std"] / np.sqrt(found["n"]))
