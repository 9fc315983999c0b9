r"""Further statistics of a score table: means, IQM, optimality gap, performance profiles,
probability of improvement.

Scores are put on a common scale first: 0 at the lower, 1 at the upper bound of their environment.
All environments weigh the same, for any number of samples. Intervals are percentile bootstraps,
samples being resampled within each environment. An algorithm with one sample in a cell has no
interval, NaN: to resample one tells nothing.

Source: Agarwal, Schwarzer, Castro, Courville, Bellemare (2021), Deep Reinforcement Learning at the
Edge of the Statistical Precipice, NeurIPS, with the definitions of their library rliable.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, nearest
from jbrl.stats.evaluation.propagation import check_delta
from jbrl.stats.evaluation.samples import Samples, payoffs

METRICS = ("mean", "median", "iqm", "optimality_gap")
RESAMPLES = 2_000
LEAST = 100  # of an overview
_DRAWN = 100_000_000  # scores for an overview
_BLOCK = 4_000_000  # numbers held at once


def metrics(
    samples: Samples,
    names: Sequence[str] = METRICS,
    *,
    delta: float = 0.05,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return aggregate metrics of each algorithm with intervals of level 1 - delta each.

    Args:
      names: "mean"; "median" of the environments' means; "iqm", the mean of the middle half of all
        scores; "optimality_gap", the mean of what scores lack to 1 (less is better).

    Returns:
      Columns metric, algorithm, value, lower, upper.

    Raises:
      JbrlError: an unknown metric, a bad delta, or an environment whose bounds are equal.
    """
    check_delta(delta)
    for name in names:
        if name not in METRICS:
            raise JbrlError(f"unknown metric '{name}'{nearest(name, METRICS)}")
    tables: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
    for i, algorithm in enumerate(samples.algorithms):
        cell = _Sorted(samples, i)
        point = cell.metrics(*cell.observed)
        spread = [cell.metrics(*drawn) for drawn in cell.resampled(resamples, seed)]
        for name, rows in tables.items():
            ends = _ends([s[name] for s in spread], delta)
            rows.append((name, algorithm, point[name][0], *ends))
    every = [row for rows in tables.values() for row in rows]
    return pd.DataFrame(every, columns=["metric", "algorithm", "value", "lower", "upper"])


def overview(samples: Samples, *, delta: float = 0.05, seed: int = 0) -> pd.DataFrame:
    """Return what resampling says about each algorithm, the best IQM first; in seconds for a
    million scores too, since fewer resamples are drawn of many.

    Returns:
      Columns algorithm, iqm, iqm_lower, iqm_upper, mean, mean_lower, mean_upper, above_first (how
      likely a score exceeds one of the first algorithm; NaN for that itself). An interval holds by
      itself, with level 1 - delta roughly.

    Raises:
      JbrlError: see `metrics`.
    """
    resamples = int(np.clip(_DRAWN // samples.totals.sum(), LEAST, RESAMPLES))
    known = metrics(samples, ("iqm", "mean"), delta=delta, resamples=resamples, seed=seed)
    parts = [
        known[known["metric"] == name]
        .set_index("algorithm")[["value", "lower", "upper"]]
        .set_axis([name, f"{name}_lower", f"{name}_upper"], axis=1)
        for name in ("iqm", "mean")
    ]
    table = pd.concat(parts, axis=1).loc[list(samples.algorithms)]
    first = int(np.argmax(table["iqm"]))
    above = _improvement(payoffs(samples)[None])[0][:, first]
    above[first] = np.nan
    table = table.assign(above_first=above).sort_values("iqm", ascending=False, kind="stable")
    return table.rename_axis("algorithm").reset_index()


def performance_profiles(
    samples: Samples,
    thresholds: Sequence[float] | None = None,
    *,
    delta: float = 0.05,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the share of the scores above each threshold, with a band that holds at each threshold
    with level 1 - delta.

    Args:
      thresholds: default: 0, 0.01, …, 1.

    Returns:
      Columns algorithm, threshold, value, lower, upper.
    """
    check_delta(delta)
    places = np.linspace(0, 1, 101) if thresholds is None else np.asarray(thresholds, np.float64)
    parts = []
    for i, algorithm in enumerate(samples.algorithms):
        cell = _Sorted(samples, i)
        value = cell.profile(cell.observed[0], places)[0]
        drawn = [cell.profile(weights, places) for weights, _ in cell.resampled(resamples, seed)]
        lower, upper = _ends(drawn, delta, places.shape)
        columns = {"algorithm": algorithm, "threshold": places, "value": value}
        parts.append(pd.DataFrame(columns | {"lower": lower, "upper": upper}))
    return pd.concat(parts, ignore_index=True)


def probability_of_improvement(
    samples: Samples, *, delta: float = 0.05, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Return how likely a score of one algorithm exceeds one of another on an environment drawn at
    random, ties counting half.

    The Mann-Whitney estimate averaged over environments. Pairs declared identical have 1/2.

    Returns:
      Columns algorithm, other, value, lower, upper; one row for each ordered pair of
      different algorithms.
    """
    from jbrl.stats.evaluation.bootstrap import resampled_payoffs  # the only metric that needs JAX

    check_delta(delta)
    value = _improvement(payoffs(samples)[None])[0]
    spread = [_improvement(z) for z in resampled_payoffs(samples, resamples, seed)]
    ends = _ends(spread, delta)
    single = samples.totals.min(axis=1) < 2
    ends[:, single] = ends[:, :, single] = np.nan
    rows = [
        (one, other, value[i, k], *ends[:, i, k])
        for i, one in enumerate(samples.algorithms)
        for k, other in enumerate(samples.algorithms)
        if i != k
    ]
    return pd.DataFrame(rows, columns=["algorithm", "other", "value", "lower", "upper"])


def _ends(drawn: list[np.ndarray], delta: float, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Return both ends [2, *shape] of the percentile interval of resampled values, given in parts
    [R, *shape]; NaN where there are none.
    """
    if not drawn:
        return np.full((2, *shape), np.nan)
    return np.quantile(np.concatenate(drawn), [delta / 2, 1 - delta / 2], axis=0)


def _scaled(samples: Samples, environment: int) -> np.ndarray:
    """Return the support of an environment on the common scale."""
    support = samples.supports[environment]
    low, high = samples.bounds[environment]
    if not high > low:
        raise JbrlError(
            f"environment '{samples.environments[environment]}': all scores are {low:g}: they "
            "have no scale: give --bounds, or leave it out with --environments"
        )
    half = 0.5 if high / 2 - low / 2 > np.finfo(float).max / 2 else 1.0  # the range is no float64
    return (support * half - low * half) / (high * half - low * half)


def _improvement(z: np.ndarray) -> np.ndarray:
    """Return P(X_i > X_k) + P(X_i = X_k) / 2 averaged over environments, [R, n, n], from payoffs
    [R, n, m, n].
    """
    return 0.5 + (z - z.transpose(0, 3, 2, 1)).mean(axis=2) / 2


class _Sorted:
    """The distinct scores of an algorithm in increasing order, with weights that sum to 1/m in each
    environment.
    """

    def __init__(self, samples: Samples, algorithm: int) -> None:
        self.algorithm = algorithm
        # sorted scores in each environment on the common scale
        counts = [c[algorithm] for c in samples.counts]
        cells = [_scaled(samples, j).repeat(count) for j, count in enumerate(counts)]
        self.scores, place = np.unique(np.concatenate(cells), return_inverse=True)
        sizes = np.array([len(cell) for cell in cells])
        # scores of an environment, and their places
        self.cells = list(zip(cells, np.split(place, np.cumsum(sizes)[:-1]), strict=True))
        self.size = len(place)
        everything = [np.arange(size)[None] for size in sizes]
        self.observed = self._weighed(everything)

    def resampled(self, resamples: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield data of bootstrap resamples, R at a time: weights [R, U] of the distinct scores,
        means [R, m] of the environments. None where a cell has one sample.
        """
        sizes = [len(scores) for scores, _ in self.cells]
        if min(sizes) < 2:
            return
        generator = np.random.default_rng([seed, self.algorithm])
        step = max(1, _BLOCK // max(len(self.scores), *sizes))
        for start in range(0, resamples, step):
            count = min(step, resamples - start)
            yield self._weighed([generator.integers(0, T, (count, T), np.uint32) for T in sizes])

    def _weighed(self, drawn: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and means when the samples drawn of each environment [R, T] are these."""
        count, U, m = len(drawn[0]), len(self.scores), len(self.cells)
        chosen = list(zip(self.cells, drawn, strict=True))
        means = np.stack([scores[which].mean(axis=1) for (scores, _), which in chosen], axis=1)
        places = np.concatenate([place[which] for (_, place), which in chosen], axis=1)
        each = [np.full(len(scores), 1 / (m * len(scores))) for scores, _ in self.cells]
        places += np.arange(count)[:, None] * U
        weights = np.tile(np.concatenate(each), count)
        summed = np.bincount(places.ravel(), weights, minlength=count * U)
        return summed.reshape(count, U), means

    def metrics(self, weights: np.ndarray, means: np.ndarray) -> dict[str, np.ndarray]:
        """Return all metrics, [R] each, of weights [R, U] and means [R, m]."""
        return {
            "mean": means.mean(axis=1),
            "median": np.median(means, axis=1),
            "iqm": self.trimmed_mean(weights, 4),
            "optimality_gap": (weights * np.maximum(0, 1 - self.scores)).sum(axis=1),
        }

    def trimmed_mean(self, weights: np.ndarray, parts: int) -> np.ndarray:
        """Return the mean without one of so many parts at each end, [R]; as in rliable a whole
        number of scores, where all have the same weight.
        """
        cut = (self.size // parts) / self.size
        reached = np.cumsum(weights, axis=1).clip(cut, 1 - cut)
        return (np.diff(reached, axis=1, prepend=cut) * self.scores).sum(axis=1) / (1 - 2 * cut)

    def profile(self, weights: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """Return the weight above each threshold, [R, number of thresholds]."""
        reached = np.pad(np.cumsum(weights, axis=1), ((0, 0), (1, 0)))
        return np.maximum(0, 1 - reached[:, np.searchsorted(self.scores, thresholds, side="right")])
