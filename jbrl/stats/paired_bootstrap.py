"""Agents side by side on the same MDPs, bootstrap resamples of these, and differences of agents.

A resample of N MDPs is how often each of them was drawn, so that the means of all agents are one
matrix product. Sums are exact: scores are first rounded to multiples of a power of two, some 2^-43
of the greatest of them, so few bits that every sum of N fits into a float64. Agents that tie
therefore tie in every resample, and results do not depend on the order in which a library adds.

With d_i = a_i - b_i on MDP i:

* the difference, mean(d), in the unit of the score;
* the probability of improvement, P(a_i > b_i) + P(a_i = b_i)/2: how often a is better on an MDP
  that both play. It is the probability of superiority of dependent samples, to be distinguished
  from P(a_i > b_k) of two different MDPs, which `jbrl.stats.evaluation.metrics` has;
* d_z = mean(d)/s_d, the difference in units of its own spread over the MDPs: Z/√N, hence free of
  the number of MDPs.

Over several experiments, which have no common unit of the score, only the mean probability of
improvement is defined. Intervals are BCa bootstraps over the environments drawn; that of the
difference is studentised where there are fewer than 100.

Sources: Efron 1987, Better bootstrap confidence intervals, JASA 82(397), its acceleration for
several samples from Davison and Hinkley 1997, section 5.4; Grissom and Kim 2012, Effect sizes for
research, chapter 7 (dependent samples); Cohen 1988, Statistical power analysis, section 2.3.5
(d_z); Agarwal et al. 2021 (probability of improvement as a summary of benchmarks).
"""

import dataclasses
import math
from collections.abc import Collection, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, stdtrit

from jbrl.base.errors import JbrlError, check_count
from jbrl.base.schema import MDP, RETURNS
from jbrl.stats.table import FEW, check_level, check_returns

WHO = ("algorithm", "parameters")


@dataclasses.dataclass(frozen=True)
class Paired:
    """Agents of one experiment that were played on the same environments, the best first (among
    equals, the first in the table).
    """

    experiment: str
    agents: pd.DataFrame  # columns `WHO`, one row per agent
    mdps: pd.MultiIndex  # [N], levels `jbrl.base.schema.MDP`
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
      returns: score table, columns `jbrl.base.schema.RETURNS`.
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
    table = returns.pivot(index=list(MDP), columns=list(WHO), values="score")
    table = table[list(who.itertuples(index=False, name=None))]
    _check_complete(experiment, who, table)
    scores = table.to_numpy(np.float64)
    means = scores.mean(axis=0)
    order = np.argsort(-means, kind="stable")
    agents = who.iloc[order].reset_index(drop=True)
    return Paired(experiment, agents, table.index, scores[:, order], means[order])


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


RESAMPLES = 10_000
_BLOCK = 4_000_000  # numbers held at once
_GREATEST = 4 * 10**9  # bytes of counts


def draw_counts(n: int, resamples: int, seed: int, stream: int = 0) -> np.ndarray:
    """Draw how often each of `n` MDPs occurs in each resample, [resamples, n]; each row adds up to
    `n`.

    uint16, and uint8 from 65,536 MDPs on, to save memory: one of so many occurs more than 255 times
    with a probability of 10^-507.

    Args:
      stream: different numbers give independent draws of the same seed.

    Raises:
      JbrlError: `resamples` is not an integer from 1, `seed` not one from 0, or they take more than
        4 GB.
    """
    for name, value, low in (("resamples", resamples, 1), ("seed", seed, 0)):
        check_count(f"bootstrap: {name}", value, 2**63 - 1, low)
    dtype = np.uint16 if n <= np.iinfo(np.uint16).max else np.uint8
    if resamples * n * np.dtype(dtype).itemsize > _GREATEST:
        accepted = _GREATEST // (n * np.dtype(dtype).itemsize)
        raise JbrlError(
            f"bootstrap: {resamples} resamples of {n} environments: expected at most {accepted}, "
            f"which take {_GREATEST // 10**9} GB"
        )
    generator = np.random.default_rng([seed, stream])
    counts = np.empty((resamples, n), dtype)
    step = max(1, _BLOCK // n)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = generator.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        block = np.bincount(drawn.ravel(), minlength=rows * n)
        counts[start : start + rows] = block.reshape(rows, n)
    return counts


def resampled_means(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the mean of each column of `values` [N, n] in each resample, [R, n] float64: the sums
    are exact.
    """
    count, n = counts.shape
    whole, unit = whole_numbers(values)
    means = np.empty((count, values.shape[1]))
    step = max(1, _BLOCK // max(n, values.shape[1]))
    for start in range(0, count, step):
        means[start : start + step] = counts[start : start + step].astype(np.float64) @ whole
    return means * (unit / n)


def whole_numbers(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Return `values` [N, n] as whole numbers (in float64) times a unit, such that sums of N of
    them are exact.
    """
    greatest = float(np.abs(values).max(initial=0.0))
    bits = 52 - math.ceil(math.log2(max(len(values), 2)))
    unit = math.ldexp(1.0, max(math.frexp(greatest)[1] - bits, -1000)) if greatest else 1.0
    return np.rint(values / unit), unit


def bca_intervals(
    means: np.ndarray, strata: Sequence[np.ndarray], level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return bias-corrected and accelerated intervals of means, or of sums of means, lower and
    upper ends [n] each.

    One that is the same in all resamples, as the mean of equal values is, has an interval
    without width.

    Args:
      means: on all MDPs and then in each resample, [1 + R, n], by the same exact sums.
      strata: what they are sums of means of, [N, n] each, drawn independently of each other.
    """
    check_level(level)
    point, spread = means[0], np.sort(means[1:], axis=0)
    count = len(spread)
    below = ((spread < point).sum(axis=0) + (spread == point).sum(axis=0) / 2) / count
    influences = [(values - values.mean(axis=0)) / len(values) for values in strata]
    squares = np.sum([(part**2).sum(axis=0) for part in influences], axis=0)
    cubes = np.sum([(part**3).sum(axis=0) for part in influences], axis=0)
    acceleration = cubes / np.where(squares > 0, squares, 1.0) ** 1.5 / 6
    low, high = (
        _sorted_quantile(spread, bca_levels(below, count, acceleration, tail))
        for tail in ((1 - level) / 2, (1 + level) / 2)
    )
    return low, high


def bca_levels(
    below: np.ndarray, count: int, acceleration: np.ndarray | float, levels: np.ndarray | float
) -> np.ndarray:
    """Return levels of quantiles corrected for bias and acceleration, of the shape of all together.

    Args:
      below: share of the `count` resamples below the estimate, ties counted half.
    """
    smallest = 0.5 / count  # of no resample, or all of them: to the precision of their number
    bias = ndtri(np.clip(below, smallest, 1 - smallest))
    shifted = bias + ndtri(levels)
    # last bits differ by processor
    return ndtr(bias + shifted / (1 - acceleration * shifted)).round(12)


def studentised_intervals(
    counts: np.ndarray, values: np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return studentised bootstrap intervals (bootstrap-t) of the means of `values` [N, P], ends
    [P] each.

    The mean in each resample is measured in standard errors of that resample, so that the interval
    follows the skewness of the scores as well as the uncertainty of their spread: for few scores it
    covers more often than BCa. Where few different scores make resamples coarse it covers less
    often than Student's interval, so each end is the outer one of the two. Resamples without spread
    carry no information and are left out. Equal values have an interval without width.

    Args:
      counts: [R, N], see `draw_counts`.

    Source: Efron and Tibshirani 1993, An introduction to the bootstrap, section 12.5.
    """
    check_level(level)
    n = len(values)
    centred = values - values.mean(axis=0)
    point = values.mean(axis=0)
    if n < 2:
        return np.full_like(point, np.nan), np.full_like(point, np.nan)
    error = centred.std(axis=0, ddof=1) / np.sqrt(n)
    ends = np.tile(point, (2, 1))
    tails = [(1 + level) / 2, (1 - level) / 2]
    student = float(stdtrit(n - 1, tails[0]))
    times = counts.astype(np.float64) / n
    for place in np.flatnonzero(error > 0):
        column = centred[:, place] / error[place]
        drawn = times @ np.stack([column, column**2], axis=1)
        variance = drawn[:, 1] - drawn[:, 0] ** 2
        told = variance > 1e-12 * drawn[:, 1]  # more than rounding leaves of equal values
        t = drawn[told, 0] / np.sqrt(variance[told] / (n - 1))
        wide = np.quantile(t, tails) if told.any() else np.zeros(2)
        ends[:, place] -= error[place] * np.array([max(wide[0], student), min(wide[1], -student)])
    return ends[0], ends[1]


def _sorted_quantile(rows: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return one quantile of each sorted column, linear between order statistics as
    `numpy.quantile` has it.
    """
    place = levels * (len(rows) - 1)
    low = np.floor(place).astype(np.int64).clip(0, len(rows) - 1)
    high = np.minimum(low + 1, len(rows) - 1)
    column = np.arange(rows.shape[1])
    return rows[low, column] + (place - low) * (rows[high, column] - rows[low, column])


MEASURES = (
    *("difference", "difference_lower", "difference_upper"),
    *("improvement", "improvement_lower", "improvement_upper", "effect_size"),
)
OTHER = ("other", "other_parameters")
COMPARISON = (*WHO, *OTHER, "n", *MEASURES)
_PAIRS = 100  # compared at once


@dataclasses.dataclass(frozen=True)
class Resampled:
    """One experiment and resamples of its MDPs."""

    paired: Paired
    counts: np.ndarray  # [R, N] unsigned, see `draw_counts`
    means: np.ndarray  # [1 + R, n] float64, of each agent on all MDPs and then in each resample
    stream: int = 0  # experiments with the same number have the same MDPs and the same counts

    def take(self, rows: list[int]) -> "Resampled":
        """Return only the agents with these numbers, in this order."""
        return dataclasses.replace(self, paired=self.paired.take(rows), means=self.means[:, rows])


def resampled(paired: Paired, counts: np.ndarray, stream: int = 0) -> Resampled:
    """Return the agents of an experiment in resamples of its MDPs, from `draw_counts`."""
    return Resampled(paired, counts, both_means(counts, paired.scores), stream)


def compare(
    parts: Sequence[Resampled], pairs: Sequence[tuple[int, int]] | None = None, level: float = 0.95
) -> pd.DataFrame:
    """Compare agents two by two, in one experiment or over several with the same agents in the
    same order.

    Args:
      pairs: numbers of the agents; default: all pairs in order.
      level: of the intervals, each by itself.

    Returns:
      One row per pair, columns `COMPARISON`; `n` is the number of MDPs of all experiments.
      `effect_size` is NaN for one MDP or a constant difference, 0 for identical scores. Intervals
      are NaN where an experiment has one MDP. Over several experiments the columns of the
      difference and `effect_size` are NaN.

    Raises:
      JbrlError: `level` is not in (0, 1).
    """
    if pairs is None:
        pairs = list(combinations(range(len(parts[0].paired.agents)), 2))
    if not pairs:
        return pd.DataFrame(columns=list(COMPARISON))
    starts = range(0, len(pairs), _PAIRS)
    measures = [_measures(parts, pairs[start : start + _PAIRS], level) for start in starts]
    first, second = np.array(pairs, np.int64).T
    agents = common_agents(parts)
    who = agents.iloc[first].reset_index(drop=True)
    other = agents.iloc[second].reset_index(drop=True).set_axis(list(OTHER), axis=1)
    table = pd.concat([who, other, pd.concat(measures, ignore_index=True)], axis=1)
    return table.assign(n=sum(len(part.paired.mdps) for part in parts))[list(COMPARISON)]


def common_agents(parts: Sequence[Resampled]) -> pd.DataFrame:
    """Return the agents of all parts, columns `WHO`; without parameters where those of an algorithm
    differ between parts.
    """
    tables = [part.paired.agents for part in parts]
    same = np.all([table["parameters"] == tables[0]["parameters"] for table in tables], axis=0)
    return tables[0].assign(parameters=tables[0]["parameters"].where(same, ""))


def both_means(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the mean of each column of `values` [N, n] as it is and then in each resample, [1 + R,
    n], by the same exact sums.
    """
    once = np.ones((1, len(values)), counts.dtype)
    return np.concatenate([resampled_means(once, values), resampled_means(counts, values)])


def wins(differences: np.ndarray) -> np.ndarray:
    """Return 1 where a difference is positive, 1/2 where it is zero, else 0."""
    return (np.sign(differences) + 1) / 2


def effect_size(differences: np.ndarray) -> np.ndarray:
    """Return Cohen's d_z of each column of differences [N, P]: mean over standard deviation, which
    has N - 1 in its denominator.
    """
    n, means = len(differences), differences.mean(axis=0)
    spread = differences.std(axis=0, ddof=1) if n > 1 else np.zeros(differences.shape[1])
    constant = (np.ptp(differences, axis=0) == 0) | (spread == 0)  # also where squares vanish
    return np.where(differences.any(axis=0), means / np.where(constant, np.nan, spread), 0.0)


def _measures(
    parts: Sequence[Resampled], pairs: Sequence[tuple[int, int]], level: float
) -> pd.DataFrame:
    first, second = np.array(pairs, np.int64).T
    differences = [part.paired.scores[:, first] - part.paired.scores[:, second] for part in parts]
    columns = dict.fromkeys(MEASURES, np.full(len(first), np.nan))
    won = [wins(d) / len(parts) for d in differences]
    columns |= _with_interval("improvement", parts, won, level)
    if len(parts) == 1:
        columns |= _with_interval("difference", parts, differences, level)
        columns["effect_size"] = effect_size(differences[0])
        if 1 < len(differences[0]) < FEW:
            ends = studentised_intervals(parts[0].counts, differences[0], level)
            columns |= dict(zip(("difference_lower", "difference_upper"), ends, strict=True))
    return pd.DataFrame(columns)


def _with_interval(
    name: str, parts: Sequence[Resampled], values: Sequence[np.ndarray], level: float
) -> dict[str, np.ndarray]:
    """Sum over experiments of the means of `values` [N, P], with its interval."""
    strata: dict[int, np.ndarray] = {}
    for part, mine in zip(parts, values, strict=True):  # scores on the same MDP are one observation
        strata[part.stream] = strata[part.stream] + mine if part.stream in strata else mine
    counts = {part.stream: part.counts for part in parts}
    means = np.sum([both_means(counts[stream], mine) for stream, mine in strata.items()], axis=0)
    lower, upper = bca_intervals(means, list(strata.values()), level)
    if min(map(len, values)) < 2:  # one MDP, drawn again and again, tells nothing
        lower = upper = np.full_like(means[0], np.nan)
    return {name: means[0], f"{name}_lower": lower, f"{name}_upper": upper}
