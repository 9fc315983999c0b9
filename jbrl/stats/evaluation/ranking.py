"""The evaluation of a score table: aggregate scores with intervals and ranks, tables of
environments, weights, all from one call.

Source: Jordan, Chandak, Cohen, Zhang, Thomas (2020), Evaluating the Performance of Reinforcement
Learning Algorithms, ICML. The formulas of ranks reproduce the rank columns of their table 1 and
appendix I.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, nearest
from jbrl.stats.evaluation.bands import (
    Quantile,
    check_delta,
    mean_table,
    payoff_bounds,
    payoff_t_intervals,
)
from jbrl.stats.evaluation.game import Equilibrium, equilibrium
from jbrl.stats.evaluation.propagation import propagate
from jbrl.stats.evaluation.samples import Samples, payoffs

METHODS = ("pbp", "pbp-t", "bootstrap")
AGGREGATE = ("method", "algorithm", "score", "lower", "upper", "rank", "rank_best", "rank_worst")
ENVIRONMENTS = (
    "environment",
    "algorithm",
    "n",
    "mean",
    "lower",
    "upper",
    "rank",
    "rank_best",
    "rank_worst",
)
WEIGHTS = ("environment", "algorithm", "weight")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the intervals. The defaults are the published program's, without its defects."""

    delta: float = 0.05  # probability that any interval of a method misses, in (0, 0.5]
    quantile: Quantile = "code"  # of PBP-t; see `bands.payoff_t_intervals`
    published: bool = False  # keep two defects of the published program; see `propagation`
    resamples: int = 10_000  # of the bootstrap
    seed: int = 0  # of all resampling
    interval: Literal["percentile", "bca"] = "percentile"  # of the bootstrap


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation. Tables have one row per thing and named columns."""

    samples: Samples
    point: Equilibrium
    aggregate: pd.DataFrame  # `AGGREGATE`: for each method all algorithms, the best first
    # `ENVIRONMENTS`: for each environment all algorithms, the best first
    environments: pd.DataFrame
    # `WEIGHTS`: how often player q chooses an environment and an opponent; sums to 1
    weights: pd.DataFrame
    settings: dict[str, Any]

    def record(self) -> dict[str, Any]:
        """Return the tables as plain lists and numbers, at full precision: the output of `jbrl
        evaluate --format json`.
        """
        tables = {
            name: getattr(self, name).to_dict("records")
            for name in ("aggregate", "environments", "weights")
        }
        return {**tables, "settings": self.settings}


def evaluate(
    samples: Samples,
    methods: Sequence[str] = ("pbp",),
    options: Options | None = None,
    tell: Callable[[str, int, int], Any] | None = None,
) -> Evaluation:
    """Evaluate samples by one or more methods: "pbp", "pbp-t", "bootstrap".

    Args:
      tell: called with what is being done, how much of it is done and how much there is.

    Raises:
      JbrlError: an unknown method, or an option that is not accepted.
    """
    options = options or Options()
    check_delta(options.delta)
    for method in methods:
        if method not in METHODS:
            raise JbrlError(f"unknown method '{method}'{nearest(method, METHODS)}")
    tell = tell or (lambda *_: None)
    z = payoffs(samples)
    point = equilibrium(z)
    tables = [
        _aggregate(method, samples, point, *_ends(method, samples, options, tell))
        for method in METHODS
        if method in methods
    ]
    return Evaluation(
        samples,
        point,
        pd.concat(tables, ignore_index=True),
        _environments(samples, options.delta),
        _weights(samples, point),
        settings_of(samples, [method for method in METHODS if method in methods], options),
    )


def settings_of(samples: Samples, methods: Sequence[str], options: Options) -> dict[str, Any]:
    """Return the settings that an evaluation depends on, for its record."""
    n, m = samples.shape
    used = {f.name: getattr(options, f.name) for f in dataclasses.fields(Options)}
    for name, method in (
        ("quantile", "pbp-t"),
        ("resamples", "bootstrap"),
        ("seed", "bootstrap"),
        ("interval", "bootstrap"),
    ):
        if method not in methods:
            del used[name]
    bounds = {
        name: [float(v) for v in samples.bounds[j]] for j, name in enumerate(samples.environments)
    }
    sizes = {"n_algorithms": n, "n_environments": m, "n_scores": int(samples.totals.sum())}
    return {"methods": list(methods), **used, **sizes, "bounds": bounds}


def _ends(
    method: str, samples: Samples, options: Options, tell: Callable[[str, int, int], Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper ends of the aggregate scores by one method."""
    if method == "bootstrap":
        from jbrl.stats.evaluation.bootstrap import bootstrap  # the only method that needs JAX

        found = bootstrap(
            samples,
            options.delta,
            resamples=options.resamples,
            seed=options.seed,
            interval=options.interval,
            tell=lambda done: tell("bootstrap", done, options.resamples),
        )
        return found.lower, found.upper
    tell(method, 0, 2 * samples.shape[0])
    if method == "pbp":
        low, high = payoff_bounds(samples, options.delta)
    else:
        low, high = payoff_t_intervals(samples, options.delta, options.quantile)
    return propagate(
        low,
        high,
        samples.same,
        published=options.published,
        tell=lambda done, total: tell(method, done, total),
    )


def _aggregate(
    method: str, samples: Samples, point: Equilibrium, lower: np.ndarray, upper: np.ndarray
) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "method": method,
            "algorithm": samples.algorithms,
            "score": point.scores,
            "lower": lower,
            "upper": upper,
        }
    )
    return _ranked(table, "score")[list(AGGREGATE)]


def _environments(samples: Samples, delta: float) -> pd.DataFrame:
    parts = [
        _ranked(rows, "mean")
        for _, rows in mean_table(samples, delta).groupby("environment", sort=False)
    ]
    return pd.concat(parts, ignore_index=True)[list(ENVIRONMENTS)]


def _ranked(rows: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return rows with their ranks, the best first."""
    rank, best, worst = ranks(
        rows[score].to_numpy(), rows["lower"].to_numpy(), rows["upper"].to_numpy()
    )
    return rows.assign(rank=rank, rank_best=best, rank_worst=worst).sort_values(
        "rank", kind="stable", ignore_index=True
    )


def _weights(samples: Samples, point: Equilibrium) -> pd.DataFrame:
    n, m = samples.shape
    names = {
        "environment": np.repeat(samples.environments, n),
        "algorithm": np.tile(samples.algorithms, m),
    }
    return pd.DataFrame({**names, "weight": point.q.ravel()})


ROUNDING = 1e-9  # of ends and scores, relative to the largest of them


def ranks(
    score: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rank, best and worst rank of each of n algorithms, [n] int64 each; 1 is best, ties
    share the better rank.

    The best rank counts the others whose interval lies above, the worst those whose interval does
    not lie below. Two algorithms whose intervals are the same number tie: neither is above.
    """
    tiny = _tiny(score, lower, upper)
    rank = 1 + (score[None, :] > score[:, None] + tiny).sum(axis=1)
    above = lower[None, :] >= upper[:, None] - tiny  # k is certainly no worse than i
    tied = above & above.T
    best = 1 + (above & ~tied).sum(axis=1)
    below = lower[:, None] > upper[None, :] + tiny
    others_tied = tied.sum(axis=1) - np.diag(tied)
    return rank, best, len(score) - below.sum(axis=1) - others_tied


def significant(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return pairs of algorithms whose intervals do not meet, [n, n] bool, symmetric."""
    apart = lower[:, None] > upper[None, :] + _tiny(lower, upper)
    return apart | apart.T


def _tiny(*values: np.ndarray) -> float:
    return ROUNDING * max((float(np.abs(v).max(initial=0.0)) for v in values), default=0.0)


def decisive_ends(
    score: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of intervals that establish the best-ranked significant differences, [n] bool
    for lower and for upper ends.

    Of the algorithms that are significantly worse than some other, the one with the highest score:
    its upper end, and the lower ends of those it is worse than. Bold in the paper's table 1.
    """
    apart = lower[:, None] > upper[None, :] + _tiny(score, lower, upper)
    worse = np.asarray(apart.any(axis=0))
    if not worse.any():
        return worse, worse
    first = int(np.argmax(np.where(worse, score, -np.inf)))
    return apart[:, first], np.arange(len(score)) == first
