"""Mean, spread and 95% interval of each agent's returns."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from jbrl.analysis.table import AGENT, check_returns

Z95 = 1.96  # as the published program has it; the exact quantile is 1.95996


def summarise(returns: pd.DataFrame, by: Iterable[str] = AGENT) -> pd.DataFrame:
    """One row per agent, in order of first appearance.

    The interval of the mean is mean ± ci95 with ci95 = 1.96 s / √n, s having n - 1 in its denominator. One sample has no
    spread: its `std` and `ci95` are NaN.

    Args:
      returns: score table with the columns `by` and `score`; one row per MDP.
      by: columns that tell agents apart.

    Returns:
      Columns `by`, then `n` (int64), `mean`, `std`, `ci95` (float64).

    Raises:
      JbrlError: a column is missing, or a score is not a finite number.

    Source: Castronovo et al. 2016, section 3.2, with the standard error corrected (docs/statistics.md).
    """
    by = list(by)
    groups = check_returns(returns, [*by, "score"]).groupby(by, sort=False, dropna=False)["score"]
    found = groups.agg(n="size", mean="mean", std="std").reset_index()
    found["n"] = found["n"].astype(np.int64)
    return found.assign(ci95=Z95 * found["std"] / np.sqrt(found["n"]))
