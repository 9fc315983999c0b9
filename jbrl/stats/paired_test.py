"""Paired Z-test of two agents in the same environments, and its consequences: the best agent, those
tied with it, and scores as a fraction of the way from one agent to another.

The MDPs differ far more than the agents do. Taking differences MDP by MDP removes what the MDPs
have in common, which is why a test can distinguish two agents whose intervals overlap.

Source: Castronovo et al. 2016, section 3.2 and supporting file S3.
"""

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, check_choice, shown
from jbrl.base.schema import AGENT, RETURNS
from jbrl.stats.table import check_level, check_returns, half95, samples, summarise

Correction = Literal["none", "holm"]


def rejected(
    p_values: Sequence[float], alpha: float, correction: Correction = "none"
) -> list[bool]:
    """Return the hypotheses rejected at level `alpha`: each by itself, or in Holm's order, from the
    least p-value to the first that is not rejected.
    """
    if correction == "none":
        return [p <= alpha for p in p_values]
    result, standing = [False] * len(p_values), False
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        standing = standing or p_values[index] > alpha / (len(p_values) - place)
        result[index] = not standing
    return result


Sided = Literal["one", "two"]


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """Outcome of a test of `a` against `b`.

    `different` says that the hypothesis is rejected: one-sided, that `a` is no better than `b`;
    two-sided, that they are equal.
    """

    n: int  # MDPs
    difference: float  # mean of a - b
    standard_error: float  # of that mean; NaN for one MDP
    z: float  # difference / standard_error; 0 for identical samples, NaN for one MDP
    p_value: float
    critical: float  # value of z from which on the hypothesis is rejected
    different: bool


def critical_value(sided: Sided = "two", level: float = 0.95) -> float:
    """Return the value that Z must reach: 1.645 (one-sided) or 1.960 (two-sided) at level 0.95.

    Raises:
      JbrlError: `sided` is neither "one" nor "two", or `level` is not in (0, 1).
    """
    check_choice("paired test: sided", sided, ("one", "two"))
    check_level(level)
    return NormalDist().inv_cdf(level if sided == "one" else (1 + level) / 2)


def paired_z(
    a: pd.Series | Sequence[float],
    b: pd.Series | Sequence[float],
    *,
    sided: Sided = "two",
    level: float = 0.95,
) -> PairedTest:
    """Test whether agent `a` is different from (two-sided), or better than (one-sided), agent `b`.

    Z = mean(d) / (s_d / √N) with d_i = a_i - b_i on MDP i and s_d having N - 1 in its denominator.
    Identical samples give Z = 0 and are never different. A constant difference gives Z = ±∞. One
    MDP allows no test: Z is NaN and nothing is called different, unless the samples are identical.

    Args:
      a: scores of the first agent. The index of a Series says which MDP a score belongs to; plain
        sequences are paired by position.
      b: the same for the second agent; the order of its MDPs does not matter.
      sided: "one" or "two".
      level: confidence level.

    Raises:
      JbrlError: the samples do not belong to the same MDPs, are empty or hold a score that is not
        finite; bad `sided` or `level`.

    >>> jbrl.paired_z([3.0, 5.0, 4.0, 6.0], [2.0, 3.0, 3.5, 4.5]).different
    True
    """
    critical = critical_value(sided, level)
    first, second = _series(a, "the first sample"), _series(b, "the second sample")
    _check_same_mdps(first, second)
    if not second.index.equals(first.index):
        second = second.reindex(first.index)
    d = first.to_numpy() - second.to_numpy()
    n, difference = len(d), float(d.mean())
    error = float(d.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    if not d.any():
        z = 0.0
    elif error == 0:
        z = math.copysign(math.inf, difference)
    else:
        z = difference / error
    reached = z if sided == "one" else abs(z)
    # erfc keeps small values, 1 - erf does not
    p_value = math.erfc(reached / math.sqrt(2)) * (0.5 if sided == "one" else 1.0)
    return PairedTest(n, difference, error, z, p_value, critical, bool(reached >= critical))


def rank(means: pd.DataFrame) -> pd.DataFrame:
    """Return agents of one experiment in decreasing order of mean, with the flags
    `best_of_algorithm` and `best`.

    Among equal means the agent that comes first in the table is the better one.

    Args:
      means: one row per agent with the columns `algorithm` and `mean`, without oracles.
    """
    ranked = means.sort_values("mean", ascending=False, kind="stable", ignore_index=True)
    return ranked.assign(
        best_of_algorithm=~ranked["algorithm"].duplicated(), best=np.arange(len(ranked)) == 0
    )


def best_and_tied(returns: pd.DataFrame) -> pd.DataFrame:
    """Test each agent of one experiment, in the order of `rank`, against the best: whether that is
    better (`paired_z`, one-sided, 95%).

    Every agent is tested, not only the best of its algorithm, and a difference does not stop the
    scan (the published program's does).

    Args:
      returns: score table of one experiment, without oracles; columns
        `jbrl.base.schema.RETURNS`.

    Returns:
      One row per agent: the columns of `summarise` and `rank`, then `tied` (bool; the best is not
      tied with itself), `difference` (mean of agent - best), `standard_error`, `z` (of best against
      agent, so not negative), `p_value`.

    Raises:
      JbrlError: several experiments, agents that were not played on the same environments, or an
        error of `paired_z`.
    """
    returns = check_returns(returns, RETURNS)
    experiments = returns["experiment"].unique()
    if len(experiments) > 1:
        raise JbrlError(
            f"paired test: {len(experiments)} experiments ({', '.join(map(str, experiments))}): "
            "expected one at a time"
        )
    ranked = rank(summarise(returns))
    scores = {key: sample.rename(f"{key[1]} {key[2]}") for key, sample in samples(returns).items()}
    keys = list(ranked[list(AGENT)].itertuples(index=False, name=None))
    tests = [paired_z(scores[keys[0]], scores[key], sided="one") for key in keys]
    measures = pd.DataFrame(list(map(vars, tests)), index=ranked.index)
    return ranked.assign(
        tied=~measures["different"] & ~ranked["best"],
        difference=0.0 - measures["difference"],
        **measures[["standard_error", "z", "p_value"]],
    )


def _series(values: pd.Series | Sequence[float], name: str) -> pd.Series:
    try:
        series = values if isinstance(values, pd.Series) else pd.Series(np.asarray(values))
        series = series.astype(np.float64)
    except (TypeError, ValueError):
        raise JbrlError(
            f"paired test: {name} = {shown(values)}: expected one number per environment"
        ) from None
    series = series.rename(name if series.name is None else str(series.name))
    if series.empty:
        raise JbrlError(f"paired test: {series.name} is empty: expected one score per environment")
    if not np.isfinite(series).all():
        bad = series[~np.isfinite(series)]
        raise JbrlError(
            f"paired test: {series.name}: score {bad.iloc[0]} of {_mdp(bad.index)}: expected a "
            "finite number"
        )
    if not series.index.is_unique:
        twice = _mdp(series.index[series.index.duplicated()])
        raise JbrlError(
            f"paired test: {series.name}: {twice} occurs twice: expected one score per environment"
        )
    return series


def _check_same_mdps(a: pd.Series, b: pd.Series) -> None:
    # the former is much faster
    if a.index.equals(b.index) or (len(a) == len(b) and a.index.isin(b.index).all()):
        return
    lone, other = (a, b) if not a.index.isin(b.index).all() else (b, a)
    only = lone.index[~lone.index.isin(other.index)]
    raise JbrlError(
        f"paired test: {a.name} ({len(a)} environments) and {b.name} ({len(b)} environments) were "
        f"not played on the same environments: {len(only)} of {lone.name} are missing from "
        f"{other.name}, the first is {_mdp(only)}; play both with the same seed and n_environments"
    )


def _mdp(index: pd.Index) -> str:
    """Describe the first MDP of an index."""
    first = index[0] if isinstance(index, pd.MultiIndex) else (index[0],)
    names = [name or "environment" for name in index.names]
    return ", ".join(f"{name} {value}" for name, value in zip(names, first, strict=True))


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
      returns: score table of one experiment, columns `jbrl.base.schema.RETURNS`.
      zero, one: the agents that have the fractions 0 and 1.

    Returns: one row per agent, `zero` and `one` included, in order of first appearance: algorithm,
      parameters, n, fraction, ci95.

    Raises:
      JbrlError: `zero` or `one` has no returns, agents were not played on the same environments, or
        `one` is not significantly better than `zero` (paired Z-test, one-sided, 95%).
    """
    returns = check_returns(returns, RETURNS)
    of_agents = {(a, p): sample for (_, a, p), sample in samples(returns).items()}
    for who in (zero, one):
        if who not in of_agents:
            raise JbrlError(
                f"fractions: no returns of {who[0]} {who[1]}: expected one for each environment"
            )
    test = paired_z(of_agents[one].rename(one[0]), of_agents[zero].rename(zero[0]), sided="one")
    if not test.different:
        raise JbrlError(
            f"{one[0]} is not significantly better than {zero[0]} (Z = {test.z:.2f} over {test.n} "
            "environments): expected a distance to take fractions of"
        )
    way = of_agents[one] - of_agents[zero]
    rows = []
    for (algorithm, parameters), sample in of_agents.items():
        same_mdps = sample.index.isin(way.index).all() and len(sample) == len(way)
        if not same_mdps:
            raise JbrlError(
                f"fractions: {algorithm} {parameters} and {zero[0]} were not played on the same "
                "environments"
            )
        ratio = _ratio((sample - of_agents[zero]).reindex(way.index), way)
        rows.append((algorithm, parameters, len(sample), *ratio))
    return pd.DataFrame(rows, columns=[*AGENT[1:], "n", "fraction", "ci95"])


def _ratio(part: pd.Series, whole: pd.Series) -> tuple[float, float]:
    """Return mean(part) / mean(whole) and the half-width of its interval; NaN for a single pair."""
    fraction = part.mean() / whole.mean()
    rest = ((part - fraction * whole) / whole.mean()).to_numpy(np.float64)
    return float(fraction), half95(rest)
