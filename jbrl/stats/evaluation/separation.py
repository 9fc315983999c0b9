"""Explanation of bounds that separate no algorithms: why, how many scores would, and what
resampling says.

A bound that holds for all distributions and all cells at once needs far more scores than a ranking
that is merely likely. How many is estimated as if the distributions were those observed: the same
distribution functions with narrower bands.
"""

import dataclasses

import numpy as np

from jbrl.stats.evaluation.game import equilibrium, sides_of
from jbrl.stats.evaluation.propagation import half_widths, largest, payoff_bounds
from jbrl.stats.evaluation.ranking import significant
from jbrl.stats.evaluation.samples import Samples, payoffs

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
            f"scores a distribution is known to ±{self.half_width:.2f} only, since the bounds hold "
            "for all cells at once and whatever the distributions are"
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
