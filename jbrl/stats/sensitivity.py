"""Sensitivity of the score of a complete algorithm to each parameter that it draws.

All parameters are drawn for each trial, so that the mean score of trials with like values of one
parameter is an average over all others. The trials are divided into groups by that parameter: equal
values, or quantiles where there are many, those of the distribution that it is drawn from. The
share of the variance of the score that the groups explain is

    1 - (n - 1) / (n - k) SSW / SST

for n trials in k groups, with the sums of squares within groups and in all: the adjusted R² of a
one-way analysis of variance, whose mean is 0 where the score does not depend on the parameter
(Kelley 1935; Cohen 1988, Statistical power analysis, section 8.2). Its interval is a jackknife over
the trials of the logarithm of what is not explained, whose tails are lighter, with as many degrees
of freedom as trials matter to it: where few scores differ, few do. It holds since groups
do not depend on the trials: with quantiles of these, a score that jumps at the edge of a group
moves the share by more than the jackknife sees. Whether there is any dependence is a permutation
test, corrected over the parameters of an algorithm by Holm's method.

A trial that has failed, because learning diverged, has no score (NaN). It is counted beside its
group, and means and shares are of the others.
"""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from jbrl.base.errors import JbrlError, check_count
from jbrl.stats.paired_bootstrap import bca_levels, both_means, draw_counts, pair
from jbrl.stats.paired_test import rejected
from jbrl.stats.table import check_level, half95, varied

MEASURES = ("tuned", "single", "sensitivity", "dimension")
ENDS = ("lower", "upper")
TUNING = (
    *("algorithm", "experiments", "settings", "parameters"),
    *(name for measure in MEASURES for name in (measure, *(f"{measure}_{e}" for e in ENDS))),
    "choose",
)
PERCENTILES = (5, 95)  # of all settings in an environment, which become 0 and 1
ENOUGH = 0.95  # of `tuned`
RESAMPLES = 2000
MOST_PARAMETERS = 10  # whose subsets are tried
DECIMALS, ROUNDING = 9, 1e-9  # of performance that are compared: equal settings tie everywhere


def tuning(
    returns: pd.DataFrame, *, resamples: int = RESAMPLES, level: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Return the gain of each algorithm that has several settings by those for each environment,
    beside one for all.

    Performance is the mean score of a setting in an environment, normalised so that the 5th
    percentile of all settings of all algorithms there is 0 and the 95th is 1; it is not cut to that
    range.

    * tuned: the mean over environments of the best setting of each;
    * single: the best mean over environments of one setting;
    * sensitivity: the difference of the two;
    * dimension: the fewest parameters which, chosen for each environment while the others keep the
      values of the best single setting, reach 95 % of `tuned`.

    Intervals are bias-corrected percentiles of a bootstrap over the lifetimes of each environment,
    on which all settings are played: everything is normalised and chosen anew in each resample. The
    best of several means is luck, too: where settings are equally good, `tuned` and `sensitivity`
    are too high, by less the more lifetimes there are.

    Source: Adkins, Bowling and White 2024, A method for evaluating hyperparameter sensitivity in
    reinforcement learning, NeurIPS 37. They resample the runs of each setting by itself, and draw
    the dimension between whole numbers. Where an experiment has one lifetime, intervals are NaN.

    Args:
      returns: score table, columns `jbrl.base.schema.RETURNS`; parameters are JSON, and all
        settings were played on the same lifetimes of each experiment.
      resamples: of the bootstrap.
      level: of the intervals, between 0 and 1.
      seed: of the resamples.

    Returns:
      Columns `TUNING`, the most sensitive algorithm first: numbers of experiments, settings and
      parameters in which these differ, the measures with their intervals, and the parameters to
      `choose`, those of `dimension` with the highest performance.

    Raises:
      JbrlError: fewer than two experiments, no algorithm with several settings, settings that were
        not played in all experiments or not on the same lifetimes, or `level` not in (0, 1).
    """
    check_level(level)
    experiments = [] if returns.empty else pair(returns)
    agents = sorted({who for e in experiments for who in e.agents.itertuples(index=False)})
    agents = [(str(name), str(text)) for name, text in agents]
    names = list(dict.fromkeys(name for name, _ in agents))
    several = [name for name in names if sum(name == own for own, _ in agents) > 1]
    if len(experiments) < 2 or not several:
        raise JbrlError(
            f"tuning: {len(experiments)} experiments, and {len(several)} algorithms with several "
            "settings: expected at least two experiments with the same settings of an algorithm, "
            "such as epsilon = [0, 0.1]"
        )
    scores = []
    for number, one in enumerate(experiments):
        places = {(a, p): k for k, (a, p) in enumerate(one.agents.itertuples(index=False))}
        lacking = next((agent for agent in agents if agent not in places), None)
        if lacking:
            raise JbrlError(
                f"tuning: {lacking[0]} {lacking[1]} was not played in {one.experiment}: expected "
                "each setting in all experiments"
            )
        counts = draw_counts(len(one.mdps), resamples, seed, number)
        means = both_means(counts, one.scores[:, [places[agent] for agent in agents]])
        scores.append(normalised(means))
    performance = np.stack(scores, axis=1)
    rows = []
    for name in several:
        mine = [k for k, (own, _) in enumerate(agents) if own == name]
        rows.append((name, len(experiments), *_row(performance[..., mine], agents, mine, level)))
    table = pd.DataFrame(rows, columns=list(TUNING))
    if min(len(one.mdps) for one in experiments) < 2:  # drawn again and again, it tells nothing
        table[[f"{measure}_{end}" for measure in MEASURES for end in ENDS]] = np.nan
    return table.sort_values("sensitivity", ascending=False, kind="stable", ignore_index=True)


def normalised(means: np.ndarray) -> np.ndarray:
    """Return scores [..., n] of n settings such that `PERCENTILES` of them are 0 and 1; 0 where
    these are equal.
    """
    low, high = np.percentile(means, PERCENTILES, axis=-1)[..., None]
    width = high - low
    return np.where(width > 0, (means - low) / np.where(width > 0, width, 1.0), 0.0)


def _row(
    performance: np.ndarray, agents: list[tuple[str, str]], mine: list[int], level: float
) -> Iterator[object]:
    """Yield columns of an algorithm from `settings` on.

    Args:
      performance: [1 + R, E, H] float64, of all lifetimes and then in each resample.
    """
    texts = [agents[k][1] for k in mine]
    names = varied(texts) or []
    if not 0 < len(names) <= MOST_PARAMETERS:
        raise JbrlError(
            f"tuning: {agents[mine[0]][0]} differs in {len(names)} parameters: expected 1 to "
            f"{MOST_PARAMETERS}, written as a JSON object"
        )
    values = np.array(
        [[json.dumps(json.loads(text).get(name)) for name in names] for text in texts]
    )
    tuned = performance.max(-1).mean(-1)
    across = performance.mean(-2)
    single, best = across.max(-1), np.round(across, DECIMALS).argmax(-1)
    fewest, chosen = dimensions(performance, values, best)
    yield from (len(mine), len(names))
    tails = ((1 - level) / 2, (1 + level) / 2)
    for drawn in (tuned, single, tuned - single):
        yield from (drawn[0], *_corrected(drawn, tails))
    ends = np.quantile(fewest[1:], tails, method="inverted_cdf")
    yield from (int(fewest[0]), *(int(end) for end in ends))
    yield ", ".join(names[k] for k in chosen)


def _corrected(drawn: np.ndarray, tails: tuple[float, float]) -> np.ndarray:
    """Return quantiles of resamples [1:], shifted by how far their median is from what it stands
    for, [0] (Efron 1982).
    """
    point, spread = drawn[0], drawn[1:]
    below = ((spread < point).mean() + (spread <= point).mean()) / 2
    ends: np.ndarray = np.quantile(spread, bca_levels(below, len(spread), 0.0, np.array(tails)))
    return ends


def dimensions(
    performance: np.ndarray, values: np.ndarray, best: np.ndarray
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the fewest parameters that reach `ENOUGH` of the performance of all.

    Args:
      performance: [R, E, H] float64, of H settings.
      values: [H, P] of anything, of each parameter.
      best: [R] int, the single setting whose values the other parameters keep.

    Returns: [R] int64, and the parameters that are chosen in the first row, those of so many that
      perform best.
    """
    n_parameters = values.shape[1]
    tuned = performance.max(-1).mean(-1)
    enough = np.minimum(ENOUGH * tuned, tuned) - ROUNDING  # below 0, all of it
    fewest = np.full(len(best), n_parameters)
    chosen: tuple[int, ...] = tuple(range(n_parameters))
    for setting in np.unique(best):
        rows = np.flatnonzero(best == setting)
        for count in range(n_parameters):
            subsets = list(combinations(range(n_parameters), count))
            played = performance[rows]
            reach = np.stack([_tuned(played, values, setting, free) for free in subsets])
            reached = reach.max(0) >= enough[rows]
            fewest[rows[reached]] = count
            if rows[0] == 0 and reached[0]:
                chosen = subsets[int(np.round(reach[:, 0], DECIMALS).argmax())]
            rows = rows[~reached]
            if not len(rows):
                break
    return fewest, chosen


def _tuned(
    performance: np.ndarray, values: np.ndarray, setting: int, free: tuple[int, ...]
) -> np.ndarray:
    """Return the mean over environments of the best of the settings [R, E, H] whose values are
    those of one, but for the parameters that are `free`.
    """
    kept = [k for k in range(values.shape[1]) if k not in free]
    same = (values[:, kept] == values[setting, kept]).all(1)
    best: np.ndarray = performance[..., same].max(-1).mean(-1)
    return best


WHO = ("experiment", "algorithm", "parameters")
CURVES = (*WHO, "parameter", "low", "high", "middle", "n", "failed", "mean", "ci95")
SHARES = (
    *(*WHO, "parameter", "n", "failed", "groups"),
    *("share", "lower", "upper", "p_value", "significant"),
)
FEWEST = 10  # trials of a group, on average
RARE = 20  # scores other than the most common one, below which intervals are too narrow
GROUPS = 10
PERMUTATIONS = 2000
_BLOCK = 4_000_000  # numbers held at once


def curves(trials: pd.DataFrame, drawn: Sequence[str], groups: int = GROUPS) -> pd.DataFrame:
    """Return the mean score of the trials of each group.

    Args:
      trials: one row per trial: `WHO`, `score`, NaN where it has failed, and columns `drawn` of
        numbers or Booleans, NaN where an algorithm has no such parameter.
      groups: at most so many for one parameter; fewer where trials are few.

    Returns:
      Columns `CURVES`: the least and the greatest value of a group, its median, `n` trials with a
      score and those that have `failed`, the mean score and the half-width of its 95% interval
      (`factor95`).

    Raises:
      JbrlError: `groups` is below 2.
    """
    rows = []
    for who, name, values, scores, which in _parameters(trials, drawn, groups):
        for g in range(int(which.max()) + 1):
            inside, every = values[which == g], scores[which == g]
            own = every[~np.isnan(every)]
            n, mean = len(own), own.mean() if len(own) else np.nan
            ends = (inside.min(), inside.max(), float(np.median(inside)))
            rows.append((*who, name, *ends, n, len(every) - n, mean, half95(own)))
    return pd.DataFrame(rows, columns=list(CURVES))


def shares(
    trials: pd.DataFrame,
    drawn: Sequence[str],
    groups: int = GROUPS,
    *,
    permutations: int = PERMUTATIONS,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the share of the variance of the score that each parameter explains by itself.

    Args:
      trials, drawn, groups: as in `curves`.
      permutations: of the test, for each parameter.
      level: of the intervals and of the test, between 0 and 1.
      seed: of the permutations.

    Returns:
      Columns `SHARES`, in each algorithm the greatest share first: `share` with an interval, 0 at
      least; the p-value of no dependence; whether it is significant among the parameters of its
      algorithm and experiment. A share is NaN where all scores, or all
      values of trials with a score, are equal.

    Raises:
      JbrlError: `groups` is below 2, `permutations` below 1, or `level` not in (0, 1).
    """
    check_count("sensitivity: permutations", permutations)
    check_level(level)
    rows: list[tuple[Any, ...]] = []
    for who, name, values, every, _ in _parameters(trials, drawn, groups):
        scored = ~np.isnan(every)
        scores = every[scored]
        which = grouped(values[scored], groups, _distribution(who[2], name))
        share, low, high = share_explained(scores, which, level)
        p = permutation_p(scores, which, permutations, np.random.default_rng([seed, len(rows)]))
        counts = (len(scores), len(every) - len(scores), int(which.max()) + 1)
        rows.append((*who, name, *counts, share, low, high, p, False))
    table = pd.DataFrame(rows, columns=list(SHARES))
    for _, part in table.groupby(list(WHO), sort=False):
        verdicts = rejected(list(part["p_value"]), 1 - level, "holm")
        table.loc[part.index, "significant"] = verdicts
    order = [
        part.sort_values("share", ascending=False, kind="stable")
        for _, part in table.groupby(list(WHO), sort=False)
    ]
    return pd.concat(order, ignore_index=True) if order else table


def share_explained(
    scores: np.ndarray, which: np.ndarray, level: float = 0.95
) -> tuple[float, float, float]:
    """Return the adjusted share of the variance that groups explain, and its interval.

    Args:
      scores: [n] float64.
      which: [n] int, the group of each, from 0.

    Returns:
      The share, 0 at least, and both ends of a jackknife interval, cut to [0, 1]; NaN where all
      scores are equal, or all trials are in one group or each in its own.
    """
    n, sizes = len(scores), np.bincount(which)
    k = len(sizes)
    means = np.bincount(which, scores) / sizes
    inside, total = scores - means[which], scores - scores.mean()
    within, whole = float(inside @ inside), float(total @ total)
    if k < 2 or n <= k + 1 or not whole > 0:
        return np.nan, np.nan, np.nan
    left_over = (n - 1) / (n - k) * within / whole
    own = sizes[which]
    lone = own == 1  # without it, its group is gone
    less = within - np.where(lone, 0.0, own / np.maximum(own - 1, 1)) * inside**2
    rest = whole - n / (n - 1) * total**2
    left = k - lone
    with np.errstate(divide="ignore", invalid="ignore"):
        without = np.where(rest > 0, (n - 2) / (n - 1 - left) * less / rest, left_over)
    logarithmic = bool(without.min() > 0 and left_over > 0)  # else a group explains all
    values = np.log(without) if logarithmic else without
    squares = (values - values.mean()) ** 2
    error = np.sqrt((n - 1) / n * squares.sum())
    half = stdtrit(_degrees(squares), (1 + level) / 2) * error * np.array([1, -1])
    ends = 1 - (left_over * np.exp(half) if logarithmic else left_over + half)
    low, high = np.clip(ends, 0.0, 1.0)
    return max(0.0, float(1 - left_over)), float(low), float(high)


def _degrees(squares: np.ndarray) -> float:
    """Return the degrees of freedom of a sum of squares, 1 at least: one less than so many equal
    ones have the same relation of their sum to the sum of their squares.
    """
    fourth = float(squares @ squares)
    return max(1.0, float(squares.sum()) ** 2 / fourth - 1) if fourth > 0 else 1.0


def few_differ(trials: pd.DataFrame) -> Iterator[str]:
    """Describe algorithms of which fewer than `RARE` trials have another score than most."""
    for (experiment, algorithm, *_), rows in trials.groupby(list(WHO), sort=False):
        count = rows["score"].value_counts()
        n, most = int(count.sum()), int(count.max()) if len(count) else 0
        if 0 < n - most < RARE:
            yield (
                f"{experiment}/{algorithm}: {n - most} of {n:,} scores differ from "
                f"{count.idxmax():g}: intervals of shares are too narrow where fewer than {RARE} do"
            )


def permutation_p(
    scores: np.ndarray, which: np.ndarray, permutations: int, generator: np.random.Generator
) -> float:
    """Return the p-value of scores that do not depend on the group, by permutations.

    It is (1 + b)/(1 + `permutations`) for b permutations whose groups explain at least as much
    (Phipson and Smyth 2010); 1 where there is one group.
    """
    order = np.argsort(which, kind="stable")
    sizes = np.bincount(which)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    centred = scores - scores.mean()

    def between(rows: np.ndarray) -> np.ndarray:
        sums = np.add.reduceat(rows, starts, axis=-1)
        return (sums**2 / sizes).sum(-1)

    observed = float(between(centred[order]))
    allowance = 1e-12 * float(centred @ centred)  # of rounding: ties count
    at_least, step = 0, max(1, _BLOCK // len(scores))
    for start in range(0, permutations, step):
        rows = np.tile(centred, (min(step, permutations - start), 1))
        at_least += int((between(generator.permuted(rows, axis=1)) >= observed - allowance).sum())
    return (1 + at_least) / (1 + permutations)


def grouped(
    values: np.ndarray, groups: int, distribution: Mapping[str, Sequence[float]] | None = None
) -> np.ndarray:
    """Return the group of each value, [n] int from 0, ascending: equal values where there are at
    most `groups` of them, else quantiles, with equal values together.

    Args:
      distribution: that the values are drawn from, as a study gives it; None: quantiles are those
        of the values.
    """
    kinds, place = np.unique(values, return_inverse=True)
    groups = max(2, min(groups, len(values) // FEWEST))
    u = np.arange(1, groups) / groups
    edges = None if distribution is None else _quantiles(distribution, values, u)
    if edges is None and len(kinds) <= groups:
        return place
    if edges is None:
        edges = np.quantile(values, u, method="inverted_cdf")
    return np.unique(np.searchsorted(edges, values, side="left"), return_inverse=True)[1]


def _quantiles(
    distribution: Mapping[str, Sequence[float]], values: np.ndarray, u: np.ndarray
) -> np.ndarray | None:
    """Return quantiles `u` of a distribution, [k] float64; of integers the greatest in a group.
    None where it is none that studies know.
    """
    (kind, ends), *_ = distribution.items()
    if kind == "choice":
        edges = np.quantile(np.asarray(ends, np.float64), u, method="inverted_cdf")
        return np.maximum(edges, edges.astype(np.float32))  # as which it may be drawn
    if kind not in ("uniform", "log_uniform"):
        return None
    whole = bool((values % 1 == 0).all())
    low, high = float(ends[0]), float(ends[1]) + whole
    edges = low + u * (high - low) if kind == "uniform" else low * (high / low) ** u
    return np.ceil(edges) - 1 if whole else edges


def _distribution(parameters: Hashable, name: str) -> Mapping[str, Sequence[float]] | None:
    """Return the distribution of a parameter among the parameters of an algorithm, JSON."""
    try:
        value = json.loads(str(parameters)).get(name)
    except (ValueError, AttributeError):
        return None
    return value if isinstance(value, dict) and value else None


def _parameters(
    trials: pd.DataFrame, drawn: Sequence[str], groups: int
) -> Iterator[tuple[tuple[Hashable, ...], str, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield experiment, algorithm, setting, parameter, values, scores and groups, of algorithms
    with at least one score.
    """
    check_count("sensitivity: groups", groups, low=2)
    for who, rows in trials.groupby(list(WHO), sort=False):
        for name in drawn:
            values = pd.to_numeric(rows[name], errors="coerce").to_numpy(np.float64)
            known = np.isfinite(values)
            scores = rows["score"].to_numpy(np.float64)[known]
            if np.isfinite(scores).any():
                which = grouped(values[known], groups, _distribution(who[2], name))
                yield who, name, values[known], scores, which
