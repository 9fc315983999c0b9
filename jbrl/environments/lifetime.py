"""Lifetime of an agent in one environment: a number of steps, or a number of episodes."""

import dataclasses

import numpy as np

from jbrl.base.errors import JbrlError

MAX_COUNT = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Steps:
    """A lifetime of a fixed number of decisions.

    An episode that ends before is followed by another one.

    Raises:
      JbrlError: `steps` is not an integer from 1.
    """

    steps: int

    def __post_init__(self) -> None:
        check_count("horizon", self.steps)


@dataclasses.dataclass(frozen=True)
class Episodes:
    """A lifetime of a fixed number of episodes.

    Attributes:
      max_steps: decisions after which an episode that has not ended is an error: an environment
        without an end would be played forever.

    Raises:
      JbrlError: `episodes` or `max_steps` is not an integer from 1.
    """

    episodes: int
    max_steps: int = 100_000

    def __post_init__(self) -> None:
        check_count("episodes", self.episodes)
        check_count("max_steps", self.max_steps)


Lifetime = Steps | Episodes


def check_count(field: str, value: object, high: int = MAX_COUNT, low: int = 1) -> None:
    """Raise `JbrlError` unless `value` is an integer from `low` to `high`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not low <= value <= high
    ):
        raise JbrlError(f"{field} = {value!r}: expected an integer from {low} to {high}")
