"""Preparation of predictors and target from a table of scores: normalise, summarise, filter,
transform.

Aitchison et al. 2022, section 4.1.
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, check_choice, nearest
from jbrl.stats.score_table import alike
from jbrl.stats.subset.transform import Normalise, Pair, Scale, Transform, scale_of, transform_of

Summary = Callable[[np.ndarray], float]
TARGETS = ("median", "mean", "iqm", "meanlog", "gap")
CELL = ["algorithm", "environment"]
DUPLICATES = ("error", "first", "last", "mean")
SIZES = (1e-150, 1e150)  # of numbers whose squares neither vanish nor overflow
NAMED_PAIRS = 3  # pairs of such algorithms that are named
# algorithms that agree so closely on such a share of the environments are taken for copies
NEAR, NEARLY_ALL = 0.01, 0.45


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Preparation of scores as predictors and target.

    `median`, `mean`, `iqm` (mean of the middle half) and `gap` (mean of what is missing to 1, or to
    100 %) summarise the normalised scores of an algorithm over the target environments that it has
    a score for; the summary is then transformed, or, with `transform_first`, the other way round.
    `meanlog` is the mean of the transformed scores.
    """

    normalise: Normalise = "none"
    transform: str | Pair = "identity"
    # or a function of an algorithm's scores, or a number for each algorithm
    target: str | Summary | dict[str, float] = "median"
    transform_first: bool = False
    target_environments: tuple[str, ...] | None = None  # None: all
    min_environments: int = 1  # target environments that an algorithm needs a score for
    min_algorithms: int = 1  # that an environment needs a score of
    min_target: float | None = None  # what the summary must exceed, before the transform
    # filter algorithms and environments in turn until nothing changes; otherwise once each
    until_stable: bool = False
    # scores of the same algorithm and environment that differ
    duplicates: Literal["error", "first", "last", "mean"] = "error"
    flip: bool = False  # allow references with high < low


ATARI5 = Preparation("references", "log10", min_environments=40, min_algorithms=40, min_target=40.0)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Predictors and target of m algorithms and n environments."""

    algorithms: tuple[str, ...]  # ordered by code point
    environments: tuple[str, ...]  # in the order of the references, or by code point
    normalised: np.ndarray  # [m, n] float64, NaN where missing
    features: np.ndarray  # [m, n] float64, the same transformed
    summary: np.ndarray  # [m] float64
    target: np.ndarray  # [m] float64, the same transformed
    usable: np.ndarray  # [n] bool, environments that the thresholds leave
    scale: Scale
    transforms: tuple[Transform, ...]  # of each environment
    target_transform: Transform
    dropped: dict[str, str]  # algorithm -> reason
    warnings: tuple[str, ...]
    preparation: Preparation

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
        """Data that `fit_subset` fits: features, target, names of the environments."""
        return self.features, self.target, self.environments

    def column(self, name: str) -> int:
        """Return the number of an environment.

        Raises:
          JbrlError: there is no such environment.
        """
        if name not in self.environments:
            raise JbrlError(
                f"subset: unknown environment '{name}'{nearest(name, self.environments)}"
            )
        return self.environments.index(name)

    def without(self, algorithms: tuple[str, ...] | list[str]) -> "Prepared":
        """Return the same with some algorithms left out; scales and transforms stay."""
        kept = np.array([name not in set(algorithms) for name in self.algorithms])
        return self._of(np.flatnonzero(kept), tuple(np.array(self.algorithms, object)[kept]))

    def drawn(self, rows: np.ndarray) -> "Prepared":
        """Return the same with the algorithms numbered `rows`, [m] int, one that occurs twice
        counting as two; scales and transforms stay.
        """
        return self._of(
            rows, tuple(f"{self.algorithms[row]} ({place})" for place, row in enumerate(rows))
        )

    def _of(self, rows: np.ndarray, algorithms: tuple[str, ...]) -> "Prepared":
        names = ("normalised", "features", "summary", "target")
        arrays = {name: getattr(self, name)[rows] for name in names}
        return dataclasses.replace(self, algorithms=algorithms, **arrays)


def prepare(
    table: pd.DataFrame,
    preparation: Preparation,
    references: pd.DataFrame | None = None,
    *,
    name: str = "score table",
) -> Prepared:
    """Prepare predictors and target of a score table.

    Args:
      table: columns algorithm, environment, score (finite numbers; what is missing has no row).
      references: columns environment, low, high; its order becomes that of the environments.
      name: of the table, for messages.

    Raises:
      JbrlError: different scores for one algorithm and environment, a sound scale cannot be made,
        thresholds leave nothing, or the target is constant, not known or not finite.
    """
    notes: list[str] = []
    names = None if references is None else list(references["environment"])
    _check_duplicates(table, preparation.duplicates, name, notes)
    scores = _matrix(table, preparation.duplicates, names)
    algorithms, environments = tuple(scores.index), tuple(scores.columns)
    scale = scale_of(
        preparation.normalise, scores.to_numpy(), references, environments, flip=preparation.flip
    )
    normalised = scale(scores.to_numpy(np.float64))
    counted = _counted(preparation, environments)
    transforms = tuple(transform_of(preparation.transform, column) for column in normalised.T)
    columns = zip(transforms, normalised.T, strict=True)
    features = np.column_stack([transform.forward(column) for transform, column in columns])
    summary = _summary(preparation, algorithms, normalised, features, counted)
    rows, usable, dropped = _filtered(preparation, algorithms, normalised, summary, counted)
    back = transform_of(preparation.transform, summary[rows])
    forward = np.asarray if _is_transformed(preparation) else back.forward
    prepared = Prepared(
        algorithms=tuple(np.array(algorithms, object)[rows]),
        environments=environments,
        normalised=normalised[rows],
        features=features[rows],
        summary=summary[rows],
        target=forward(summary[rows]),
        usable=usable,
        scale=scale,
        transforms=transforms,
        target_transform=back,
        dropped=dropped,
        warnings=(),
        preparation=preparation,
    )
    _check(prepared)
    return dataclasses.replace(prepared, warnings=(*notes, *_doubts(prepared)))


def _check_duplicates(table: pd.DataFrame, policy: str, name: str, notes: list[str]) -> None:
    """Refuse several scores for one algorithm and environment without a rule for them; note those
    that are equal, and means of fewer scores than others.
    """
    check_choice("subset: duplicates", policy, DUPLICATES)
    twice = table[table.duplicated(CELL, keep=False)]
    spread = twice.groupby(CELL)["score"].agg(["nunique", "size"])
    different = spread[spread["nunique"] > 1]
    if len(different) and policy == "error":
        (algorithm, environment), row = different.index[0], different.iloc[0]
        raise JbrlError(
            f"{name}: algorithm '{algorithm}', environment '{environment}': "
            f"{row['size']} rows with different scores: expected one score, or a rule for "
            f"several (--duplicates mean, first or last); {len(different)} such cells in all"
        )
    if len(different) < len(spread):
        notes.append(
            f"{len(spread) - len(different)} cells of the score table occur several times "
            "with the same score; one is kept"
        )
    sizes = table.groupby(CELL).size()
    fewer = int((sizes < sizes.max()).sum())
    if fewer and policy == "mean":
        notes.append(
            f"{fewer} of {len(sizes)} cells are means of fewer than {sizes.max()} scores, some of "
            f"{sizes.min()}: they are less certain, and count as much"
        )


def _matrix(table: pd.DataFrame, policy: str, names: list[str] | None) -> pd.DataFrame:
    """Return scores as algorithms x environments, NaN where missing.

    Args:
      names: environments that come first, in this order.
    """
    rule = {"error": "first"}.get(policy, policy)
    scores = table.groupby(CELL)["score"].agg(rule).unstack("environment").sort_index()
    first = [name for name in dict.fromkeys(names or ()) if name in scores.columns]
    return scores[[*first, *sorted(set(scores.columns) - set(first))]]


def _counted(preparation: Preparation, environments: tuple[str, ...]) -> np.ndarray:
    """Return environments that the target is made of, [n] bool."""
    if preparation.target_environments is None:
        return np.ones(len(environments), bool)
    for name in preparation.target_environments:
        if name not in environments:
            raise JbrlError(
                "subset: target environments: unknown environment "
                f"'{name}'{nearest(name, environments)}"
            )
    return np.isin(environments, preparation.target_environments)


def _is_transformed(preparation: Preparation) -> bool:
    """Return whether the summary is one of transformed scores."""
    return not isinstance(preparation.target, dict) and (
        preparation.transform_first or preparation.target == "meanlog"
    )


def _summary(
    preparation: Preparation,
    algorithms: tuple[str, ...],
    normalised: np.ndarray,
    features: np.ndarray,
    counted: np.ndarray,
) -> np.ndarray:
    """Return [m] float64, NaN for algorithms with no score in the target environments."""
    if isinstance(preparation.target, dict):
        return _custom(preparation.target, algorithms)
    full = 100.0 if preparation.normalise == "references" else 1.0
    summaries: dict[str, Any] = {
        "median": np.median,
        "mean": np.mean,
        "meanlog": np.mean,
        "iqm": _middle_mean,
        "gap": lambda z: np.mean(np.maximum(full - z, 0)),
    }
    summary: Any = preparation.target
    if isinstance(summary, str) and summary not in summaries:
        raise JbrlError(
            f"subset: target = {summary!r}: expected one of {', '.join(TARGETS)}, or "
            "one number for each algorithm"
        )
    summary = summaries.get(summary, summary)
    values = (features if _is_transformed(preparation) else normalised)[:, counted]
    known = [row[~np.isnan(row)] for row in values]
    return np.array([summary(row) if len(row) else np.nan for row in known])


def _custom(target: dict[str, float], algorithms: tuple[str, ...]) -> np.ndarray:
    for name in algorithms:
        if name not in target or not np.isfinite(target[name]):
            raise JbrlError(
                f"subset: target of algorithm '{name}': {target.get(name, 'none given')}: "
                "expected a finite number"
            )
    return np.array([target[name] for name in algorithms], np.float64)


def _middle_mean(values: np.ndarray) -> float:
    """Return the mean of the middle half: a quarter of the values, rounded down, is cut off at each
    end.
    """
    cut = len(values) // 4
    return float(np.sort(values)[cut : len(values) - cut].mean())


def _filtered(
    preparation: Preparation,
    algorithms: tuple[str, ...],
    normalised: np.ndarray,
    summary: np.ndarray,
    counted: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
    """Return algorithms and environments that the thresholds leave, and why the other algorithms
    are out.
    """
    known, least = ~np.isnan(normalised), preparation.min_target
    reasons = dict.fromkeys(
        np.array(algorithms, object)[np.isnan(summary)], "no score in the target environments"
    )
    rows, usable = ~np.isnan(summary), np.ones(normalised.shape[1], bool)
    while True:
        before = rows.copy(), usable.copy()
        used = counted & usable if preparation.until_stable else counted
        enough = known[:, used].sum(1) >= preparation.min_environments
        high = np.ones_like(rows) if least is None else ~(summary <= least)
        for i in np.flatnonzero(rows & ~(enough & high)):
            few = f"fewer than {preparation.min_environments} environments"
            reasons[algorithms[i]] = (
                few if not enough[i] else f"target {summary[i]:.4g} not above {least:g}"
            )
        rows = rows & enough & high
        usable = usable & (known[rows].sum(0) >= preparation.min_algorithms)
        if not preparation.until_stable or (
            np.array_equal(rows, before[0]) and np.array_equal(usable, before[1])
        ):
            return rows, usable, reasons


def _check(prepared: Prepared) -> None:
    limits = prepared.preparation
    if len(prepared.algorithms) < 3:
        target = "" if limits.min_target is None else f", target above {limits.min_target}"
        raise JbrlError(
            f"subset: {len(prepared.algorithms)} algorithms are left (scores in at least "
            f"{limits.min_environments} environments{target}): expected at least 3"
        )
    if not prepared.usable.any():
        raise JbrlError(
            f"subset: no environment has scores of at least {limits.min_algorithms} of the "
            f"{len(prepared.algorithms)} algorithms"
        )
    bad = np.flatnonzero(~np.isfinite(prepared.target))
    if bad.size:
        raise JbrlError(
            f"subset: target of algorithm '{prepared.algorithms[bad[0]]}' is "
            f"{prepared.target[bad[0]]}: expected a finite number"
        )
    if np.ptp(prepared.target) <= 1e-12 * np.abs(prepared.target).max():
        raise JbrlError(
            f"subset: the target is {prepared.target[0]:g} for all algorithms: expected one that "
            "differs"
        )
    lost = np.argwhere(
        ~np.isfinite(np.where(np.isnan(prepared.normalised), 0.0, prepared.features))
    )
    if len(lost):
        i, j = lost[0]
        raise JbrlError(
            f"subset: algorithm '{prepared.algorithms[i]}', environment "
            f"'{prepared.environments[j]}': the transformed score is {prepared.features[i, j]}: "
            "expected a finite number"
        )
    sizes = np.abs(np.nan_to_num(np.column_stack([prepared.features, prepared.target]))).max(0)
    for name, size in zip((*prepared.environments, "the target"), sizes, strict=True):
        if size and not SIZES[0] <= size <= SIZES[1]:
            raise JbrlError(
                f"subset: {name}: the greatest number is {size:g}: expected {SIZES[0]:g} to "
                f"{SIZES[1]:g}, which can be squared: normalise by min-max"
            )


def _doubts(prepared: Prepared) -> list[str]:
    """Return warnings for the user: names, copies, columns without spread."""
    notes = [*alike(prepared.algorithms), *alike(prepared.environments)]
    z = prepared.normalised
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any score
        constant = np.nanmax(prepared.features, 0) == np.nanmin(prepared.features, 0)
    notes += [
        f"environment '{prepared.environments[j]}' has the same score for all algorithms"
        for j in np.flatnonzero(constant)
    ]
    copies = []
    for i in range(len(z)):
        close = np.abs(z[i] - z[i + 1 :]) <= NEAR * np.maximum(np.abs(z[i]), np.abs(z[i + 1 :]))
        both = ~np.isnan(z[i] - z[i + 1 :])
        for k in np.flatnonzero(
            (both.sum(1) > 3) & ((close & both).sum(1) > NEARLY_ALL * both.sum(1))
        ):
            pair = f"'{prepared.algorithms[i]}' and '{prepared.algorithms[i + 1 + k]}'"
            copies.append(
                f"{pair} agree within 1 % in {(close & both)[k].sum()} of "
                f"{both[k].sum()} environments: one algorithm twice?"
            )
    if len(copies) > NAMED_PAIRS:
        copies = [
            *copies[:NAMED_PAIRS],
            f"{len(copies) - NAMED_PAIRS} more pairs of algorithms agree as closely",
        ]
    return [*notes, *copies]
