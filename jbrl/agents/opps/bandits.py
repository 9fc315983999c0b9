"""Bandits: which of many arms has the greatest mean return, in a budget of pulls.

The interface, and how a search runs.

    demand   which returns are likely to be wanted next
    advance  pull, over the returns that are there, until the budget is spent or one is wanted that
             is not there

with the caller simulating what is demanded in between (`search`). States and streams are in
`streams`, the bandits in `ucb` and `halving`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from jbrl.agents.opps.streams import Streams, StreamState, no_streams
from jbrl.base.errors import JbrlError

AnyState = TypeVar("AnyState", bound=StreamState)

# Simulates returns: arms [R] and numbers in their streams [R], int64, to returns [R], NaN for a
# failed pull.
Pull = Callable[[np.ndarray, np.ndarray], np.ndarray]

_GROWTH = 8  # a round simulates at most one return for so many pulls already made


class Bandit(ABC, Generic[AnyState]):
    """Contract of all bandits. Pure: states and streams go in and come out."""

    @abstractmethod
    def start(self, n_arms: int, seed: int = 0) -> AnyState:
        """Return the `StreamState` before the first pull.

        Raises:
          JbrlError: no arm, a negative seed, a parameter out of range.
        """

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

    @property
    def overhead(self) -> float:
        """Returns simulated and not consumed, as a fraction of the pulls."""
        return (self.streams.simulated - self.state.pulls) / max(1, self.state.pulls)


def begin(bandit: Bandit[AnyState], n_arms: int, seed: int = 0) -> BanditProgress[AnyState]:
    """Return a search before its first pull.

    Raises:
      JbrlError: no arm, a negative seed, a parameter of the bandit out of range.
    """
    return BanditProgress(bandit.start(n_arms, seed), no_streams(n_arms))


def arrays(progress: BanditProgress[Any]) -> dict[str, np.ndarray]:
    """Return all of a search as named arrays, numbers with no axis."""
    return {
        name: np.asarray(value)
        for part in (progress.state, progress.streams)
        for name, value in vars(part).items()
    }


def restored(
    bandit: Bandit[AnyState], n_arms: int, saved: dict[str, np.ndarray]
) -> BanditProgress[AnyState]:
    """Invert `arrays`, for the same bandit and arms."""
    start = begin(bandit, n_arms)
    return BanditProgress(_refilled(start.state, saved), _refilled(start.streams, saved))


def _refilled(part: Any, saved: dict[str, np.ndarray]) -> Any:
    """Return `part` with the fields that were saved."""
    return replace(
        part,
        **{name: value if (value := saved[name]).ndim else value.item() for name in vars(part)},
    )


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

    Raises:
      JbrlError: budget or width below 1.
    """
    for name, number in (("budget", budget), ("width", width)):
        if number < 1:
            raise JbrlError(f"bandit: {name} = {number}: expected an integer from 1")
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
