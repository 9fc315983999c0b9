"""The evaluation of a score table: aggregate scores with intervals and ranks, tables of
environments, weights, all from one call.

Source: Jordan, Chandak, Cohen, Zhang, Thomas (2020), Evaluating the Performance of Reinforcement
Learning Algorithms, ICML. The formulas of ranks reproduce the rank columns of their table 1 and
appendix I.

Where bounds separate no algorithms, `separation` says why, how many scores would, and what
resampling says. A bound that holds for all distributions and all cells at once needs far more
scores than a ranking that is merely likely. How many is estimated as if the distributions were
those observed: the same distribution functions with narrower bands.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, nearest
from jbrl.stats.evaluation import METHODS, Options, propagation
from jbrl.stats.evaluation.game import Equilibrium, equilibrium, sides_of
from jbrl.stats.evaluation.propagation import half_widths, largest, payoff_bounds
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
        lower, upper = _around(point.scores, *_ends(method, samples, options, progress))
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


def _around(
    score: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return ends with those moved to the score that are beyond it by rounding alone."""
    tiny = _tiny(score, lower, upper)
    lower = np.where(lower <= score + tiny, np.minimum(lower, score), lower)
    return lower, np.where(upper >= score - tiny, np.maximum(upper, score), upper)


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


DOUBLINGS = 16  # up to 65,536 times as many scores
RESAMPLES = 400
LEVEL = 0.95  # of each interval of a difference
PRECISION = 1 / 8  # of a doubling
LARGEST = 6_000  # joint strategies up to which this is asked: some ten seconds
LARGEST_RESAMPLED = 2_000_000  # rates of a game up to which it is resampled, some twenty seconds


@dataclasses.dataclass(frozen=True)
class Separation:
    """Facts stated beside bounds that separate no pair of algorithms."""

    pairs: int
    half_width: float  # of the widest band of a distribution function
    scores: int  # in the smallest cell
    best: str
    # scores in each cell that separate the best from them; None: more
    others: dict[str, int | None]
    first: float | None  # share of resamples in which the best is first; None: not asked
    apart: int  # pairs whose difference, resampled, is not 0
    too_many: bool = False  # too many joint strategies for `others` and `first`

    def sentences(self) -> list[str]:
        """Return the explanation in words."""
        told = [
            f"pbp separates none of {self.pairs:,} pairs of algorithms: with {self.scores:,} "
            f"score{'s' * (self.scores != 1)} a distribution is known to "
            f"±{min(1.0, self.half_width):.2f} only, since the bounds hold for all cells at once "
            "and whatever the distributions are"
        ]
        needed = [
            f"{other} about {number:,}" if number else f"{other} more than can be estimated"
            for other, number in self.others.items()
        ]
        if self.too_many:
            told.append(
                "the number of scores that would separate them, and resamples, take minutes for so "
                "many algorithms and environments: choose some with --algorithms or "
                "--environments, or resample with --method bootstrap --resamples 400"
            )
        if needed:
            told.append(
                "scores in each cell that would separate, were the distributions those observed "
                f"(an estimate): {self.best} from {', from '.join(needed)}"
            )
        if self.first is not None:
            told.append(
                f"bootstrap of {RESAMPLES} resamples, without guarantee: none is above "
                f"{self.best} in {100 * self.first:.0f}% of them, and {self.apart:,} of "
                f"{self.pairs:,} pairs differ at {100 * LEVEL:.0f}% each"
            )
        return told


def separation(
    samples: Samples, lower: np.ndarray, upper: np.ndarray, delta: float, seed: int = 0
) -> Separation | None:
    """Return the reasons why bounds [n] each separate no two algorithms; None where they do.

    Args:
      lower, upper: ends of the aggregate scores.
      delta: of the bounds.
      seed: of the resamples.
    """
    n, m = samples.shape
    if significant(lower, upper).any():
        return None
    scores = equilibrium(payoffs(samples)).scores
    order = np.argsort(-scores, kind="stable")
    best, rest = int(order[0]), dict.fromkeys((int(order[1]), int(order[-1])))
    small = n * n * m <= LARGEST
    names = samples.algorithms
    others = {
        names[k]: scores_needed(samples, best, k, delta)
        for k in rest
        if small and scores[k] < scores[best] - 1e-9
    }
    first, apart = None, 0
    if small and n * (n * m) ** 2 <= LARGEST_RESAMPLED and samples.totals.min() > 1:
        from jbrl.stats.evaluation.bootstrap import resampled_scores

        drawn = resampled_scores(samples, RESAMPLES, seed)
        first = float((drawn[:, best] >= drawn.max(axis=1) - 1e-9).mean())
        apart = _apart(drawn)
    width = float(half_widths(samples, delta).max())
    fewest = int(samples.totals.min())
    return Separation(n * (n - 1) // 2, width, fewest, names[best], others, first, apart, not small)


def scores_needed(samples: Samples, i: int, k: int, delta: float) -> int | None:
    """Estimate how many scores in each cell separate algorithm i from k, were the distributions
    those seen.

    Returns:
      The number, to two digits; None if `DOUBLINGS` doublings of the fewest do not suffice.
    """
    fewest, low = int(samples.totals.min()), 0.0
    guesses: list[np.ndarray | None] = [None, None]
    if not _separated(samples, i, k, delta, 2.0**DOUBLINGS, guesses):
        return None
    high = float(DOUBLINGS)
    while high - low > PRECISION:  # narrower bands separate whatever wider ones do
        middle = (low + high) / 2
        if _separated(samples, i, k, delta, 2**middle, guesses):
            high = middle
        else:
            low = middle
    return int(float(f"{fewest * 2**high:.2g}"))


def _separated(
    samples: Samples, i: int, k: int, delta: float, factor: float, guesses: list[np.ndarray | None]
) -> bool:
    """Return whether i's lower end is above k's upper end with `factor` times the scores."""
    n, m = samples.shape
    bounds = payoff_bounds(samples, delta, scale=factor**-0.5)
    sides = sides_of(*bounds, samples.same)
    ends = []
    for place, reward in enumerate((-bounds[0][i].ravel(), bounds[1][k].ravel())):
        w, _ = largest((n, n * m), sides, reward, guesses[place])
        guesses[place] = w
        ends.append(float(w.mean()))
    return -ends[0] > ends[1]


def _apart(drawn: np.ndarray) -> int:
    """Return pairs whose difference of resampled scores [R, n] is not 0 at `LEVEL`."""
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    count = 0
    for i in range(drawn.shape[1] - 1):
        ends = np.quantile(drawn[:, i, None] - drawn[:, i + 1 :], tails, axis=0)
        count += int(((ends[0] > 1e-9) | (ends[1] < -1e-9)).sum())
    return count
