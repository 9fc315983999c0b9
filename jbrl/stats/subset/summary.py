"""Outcome of a search as plain numbers and texts, ready for JSON: full precision, None for what is
not defined.
"""

import dataclasses
import math
from typing import Any

from jbrl.stats.subset.fit import Fit
from jbrl.stats.subset.preparation import Prepared
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.robustness import Choice
from jbrl.stats.subset.search import Outcome

MEASURES = (
    *("loss", "mse", "cv_mse", "loo_mse", "r2", "cv_r2", "cv_mae", "relative_error"),
    *("kendall", "spearman", "cv_kendall", "cv_spearman", "condition"),
)


def of_outcome(found: Outcome, choice: Choice | None = None) -> dict[str, Any]:
    """Return the keys nested, best, next, margin, counts, quantiles, asked, dropped, warnings,
    settings.

    Args:
      choice: nested validation, see `jbrl.stats.subset.robustness.over_algorithms`.
    """
    prepared = found.prepared
    return {
        "nested": None if choice is None else of_choice(choice),
        "best": of_fit(found.best, prepared),
        "next": [of_fit(fit, prepared) for fit in found.next],
        "margin": number(found.margin),
        "counts": found.counts,
        "quantiles": found.quantiles,
        "asked": [
            {"subset": list(names), "place": count + 1} for names, count in found.better.items()
        ],
        "dropped": prepared.dropped,
        "warnings": list(found.warnings),
        "settings": of_settings(found.settings, prepared),
    }


def of_choice(choice: Choice) -> dict[str, Any]:
    """Return errors on algorithms that had no part in choosing and fitting."""
    return {
        "r2": number(choice.honest_r2),
        "mse": number(choice.honest_mse),
        "n": choice.honest_n,
        "parts": choice.repeats,
    }


def of_fit(fit: Fit, prepared: Prepared) -> dict[str, Any]:
    """Summarise a fitted subset; coefficients in the order of `subset`, `excluded` the algorithms
    that lack a score in it.
    """
    kept = set(fit.rows.tolist())
    return {
        "subset": list(fit.subset),
        "coefficients": fit.coefficients.tolist(),
        "intercept": fit.intercept,
        "n": fit.n,
        **{name: number(getattr(fit, name)) for name in MEASURES},
        "order_preserving": fit.order_preserving,
        "excluded": [name for i, name in enumerate(prepared.algorithms) if i not in kept],
    }


def of_settings(settings: Search, prepared: Prepared) -> dict[str, Any]:
    """Return all settings of the preparation and of the search; functions and tables by a word."""
    preparation = {
        f.name: getattr(prepared.preparation, f.name)
        for f in dataclasses.fields(prepared.preparation)
    }
    found = {
        **preparation,
        **{
            f.name: getattr(settings, f.name)
            for f in dataclasses.fields(settings)
            if f.name != "folds"
        },
    }
    folds = settings.folds
    found |= {
        "folds": folds.k,
        "seed": folds.seed,
        "repeats": folds.repeats,
        "grouped": folds.groups is not None,
        "pooled": folds.pooled,
    }
    found |= {"algorithms": len(prepared.algorithms), "environments": len(prepared.environments)}
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    if (
        isinstance(value, dict)
        or callable(value)
        or (isinstance(value, tuple) and any(map(callable, value)))
    ):
        return "custom"
    return list(value) if isinstance(value, tuple) else value


def number(value: float) -> float | None:
    """Return `value` for JSON, which has neither NaN nor infinity."""
    return value if math.isfinite(value) else None
