"""Races: which of several candidates has the greatest mean, by paired scores, with a guarantee that
holds however often one looks and whenever one stops.

The evidence that the mean of bounded numbers is above a value is the wealth of a gambler who bets
on it (Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting"): where
it is not, the wealth ever reaches 1/a with probability a at most (Ville). Bets of many sizes share
the stake, so the wealth grows nearly as fast as that of the best of them, whatever the variance.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

STAKES = 0.5 ** np.arange(18)  # parts of the greatest, at which the least number costs everything
PIECE = 2**14  # numbers whose factors are held at once
FIRST = 64  # scores of the first point of a curve
GREATEST = 1000  # exponent of a wealth
PRECISION = 1e-3  # of a confidence limit, as a part of its distance from the mean


class Evidence:
    """Evidence that the mean of numbers is above `value`.

    Bits do not depend on the processor: there are products and sums in one order only.

    Args:
      low: the numbers are not below it; less than `value`.
    """

    def __init__(self, value: float, low: float) -> None:
        self._stakes, self._value = STAKES / max(value - low, 1e-300), value
        self._mantissas = np.full(len(STAKES), 1 / len(STAKES))
        self._exponents = np.zeros(len(STAKES), np.int64)
        self.n = 0  # numbers so far

    def add(self, numbers: Floats) -> None:
        """Take further numbers into account, [n] float64."""
        for first in range(0, len(numbers), PIECE):
            part = numbers[first : first + PIECE] - self._value
            mantissas, exponents = _products(1.0 + self._stakes[:, None] * part)
            self._mantissas, shifts = np.frexp(self._mantissas * mantissas)
            self._exponents = self._exponents + exponents + shifts
        self.n += len(numbers)

    @property
    def wealth(self) -> float:
        """Wealth that a stake of 1 has become."""
        exponents = np.clip(self._exponents, -GREATEST, GREATEST)
        return math.fsum(np.ldexp(self._mantissas, exponents.astype(np.int32)).tolist())


def _products(factors: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the products along the last axis of [G, n] as mantissas and exponents of 2, [G]."""
    exponents = np.zeros(len(factors), np.int64)
    while factors.shape[1] > 1:
        for _ in range(4):  # 16 factors neither vanish by rounding nor overflow
            n = factors.shape[1]
            if n == 1:
                break
            if n % 2:
                factors = np.concatenate([factors, np.ones((len(factors), 1))], axis=1)
            half = factors.shape[1] // 2
            factors = factors[:, :half] * factors[:, half:]
        factors, shifts = np.frexp(factors)
        exponents += shifts.sum(axis=1)
    return factors[:, 0], exponents


def lower_limit(numbers: Floats, low: float, high: float, level: float) -> float:
    """Return a limit that is below the mean of all that numbers are drawn from, at any time of
    looking, but for probability `level`.

    Args:
      numbers: [n] float64, within `low` and `high`.
    """
    below = low
    start = above = math.fsum(numbers.tolist()) / len(numbers) if len(numbers) else high
    while above - below > PRECISION * (start - below):  # limits are below the mean of the numbers
        middle = (below + above) / 2
        if not below < middle < above:  # the mean of the numbers is `low`, but for rounding
            break
        evidence = Evidence(middle, low)
        evidence.add(numbers)
        if evidence.wealth * level >= 1:  # the level may be rounded to 0
            below = middle
        else:
            above = middle
    return below


def interval(
    numbers: Floats, low: float, high: float, confidence: float = 0.95
) -> tuple[float, float]:
    """Return limits of the mean, valid at any time of looking; arguments as of `lower_limit`."""
    level = (1 - confidence) / 2
    return (lower_limit(numbers, low, high, level), -lower_limit(-numbers, -high, -low, level))


class Race:
    """Race of candidates whose scores number i are paired: they come from the same environment.

    With probability `confidence` no candidate ever leaves that is as good as the one it leaves for,
    and none is `settled` that is better than the leader by `epsilon` or more; for all pairs
    and at all times together.

    Args:
      names: of all candidates that may take part, in the order that decides ties.
      span: greatest difference of two scores in one environment; greater ones count as this.
    """

    def __init__(
        self, names: Sequence[str], *, span: float, epsilon: float, confidence: float = 0.95
    ) -> None:
        self.names, self.span, self.epsilon = tuple(names), span, epsilon
        self.threshold = max(1, len(names) * (len(names) - 1)) / (1 - confidence)
        self._scores: dict[str, list[Floats]] = {}
        self._evidence: dict[tuple[str, str, float], Evidence] = {}
        self.left: dict[str, tuple[str, int]] = {}  # for whom, and after how many scores

    def add(self, name: str, scores: Floats) -> None:
        """Add the next scores of a candidate, [n] float64."""
        self._scores.setdefault(name, []).append(np.asarray(scores, np.float64))

    def scores(self, name: str) -> Floats:
        """Return all scores of a candidate so far."""
        parts = self._scores.get(name, [])
        if len(parts) > 1:
            self._scores[name] = parts = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0)

    @property
    def running(self) -> list[str]:
        """Candidates that have scores and have not left."""
        return [name for name in self.names if name in self._scores and name not in self.left]

    @property
    def leader(self) -> str:
        """The candidate with the greatest mean among those with the most scores; or one whose last
        block was cut off, if it is better in what both have played.
        """
        most = max(len(self.scores(name)) for name in self.running)
        longest = [name for name in self.running if len(self.scores(name)) == most]
        best = max(longest, key=lambda name: math.fsum(self.scores(name).tolist()))
        short = [name for name in self.running if most / 2 < len(self.scores(name)) < most]
        return max([best, *short], key=lambda name: self.mean_difference(name, best))

    def settled(self, name: str, leader: str) -> bool:
        """Return whether `name` is not better than `leader` by `epsilon` or more."""
        return self._shown(leader, name, self.epsilon)

    def drop(self) -> list[str]:
        """Let the candidates leave that are worse than the leader; return their names."""
        leader = self.leader
        gone = [n for n in self.running if n != leader and self._shown(leader, n, 0.0)]
        self.left |= {name: (leader, len(self.scores(name))) for name in gone}
        return gone

    def open(self) -> list[str]:
        """Return the candidates that may still be better than the leader by `epsilon`."""
        leader = self.leader
        return [n for n in self.running if n != leader and not self.settled(n, leader)]

    def difference(self, name: str, other: str) -> tuple[float, float, float]:
        """Return the mean of the difference of two candidates and its limits, which hold for all
        pairs together.
        """
        paired = self._paired(name, other, 0, self._both(name, other))
        low, high = interval(paired, -self.span, self.span, 1 - 2 / self.threshold)
        return self.mean_difference(name, other), low, high

    def mean_difference(self, name: str, other: str) -> float:
        """Return the mean of the difference in the environments that both have played."""
        n = self._both(name, other)
        return math.fsum(self._paired(name, other, 0, n).tolist()) / max(1, n)

    def curve(self, name: str) -> Iterator[tuple[int, float]]:
        """Yield numbers of scores that double, and the means of so many."""
        scores = self.scores(name)
        n = min(FIRST, len(scores))
        while 0 < n <= len(scores):
            yield n, math.fsum(scores[:n].tolist()) / n
            n *= 2

    def standings(self) -> Mapping[str, tuple[float, int]]:
        """Return the mean and the number of scores of each candidate that has any."""
        return {
            name: (math.fsum(self.scores(name).tolist()) / len(self.scores(name)), n)
            for name in self.names
            if (n := len(self.scores(name)))
        }

    def _both(self, name: str, other: str) -> int:
        return min(len(self.scores(name)), len(self.scores(other)))

    def _paired(self, name: str, other: str, first: int, stop: int) -> Floats:
        differences = self.scores(name)[first:stop] - self.scores(other)[first:stop]
        return np.clip(differences, -self.span, self.span)

    def _shown(self, name: str, other: str, margin: float) -> bool:
        """Return whether the mean of `name`, plus `margin`, is shown to be above that of `other`,
        by the scores that both have.
        """
        evidence = self._evidence.setdefault(
            (name, other, margin), Evidence(-min(margin, self.span / 2), -self.span)
        )
        evidence.add(self._paired(name, other, evidence.n, self._both(name, other)))
        return evidence.wealth >= self.threshold
