"""Confidence limits of means that assume a range of values, and nothing of their distribution; the
part of a return that is chance, which estimates leave out.

A lifetime in which a rare outcome pays may be missing from every sample, and a mean is then far
from normal. What holds all the same rests on what values are possible at all, which rewards and
possible transitions say.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from jbrl.mdp.dirichlet import DirichletMDPs

CONFIDENCE = 0.95  # of a bracket; its ends are one-sided limits at ONE_SIDED
ONE_SIDED = (1 + CONFIDENCE) / 2
# What a limit rests on besides the seed.
RANGE = "the range of returns"

MOST_STAKE = 0.75  # of the capital that a single value may lose
HALVINGS = 60


def lower_limit(samples: np.ndarray, least: float, confidence: float) -> float:
    """Return a lower confidence limit of the mean of independent samples, by betting.

    Whoever bets, on each sample, that it lies above m keeps a capital that is a supermartingale if
    the mean is at most m: by Ville's inequality it becomes 1 / (1 - confidence) with probability at
    most 1 - confidence. The limit is the greatest m that is refuted so. Stakes depend on earlier
    samples only (Waudby-Smith and Ramdas 2024).

    Args:
      samples: [N] float64, in the order in which they were drawn, N at least 2.
      least: no value is smaller.
    """
    goal = math.log(1 / (1 - confidence))
    stakes = np.sqrt(2 * goal / len(samples)) / _earlier_spread(samples)

    def refuted(mean: float) -> bool:
        most = MOST_STAKE / max(mean - least, 1e-300)
        with np.errstate(over="ignore"):  # a gain without end, where all samples are equal
            gains = np.minimum(stakes, most) * (samples - mean)
        return float(np.log1p(gains).sum()) >= goal

    low, high = least, float(samples.max())
    if not refuted(low):
        return least
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _earlier_spread(samples: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the samples before each one, [N]; infinite for two."""
    n = np.arange(1, len(samples))
    shifted = samples - samples[0]
    mean = np.cumsum(shifted[:-1]) / n
    variance = np.maximum(np.cumsum(shifted[:-1] ** 2) / n - mean**2, 0.0)
    spread = np.full(len(samples), np.inf)
    spread[2:] = np.sqrt(variance[1:]) + 1e-300
    return spread


def upper_margin(
    n: int, square: float, expected: float, greatest: float, confidence: float
) -> float:
    """Return how far the mean of n independent values may lie above their average, by betting.

    Whoever stakes a share of the capital on each value x, which gains -share * x / greatest, has at
    least exp(-share * x / greatest + (log(1 - share) + share) * (x / greatest)^2) times as much
    after it (Fan, Grama and Liu 2015, lemma 4.1). So the mean of squares limits the mean, as in
    the empirical Bernstein bound of Waudby-Smith and Ramdas 2024, theorem 2.

    Args:
      square: mean of the squared values, or a number that is not below it.
      expected: what `square` is expected to be, on which the stake depends; not these values' own.
      greatest: no value is greater; at least 0.
    """
    greatest = max(greatest, math.sqrt(expected), 1e-300)  # a greater one holds, too
    once = greatest * math.log(1 / (1 - confidence)) / n
    stake = _best_stake(once * greatest / expected if expected > 0 else math.inf)
    return (once + _curvature(stake) * square / greatest) / stake


def _curvature(stake: float) -> float:
    return -math.log1p(-stake) - stake


def _best_stake(ratio: float) -> float:
    """Return the stake s that makes (ratio + curvature(s)) / s least, at most `MOST_STAKE`."""
    low, high = 0.0, MOST_STAKE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        rising = middle**2 / (1 - middle) - _curvature(middle) > ratio
        low, high = (low, middle) if rising else (middle, high)
    return high


AT_ONCE = 1024  # lifetimes


class Chance:
    """The part of a return that is chance: what transitions add to what was to be expected of them.

    For any function v of the state, the reward and the discounted v of the next state, less their
    mean given the history, have the mean 0 given the history, whatever the agent does. Their sum is
    taken from a return: this leaves its mean as it is, and most of its variance out (a control
    variate; the martingale of Henderson and Glynn 2002). Here v is the optimal value of the mean
    MDP with the decisions that are left of `horizon`.
    """

    def __init__(self, mdps: DirichletMDPs, discount: float, horizon: int) -> None:
        self._prior = np.asarray(mdps.concentrations, np.float64)
        self._rewards = np.asarray(mdps.rewards, np.float64)
        self._discount = discount
        mean = self._prior / self._prior.sum(-1, keepdims=True)
        gains = (mean * self._rewards).sum(-1)
        value = np.zeros(mdps.n_states)
        values = [value]
        for _ in range(horizon):
            value = (gains + discount * (mean * value).sum(-1)).max(1)  # no product of BLAS
            values.append(value)
        self.values = np.array(values[::-1])  # v after so many decisions, [T + 1, S]

    def least(self, first_states: Sequence[int]) -> float:
        """Return a number that no return is below from which its chance is taken.

        It is v of the first state and, discounted, the differences of what is to be expected of
        each transition and v of the state; an expectation is not below the worst outcome.
        """
        possible = self._prior > 0
        least = np.zeros(len(self._prior))
        for now, after in zip(self.values[-2::-1], self.values[:0:-1], strict=True):
            worth = np.where(possible, self._rewards + self._discount * after, np.inf).min(-1)
            rest = np.where(possible, self._discount * least, np.inf).min(-1)
            least = (worth - now[:, None] + rest).min(1)
        return float((self.values[0] + least)[list(first_states)].min())

    def of(self, trajectories: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the part of each discounted return that is chance, [N] float64.

        Args:
          trajectories: `states`, [N, T + 1] int, and `actions`, [N, T] int.
        """
        states, actions = trajectories["states"], trajectories["actions"]
        parts = [slice(first, first + AT_ONCE) for first in range(0, len(states), AT_ONCE)]
        return np.concatenate([self._of(states[part], actions[part]) for part in parts])

    def _of(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        lanes = np.arange(len(states))
        counts = np.zeros((len(states), *self._prior.shape))
        chance, factor = np.zeros(len(states)), 1.0
        for t, after in enumerate(self.values[1:]):
            x, u, y = states[:, t], actions[:, t], states[:, t + 1]
            row = self._prior[x, u] + counts[lanes, x, u]
            worth = self._rewards[x, u] + self._discount * after
            expected = (row * worth).sum(1) / row.sum(1)
            chance += factor * (worth[lanes, y] - expected)
            counts[lanes, x, u, y] += 1
            factor *= self._discount
        return chance
