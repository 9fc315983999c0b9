"""Spaces of observations and actions, and lifetimes: how long an agent plays."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl.base.errors import check_count


@dataclasses.dataclass(frozen=True)
class _Index:
    n: int

    @property
    def dtype(self) -> Any:
        return jnp.int32

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.n})"


class Discrete(_Index):
    """Integers 0..n-1, as [] int32."""


@dataclasses.dataclass(frozen=True)
class LowerTriangle:
    """Cells of a square matrix on and below its diagonal, numbered row by row."""

    size: int  # rows and columns of the matrix

    @property
    def count(self) -> int:
        """Number of these cells."""
        return self.size * (self.size + 1) // 2

    def indices(self) -> np.ndarray:
        """Return the index of each cell in the matrix, row * size + column: [count] int32."""
        row, column = np.tril_indices(self.size)
        return (row * self.size + column).astype(np.int32)

    def numbers(self, indices: Array) -> Array:
        """Return the number of each cell, [...] int32, from its index; -1 stays -1."""
        row = indices // self.size
        return jnp.where(indices < 0, -1, row * (row + 1) // 2 + indices - row * self.size)


@dataclasses.dataclass(frozen=True)
class OneHot(_Index):
    """One-hot vectors of length n, each given by the index of its 1, [] int32; -1 stands for the
    vector of zeros.

    `reachable` says which indices occur, where not all do: a table needs no rows for the others.
    """

    reachable: LowerTriangle | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of float32 of one shape.

    `low` and `high` are nominal, one number for each entry or one for all: values may go
    beyond them.
    """

    shape: tuple[int, ...]
    low: tuple[float, ...] | float = -np.inf
    high: tuple[float, ...] | float = np.inf

    @property
    def dtype(self) -> Any:
        return jnp.float32

    def __str__(self) -> str:
        return f"Box{self.shape}"


Observation = Discrete | OneHot | Box


@dataclasses.dataclass(frozen=True)
class Spec:
    """Observations and actions of an environment. Part of the compiled program."""

    observation: Observation
    actions: Discrete

    def __str__(self) -> str:
        return f"observations {self.observation} and {self.actions.n} actions"


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
        object.__setattr__(self, "steps", int(self.steps))  # NumPy's are none of JSON


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
        for name in ("episodes", "max_steps"):
            check_count(name, getattr(self, name))
            object.__setattr__(self, name, int(getattr(self, name)))


Lifetime = Steps | Episodes
