"""Best algorithms when computation time is bounded.

An agent may be too slow, before its first decision or at each. For given bounds: agents that exceed
one are discarded; of each algorithm the agent with the highest mean remains; the best of these and
all that are not significantly different from it are the winners. Castronovo et al. 2016, sections
2.3 and 3.2. Times that a measurement does not distinguish are ties.

Where a bound lies between two neighbouring times of agents nothing changes, so there are finitely
many cases, and each is tested once.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, check_choice, nearest
from jbrl.base.schema import AGENT, RETURNS
from jbrl.stats.paired_test import Correction, Sided, paired_z, rejected
from jbrl.stats.table import check_columns, check_returns, samples

DIGITS = 2  # significant digits of a time that repeat from run to run
# Seconds: the shortest wall time of a single call that says something about the program called.
# Below, dispatch and other work of the machine decide: of 3,000 calls of an empty program on a busy
# machine of two cores the median took 5 µs, one in a thousand more than 69 µs, the longest 4 ms.
DISPATCH = 1e-3
# Seconds that a caller in Python waits for any decision, about: of Random on a machine of two cores
CALL = 3e-5
FACTOR = 2.0  # times that differ by less are the same to whom advice is given
# wall seconds in which a machine gave a processor second, from which on it was busy
BUSY = 1.5
SPREADS = ("offline_seconds_spread", "online_seconds_spread")  # optional columns of scores


def resolved(scores: pd.DataFrame) -> pd.DataFrame:
    """Return `scores` with one value for times that are not distinguished.

    An offline time is that of one call, and `DISPATCH` is its resolution: what lies below is 0. An
    online time is the mean over all decisions. Times of a busy machine are `own_times`.

    Args:
      scores: columns `offline_seconds` and `online_seconds`, finite; `SPREADS` are used where they
        are known (seconds).
    """
    times: dict[str, np.ndarray] = {}
    scores = own_times(scores)
    for column, resolution in (("offline_seconds", DISPATCH), ("online_seconds", 0.0)):
        spread = scores.get(f"{column}_spread", pd.Series(0.0, scores.index))
        widths = pd.to_numeric(spread, errors="coerce").fillna(0.0).to_numpy(np.float64)
        times[column] = merged(scores[column].to_numpy(np.float64), widths, resolution)
    return scores.assign(**times)


def busyness(scores: pd.DataFrame, name: str = "online") -> np.ndarray:
    """Return how many wall seconds passed for each second that a processor worked, [n] float64; 1
    where it is not known.

    Args:
      scores: columns `NAME_seconds` and, if they are known, `NAME_processor_seconds`.
    """
    if f"{name}_processor_seconds" not in scores.columns:
        return np.ones(len(scores))
    wall, own = (
        pd.to_numeric(scores[f"{name}_{kind}"], errors="coerce").to_numpy(np.float64)
        for kind in ("seconds", "processor_seconds")
    )
    known = (own > 0) & np.isfinite(wall)
    return np.where(known, np.divide(wall, own, out=np.ones(len(wall)), where=known), 1.0)


def own_times(scores: pd.DataFrame) -> pd.DataFrame:
    """Return `scores` with the processor time where the machine was busy (`BUSY`): the wall time
    says more of the other programs than of the agent.
    """
    times = {}
    for name in ("offline", "online"):
        busy = busyness(scores, name)
        wall = scores[f"{name}_seconds"].to_numpy(np.float64)
        times[f"{name}_seconds"] = np.where(busy > BUSY, wall / busy, wall)
    return scores.assign(**times)


def stepped(seconds: np.ndarray, least: float = 0.0) -> np.ndarray:
    """Return times [n], none below `least`, with each group of times that lie within `FACTOR` of
    its least one at its greatest: all of the group keep that bound.
    """
    order = np.argsort(seconds, kind="stable")
    times = np.maximum(seconds, least)[order]
    starts = [0]
    for k in range(1, len(times)):
        if times[k] > FACTOR * times[starts[-1]]:
            starts.append(k)
    sizes = np.diff([*starts, len(times)])
    steps = np.empty(len(times))
    steps[order] = np.repeat(np.maximum.reduceat(times, starts), sizes)
    return steps


def merged(seconds: np.ndarray, spreads: np.ndarray, resolution: float = 0.0) -> np.ndarray:
    """Return the times [n] with each group of ties at the least of its times, rounded.

    Times are taken in increasing order. One joins the group of the time before it when it differs
    from the least of the group by no more than the resolution or the greater of both spreads, or
    when both are the same in `DIGITS` digits. Times up to the resolution are 0.
    """
    times = np.empty(len(seconds))
    first = -1
    for k in np.argsort(seconds, kind="stable"):
        apart = first < 0 or seconds[k] - seconds[first] > max(
            resolution, spreads[k], spreads[first]
        )
        if apart and (first < 0 or rounded(seconds[k]) != rounded(seconds[first])):
            first = k
        times[k] = 0.0 if seconds[first] <= resolution else rounded(seconds[first])
    return times


def rounded(seconds: float) -> float:
    """Return a time to `DIGITS` significant digits."""
    return float(f"{seconds:.{DIGITS}g}")


Feature = Callable[[pd.DataFrame], pd.Series]

# Functions of the computation times of agents, seconds: the phi of section 2.3. Times of single
# decisions are not kept: the longest computation is that before the first decision or the mean of
# the others.
FEATURES: dict[str, Feature] = {
    "offline": lambda scores: scores["offline_seconds"],
    "online": lambda scores: scores["online_seconds"],
    "latency": lambda scores: scores["latency_seconds"],
    "longest": lambda scores: scores[["offline_seconds", "online_seconds"]].max(axis=1),
}


@dataclasses.dataclass(frozen=True)
class Winners:
    """The best algorithm within some bounds and those not significantly different from it."""

    # by decreasing mean, the best first; empty when no agent satisfies the bounds
    algorithms: tuple[str, ...]
    agents: tuple[int, ...]  # rows of the table of agents that stand for them


class Contest:
    """The agents of one experiment, prepared for the winners within bounds.

    Args:
      scores: one row per agent with `AGENT` and the times that are asked for, seconds; no oracles.
      returns: score table of the same agents, columns `jbrl.base.schema.RETURNS`.
      sided, level: of the paired Z-test of the best against each other; "one" asks whether the best
        is better, as the paper does, "two" whether it is different, as its program does.
      correction: "holm": the chance that any of the tests of one comparison is wrong is at most 1 -
        level (Holm 1979).

    Raises:
      JbrlError: a column is missing, agents were not all played on the same environments, or a
        bad option.
    """

    def __init__(
        self,
        scores: pd.DataFrame,
        returns: pd.DataFrame,
        *,
        sided: Sided = "one",
        level: float = 0.95,
        correction: Correction = "none",
    ) -> None:
        check_columns(scores, AGENT, "scores")
        check_choice("time bounds: correction", correction, ("none", "holm"))
        self.scores = scores.reset_index(drop=True)
        self.sided, self.level, self.correction = sided, level, correction
        self._samples = _samples(self.scores, check_returns(returns, RETURNS))
        self.means = np.array([sample.mean() for sample in self._samples])
        self._order = np.argsort(-self.means, kind="stable")
        self._algorithms = pd.factorize(self.scores["algorithm"])[0]
        # neighbouring points of a map mostly admit the same agents, or at least the same champions
        self._admitted: dict[bytes, Winners] = {}
        self._compared = functools.cache(self._compare)
        self._p_value = functools.cache(self._test)

    def times(self, feature: str | Feature) -> np.ndarray:
        """Return a feature of each agent's computation times, [agents] float64.

        Raises:
          JbrlError: no such feature, its column is missing, or an agent's time is not known.
        """
        if isinstance(feature, str) and feature not in FEATURES:
            raise JbrlError(f"time bounds: unknown feature '{feature}'{nearest(feature, FEATURES)}")
        try:
            seconds = (FEATURES[feature] if isinstance(feature, str) else feature)(self.scores)
        except KeyError as error:
            raise JbrlError(f"time bounds: scores have no column {error}") from None
        values = pd.to_numeric(seconds, errors="coerce").to_numpy(np.float64)
        unknown = np.flatnonzero(~np.isfinite(values))
        if unknown.size:
            row = self.scores.iloc[unknown[0]]
            name = feature if isinstance(feature, str) else feature.__name__
            more = f", and {unknown.size - 1} more" if unknown.size > 1 else ""
            raise JbrlError(
                f"time bounds: no {name} time of {row['algorithm']} {row['parameters']}{more}: "
                "expected a number of seconds"
            )
        return values

    def winners(self, bounds: Mapping[str, float]) -> Winners:
        """Return the winners among the agents whose features are at most `bounds` (seconds, by name
        of a feature).
        """
        admitted = np.ones(len(self.scores), bool)
        for feature, bound in bounds.items():
            admitted &= self.times(feature) <= bound
        return self._among(admitted)

    def _among(self, admitted: np.ndarray) -> Winners:
        """Return the winners among the agents `admitted`, [agents] bool."""
        key = admitted.tobytes()
        if key not in self._admitted:
            rows = self._order[admitted[self._order]]
            _, first = np.unique(self._algorithms[rows], return_index=True)
            self._admitted[key] = self._compared(tuple(rows[np.sort(first)].tolist()))
        return self._admitted[key]

    def _compare(self, champions: tuple[int, ...]) -> Winners:
        """Return the winners among the best agents of each algorithm, by decreasing mean."""
        if not champions:
            return Winners((), ())
        best, *others = champions
        p_values = [self._p_value(best, other) for other in others]
        worse = rejected(p_values, 1 - self.level, self.correction)
        agents = (best, *(other for other, w in zip(others, worse, strict=True) if not w))
        return Winners(tuple(str(self.scores["algorithm"].iloc[a]) for a in agents), agents)

    def _test(self, best: int, other: int) -> float:
        """Return the p-value of the test of `best` against `other`; 1 where a single MDP allows no
        test.
        """
        a, b = self._samples[best], self._samples[other]
        p_value = paired_z(a, b, sided=self.sided, level=self.level).p_value
        return 1.0 if np.isnan(p_value) else p_value


def bounds_grid(seconds: np.ndarray, points: int) -> np.ndarray:
    """Return `points` bounds, evenly spaced on a logarithmic axis, from just below the least
    positive time to just above the greatest: seconds.

    Where times are zero more is shown of what lies below the positive ones.
    """
    positive = seconds[seconds > 0]
    low, high = (positive.min(), positive.max()) if positive.size else (1.0, 1.0)
    margin = max(0.05 * np.log10(high / low), 0.1)
    below = max(0.25 * np.log10(high / low), 0.5) if 0 < positive.size < seconds.size else margin
    return np.logspace(np.log10(low) - below, np.log10(high) + margin, points)


def winners_map(
    contest: Contest, x: str = "online", y: str = "offline", points: int = 60
) -> pd.DataFrame:
    """Return winners on a logarithmic grid of two bounds.

    Returns: one row per point of the grid: `x` and `y` (seconds), `algorithms` (tuple, the best
      first; empty where no agent satisfies the bounds), x varying fastest.
    """
    along, across = contest.times(x), contest.times(y)
    rows = [
        (bound_x, bound_y, contest._among((along <= bound_x) & (across <= bound_y)).algorithms)
        for bound_y in bounds_grid(across, points)
        for bound_x in bounds_grid(along, points)
    ]
    return pd.DataFrame(rows, columns=["x", "y", "algorithms"])


def winners_by_bound(
    contest: Contest, along: str = "online", bounds: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Return the winners as the bound on one feature is loosened, the `bounds` on others being
    fixed.

    The paper lists these from left to right along the online axis, the offline bound lying just
    under the least time of OPPS-DS (section 5.3).

    Returns: one row per change: `bound` (seconds, from which on these win) and `algorithms` (tuple,
      the best first).
    """
    fixed = np.ones(len(contest.scores), bool)
    for feature, bound in (bounds or {}).items():
        fixed &= contest.times(feature) <= bound
    times = contest.times(along)
    rows: list[dict[str, Any]] = []
    for bound in np.unique(times[fixed]):
        winners = contest._among(fixed & (times <= bound)).algorithms
        if not rows or set(winners) != set(rows[-1]["algorithms"]):
            rows.append({"bound": float(bound), "algorithms": winners})
    return pd.DataFrame(rows, columns=["bound", "algorithms"])


def least_offline(contest: Contest) -> tuple[str, float] | None:
    """Return the algorithm that needs most time before its first decision, and its least time
    (seconds); None where no algorithm needs any.

    A bound just under this time leaves the others only. With the algorithms of the paper this
    is OPPS-DS.
    """
    names = contest.scores["algorithm"].to_numpy()
    least = pd.Series(contest.times("offline")).groupby(names, sort=False).min()
    if len(least) < 2 or least.max() <= least.min():
        return None
    return str(least.idxmax()), float(least.max())


def _samples(scores: pd.DataFrame, returns: pd.DataFrame) -> list[pd.Series]:
    """Return returns of each agent, by MDP, in the order of `scores`; all of the same MDPs."""
    keys = list(zip(*(scores[c] for c in AGENT), strict=True))
    groups = samples(returns)
    for key in keys:
        if key not in groups:
            raise JbrlError(
                f"time bounds: no returns of {key[1]} {key[2]} in experiment {key[0]}: expected "
                "one for each environment"
            )
        mdps, first = groups[key].index, groups[keys[0]].index
        if not (mdps.equals(first) or mdps.sort_values().equals(first.sort_values())):
            one, other = (f"{k[1]} {k[2]} ({len(groups[k])} environments)" for k in (key, keys[0]))
            raise JbrlError(
                f"time bounds: {one} and {other} were not played on the same environments: play "
                "both with the same seed and n_environments"
            )
    return [groups[key].rename(f"{key[1]} {key[2]}") for key in keys]
