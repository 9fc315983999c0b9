"""Folds of cross-validation: the rows that are held out together."""

import dataclasses
from functools import lru_cache

import numpy as np

from jbrl.base.errors import JbrlError


@dataclasses.dataclass(frozen=True)
class Folds:
    """K-fold cross-validation of the rows that a subset leaves, repeated with the seeds seed,
    seed + 1, ….

    With groups, whole groups are held out, the same rows for any subset.
    """

    k: int = 10
    seed: int = 1982
    repeats: int = 1
    groups: tuple[str, ...] | None = None  # of each row of the table
    pooled: bool = False  # the mean error of all rows, not the mean over folds of their mean error

    def __post_init__(self) -> None:
        for name, value, low in (
            ("folds", self.k, 2),
            ("seed", self.seed, 0),
            ("repeats", self.repeats, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**31:
                raise JbrlError(f"subset: {name} = {value!r}: expected an integer from {low}")
        n_groups = len(set(self.groups or ()))
        if self.groups is not None and self.k > n_groups:
            raise JbrlError(
                f"subset: folds = {self.k}: expected at most {n_groups}, the number of groups"
            )

    @property
    def count(self) -> int:
        """Training sets."""
        return self.k * self.repeats

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return folds [R, n] int32 of the rows numbered `rows`, ascending."""
        if self.groups is None:
            return np.stack(
                [shuffled(len(rows), self.k, self.seed + r) for r in range(self.repeats)]
            )
        names, group = np.unique(np.asarray(self.groups, object).astype(str), return_inverse=True)
        return np.stack(
            [shuffled(len(names), self.k, self.seed + r)[group[rows]] for r in range(self.repeats)]
        )

    def held_out(self, rows: np.ndarray) -> np.ndarray:
        """Return [n, F] bool, the folds of a repeat beside each other."""
        return (
            (self.of_rows(rows)[..., None] == np.arange(self.k))
            .transpose(1, 0, 2)
            .reshape(len(rows), self.count)
        )


@lru_cache(maxsize=4096)
def shuffled(n: int, k: int, seed: int) -> np.ndarray:
    """Return folds [n] int32 of n rows, those of scikit-learn's `KFold(k, shuffle=True,
    random_state=seed)`.

    The first n mod k folds take ⌊n/k⌋ + 1 consecutive entries of a permutation, the others ⌊n/k⌋.
    The generator is NumPy's legacy one, whose permutations never change.
    """
    sizes = np.full(k, n // k)
    sizes[: n % k] += 1
    found = np.empty(n, np.int32)
    found[np.random.RandomState(seed).permutation(n)] = np.repeat(
        np.arange(k, dtype=np.int32), sizes
    )
    found.flags.writeable = False
    return found
