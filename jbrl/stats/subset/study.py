"""All analyses of a table for a report, nested plans of several searches, and outcomes as plain
numbers and texts.

A plan has searches that may build upon the subsets found before. Atari-5 → 3 → 1 is one:

    [[steps]]
    name = "Atari-5"
    size = 5
    force_out = ["surround"]

    [[steps]]
    name = "Atari-3"
    size = 3
    pool = ["Atari-5"]          # a name of an earlier step stands for its subset
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from jbrl.base.errors import JbrlError, located, nearest
from jbrl.base.files import read_toml
from jbrl.stats.subset import robustness
from jbrl.stats.subset.fit import Fit
from jbrl.stats.subset.model import Model, model_of
from jbrl.stats.subset.preparation import Prepared
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.robustness import Choice, Weights
from jbrl.stats.subset.search import Outcome, Progress, search


@dataclasses.dataclass(frozen=True)
class Study:
    """A search and the analyses beside it."""

    outcome: Outcome
    model: Model
    weights: Weights  # bootstrap over algorithms
    # winners with other folds; None where there are fewer algorithms than folds
    seeds: Choice | None
    parts: Choice  # winners without a part of the algorithms
    resamples: Choice  # winners with algorithms drawn with replacement
    sizes: pd.DataFrame
    singles: pd.DataFrame
    environments: pd.DataFrame  # each predicted from the subset
    correlations: pd.DataFrame


def study(
    prepared: Prepared,
    settings: Search,
    *,
    bootstrap: int = 2000,
    seeds: int = 50,
    parts: int = 10,
    resamples: int = 10,
    progress: Progress | None = None,
) -> Study:
    """Search, then measure how firmly the data choose.

    Args:
      bootstrap: resamples for the intervals of the weights.
      seeds: other fold seeds to choose by.
      parts: parts of the algorithms left out in turn, each with a search of its own.
      resamples: resamples of the algorithms, each with a search of its own.
      progress: called with the number of searches that are done.

    Raises:
      JbrlError: see `search`.
    """
    done = itertools.count(1)

    def step(*_: int) -> None:
        if progress:
            progress(next(done), parts + resamples + 3)

    outcome = search(prepared, settings)
    step()
    enough = settings.folds.k <= min(fit.n for fit in (outcome.best, *outcome.next))
    by_seed = robustness.over_seeds(outcome, seeds=seeds) if enough else None
    step()
    sizes = robustness.over_sizes(prepared, settings)
    step()
    by_part = robustness.over_algorithms(outcome, parts=parts, progress=step)
    by_resample = robustness.over_resamples(outcome, resamples=resamples, progress=step)
    folds, best = dataclasses.replace(settings.folds, groups=None), outcome.best
    intercept = settings.intercept
    return Study(
        outcome=outcome,
        model=model_of(outcome.prepared, best, intercept=intercept),
        weights=robustness.bootstrap_weights(
            outcome.prepared, best, intercept=intercept, n=bootstrap
        ),
        seeds=by_seed,
        parts=by_part,
        resamples=by_resample,
        sizes=sizes,
        singles=robustness.single_environments(prepared, folds),
        environments=robustness.per_environment(outcome.prepared, best.columns, folds),
        correlations=robustness.correlations(prepared),
    )


LISTS = ("pool", "force_in", "force_out")
FIELDS: dict[str, type] = {
    **dict.fromkeys(("size", "shortlist", "min_rows", "top"), int),
    "criterion": str,
    **dict.fromkeys(("intercept", "non_negative"), bool),
    **dict.fromkeys(LISTS, list),
}


@dataclasses.dataclass(frozen=True)
class Step:
    """One search of a plan: fields of `Search` that differ from the settings of all, and names of
    earlier steps in its lists.
    """

    name: str
    fields: dict[str, Any]


def read_plan(path: str | Path) -> list[Step]:
    """Read the steps of a TOML file.

    Raises:
      JbrlError: the file cannot be read, or a step has no name, an unknown field or a value of the
        wrong kind.
    """
    steps = read_toml(Path(path)).get("steps")
    tables = isinstance(steps, list) and all(isinstance(step, dict) for step in steps)
    if not steps or not tables:
        raise JbrlError(f"{path}: expected one table [[steps]] for each search")
    return [_step(fields, f"{path}: [[steps]] {number}") for number, fields in enumerate(steps, 1)]


def _step(fields: dict[str, Any], where: str) -> Step:
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise JbrlError(f"{where}: name = {name!r}: expected a text")
    rest = {field: value for field, value in fields.items() if field != "name"}
    for field, value in rest.items():
        if field not in FIELDS:
            raise JbrlError(f"{where}: unknown field '{field}'{nearest(field, FIELDS)}")
        kind = FIELDS[field]
        names = isinstance(value, list) and all(isinstance(v, str) for v in value)
        if type(value) is not kind or (kind is list and not names):
            raise JbrlError(
                f"{where}: {field} = {value!r}: expected "
                f"{'a list of names' if kind is list else kind.__name__}"
            )
    return Step(name, {k: tuple(v) if isinstance(v, list) else v for k, v in rest.items()})


def run_plan(
    prepared: Prepared, steps: list[Step], settings: Search, progress: Progress | None = None
) -> Iterator[tuple[str, Outcome]]:
    """Run the searches of a plan, one after the other: name and outcome.

    Raises:
      JbrlError: see `search`; the step is named.
    """
    known: dict[str, tuple[str, ...]] = {}
    for step in steps:
        lists = {
            field: _resolved(step.fields[field], known) for field in LISTS if field in step.fields
        }
        mine = dataclasses.replace(settings, **{**step.fields, **lists})
        with located(f"step '{step.name}'"):
            outcome = search(prepared, mine, progress=progress)
        known[step.name] = outcome.best.subset
        yield step.name, outcome


def _resolved(names: tuple[str, ...], known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for given in names for name in known.get(given, (given,))))


MEASURES = (
    *("loss", "mse", "cv_mse", "loo_mse", "r2", "cv_r2", "cv_mae", "relative_error"),
    *("kendall", "spearman", "cv_kendall", "cv_spearman", "condition"),
)


def of_outcome(outcome: Outcome, choice: Choice | None = None) -> dict[str, Any]:
    """Return the keys nested, best, next, margin, counts, quantiles, asked, dropped, warnings,
    settings.

    Args:
      choice: nested validation, see `jbrl.stats.subset.robustness.over_algorithms`.
    """
    prepared = outcome.prepared
    return {
        "nested": None if choice is None else of_choice(choice),
        "best": of_fit(outcome.best, prepared),
        "next": [of_fit(fit, prepared) for fit in outcome.next],
        "margin": number(outcome.margin),
        "counts": outcome.counts,
        "quantiles": outcome.quantiles,
        "asked": [
            {"subset": list(names), "place": count + 1} for names, count in outcome.better.items()
        ],
        "dropped": prepared.dropped,
        "warnings": list(outcome.warnings),
        "settings": of_settings(outcome.settings, prepared),
    }


def of_choice(choice: Choice) -> dict[str, Any]:
    """Return errors on algorithms that had no part in choosing and fitting."""
    errors = {"r2": number(choice.honest_r2), "mse": number(choice.honest_mse)}
    return errors | {"n": choice.honest_n, "parts": choice.repeats}


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
    folds = settings.folds
    every = vars(prepared.preparation) | vars(settings) | {"folds": folds.k, "seed": folds.seed}
    every |= {"repeats": folds.repeats, "grouped": folds.groups is not None}
    every |= {"pooled": folds.pooled, "algorithms": len(prepared.algorithms)}
    every |= {"environments": len(prepared.environments)}
    return {name: _plain(value) for name, value in every.items()}


def _plain(value: Any) -> Any:
    parts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(part, dict) or callable(part) for part in parts):
        return "custom"
    return list(value) if isinstance(value, tuple) else value


def number(value: float) -> float | None:
    """Return `value` for JSON, which has neither NaN nor infinity."""
    return value if math.isfinite(value) else None
