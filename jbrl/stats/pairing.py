"""Agents side by side: scores of one experiment as a table of MDPs by agents, the input of
comparisons and resampling.

The only bare matrix of `jbrl.stats`, made from a score table and kept with the names of its rows
and columns.
"""

import dataclasses
from collections.abc import Collection

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.stats.table import MDP, RETURNS, check_returns

WHO = ("algorithm", "parameters")


@dataclasses.dataclass(frozen=True)
class Paired:
    """Agents of one experiment that were played on the same environments, the best first (among
    equals, the first in the table).
    """

    experiment: str
    agents: pd.DataFrame  # columns `WHO`, one row per agent
    mdps: pd.MultiIndex  # [N], levels `jbrl.stats.table.MDP`
    scores: np.ndarray  # [N, n] float64
    means: np.ndarray  # [n] float64, not increasing

    def take(self, rows: list[int] | np.ndarray) -> "Paired":
        """Return only the agents with these numbers, in this order."""
        rows = np.asarray(rows, np.int64)
        agents = self.agents.iloc[rows].reset_index(drop=True)
        return dataclasses.replace(
            self, agents=agents, scores=self.scores[:, rows], means=self.means[rows]
        )

    def champions(self) -> "Paired":
        """Return the best agent of each algorithm."""
        return self.take(np.flatnonzero(~self.agents["algorithm"].duplicated().to_numpy()))

    def name(self, row: int) -> str:
        """Return an agent's name for messages."""
        return f"{self.agents['algorithm'].iloc[row]} {self.agents['parameters'].iloc[row]}"


def pair(returns: pd.DataFrame, *, without: Collection[str] = ()) -> list[Paired]:
    """Return the experiments of a score table, in order of first appearance, each with its agents
    side by side.

    Args:
      returns: score table, columns `jbrl.stats.table.RETURNS`.
      without: algorithms to leave out: oracles, which compete with none.

    Raises:
      JbrlError: no scores, a score that is not finite, an agent with two scores for one MDP, or
        agents of an experiment that were not played on the same environments.
    """
    returns = check_returns(returns, RETURNS)
    returns = returns[~returns["algorithm"].isin(without)]
    if returns.empty:
        raise JbrlError(
            "comparison: no scores: expected the returns of at least one agent that is no oracle"
        )
    return [_pair(str(name), rows) for name, rows in returns.groupby("experiment", sort=False)]


def _pair(experiment: str, returns: pd.DataFrame) -> Paired:
    twice = returns.duplicated([*WHO, *MDP])
    if twice.any():
        row = returns[twice].iloc[0]
        raise JbrlError(
            f"comparison: experiment {experiment}: {row['algorithm']} {row['parameters']} has two "
            f"scores for seed {row['seed']}, unit {row['unit']}: expected one per environment"
        )
    who = returns[list(WHO)].drop_duplicates(ignore_index=True)
    table = returns.pivot(index=list(MDP), columns=list(WHO), values="score")[
        list(who.itertuples(index=False, name=None))
    ]
    _check_complete(experiment, who, table)
    scores = table.to_numpy(np.float64)
    means = scores.mean(axis=0)
    order = np.argsort(-means, kind="stable")
    return Paired(
        experiment,
        who.iloc[order].reset_index(drop=True),
        table.index,
        scores[:, order],
        means[order],
    )


def _check_complete(experiment: str, who: pd.DataFrame, table: pd.DataFrame) -> None:
    """Refuse agents that lack an MDP which another one has."""
    known = table.notna().to_numpy()
    if known.all():
        return
    played = known.sum(axis=0)
    fewest = int(played.argmin())
    lacking = table.index[~known[:, fewest]]
    other = int(known[~known[:, fewest]][0].argmax())  # played the first MDP that is lacking
    names = [
        f"{who['algorithm'].iloc[i]} {who['parameters'].iloc[i]} ({played[i]} environments)"
        for i in (fewest, other)
    ]
    first = ", ".join(f"{level} {value}" for level, value in zip(MDP, lacking[0], strict=True))
    raise JbrlError(
        f"comparison: experiment {experiment}: {names[0]} and {names[1]} were not played on the "
        f"same environments, so they cannot be paired: {len(lacking)} of those played by others "
        f"are missing from the former, the first is {first}; play all agents with the same seed "
        "and n_environments, or compare them without pairing ('jbrl evaluate')"
    )
