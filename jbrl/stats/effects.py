r"""Comparison of two agents: size and frequency of differences.

Differences, probabilities of improvement, effect sizes.

With d_i = a_i - b_i on MDP i:

* the difference, mean(d), in the unit of the score;
* the probability of improvement, P(a_i > b_i) + P(a_i = b_i)/2: how often a is better on an MDP
  that both play. It is the probability of superiority of dependent samples, to be distinguished
  from P(a_i > b_k) of two different MDPs, which `jbrl.stats.metrics` has;
* d_z = mean(d)/s_d, the difference in units of its own spread over the MDPs: Z/√N, hence free of
  the number of MDPs.

Over several experiments, which have no common unit of the score, only the mean probability of
improvement is defined. Intervals are BCa bootstraps over the environments drawn; that of the
difference is studentised where there are fewer than 100 (`jbrl.stats.mdp_bootstrap`).

Sources: Grissom and Kim 2012, Effect sizes for research, chapter 7 (dependent samples); Cohen 1988,
Statistical power analysis, section 2.3.5 (d_z); Agarwal et al. 2021 (probability of improvement as
a summary of benchmarks).
"""

import dataclasses
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from jbrl.stats.intervals import FEW
from jbrl.stats.mdp_bootstrap import bca_intervals, resampled_means, studentised_intervals
from jbrl.stats.pairing import WHO, Paired

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
      `effect_size` is NaN for one MDP or a constant difference, 0 for identical scores. Over
      several experiments the columns of the difference and `effect_size` are NaN.

    Raises:
      JbrlError: `level` is not in (0, 1).
    """
    pairs = (
        list(combinations(range(len(parts[0].paired.agents)), 2)) if pairs is None else list(pairs)
    )
    found = [
        _measures(parts, pairs[start : start + _PAIRS], level)
        for start in range(0, len(pairs), _PAIRS)
    ]
    if not found:
        return pd.DataFrame(columns=list(COMPARISON))
    agents = common_agents(parts)
    who = agents.iloc[[first for first, _ in pairs]].reset_index(drop=True)
    other = (
        agents.iloc[[second for _, second in pairs]]
        .reset_index(drop=True)
        .set_axis(list(OTHER), axis=1)
    )
    table = pd.concat([who, other, pd.concat(found, ignore_index=True)], axis=1)
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
    constant = np.ptp(differences, axis=0) == 0
    return np.where(differences.any(axis=0), means / np.where(constant, np.nan, spread), 0.0)


def _measures(
    parts: Sequence[Resampled], pairs: Sequence[tuple[int, int]], level: float
) -> pd.DataFrame:
    first, second = np.array(pairs, np.int64).T
    differences = [part.paired.scores[:, first] - part.paired.scores[:, second] for part in parts]
    columns = dict.fromkeys(MEASURES, np.full(len(first), np.nan))
    columns |= _with_interval(
        "improvement", parts, [wins(d) / len(parts) for d in differences], level
    )
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
    return {name: means[0], f"{name}_lower": lower, f"{name}_upper": upper}
