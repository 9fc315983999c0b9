"""The score table: one row per sample, columns found by name.

Everything in `jbrl.analysis` takes such a table, never a bare matrix. One sample is the score of one agent in one environment, for
example its discounted return on one MDP. Names and messages here say MDP for an environment drawn, since in score tables of other
sources (`jbrl.analysis.score_table`) an environment is what an experiment is here.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from jbrl.errors import JbrlError

AGENT = ("experiment", "algorithm", "parameters")  # what tells one agent from another; `parameters` is JSON text with sorted keys
MDP = ("seed", "unit")  # what tells one MDP (one environment drawn) from another: pairing goes by both
RETURNS = (*AGENT, *MDP, "score")


def check_columns(table: pd.DataFrame, columns: Iterable[str], name: str) -> None:
    """Refuse a table that lacks one of `columns`.

    Raises:
      JbrlError: names the table, the missing columns and those that are there.
    """
    missing = [c for c in columns if c not in table.columns]
    if missing:
        present = ", ".join(map(str, table.columns)) or "none"
        raise JbrlError(f"{name}: no column {', '.join(missing)} (columns found: {present})")


def check_returns(returns: pd.DataFrame, columns: Iterable[str] = RETURNS, name: str = "returns") -> pd.DataFrame:
    """The table with `score` as float64.

    Raises:
      JbrlError: a column is missing, or a score is not a finite number (the row is named).
    """
    columns = tuple(columns)
    check_columns(returns, columns, name)
    scores = pd.to_numeric(returns["score"], errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(scores))
    if bad.size:
        row = returns.iloc[bad[0]]
        where = ", ".join(f"{c} {row[c]}" for c in columns if c != "score")
        more = f" (and {bad.size - 1} more)" if bad.size > 1 else ""
        raise JbrlError(f"{name}: row {bad[0] + 1} ({where}): score {row['score']!r}: expected a finite number{more}")
    return returns.assign(score=scores)
