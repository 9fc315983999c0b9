"""Which C environments predict the target best? Every subset is tried (Aitchison et al. 2022, section 3.3)."""

import dataclasses
import math

import numpy as np

from jbrl.analysis.subset.exhaustive import TIED, Progress, exhaustive
from jbrl.analysis.subset.fit import Fit, fit_subset
from jbrl.analysis.subset.forward import select
from jbrl.analysis.subset.preparation import Prepared
from jbrl.analysis.subset.problem import Problem, Search, candidates
from jbrl.errors import JbrlError


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a search found."""

    best: Fit
    next: tuple[Fit, ...]
    counts: dict[str, int]  # total, evaluated, skipped (too few rows), singular, tied (with the best)
    quantiles: dict[str, float] | None  # of the losses of all subsets; None where they were not all kept
    better: dict[tuple[str, ...], int]  # subsets asked about -> how many have a smaller loss
    warnings: tuple[str, ...]
    prepared: Prepared  # as it was searched: with rows="impute", without holes
    settings: Search

    @property
    def margin(self) -> float:
        """By how much, relatively, the loss of the runner-up is larger; NaN if there is none."""
        return self.next[0].loss / self.best.loss - 1 if self.next and self.best.loss > 0 else math.nan


def search(prepared: Prepared, settings: Search, *, asked: tuple[tuple[str, ...], ...] = (), progress: Progress | None = None) -> Outcome:
    """The best subset and those after it.

    Args:
      asked: subsets whose place among all is wanted.
      progress: is told how far the search has come.

    Raises:
      JbrlError: a setting that is not accepted, more subsets than the limit, or no subset that can be fitted.
    """
    prepared, free, forced = candidates(prepared, settings)
    problem = Problem(prepared, settings, free, forced)
    ranking = problem.by("in-sample") if settings.shortlist else problem
    total = math.comb(len(free), settings.size - len(forced))
    if settings.heuristic:
        found = select(ranking)
    elif total > settings.limit:
        raise JbrlError(
            f"subset: {total:,} subsets ({len(free)} environments choose {settings.size - len(forced)}): expected at most "
            f"{settings.limit:,.0f}; raise the limit, use a smaller pool, or take the heuristic search"
        )
    else:
        found = exhaustive(ranking, progress, asked)
    fits = _refined(problem, found.subsets, settings)
    if not fits:
        n, counted = problem.min_rows, found.counts
        raise JbrlError(
            f"subset: none of {sum(counted.values()):,} subsets can be fitted: {counted['skipped']:,} have fewer than {n} algorithms "
            f"(min_rows), {counted['singular']:,} have linearly dependent columns"
        )
    tied = sum(bool(fit.loss <= fits[0].loss * (1 + TIED)) for fit in fits) - 1
    counts = {"total": total, **found.counts, "tied": tied}
    settings = dataclasses.replace(settings, min_rows=problem.min_rows)
    outcome = Outcome(fits[0], tuple(fits[1 : settings.top + 1]), counts, found.quantiles, found.better, (), prepared, settings)
    return dataclasses.replace(outcome, warnings=(*prepared.warnings, *_doubts(outcome)))


def _refined(problem: Problem, subsets: np.ndarray, settings: Search) -> list[Fit]:
    """The subsets fitted in full precision, best first; of equal losses, the subset that comes first in column order."""
    fits = [fit_of(problem.prepared, problem.columns(chosen), settings) for chosen in subsets]
    if settings.shortlist:
        fits = _ordered(fits, [fit.mse for fit in fits])[: settings.shortlist]
    name = {"in-sample": "mse", "kfold": "cv_mse", "loo": "loo_mse"}[settings.criterion]
    fits = [dataclasses.replace(fit, loss=getattr(fit, name)) for fit in fits]
    return _ordered(fits, [fit.loss for fit in fits])


def _ordered(fits: list[Fit], losses: list[float]) -> list[Fit]:
    """By loss; losses within `TIED` of the first of a run count as equal, and column order decides. Without those that have none."""
    known = sorted((loss, fit.columns, i) for i, (loss, fit) in enumerate(zip(losses, fits, strict=True)) if math.isfinite(loss))
    found: list[tuple] = []
    run: list[tuple] = []
    for loss, columns, i in known:
        if run and loss > run[0][0] * (1 + TIED) + 1e-300:
            found += sorted(run, key=lambda item: item[1])
            run = []
        run.append((loss, columns, i))
    return [fits[i] for _, _, i in [*found, *sorted(run, key=lambda item: item[1])]]


def fit_of(prepared: Prepared, columns: tuple[int, ...], settings: Search) -> Fit:
    """One subset, fitted as the settings say."""
    options = {"intercept": settings.intercept, "non_negative": settings.non_negative}
    return fit_subset(prepared.features, prepared.target, prepared.environments, columns, settings.folds, **options)


def _doubts(found: Outcome) -> list[str]:
    """What to tell beside the winner."""
    best, m = found.best, len(found.prepared.algorithms)
    notes = []
    if best.n < 0.8 * m:
        notes.append(f"the fit leaves out {m - best.n} of {m} algorithms, which lack a score in one of its environments")
    if not best.order_preserving:
        notes.append("a weight is negative: an algorithm that is better everywhere may get a lower estimate")
    spread = seed_spread(found) if found.settings.criterion == "kfold" and found.next else math.nan
    margin = found.next[0].loss - best.loss if found.next else math.nan
    if margin < spread:
        notes.append(f"the margin to the runner-up, {margin:.3g}, is below the standard deviation over fold seeds, {spread:.3g}")
    return notes


def seed_spread(found: Outcome, seeds: int = 20) -> float:
    """Standard deviation of the best subset's cross-validated error over fold seeds."""
    settings = found.settings
    folds = [dataclasses.replace(settings.folds, seed=seed, repeats=1) for seed in range(seeds)]
    losses = [fit_of(found.prepared, found.best.columns, dataclasses.replace(settings, folds=f)).cv_mse for f in folds]
    return float(np.std(losses, ddof=1))
