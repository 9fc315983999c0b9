"""Observations of a bandit, and the returns that wait for it.

Pulls are not requested one at a time. Each arm has a stream of independent returns, numbered from
0, and the i-th pull of an arm consumes the i-th number of its stream: the law of the one-at-a-time
loop, for any order in which returns are simulated. So returns are simulated in large batches ahead
of need. Only those consumed are pulls; the others are overhead.

A return that is NaN is a failed pull: the arm is discarded for good and the pull does not count.
"""

from dataclasses import dataclass

import numpy as np

from jbrl.base.errors import JbrlError


@dataclass(frozen=True)
class StreamState:
    """Observations of a bandit about its N arms."""

    counts: np.ndarray  # [N] int64, pulls; a failed one does not count
    sums: np.ndarray  # [N] float64, of returns
    squares: np.ndarray  # [N] float64, sum of squared returns
    discarded: np.ndarray  # [N] bool, a pull has failed
    seed: int  # of the order among equals

    @property
    def pulls(self) -> int:
        return int(self.counts.sum())

    @property
    def means(self) -> np.ndarray:
        """Mean returns [N], NaN for arms never pulled."""
        with np.errstate(invalid="ignore"):
            return self.sums / self.counts

    @property
    def variances(self) -> np.ndarray:
        """Mean squared deviations from the mean [N], NaN for arms never pulled."""
        with np.errstate(invalid="ignore"):
            return np.maximum(self.squares / self.counts - self.means**2, 0.0)

    @property
    def consumed(self) -> np.ndarray:
        """Numbers consumed of each stream: [N] int64."""
        return self.counts + self.discarded


def no_pulls(n_arms: int, seed: int) -> StreamState:
    """Return the `StreamState` before the first pull.

    Raises:
      JbrlError: no arm, or a seed that is no natural number.
    """
    if n_arms < 1:
        raise JbrlError(
            f"bandit: {n_arms} arms; expected at least one: the space of formulas is empty"
        )
    if seed < 0:
        raise JbrlError(f"bandit: seed = {seed}: expected an integer from 0")
    return StreamState(
        np.zeros(n_arms, np.int64), np.zeros(n_arms), np.zeros(n_arms), np.zeros(n_arms, bool), seed
    )


@dataclass(frozen=True)
class Streams:
    """Returns simulated and not yet consumed."""

    values: np.ndarray  # [P] float64, those of arm 0 in order, then those of arm 1, …
    lengths: np.ndarray  # [N] int64, returns waiting, by arm
    simulated: int = 0  # since the start, consumed or not

    @property
    def starts(self) -> np.ndarray:
        """Index of the first value of each arm: [N] int64."""
        return np.cumsum(self.lengths) - self.lengths

    def request(self, state: StreamState, demand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the returns to simulate: arms [R] int64 and their numbers in the streams, [R]
        int64, for `demand[a]` more of each arm a.
        """
        arms = np.repeat(np.arange(len(demand)), demand)
        within = np.arange(len(arms)) - (np.cumsum(demand) - demand)[arms]
        return arms, (state.consumed + self.lengths)[arms] + within

    def extend(self, arms: np.ndarray, returns: np.ndarray) -> "Streams":
        """Add the `returns` [R] of a request for `arms` [R]."""
        owners = np.concatenate([np.repeat(np.arange(len(self.lengths)), self.lengths), arms])
        values = np.concatenate([self.values, np.asarray(returns, np.float64)])
        order = np.argsort(owners, kind="stable")
        return Streams(
            values[order],
            np.bincount(owners, minlength=len(self.lengths)),
            self.simulated + len(arms),
        )

    def drop(self, used: np.ndarray, discarded: np.ndarray) -> "Streams":
        """Remove the first `used[a]` returns of each arm a, and all of discarded arms."""
        used = np.where(discarded, self.lengths, used)
        owners = np.repeat(np.arange(len(self.lengths)), self.lengths)
        within = np.arange(len(owners)) - self.starts[owners]
        return Streams(self.values[within >= used[owners]], self.lengths - used, self.simulated)


def no_streams(n_arms: int) -> Streams:
    """Return streams of `n_arms` arms before anything is simulated."""
    return Streams(np.empty(0), np.zeros(n_arms, np.int64))
