"""A fitted subset as a file, and its prediction for an algorithm that was run on its few
environments alone.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.base.files import naming, read_text, write_whole
from jbrl.stats.subset.fit import Fit
from jbrl.stats.subset.preparation import Prepared
from jbrl.stats.subset.transform import Scale, Transform, from_knots, transform_of

FORMAT = "jbrl subset model 1"
LEVEL = 0.95  # of intervals


@dataclasses.dataclass(frozen=True)
class Model:
    """A linear model of C environments, with all that a prediction needs."""

    environments: tuple[str, ...]
    coefficients: np.ndarray  # [C] float64
    intercept: float
    scale: Scale  # of the C environments
    transforms: tuple[Transform, ...]
    target_transform: Transform
    target: str  # what is predicted
    n: int  # algorithms in the fit
    # of the residuals, sum of squares / (n - parameters); NaN if there are no more rows
    # than parameters
    variance: float
    gram_inverse: np.ndarray  # [p, p], p = C, or C + 1 with intercept (last)
    ranges: np.ndarray  # [C, 2], of the transformed scores in the fit
    highest_leverage: float  # in the fit
    cv_mae: float  # mean absolute error of cross-validation
    # 2.5 and 97.5 % of the errors (target - prediction) of cross-validation
    cv_quantiles: tuple[float, float]

    @property
    def has_intercept(self) -> bool:
        """True if the model was fitted with an intercept."""
        return len(self.gram_inverse) > len(self.coefficients)

    @property
    def relative_error(self) -> float:
        """Typical error in per cent of the estimate, first order: 100 ln 10 times the mean error of
        a decimal logarithm; else NaN.
        """
        is_log10 = self.target_transform.name == "log10"
        return 100 * math.log(10) * self.cv_mae if is_log10 else math.nan


def model_of(prepared: Prepared, fit: Fit, *, intercept: bool) -> Model:
    """Return the model of a fitted subset."""
    columns = np.array(fit.columns)
    a, t = prepared.features[fit.rows][:, columns], prepared.target[fit.rows]
    design = np.column_stack([a, np.ones(len(a))]) if intercept else a
    inverse = np.linalg.pinv(design.T @ design)
    free = len(t) - design.shape[1]
    errors = t - fit.cv_predictions
    low, high = np.quantile(errors, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    target = prepared.preparation.target
    return Model(
        environments=fit.subset,
        coefficients=fit.coefficients,
        intercept=fit.intercept,
        scale=prepared.scale.only(columns),
        transforms=tuple(prepared.transforms[c] for c in fit.columns),
        target_transform=prepared.target_transform,
        target=target if isinstance(target, str) else "custom",
        n=fit.n,
        variance=float(((t - fit.predictions) ** 2).sum() / free) if free > 0 else math.nan,
        gram_inverse=inverse,
        ranges=np.column_stack([a.min(0), a.max(0)]),
        highest_leverage=float(np.einsum("ij,jk,ik->i", design, inverse, design).max()),
        cv_mae=fit.cv_mae,
        cv_quantiles=(float(low), float(high)),
    )


def predict(model: Model, table: pd.DataFrame, *, duplicates: str = "error") -> pd.DataFrame:
    """Return estimates for the algorithms of a table with columns algorithm, environment, score
    (raw); other environments do not matter.

    Args:
      duplicates: "error" refuses several scores in a cell; "mean", "first" or "last" takes that.

    Returns:
      One row for each algorithm: algorithm, estimate (in the units of the target), typical_low,
      typical_high (the mean error of cross-validation), lower, upper (95 % prediction interval of
      the linear model), empirical_low, empirical_high (2.5 to 97.5 % of the errors of
      cross-validation), transformed (the prediction before the inverse transform), leverage,
      warnings (text).

    Raises:
      JbrlError: an algorithm lacks an environment of the model, or has several scores there.
    """
    if duplicates != "error":
        cells = table.groupby(["algorithm", "environment"], sort=False)["score"]
        table = cells.agg(duplicates).reset_index()
    scores = _scores(model, table)
    z = model.scale(scores.to_numpy(np.float64))
    columns = zip(model.transforms, z.T, strict=True)
    f = np.column_stack([transform.forward(column) for transform, column in columns])
    y = f @ model.coefficients + model.intercept
    design = np.column_stack([f, np.ones(len(f))]) if model.has_intercept else f
    leverage = np.einsum("ij,jk,ik->i", design, model.gram_inverse, design)
    half = _quantile(model.n - len(model.gram_inverse)) * np.sqrt(model.variance * (1 + leverage))
    back = model.target_transform.inverse
    estimate = back(y)
    typical = [back(y - model.cv_mae), back(y + model.cv_mae)]
    if not math.isnan(model.relative_error):
        typical = [estimate * (1 + sign * model.relative_error / 100) for sign in (-1, 1)]
    low, high = model.cv_quantiles
    rows = zip(z, f, leverage, strict=True)
    return pd.DataFrame(
        {
            "algorithm": list(scores.index),
            "estimate": estimate,
            "typical_low": typical[0],
            "typical_high": typical[1],
            "lower": back(y - half),
            "upper": back(y + half),
            "empirical_low": back(y + low),
            "empirical_high": back(y + high),
            "transformed": y,
            "leverage": leverage,
            "warnings": ["; ".join(_doubts(model, *row)) for row in rows],
        }
    )


def _quantile(freedom: int) -> float:
    """Return Student's t, two-sided; NaN without degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2)) if freedom > 0 else math.nan


def _scores(model: Model, table: pd.DataFrame) -> pd.DataFrame:
    needed = table[table["environment"].isin(model.environments)]
    twice = needed[needed.duplicated(["algorithm", "environment"])]
    if len(twice):
        row = twice.iloc[0]
        raise JbrlError(
            f"scores: algorithm '{row['algorithm']}', environment '{row['environment']}': several "
            "rows: expected one score, or a rule for several (--duplicates mean, first or last)"
        )
    scores = needed.pivot(index="algorithm", columns="environment", values="score")
    scores = scores.reindex(
        index=list(dict.fromkeys(table["algorithm"])), columns=list(model.environments)
    )
    for algorithm, row in scores.iterrows():
        if row.isna().any():
            lacking = ", ".join(row.index[row.isna()])
            raise JbrlError(
                f"scores: algorithm '{algorithm}' has no score in {lacking}: expected one for "
                "each environment of the model"
            )
    return scores


def _doubts(model: Model, z: np.ndarray, f: np.ndarray, leverage: float) -> list[str]:
    notes = []
    for name, value, (low, high) in zip(model.environments, f, model.ranges, strict=True):
        if not low <= value <= high:
            notes.append(f"extrapolation: {name} is outside the range of the fit")
    if leverage > model.highest_leverage:
        notes.append("extrapolation: this combination of scores is farther out than any in the fit")
    for name, value, transform in zip(model.environments, z, model.transforms, strict=True):
        if transform.name == "log10" and value < 0:
            notes.append(f"{name} is below its low reference and counts as equal to it")
    return notes


def save(model: Model, path: str | Path) -> None:
    """Write a model as JSON, all digits kept.

    Raises:
      JbrlError: its transform is a function of one's own, which no file can hold, or the file
        cannot be written.
    """
    if any(t.name == "custom" for t in (*model.transforms, model.target_transform)):
        raise JbrlError(
            f"{path}: a model with a transform of one's own cannot be saved: expected identity, "
            "log10 or rank"
        )
    fields: dict[str, Any] = {"format": FORMAT}
    for name, value in vars(model).items():
        fields |= _plain(vars(value)) if name == "scale" else _plain({name: value})
    with naming(path, "written"):
        write_whole(Path(path), (json.dumps(fields, indent=1) + "\n").encode())


def load(path: str | Path) -> Model:
    """Read a model.

    Raises:
      JbrlError: the file cannot be read or is no model.
    """
    text = read_text(Path(path))
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise JbrlError(
            f"{path}: no subset model: expected a file that 'jbrl subset search --save' has "
            f"written (format '{FORMAT}')"
        )
    try:
        return _model(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise JbrlError(
            f"{path}: field {error}: expected the fields of a subset model as 'jbrl subset search "
            "--save' writes them"
        ) from None


def _model(fields: dict[str, Any]) -> Model:
    n = len(fields["environments"])
    names = ("coefficients", "low", "high", "ranges", "transforms")
    if any(len(fields[name]) != n for name in names):
        raise ValueError(
            "'environments': one number for each environment is expected in coefficients, low, "
            "high, ranges, transforms"
        )
    given: dict[str, Any] = {
        name: float(fields[name])
        for name in ("intercept", "variance", "highest_leverage", "cv_mae")
    }
    for name in ("coefficients", "gram_inverse", "ranges"):
        given[name] = np.array(fields[name], np.float64)
    low, high = (np.array(fields[name], np.float64) for name in ("low", "high"))
    least, most = fields["cv_quantiles"][:2]
    return Model(
        environments=tuple(map(str, fields["environments"])),
        scale=Scale(low, high, float(fields["unit"])),
        transforms=tuple(map(_transform, fields["transforms"])),
        target_transform=_transform(fields["target_transform"]),
        target=str(fields["target"]),
        n=int(fields["n"]),
        cv_quantiles=(float(least), float(most)),
        **given,
    )


def _plain(value: Any) -> Any:
    """Return a value of a model as JSON has it: a transform by its name, or the knots of its
    ranks.
    """
    if isinstance(value, Transform):
        return value.name if value.knots is None else _plain(value.knots)
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def _transform(described: Any) -> Transform:
    if isinstance(described, str):
        return transform_of(described, np.empty(0))
    scores, ranks = described
    return from_knots(np.array(scores, np.float64), np.array(ranks, np.float64))
