"""Stability of an order of agents: their ranks under a bootstrap of the MDPs.

Each resample draws the MDPs of an experiment anew and ranks all agents by their means: an agent's
ranks in all resamples are the ranks that the MDPs at hand leave open. Over several experiments
agents are ranked by the mean of their ranks. Experiments that play the same MDPs (those of one test
distribution, with the same seed) draw them together.

The agents stay those that were chosen on all MDPs. Ties share the better rank.

Source: ranks under resampling of cases: Goldstein and Spiegelhalter 1996, League tables and their
limitations, JRSS A 159(3); Hall and Miller 2009, Using the bootstrap to quantify the authority of
an empirical ranking, Annals of Statistics 37(6B).
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.base.schema import ALL
from jbrl.stats.paired_bootstrap import (
    COMPARISON,
    MEASURES,
    RESAMPLES,
    WHO,
    Paired,
    Resampled,
    common_agents,
    compare,
    draw_counts,
    resampled,
)
from jbrl.stats.table import check_level

BESIDE = tuple(f"best_{name}" for name in MEASURES)
RANKS = (
    *("experiment", *WHO, "n", "mean", "mean_rank"),
    *("rank", "rank_lower", "rank_upper", "first", *BESIDE),
)
PAIRS = ("experiment", *COMPARISON)
ORDERS = (
    *("experiment", "agents", "n", "resamples"),
    *("tau", "tau_lower", "tau_upper", "same_first", "same_order"),
)
_ROWS = 256  # resamples compared at once: these fit into a cache


@dataclasses.dataclass(frozen=True)
class Stability:
    """The order of agents in one experiment or over several, and in resamples."""

    experiment: str
    parts: tuple[Resampled, ...]  # the same agents in the same order
    mean_ranks: np.ndarray  # [n] float64, over the parts
    ranks: np.ndarray  # [n] int64, on all MDPs
    redrawn: np.ndarray  # [R, n] int64, in resamples

    @property
    def n(self) -> int:
        """MDPs of all parts."""
        return sum(len(part.paired.mdps) for part in self.parts)

    @property
    def single(self) -> bool:
        """True if a part has one MDP, which tells nothing when it is drawn again and again."""
        return min(len(part.paired.mdps) for part in self.parts) < 2

    def shares(self) -> np.ndarray:
        """Return the share of resamples in which each agent had each rank, [n, n] float64; rows are
        agents and add up to 1.
        """
        n = len(self.ranks)
        places = (self.redrawn - 1 + n * np.arange(n)).ravel()
        return np.bincount(places, minlength=n * n).reshape(n, n) / len(self.redrawn)


def rank_stability(parts: Sequence[Resampled], experiment: str | None = None) -> Stability:
    """Return ranks of the agents of one experiment, or by their mean rank over several with the
    same agents, in all resamples.

    Raises:
      JbrlError: there is only one agent.
    """
    name = experiment or parts[0].paired.experiment
    if len(parts[0].paired.agents) < 2:
        raise JbrlError(
            f"rank: experiment {name}: {parts[0].paired.name(0)} is the only agent: expected at "
            "least two to compare"
        )
    total = np.sum([ranks_of(-part.means) for part in parts], axis=0)
    ranks = ranks_of(total)
    return Stability(name, tuple(parts), total[0] / len(parts), ranks[0], ranks[1:])


def resample_all(
    experiments: Sequence[Paired],
    *,
    tests: Mapping[str, str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Resampled]:
    """Draw resamples of several experiments.

    Args:
      tests: the test distribution of each experiment, by its name. Experiments with the same one
        and the same MDPs are resampled together; without, each by itself.
    """
    drawn: dict[tuple[Any, ...], tuple[np.ndarray, int]] = {}
    parts = []
    for paired in experiments:
        test = (tests or {}).get(paired.experiment, ("alone", paired.experiment))
        key = (test, tuple(paired.mdps))
        if key not in drawn:
            drawn[key] = draw_counts(len(paired.mdps), resamples, seed, len(drawn)), len(drawn)
        parts.append(resampled(paired, *drawn[key]))
    return parts


def overall(parts: Sequence[Resampled], by: Sequence[str] = WHO) -> Stability:
    """Return ranks over all experiments, of the agents that occur in each.

    Args:
      by: columns of `WHO` that distinguish agents: "algorithm" alone where each part has one agent
        of an algorithm.

    Raises:
      JbrlError: fewer than two agents occur in every experiment.
    """
    agents = [part.paired.agents[list(by)].itertuples(index=False, name=None) for part in parts]
    places = [{name: place for place, name in enumerate(mine)} for mine in agents]
    common = [name for name in places[0] if all(name in others for others in places)]
    if len(common) < 2:
        raise JbrlError(
            f"rank: {len(common)} agents have scores in all {len(parts)} experiments: expected at "
            "least two to compare"
        )
    rows = [[place[name] for name in common] for place in places]
    aligned = [part.take(mine) for part, mine in zip(parts, rows, strict=True)]
    return rank_stability(aligned, ALL)


def ranks_of(costs: np.ndarray) -> np.ndarray:
    """Return ranks of each row, [R, n] int64: 1 + the number of agents with a smaller cost."""
    order = np.argsort(costs, axis=1)
    ordered = np.take_along_axis(costs, order, axis=1)
    place = np.broadcast_to(np.arange(1, costs.shape[1] + 1), costs.shape)
    new = np.concatenate([np.ones((len(costs), 1), bool), ordered[:, 1:] > ordered[:, :-1]], axis=1)
    ranks = np.empty(costs.shape, np.int64)
    np.put_along_axis(ranks, order, np.maximum.accumulate(np.where(new, place, 1), axis=1), axis=1)
    return ranks


def kendall(ranks: np.ndarray, resampled: np.ndarray) -> np.ndarray:
    """Return Kendall's tau-b of each row of `resampled` [R, n] with `ranks` [n], float64; NaN where
    either has only ties.
    """
    order = np.argsort(ranks, kind="stable")
    parts = [
        _kendall(ranks[order], resampled[start : start + _ROWS, order])
        for start in range(0, len(resampled), _ROWS)
    ]
    return np.concatenate(parts)


def _kendall(ranks: np.ndarray, resampled: np.ndarray) -> np.ndarray:
    """Return the same for few rows; `ranks` do not decrease."""
    # [n, R], so that rows are compared as a whole
    n, columns = len(ranks), np.ascontiguousarray(resampled.T, np.int16)
    agreement, tied = np.zeros((2, columns.shape[1]), np.int64)
    for i in range(n - 1):
        here, later = columns[i], columns[i + 1 :]
        below = columns[np.searchsorted(ranks, ranks[i], side="right") :]  # worse on all MDPs
        agreement += _count(below > here) - _count(below < here)
        tied += _count(later == here)
    alike = np.unique(ranks, return_counts=True)[1]
    pairs = n * (n - 1) // 2
    norm = np.sqrt(float(pairs - (alike * (alike - 1) // 2).sum()) * (pairs - tied))
    return np.divide(agreement, norm, out=np.full(len(norm), np.nan), where=norm > 0)


def _count(which: np.ndarray) -> np.ndarray:
    return np.add.reduce(which, axis=0, dtype=np.int16)


def ranks_table(orders: Sequence[Stability], level: float = 0.95) -> pd.DataFrame:
    """Tabulate agents by rank.

    Returns:
      Columns `RANKS`: `mean` score (NaN over several experiments); `mean_rank` over the
      experiments; the resampled ranks lie from `rank_lower` to `rank_upper` with a share of at
      least `level`; `first` is the share of resamples in which no other agent is better; columns
      `best_…` compare the first agent with this one, as `compare` does (NaN for the first). Where
      an experiment has one MDP, all ranks are open and `first` is NaN.
    """
    check_level(level)
    return pd.concat([_ranks_table(one, level) for one in orders], ignore_index=True)


def pairs_table(orders: Sequence[Stability], level: float = 0.95) -> pd.DataFrame:
    """Tabulate all pairs of agents, the one of better rank first: columns `PAIRS`."""
    check_level(level)
    tables = []
    for one in orders:
        order = [int(k) for k in np.argsort(one.ranks, kind="stable")]
        pairs = list(itertools.combinations(order, 2))
        tables.append(compare(one.parts, pairs, level).assign(experiment=one.experiment))
    return pd.concat(tables, ignore_index=True)[list(PAIRS)]


def orders_table(orders: Sequence[Stability], level: float = 0.95) -> pd.DataFrame:
    """Tabulate how much of each order remains in resamples.

    Returns:
      Columns `ORDERS`, one row each: `tau` is the median of Kendall's tau-b with the order on all
      MDPs, which lies from `tau_lower` to `tau_upper` with a share `level` of the resamples;
      `same_first` and `same_order` are the shares of resamples with the same agents on rank 1 and
      with all ranks the same. All of these are NaN where an experiment has one MDP.
    """
    check_level(level)
    tail = (1 - level) / 2
    rows = []
    for one in orders:
        lower, middle, upper = np.quantile(kendall(one.ranks, one.redrawn), [tail, 0.5, 1 - tail])
        first = ((one.redrawn == 1) == (one.ranks == 1)).all(axis=1).mean()
        order = (one.redrawn == one.ranks).all(axis=1).mean()
        counts = (one.experiment, len(one.ranks), one.n, len(one.redrawn))
        told = (middle, lower, upper, float(first), float(order))
        rows.append((*counts, *((np.nan,) * len(told) if one.single else told)))
    return pd.DataFrame(rows, columns=list(ORDERS))


def _ranks_table(one: Stability, level: float) -> pd.DataFrame:
    tail = (1 - level) / 2
    lower, upper = np.quantile(one.redrawn, [tail, 1 - tail], axis=0, method="inverted_cdf")
    first = (one.redrawn == 1).mean(axis=0)
    if one.single:
        lower, upper = np.ones_like(one.ranks), np.full_like(one.ranks, len(one.ranks))
        first = np.full(len(one.ranks), np.nan)
    order = np.argsort(one.ranks, kind="stable")
    beside = compare(one.parts, [(int(order[0]), int(k)) for k in order[1:]], level)
    table = common_agents(one.parts).assign(
        experiment=one.experiment,
        n=one.n,
        mean=one.parts[0].paired.means if len(one.parts) == 1 else np.nan,
        mean_rank=one.mean_ranks,
        rank=one.ranks,
        rank_lower=lower.astype(np.int64),
        rank_upper=upper.astype(np.int64),
        first=first,
    )
    beside = beside[list(MEASURES)].set_axis(list(BESIDE), axis=1).set_axis(order[1:], axis=0)
    return table.join(beside).iloc[order][list(RANKS)]
