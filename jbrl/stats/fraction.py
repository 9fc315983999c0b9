"""Scores as a fraction of the way from one agent to another, as from Random (0) to an oracle (1).

Experiments differ in their rewards; such fractions can be compared.
"""

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.stats.intervals import factor95
from jbrl.stats.paired_test import paired_z
from jbrl.stats.table import AGENT, MDP, RETURNS, check_returns

Who = tuple[str, str]  # algorithm and parameters


def fractions(returns: pd.DataFrame, zero: Who, one: Who) -> pd.DataFrame:
    """Return (mean of agent - mean of zero) / (mean of one - mean of zero), with the error of all
    three means in its interval.

    All play the same environments, so the error is that of a ratio of paired means. With d_i and
    D_i the differences in environment i of numerator and denominator, and f = mean(d) / mean(D): s
    is the standard deviation of (d_i - f D_i) / mean(D), and the interval f ± 1.96 s / √N, with
    Student's factor where N < 100 (delta method; Cochran 1977, Sampling Techniques, section 6.4).
    It needs a denominator that is clearly not zero.

    Args:
      returns: score table of one experiment, columns `jbrl.stats.table.RETURNS`.
      zero, one: the agents that have the fractions 0 and 1.

    Returns: one row per agent, `zero` and `one` included, in order of first appearance: algorithm,
      parameters, n, fraction, ci95.

    Raises:
      JbrlError: `zero` or `one` has no returns, agents were not played on the same environments, or
        `one` is not significantly better than `zero` (paired Z-test, one-sided, 95%).
    """
    returns = check_returns(returns, RETURNS)
    samples = {
        key: rows.set_index(list(MDP))["score"]
        for key, rows in returns.groupby(list(AGENT[1:]), sort=False)
    }
    for who in (zero, one):
        if who not in samples:
            raise JbrlError(
                f"fractions: no returns of {who[0]} {who[1]}: expected one for each environment"
            )
    test = paired_z(samples[one].rename(one[0]), samples[zero].rename(zero[0]), sided="one")
    if not test.different:
        raise JbrlError(
            f"{one[0]} is not significantly better than {zero[0]} (Z = {test.z:.2f} over {test.n} "
            "environments): expected a distance to take fractions of"
        )
    way = samples[one] - samples[zero]
    rows = []
    for (algorithm, parameters), sample in samples.items():
        same_mdps = sample.index.isin(way.index).all() and len(sample) == len(way)
        if not same_mdps:
            raise JbrlError(
                f"fractions: {algorithm} {parameters} and {zero[0]} were not played on the same "
                "environments"
            )
        rows.append(
            (
                algorithm,
                parameters,
                len(sample),
                *_ratio((sample - samples[zero]).reindex(way.index), way),
            )
        )
    return pd.DataFrame(rows, columns=[*AGENT[1:], "n", "fraction", "ci95"])


def _ratio(part: pd.Series, whole: pd.Series) -> tuple[float, float]:
    """Return mean(part) / mean(whole) and the half-width of its interval; NaN for a single pair."""
    fraction = part.mean() / whole.mean()
    rest = ((part - fraction * whole) / whole.mean()).to_numpy(np.float64)
    if rest.size < 2:
        return float(fraction), np.nan
    return float(fraction), float(factor95(rest.size) * rest.std(ddof=1) / np.sqrt(rest.size))
