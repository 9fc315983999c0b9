"""Scores made comparable: a scale for each environment, then a monotone transform that all
environments share.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from jbrl.base.errors import JbrlError

Normalise = Literal["none", "references", "min-max", "z-score"]
NORMALISE = ("none", "references", "min-max", "z-score")
TRANSFORMS = ("identity", "log10", "rank")
# a transform of one's own and its inverse
Pair = tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Scale:
    """z = unit (x - low) / (high - low) for each environment; with references, unit = 100 and z is
    in per cent.
    """

    low: np.ndarray  # [n] float64
    high: np.ndarray  # [n] float64
    unit: float

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        return self.unit * (scores - self.low) / (self.high - self.low)

    def only(self, columns: np.ndarray) -> "Scale":
        """Return the scale of some of the environments."""
        return Scale(self.low[columns], self.high[columns], self.unit)


def log10(z: np.ndarray) -> np.ndarray:
    """Return the decimal logarithm of 1 + z, that of 1 where z is negative: Aitchison et al. 2022,
    equation 2.
    """
    return np.log10(1 + np.maximum(0.0, z))


def power10(y: np.ndarray) -> np.ndarray:
    """Return the inverse, 10^y - 1, equation 3."""
    return 10.0**y - 1


@dataclasses.dataclass(frozen=True)
class Transform:
    """A monotone function of one environment's scores and its inverse; `rank` interpolates between
    the scores it was made from.
    """

    name: str
    forward: Callable[[np.ndarray], np.ndarray]
    inverse: Callable[[np.ndarray], np.ndarray]
    knots: tuple[np.ndarray, np.ndarray] | None = None  # scores and their ranks


def transform_of(name: str | Pair, values: np.ndarray) -> Transform:
    """Return the transform of that name for an environment or a target with these values (NaN where
    missing).

    Raises:
      JbrlError: there is no such transform.
    """
    if not isinstance(name, str):
        return Transform("custom", *name)
    if name == "identity":
        return Transform(name, np.asarray, np.asarray)
    if name == "log10":
        return Transform(name, log10, power10)
    if name == "rank":
        known, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        return from_knots(known, (np.cumsum(counts) - (counts - 1) / 2) / counts.sum())
    raise JbrlError(f"subset: transform = {name!r}: expected one of {', '.join(TRANSFORMS)}")


def from_knots(scores: np.ndarray, ranks: np.ndarray) -> Transform:
    """Return ranks, as a share of the algorithms, interpolated between the scores [K] that are
    known.
    """

    def forward(values: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(values), np.nan, np.interp(values, scores, ranks))

    return Transform("rank", forward, lambda y: np.interp(y, ranks, scores), (scores, ranks))


def scale_of(
    normalise: str,
    scores: np.ndarray,
    references: Any | None,
    environments: tuple[str, ...],
    *,
    flip: bool,
) -> Scale:
    """Return the scale of the environments, in their order.

    Args:
      scores: [m, n] float64, NaN where missing.
      references: table with columns environment, low, high; needed for "references" alone.
      flip: accept environments where high < low: less is better there.

    Raises:
      JbrlError: an environment without references, whose low and high are equal or, without `flip`,
        in the wrong order; a constant environment that is to be scaled by its spread; an unknown
        way to normalise.
    """
    n = len(environments)
    if normalise == "none":
        return Scale(np.zeros(n), np.ones(n), 1.0)
    if normalise == "references":
        return _references(references, environments, flip=flip)
    if normalise == "min-max":
        low, high = np.nanmin(scores, 0), np.nanmax(scores, 0)
    elif normalise == "z-score":
        low = np.nanmean(scores, 0)
        high = low + np.nanstd(scores, 0)
    else:
        raise JbrlError(
            f"subset: normalise = {normalise!r}: expected one of {', '.join(NORMALISE)}"
        )
    flat = np.flatnonzero(~(high > low))
    if flat.size:
        raise JbrlError(
            f"subset: environment '{environments[flat[0]]}': all algorithms have the score "
            f"{low[flat[0]]:g}: it cannot be normalised by {normalise}; force it out of the "
            "table, or normalise by references"
        )
    return Scale(low, high, 1.0)


def _references(references: Any | None, environments: tuple[str, ...], *, flip: bool) -> Scale:
    if references is None:
        raise JbrlError(
            "subset: normalise = 'references': expected a table of references with the columns "
            "environment, low, high"
        )
    rows = references[["environment", "low", "high"]]
    twice = rows.loc[rows["environment"].duplicated(), "environment"]
    if len(twice):
        raise JbrlError(
            f"references: environment '{twice.iloc[0]}' occurs twice: expected one row for each "
            "environment"
        )
    known = {name: (low, high) for name, low, high in rows.itertuples(index=False)}
    for name in environments:
        if name not in known:
            raise JbrlError(
                f"references: no row for environment '{name}' of the score table: expected one "
                "for each environment"
            )
        low, high = known[name]
        if low == high:
            raise JbrlError(
                f"references: environment '{name}': low = high = {low:g}: expected two different "
                "scores"
            )
        if high < low and not flip:
            raise JbrlError(
                f"references: environment '{name}': high = {high:g} is below low = {low:g}: "
                "expected low < high; say so (flip) if less is better there"
            )
    low, high = np.array([known[name] for name in environments], np.float64).reshape(-1, 2).T
    return Scale(low, high, 100.0)
