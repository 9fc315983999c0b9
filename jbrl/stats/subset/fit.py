"""One subset in full: folds of cross-validation, coefficients and statistics, in NumPy, by
orthogonal decompositions.
"""

import dataclasses
import math
from functools import lru_cache
from typing import Any

import numpy as np

from jbrl.base.errors import JbrlError, check_count
from jbrl.stats.subset.kernel import fold_weights


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
        numbers = (("folds", self.k, 2), ("seed", self.seed, 0), ("repeats", self.repeats, 1))
        for name, value, low in numbers:
            check_count(f"subset: {name}", value, low=low)
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
        n, place = len(rows), np.arange(len(rows))
        if self.groups is not None:
            names, group = np.unique(np.array(self.groups, str), return_inverse=True)
            n, place = len(names), group[rows]
        seeds = range(self.seed, self.seed + self.repeats)
        return np.stack([shuffled(n, self.k, seed)[place] for seed in seeds])

    def held_out(self, rows: np.ndarray) -> np.ndarray:
        """Return [n, F] bool, the folds of a repeat beside each other."""
        held = self.of_rows(rows)[..., None] == np.arange(self.k)
        return held.transpose(1, 0, 2).reshape(len(rows), self.count)


@lru_cache(maxsize=4096)
def shuffled(n: int, k: int, seed: int) -> np.ndarray:
    """Return folds [n] int32 of n rows, those of scikit-learn's `KFold(k, shuffle=True,
    random_state=seed)`.

    The first n mod k folds take ⌊n/k⌋ + 1 consecutive entries of a permutation, the others ⌊n/k⌋.
    The generator is NumPy's legacy one, whose permutations never change.
    """
    sizes = np.full(k, n // k)
    sizes[: n % k] += 1
    assigned = np.empty(n, np.int32)
    assigned[np.random.RandomState(seed).permutation(n)] = np.repeat(
        np.arange(k, dtype=np.int32), sizes
    )
    assigned.flags.writeable = False
    return assigned


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fitted subset.

    Losses are in the space of the transformed target; NaN where they are not defined.
    """

    subset: tuple[str, ...]
    columns: tuple[int, ...]
    coefficients: np.ndarray  # [C] float64
    intercept: float
    rows: np.ndarray  # [N] int, algorithms that have a score in every environment of the subset
    mse: float  # mean squared residual
    r2: float  # 1 - N mse / sum of squares about the mean, with and without intercept
    cv_mse: float
    cv_r2: float
    cv_mae: float
    loo_mse: float
    # 100 ln 10 cv_mae, in per cent: of the estimate, if the target is a decimal logarithm
    relative_error: float
    kendall: float  # tau-b of target and fitted values
    spearman: float
    cv_kendall: float  # of target and the predictions of models that have not seen the row
    cv_spearman: float
    condition: float  # of the Gram matrix
    predictions: np.ndarray  # [N] fitted values
    cv_predictions: np.ndarray  # [N] mean over repeats
    loss: float = math.nan  # the criterion of the search

    @property
    def n(self) -> int:
        """Algorithms in the fit."""
        return len(self.rows)

    @property
    def order_preserving(self) -> bool:
        """No negative weight: an algorithm that is better everywhere never gets a lower estimate
        (proposition 2).
        """
        return bool((self.coefficients >= 0).all())


def coefficients(
    a: np.ndarray, t: np.ndarray, *, intercept: bool, non_negative: bool
) -> tuple[np.ndarray, float]:
    """Solve least squares of t [N] on the columns of a [N, C], of minimal norm where they are
    dependent; return coefficients and intercept.
    """
    if non_negative:
        from scipy.optimize import nnls

        centre = (a.mean(0), t.mean()) if intercept else (np.zeros(a.shape[1]), 0.0)
        weights = nnls(a - centre[0], t - centre[1])[0]
        return weights, float(centre[1] - centre[0] @ weights)
    if intercept:
        weights = np.linalg.lstsq(np.column_stack([a, np.ones(len(a))]), t, rcond=None)[0]
        return weights[:-1], float(weights[-1])
    return np.linalg.lstsq(a, t, rcond=None)[0], 0.0


def fit_subset(
    features: np.ndarray,
    target: np.ndarray,
    environments: tuple[str, ...],
    columns: tuple[int, ...],
    folds: Folds,
    *,
    intercept: bool = False,
    non_negative: bool = False,
) -> Fit:
    """Fit the target on some columns, on the rows where all of them are known.

    Args:
      features: [m, n] float64, NaN where missing.
      target: [m] float64.
      columns: numbers of the columns, in the order in which coefficients are wanted.
      folds: for what is cross-validated; NaN where there are fewer rows than folds.
    """
    rows = np.flatnonzero(~np.isnan(features[:, columns]).any(1))
    a, t = features[rows][:, columns], target[rows]
    kind = {"intercept": intercept, "non_negative": non_negative}
    b, b0 = coefficients(a, t, **kind)
    fitted = a @ b + b0
    error = t - fitted
    spread = float(((t - t.mean()) ** 2).sum())
    design = np.column_stack([a, np.ones(len(a))]) if intercept else a
    cv = _cross_validated(a, t, rows, folds, kind)
    largest, least = np.linalg.svd(design, compute_uv=False)[[0, -1]]
    return Fit(
        subset=tuple(environments[c] for c in columns),
        columns=tuple(columns),
        coefficients=b,
        intercept=b0,
        rows=rows,
        mse=float((error**2).mean()),
        r2=1 - float((error**2).sum()) / spread if spread else math.nan,
        cv_mse=cv["mse"],
        cv_r2=1 - len(t) * cv["mse"] / spread if spread else math.nan,
        cv_mae=cv["mae"],
        loo_mse=_leave_one_out(a, t, design, error, kind),
        relative_error=100 * math.log(10) * cv["mae"],
        kendall=rank_correlation(t, fitted, "kendall"),
        spearman=rank_correlation(t, fitted, "spearman"),
        cv_kendall=rank_correlation(t, cv["predictions"], "kendall"),
        cv_spearman=rank_correlation(t, cv["predictions"], "spearman"),
        condition=float((largest / least) ** 2) if least > 0 else math.inf,
        predictions=fitted,
        cv_predictions=cv["predictions"],
    )


def _cross_validated(
    a: np.ndarray, t: np.ndarray, rows: np.ndarray, folds: Folds, kind: dict[str, bool]
) -> dict[str, Any]:
    """Return the mean squared and mean absolute error on held-out rows, and the predictions for
    them.
    """
    if folds.groups is None and folds.k > len(t):
        return {"mse": math.nan, "mae": math.nan, "predictions": np.full(len(t), math.nan)}
    held = folds.held_out(rows)
    weight = fold_weights(held.sum(0).astype(np.float64), folds.repeats, pooled=folds.pooled)
    squared = absolute = 0.0
    predictions = np.zeros(len(t))
    for out, w in zip(held.T, weight, strict=True):
        if not out.any() or out.all():
            continue
        b, b0 = coefficients(a[~out], t[~out], **kind)
        predicted = a[out] @ b + b0
        predictions[out] += predicted / folds.repeats
        squared += w * float(((t[out] - predicted) ** 2).sum())
        absolute += w * float(np.abs(t[out] - predicted).sum())
    return {"mse": squared, "mae": absolute, "predictions": predictions}


def _leave_one_out(
    a: np.ndarray, t: np.ndarray, design: np.ndarray, error: np.ndarray, kind: dict[str, bool]
) -> float:
    """Return the mean of (e_i / (1 - h_i))^2, NaN where a row has leverage 1.

    Where signs are constrained there is no closed form: by refitting.
    """
    if kind["non_negative"]:
        inside = ~np.eye(len(t), dtype=bool)
        fits = [coefficients(a[keep], t[keep], **kind) for keep in inside]
        return float(np.mean([(t[i] - a[i] @ b - b0) ** 2 for i, (b, b0) in enumerate(fits)]))
    u, s, _ = np.linalg.svd(design, full_matrices=False)
    u = u[:, s > s[0] * max(design.shape) * np.finfo(np.float64).eps]
    rest = 1 - (u * u).sum(1)
    return float(((error / rest) ** 2).mean()) if (rest > 1e-9).all() else math.nan


def rank_correlation(x: np.ndarray, y: np.ndarray, kind: str) -> float:
    """Return Kendall's tau-b or Spearman's rho; NaN where a sample is constant or not known."""
    if np.isnan(x).any() or np.isnan(y).any() or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    from scipy.stats import kendalltau, spearmanr

    return float((kendalltau if kind == "kendall" else spearmanr)(x, y)[0])
