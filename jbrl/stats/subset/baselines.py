"""Analyses beside the search: each environment alone, each environment predicted from the subset,
correlations.
"""

import dataclasses
import math

import numpy as np
import pandas as pd

from jbrl.stats.subset.fit import fit_subset
from jbrl.stats.subset.folds import Folds
from jbrl.stats.subset.preparation import Prepared


def single_environments(prepared: Prepared, folds: Folds) -> pd.DataFrame:
    """Fit every environment as the only predictor of the target, by R² with intercept (Aitchison et
    al. 2022, section 4.2).

    Returns:
      Columns environment, n, intercept, slope, r2, cv_mse (all with intercept), slope_alone,
      r2_alone (without), pearson; best first. Environments that fewer than three algorithms have a
      score for, or all the same score, are left out.
    """
    rows = []
    for j, name in enumerate(prepared.environments):
        known = ~np.isnan(prepared.features[:, j])
        if known.sum() < 3 or np.ptp(prepared.features[known, j]) == 0:
            continue
        fit, alone = (
            fit_subset(
                prepared.features,
                prepared.target,
                prepared.environments,
                (j,),
                folds,
                intercept=with_intercept,
            )
            for with_intercept in (True, False)
        )
        pearson = np.corrcoef(prepared.features[known, j], prepared.target[known])[0, 1]
        rows.append(
            {
                "environment": name,
                "n": fit.n,
                "intercept": fit.intercept,
                "slope": fit.coefficients[0],
                "r2": fit.r2,
                "cv_mse": fit.cv_mse,
                "slope_alone": alone.coefficients[0],
                "r2_alone": alone.r2,
                "pearson": pearson,
            }
        )
    return pd.DataFrame(rows).sort_values("r2", ascending=False, kind="stable", ignore_index=True)


def per_environment(prepared: Prepared, columns: tuple[int, ...], folds: Folds) -> pd.DataFrame:
    """Measure how well the subset predicts each environment's transformed score (section 4.4), in
    the order of the environments.

    Rows are the algorithms with a score in the environment and in all of the subset. R² is about
    the mean; adjusted R² is 1 - (1 - R²) (n - 1) / (n - p) with p parameters; cv_r2 is that of the
    held-out predictions of all folds together.

    Returns:
      Columns environment, in_subset (bool), n, then r2, adj_r2, cv_r2, sse, tss, each with the
      suffixes _no_intercept and _intercept but for tss. Members of the subset have R² = 1. NaN
      where there are no more than p rows.
    """
    folds, rows = dataclasses.replace(folds, pooled=True), []
    for j, name in enumerate(prepared.environments):
        target = prepared.features[:, j]
        known = ~(np.isnan(prepared.features[:, columns]).any(1) | np.isnan(target))
        n, spread = (
            int(known.sum()),
            float(((target[known] - target[known].mean()) ** 2).sum()) if known.any() else math.nan,
        )
        row = {"environment": name, "in_subset": j in columns, "n": n, "tss": spread}
        for suffix, with_intercept in (("no_intercept", False), ("intercept", True)):
            p = len(columns) + with_intercept
            names = [f"{measure}_{suffix}" for measure in ("r2", "adj_r2", "cv_r2", "sse")]
            if j in columns:
                row |= dict(zip(names, (1.0, 1.0, 1.0, 0.0), strict=True))
            elif n <= p or not spread:
                row |= dict.fromkeys(names, math.nan)
            else:
                only = np.where(known[:, None], prepared.features, np.nan)
                fit = fit_subset(
                    only,
                    np.where(known, target, 0.0),
                    prepared.environments,
                    columns,
                    folds,
                    intercept=with_intercept,
                )
                row |= dict(
                    zip(
                        names,
                        (fit.r2, 1 - (1 - fit.r2) * (n - 1) / (n - p), fit.cv_r2, n * fit.mse),
                        strict=True,
                    )
                )
        rows.append(row)
    return pd.DataFrame(rows)


def pooled_r2(table: pd.DataFrame, *, intercept: bool) -> float:
    """Return the share of the variance of all environments that the subset explains: 1 - sum of SSE
    / sum of TSS, of a `per_environment` table.
    """
    known = table[table["sse_intercept"].notna()]
    return 1 - float(
        known["sse_intercept" if intercept else "sse_no_intercept"].sum() / known["tss"].sum()
    )


def correlations(prepared: Prepared) -> pd.DataFrame:
    """Return Pearson's r of the transformed scores of each two environments, over the algorithms
    that have both; NaN where undefined.
    """
    table = pd.DataFrame(prepared.features, columns=list(prepared.environments))
    found = table.corr(min_periods=2)
    return found.set_axis(list(prepared.environments), axis=0)
