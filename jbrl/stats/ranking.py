"""The evaluation of a score table: aggregate scores with intervals and ranks, tables of
environments, weights, all from one call.

Source: Jordan, Chandak, Cohen, Zhang, Thomas (2020), Evaluating the Performance of Reinforcement
Learning Algorithms, ICML.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, nearest
from jbrl.stats.bands import Quantile, check_delta, mean_table, payoff_bounds, payoff_t_intervals
from jbrl.stats.game import Equilibrium, equilibrium
from jbrl.stats.percentiles import Samples, payoffs
from jbrl.stats.propagation import propagate
from jbrl.stats.ranks import ranks

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


@dataclasses.dataclass(frozen=True)
class Options:
    """Options for the computation of intervals. The defaults are the published program's, without
    its defects.

    Attributes:
      delta: probability that any interval of a method misses, in (0, 0.5].
      quantile: of PBP-t, "code" or "paper"; see `jbrl.stats.bands.payoff_t_intervals`.
      published: keep the defects of the published program; see `jbrl.stats.propagation`.
      resamples, seed, interval: of the bootstrap; see `jbrl.stats.bootstrap.bootstrap`.
    """

    delta: float = 0.05
    quantile: Quantile = "code"
    published: bool = False
    resamples: int = 10_000
    seed: int = 0
    interval: Literal["percentile", "bca"] = "percentile"


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
    used = dataclasses.asdict(options)
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
        from jbrl.stats.bootstrap import bootstrap  # the only method that needs JAX

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
