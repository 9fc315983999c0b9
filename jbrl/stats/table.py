"""The score table: one row per sample, columns found by name.

Everything in `jbrl.stats` takes such a table, never a bare matrix. One sample is the score of
one agent in one environment, for example its discounted return on one MDP. Names and messages here
say MDP for an environment drawn, since in score tables of other sources
(`jbrl.stats.score_table`) an environment is what an experiment is here.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError

# columns that identify an agent; `parameters` is JSON text with sorted keys
AGENT = ("experiment", "algorithm", "parameters")
# columns that identify an MDP (one environment drawn): pairing goes by both
MDP = ("seed", "unit")
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


def check_returns(
    returns: pd.DataFrame, columns: Iterable[str] = RETURNS, name: str = "returns"
) -> pd.DataFrame:
    """Return the table with `score` as float64.

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
        raise JbrlError(
            f"{name}: row {bad[0] + 1} ({where}): score {row['score']!r}: expected a finite "
            f"number{more}"
        )
    return returns.assign(score=scores)


def rows_of(returns: pd.DataFrame, agents: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a score table that belong to `agents` (columns `AGENT`), in their order.

    The text that names an agent is parsed once, not once for each table that is merged.
    """
    number = returns.groupby(list(AGENT), sort=False).ngroup().to_numpy()
    _, first = np.unique(number, return_index=True)
    played = pd.MultiIndex.from_frame(returns.iloc[first][list(AGENT)])
    wanted = played.isin(pd.MultiIndex.from_frame(agents[list(AGENT)]))
    return (
        returns.reset_index(drop=True)
        if wanted.all()
        else returns[wanted[number]].reset_index(drop=True)
    )


def samples(returns: pd.DataFrame) -> dict[tuple[str, str, str], pd.Series]:
    """Return the scores of each agent by `AGENT`, each indexed by `MDP`, in order of first
    appearance.

    Agents that have the same MDPs in the same order share one index, which is compared and checked
    once instead of once for each agent.
    """
    columns = [returns[c].to_numpy() for c in MDP]
    scores = returns["score"].to_numpy()
    number = returns.groupby(list(AGENT), sort=False).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    pieces = np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else []
    names = returns.iloc[[rows[0] for rows in pieces]][list(AGENT)]
    found: dict[tuple[str, str, str], pd.Series] = {}
    index, known = None, [column[:0] for column in columns]
    for key, rows in zip(names.itertuples(index=False, name=None), pieces, strict=True):
        mdps = [column[rows] for column in columns]
        if index is None or not all(map(np.array_equal, mdps, known)):
            index, known = pd.MultiIndex.from_arrays(mdps, names=list(MDP)), mdps
        found[key] = pd.Series(scores[rows], index, name="score")
    return found
