"""Bandits: which of many arms has the greatest mean return, in a budget of pulls.

Pulls are not requested one at a time. Each arm has a stream of independent returns, numbered from
0, and the i-th pull of an arm consumes the i-th number of its stream: the law of the one-at-a-time
loop, for any order in which returns are simulated. So returns are simulated in large batches ahead
of need (`search`), as a bandit demands:

    demand   which returns are likely to be wanted next
    advance  pull, over the returns that are there, until the budget is spent or one is wanted that
             is not there

Only the returns consumed are pulls; the others are overhead. A return that is NaN is a failed pull:
the arm is discarded for good and the pull does not count.

`ucb` holds the bandits, those with confidence bounds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

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
    """Return the `StreamState` before the first pull."""
    return StreamState(
        np.zeros(n_arms, np.int64), np.zeros(n_arms), np.zeros(n_arms), np.zeros(n_arms, bool), seed
    )


def pulled_arms(state: StreamState) -> np.ndarray:
    """Return which arms can be recommended: pulled, and not discarded, [N] bool.

    Raises:
      JbrlError: every pull has failed.
    """
    pulled: np.ndarray = (state.counts > 0) & ~state.discarded
    if not pulled.any():
        raise JbrlError(
            f"bandit: no arm to recommend: of {len(state.counts)} arms none was pulled without "
            "failing"
        )
    return pulled


def any_of(state: StreamState, equals: np.ndarray) -> int:
    """Return one of the arms where `equals`, [N] bool, holds, at random."""
    return int(np.random.default_rng((state.seed, state.pulls)).choice(np.flatnonzero(equals)))


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


AnyState = TypeVar("AnyState", bound=StreamState)

# Simulates returns: arms [R] and numbers in their streams [R], int64, to returns [R], NaN for a
# failed pull.
Pull = Callable[[np.ndarray, np.ndarray], np.ndarray]

_GROWTH = 8  # a round simulates at most one return for so many pulls already made


class Bandit(ABC, Generic[AnyState]):
    """Contract of all bandits. Pure: states and streams go in and come out."""

    @abstractmethod
    def start(self, n_arms: int, seed: int = 0) -> AnyState:
        """Return the `StreamState` before the first pull."""

    def compile(self, n_arms: int, max_length: int) -> None:
        """Make ready to search `n_arms` arms with up to about `max_length` returns waiting, so that
        nothing is compiled later.
        """

    @abstractmethod
    def demand(self, state: AnyState, streams: Streams, size: int, budget: int) -> np.ndarray:
        """Return how many returns of each arm are likely to be wanted next, beyond those waiting:
        [N] int64, at most `size` in all.

        The next return that is missing is always among them, so that `advance` makes progress; all
        are 0 only when none will be missing.
        """

    @abstractmethod
    def advance(self, state: AnyState, streams: Streams, budget: int) -> tuple[AnyState, Streams]:
        """Pull until `finished`, or until the arm to pull has no return waiting."""

    def finished(self, state: AnyState, budget: int) -> bool:
        """Return whether no pull is left to make: the budget is spent or every arm discarded."""
        return state.pulls >= budget or bool(state.discarded.all())

    @abstractmethod
    def recommend(self, state: AnyState) -> int:
        """Return the arm to use.

        Raises:
          JbrlError: every pull has failed.
        """


@dataclass(frozen=True)
class BanditProgress(Generic[AnyState]):
    """Position of a search: all that is needed to continue it."""

    state: AnyState
    streams: Streams


def begin(bandit: Bandit[AnyState], n_arms: int, seed: int = 0) -> BanditProgress[AnyState]:
    """Return a search before its first pull."""
    return BanditProgress(bandit.start(n_arms, seed), no_streams(n_arms))


def as_arrays(*parts: Any) -> dict[str, np.ndarray]:
    """Return the fields of records as named arrays, numbers with no axis."""
    return {name: np.asarray(value) for part in parts for name, value in vars(part).items()}


def refilled(part: Any, saved: dict[str, np.ndarray]) -> Any:
    """Return the record `part` with the fields that were saved by `as_arrays`."""
    values = {name: saved[name] for name in vars(part)}
    return replace(part, **{name: v if v.ndim else v.item() for name, v in values.items()})


def restored(
    start: BanditProgress[AnyState], saved: dict[str, np.ndarray]
) -> BanditProgress[AnyState]:
    """Return a search as it was saved by `as_arrays`; `start` is its beginning."""
    return BanditProgress(refilled(start.state, saved), refilled(start.streams, saved))


def search(
    bandit: Bandit[AnyState],
    progress: BanditProgress[AnyState],
    budget: int,
    pull: Pull,
    width: int = 1,
) -> Iterator[BanditProgress[AnyState]]:
    """Search until the budget is spent, a round at a time.

    The pulls made depend on the streams alone, neither on `width` nor on where a search was
    interrupted and taken up again.

    Args:
      progress: where to start: `begin`, or an earlier search.
      budget: pulls in all, those already made included.
      width: returns that are simulated at once at little more than the cost of one. Rounds are of
        this size at least.

    Yields: the progress after each round.
    """
    state, streams = progress.state, progress.streams
    while not bandit.finished(state, budget):
        demand = bandit.demand(state, streams, round_size(state, width), budget)
        arms, numbers = streams.request(state, demand)
        if len(arms):
            streams = streams.extend(arms, pull(arms, numbers))
        state, streams = bandit.advance(state, streams, budget)
        yield BanditProgress(state, streams)


def round_size(state: StreamState, width: int) -> int:
    """Return the number of returns to simulate in the next round: few enough that few of them
    remain unused, in whole multiples of `width`.
    """
    if not state.pulls:
        return max(width, len(state.counts))
    return max(1, state.pulls // (_GROWTH * width)) * width
