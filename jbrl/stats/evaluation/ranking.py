"""The evaluation of a score table: aggregate scores with intervals and ranks, tables of
environments, weights, all from one call.

Source: Jordan, Chandak, Cohen, Zhang, Thomas (2020), Evaluating the Performance of Reinforcement
Learning Algorithms, ICML. The formulas of ranks reproduce the rank columns of their table 1 and
appendix I.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, nearest
from jbrl.stats.evaluation import METHODS, Options, propagation
from jbrl.stats.evaluation.game import Equilibrium, equilibrium
from jbrl.stats.evaluation.samples import Samples, payoffs

ROUNDING = 1e-9  # of ends and scores, relative to the largest of them
AGGREGATE = ("method", "algorithm", "score", "lower", "upper", "rank", "rank_best", "rank_worst")
ENVIRONMENTS = ("environment", "algorithm", "n", "mean", *AGGREGATE[3:])


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation. Tables have one row per thing and named columns."""

    samples: Samples
    point: Equilibrium
    aggregate: pd.DataFrame  # `AGGREGATE`: for each method all algorithms, the best first
    # `ENVIRONMENTS`: for each environment all algorithms, the best first
    environments: pd.DataFrame
    # columns environment, algorithm, weight: how often player q chooses an environment and an
    # opponent; sums to 1
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
    progress: Callable[[str, int, int], Any] | None = None,
) -> Evaluation:
    """Evaluate samples by one or more methods: "pbp", "pbp-t", "bootstrap".

    Args:
      progress: called with what is being done, how much of it is done and how much there is.

    Raises:
      JbrlError: an unknown method, or an option that is not accepted.
    """
    options = options or Options()
    propagation.check_delta(options.delta)
    for method in methods:
        if method not in METHODS:
            raise JbrlError(f"unknown method '{method}'{nearest(method, METHODS)}")
    progress = progress or (lambda *_: None)
    z = payoffs(samples)
    point = equilibrium(z)
    chosen = [method for method in METHODS if method in methods]
    tables = []
    for method in chosen:
        lower, upper = _ends(method, samples, options, progress)
        columns = {"method": method, "algorithm": samples.algorithms, "score": point.scores}
        tables.append(_ranked(pd.DataFrame(columns | {"lower": lower, "upper": upper}), "score"))
    means = propagation.mean_table(samples, options.delta).groupby("environment", sort=False)
    environments = pd.concat([_ranked(rows, "mean") for _, rows in means], ignore_index=True)
    n, m = samples.shape
    where, who = np.repeat(samples.environments, n), np.tile(samples.algorithms, m)
    weights = {"environment": where, "algorithm": who, "weight": point.q.ravel()}
    return Evaluation(
        samples,
        point,
        pd.concat(tables, ignore_index=True)[list(AGGREGATE)],
        environments[list(ENVIRONMENTS)],
        pd.DataFrame(weights),
        settings_of(samples, chosen, options),
    )


def settings_of(samples: Samples, methods: Sequence[str], options: Options) -> dict[str, Any]:
    """Return the settings that an evaluation depends on, for its record."""
    n, m = samples.shape
    used = {f.name: getattr(options, f.name) for f in dataclasses.fields(Options)}
    for method, names in (
        ("pbp-t", ["quantile"]),
        ("bootstrap", ["resamples", "seed", "interval"]),
    ):
        for name in names if method not in methods else ():
            del used[name]
    bounds = dict(zip(samples.environments, samples.bounds.tolist(), strict=True))
    sizes = {"n_algorithms": n, "n_environments": m, "n_scores": int(samples.totals.sum())}
    return {"methods": list(methods), **used, **sizes, "bounds": bounds}


def _ends(
    method: str, samples: Samples, options: Options, progress: Callable[[str, int, int], Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper ends of the aggregate scores by one method."""
    if method == "bootstrap":
        from jbrl.stats.evaluation.bootstrap import bootstrap  # the only method that needs JAX

        drawn = bootstrap(
            samples,
            options.delta,
            resamples=options.resamples,
            seed=options.seed,
            interval=options.interval,
            progress=lambda done: progress("bootstrap", done, options.resamples),
        )
        return drawn.lower, drawn.upper
    progress(method, 0, 2 * samples.shape[0])
    if method == "pbp":
        low, high = propagation.payoff_bounds(samples, options.delta)
    else:
        low, high = propagation.payoff_t_intervals(samples, options.delta, options.quantile)
    show = partial(progress, method)
    return propagation.propagate(
        low, high, samples.same, published=options.published, progress=show
    )


def _ranked(rows: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return rows with their ranks, the best first."""
    rank, best, worst = ranks(
        rows[score].to_numpy(), rows["lower"].to_numpy(), rows["upper"].to_numpy()
    )
    return rows.assign(rank=rank, rank_best=best, rank_worst=worst).sort_values(
        "rank", kind="stable", ignore_index=True
    )


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
