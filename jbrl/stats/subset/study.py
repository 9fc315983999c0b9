"""All analyses of a table for a report: the search, and those beside it."""

import dataclasses

import pandas as pd

from jbrl.stats.subset import baselines, robustness
from jbrl.stats.subset.exhaustive import Progress
from jbrl.stats.subset.model import Model, model_of
from jbrl.stats.subset.preparation import Prepared
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.robustness import Choice, Weights
from jbrl.stats.subset.search import Outcome, search


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
    total = parts + resamples + 3
    tell = progress or (lambda *_: None)
    outcome = search(prepared, settings)
    tell(1, total)
    enough = settings.folds.k <= min(fit.n for fit in (outcome.best, *outcome.next))
    by_seed = robustness.over_seeds(outcome, seeds=seeds) if enough else None
    tell(2, total)
    sizes = robustness.over_sizes(prepared, settings)
    tell(3, total)
    by_part = robustness.over_algorithms(
        outcome, parts=parts, progress=lambda done, _: tell(3 + done, total)
    )
    done_by_part = 3 + by_part.repeats
    by_resample = robustness.over_resamples(
        outcome, resamples=resamples, progress=lambda done, _: tell(done_by_part + done, total)
    )
    folds, best = dataclasses.replace(settings.folds, groups=None), outcome.best
    return Study(
        outcome=outcome,
        model=model_of(outcome.prepared, best, intercept=settings.intercept),
        weights=robustness.bootstrap_weights(
            outcome.prepared, best, intercept=settings.intercept, n=bootstrap
        ),
        seeds=by_seed,
        parts=by_part,
        resamples=by_resample,
        sizes=sizes,
        singles=baselines.single_environments(prepared, folds),
        environments=baselines.per_environment(outcome.prepared, best.columns, folds),
        correlations=baselines.correlations(prepared),
    )
