"""Search for the C environments that predict the target best.

Every subset is tried (Aitchison et al. 2022, section 3.3), in chunks, or, where there are too many,
those of a forward selection with swaps, which finds a good subset, not surely the best.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.stats.subset import kernel
from jbrl.stats.subset.fit import Fit, fit_subset
from jbrl.stats.subset.preparation import Prepared
from jbrl.stats.subset.problem import POOL, Evaluator, Problem, RankedSubsets, Search, candidates

TIED = 1e-9  # losses this close, relatively, are equal
REMEMBERED = 2**24  # losses that are kept for their distribution
SHARES = {"0.1%": 0.001, "1%": 0.01, "50%": 0.5, "95%": 0.95}
Progress = Callable[[int, int], None]  # subsets done, and all


def exhaustive(
    problem: Problem, progress: Progress | None = None, asked: tuple[tuple[str, ...], ...] = ()
) -> RankedSubsets:
    """Return the best of all subsets. The result depends on losses and numbers alone, not on
    chunks.
    """
    size = problem.settings.size - len(problem.forced)
    if size == 0:
        return RankedSubsets(
            np.zeros((1, 0), np.int64), {"evaluated": 1, "skipped": 0, "singular": 0}
        )
    compiled = problem.compiled(size)
    total = math.comb(len(problem.free), size)
    keep = max(POOL, 2 * problem.settings.top, problem.settings.shortlist)
    watched = {names: _loss_of(problem, compiled, names) for names in asked}
    best_loss, best_rank = np.empty(0), np.empty(0, np.int64)
    counts = {"evaluated": 0, "skipped": 0, "singular": 0}
    better = dict.fromkeys(asked, 0)
    losses = np.empty(total if total <= REMEMBERED else 0)
    for start, computed in compiled.all(problem.settings.chunk):
        loss, n = np.asarray(computed.loss), len(computed.loss)
        _count(counts, computed)
        for names, own in watched.items():
            better[names] += int((loss < own * (1 - TIED)).sum())
        if len(losses):
            losses[start : start + n] = loss
        worst = best_loss[-1] if len(best_loss) == keep else math.inf
        near = np.flatnonzero((loss <= worst) & np.isfinite(loss))
        if len(near) > keep:
            near = near[loss[near] <= np.partition(loss[near], keep - 1)[keep - 1]]
        best_loss = np.concatenate([best_loss, loss[near]])
        best_rank = np.concatenate([best_rank, start + near])
        order = np.lexsort((best_rank, best_loss))[:keep]
        best_loss, best_rank = best_loss[order], best_rank[order]
        if progress:
            progress(min(start + n, total), total)
    finite = losses[np.isfinite(losses)]
    quantiles = None
    if len(finite):
        ends = np.quantile(finite, list(SHARES.values())).tolist()
        quantiles = dict(zip(SHARES, ends, strict=True))
    return RankedSubsets(_unranked(best_rank, len(problem.free), size), counts, quantiles, better)


def _count(counts: dict[str, int], losses: kernel.Losses) -> None:
    """Add the subsets of a batch to the counts of their kinds."""
    counts["evaluated"] += int(np.isfinite(np.asarray(losses.loss)).sum())
    for name in ("skipped", "singular"):
        counts[name] += int(np.asarray(getattr(losses, name)).sum())


def _unranked(ranks: np.ndarray, n: int, size: int) -> np.ndarray:
    if not len(ranks):
        return np.empty((0, size), int)
    with jax.enable_x64(True):
        return np.asarray(jax.jit(kernel.unrank)(ranks, kernel.binomials(n, size)))


def _loss_of(problem: Problem, compiled: Evaluator, names: tuple[str, ...]) -> float:
    columns = [problem.prepared.column(name) for name in names]
    rest = sorted(problem.free.index(c) for c in columns if c in problem.free)
    if len(columns) != problem.settings.size or len(rest) != compiled.size:
        raise JbrlError(
            f"subset: asked about {', '.join(names)}: expected "
            f"{problem.settings.size} environments of the search"
        )
    return float(compiled.of_subsets(np.array([rest])).loss[0])


ROUNDS = 50  # of swaps, far more than it takes


def select(problem: Problem) -> RankedSubsets:
    """Add the column that helps most until there are enough, then exchange single columns as long
    as that helps.

    Columns are added by the in-sample criterion's rules for rows: subsets with too few of them are
    passed over.
    """
    n, wanted = len(problem.free), problem.settings.size - len(problem.forced)
    seen: dict[tuple[int, ...], float] = {}
    counts = {"evaluated": 0, "skipped": 0, "singular": 0}

    def evaluate(subsets: list[tuple[int, ...]]) -> None:
        new = [s for s in dict.fromkeys(subsets) if s not in seen]
        if new:
            losses = problem.compiled(len(new[0]), tables=False).of_subsets(np.array(new))
            seen.update(zip(new, map(float, losses.loss), strict=True))
            _count(counts, losses)

    chosen: tuple[int, ...] = ()
    for _ in range(wanted):
        longer = [tuple(sorted((*chosen, c))) for c in range(n) if c not in chosen]
        evaluate(longer)
        chosen = min(longer, key=lambda s: (seen[s], s))
    for _ in range(ROUNDS):
        swapped = [
            tuple(sorted((*chosen[:i], *chosen[i + 1 :], c)))
            for i in range(wanted)
            for c in range(n)
            if c not in chosen
        ]
        evaluate(swapped)
        better = min((chosen, *swapped), key=lambda s: (seen[s], s))
        if better == chosen:
            break
        chosen = better
    full = sorted((loss, s) for s, loss in seen.items() if len(s) == wanted and np.isfinite(loss))
    keep = max(POOL, 2 * problem.settings.top, problem.settings.shortlist)
    return RankedSubsets(
        np.array([s for _, s in full[:keep]], np.int64).reshape(-1, wanted), counts
    )


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of a search."""

    best: Fit
    next: tuple[Fit, ...]
    # total, evaluated, skipped (too few rows), singular, tied (with the best)
    counts: dict[str, int]
    # of the losses of all subsets; None where they were not all kept
    quantiles: dict[str, float] | None
    better: dict[tuple[str, ...], int]  # subsets asked about -> how many have a smaller loss
    warnings: tuple[str, ...]
    prepared: Prepared  # as it was searched: with rows="impute", without holes
    settings: Search

    @property
    def margin(self) -> float:
        """Share by which the loss is below that of the runner-up, 0 to 1; NaN if there is none."""
        if not self.next or not self.next[0].loss > 0:
            return math.nan
        return 1 - self.best.loss / self.next[0].loss


def search(
    prepared: Prepared,
    settings: Search,
    *,
    asked: tuple[tuple[str, ...], ...] = (),
    progress: Progress | None = None,
) -> Outcome:
    """Find the best subset and those after it.

    Args:
      asked: subsets whose place among all is wanted.
      progress: called with the progress of the search.

    Raises:
      JbrlError: a setting that is not accepted, more subsets than the limit, or no subset that can
        be fitted.
    """
    problem = candidates(prepared, settings)
    prepared, settings, free = problem.prepared, problem.settings, problem.free
    ranking = problem.by("in-sample") if settings.shortlist else problem
    chosen = settings.size - len(problem.forced)
    total = math.comb(len(free), chosen)
    if settings.heuristic:
        if asked:
            raise JbrlError(
                f"subset: asked about {', '.join(asked[0])}: a heuristic search does not know the "
                "place of a subset among all: expected an exhaustive one"
            )
        ranked = select(ranking)
    elif total > settings.limit:
        raise JbrlError(
            f"subset: {total:,} subsets ({len(free)} environments choose {chosen}): expected at "
            f"most {settings.limit:,.0f}; raise the limit, use a smaller pool, or take the "
            "heuristic search"
        )
    else:
        ranked = exhaustive(ranking, progress, asked)
    fits = _refined(problem, ranked.subsets, settings)
    if not fits:
        n, counted = problem.min_rows, ranked.counts
        raise JbrlError(
            f"subset: none of {sum(counted.values()):,} subsets can be fitted: "
            f"{counted['skipped']:,} have fewer than {n} algorithms (min_rows), "
            f"{counted['singular']:,} have linearly dependent columns"
        )
    tied = sum(bool(fit.loss <= fits[0].loss * (1 + TIED)) for fit in fits) - 1
    counts = {"total": total, **ranked.counts, "tied": tied}
    settings = dataclasses.replace(settings, min_rows=problem.min_rows)
    rest = tuple(fits[1 : settings.top + 1])
    outcome = Outcome(
        fits[0], rest, counts, ranked.quantiles, ranked.better, (), prepared, settings
    )
    return dataclasses.replace(outcome, warnings=(*prepared.warnings, *_doubts(outcome)))


def _refined(problem: Problem, subsets: np.ndarray, settings: Search) -> list[Fit]:
    """Return the subsets fitted in full precision, best first; of equal losses, the subset that
    comes first in column order.
    """
    fits = [fit_of(problem.prepared, problem.columns(chosen), settings) for chosen in subsets]
    if settings.shortlist:
        fits = _ordered(fits, [fit.mse for fit in fits])[: settings.shortlist]
    name = {"in-sample": "mse", "kfold": "cv_mse", "loo": "loo_mse"}[settings.criterion]
    fits = [dataclasses.replace(fit, loss=getattr(fit, name)) for fit in fits]
    return _ordered(fits, [fit.loss for fit in fits])


def _ordered(fits: list[Fit], losses: list[float]) -> list[Fit]:
    """Order fits by loss; losses within `TIED` of the first of a run count as equal, and column
    order decides.

    Without those that have none.
    """
    known = sorted(
        (loss, fit.columns, i)
        for i, (loss, fit) in enumerate(zip(losses, fits, strict=True))
        if math.isfinite(loss)
    )
    best: list[tuple[Any, ...]] = []
    run: list[tuple[Any, ...]] = []
    for loss, columns, i in known:
        if run and loss > run[0][0] * (1 + TIED) + 1e-300:
            best += sorted(run, key=lambda item: item[1])
            run = []
        run.append((loss, columns, i))
    return [fits[i] for _, _, i in [*best, *sorted(run, key=lambda item: item[1])]]


def fit_of(prepared: Prepared, columns: tuple[int, ...], settings: Search) -> Fit:
    """Fit one subset as the settings say."""
    return fit_subset(
        *prepared.data,
        columns,
        settings.folds,
        intercept=settings.intercept,
        non_negative=settings.non_negative,
    )


def _doubts(outcome: Outcome) -> list[str]:
    """Return the warnings about the winner."""
    best, m = outcome.best, len(outcome.prepared.algorithms)
    notes = []
    if best.n < 0.8 * m:
        notes.append(
            f"the fit leaves out {m - best.n} of {m} algorithms, which lack a score in one of its "
            "environments"
        )
    size = len(best.columns)
    if math.log2(max(outcome.counts["total"], 1)) > best.n - size:
        notes.append(
            f"{best.n} algorithms are too few to choose among {outcome.counts['total']:,} subsets "
            f"of {size}: some subset fits well by accident; errors of the chosen one mean little, "
            "only those on algorithms left out of the choice do"
        )
    if not best.order_preserving:
        notes.append(
            "a weight is negative: an algorithm that is better everywhere may get a lower estimate"
        )
    spread = (
        seed_spread(outcome) if outcome.settings.criterion == "kfold" and outcome.next else math.nan
    )
    margin = outcome.next[0].loss - best.loss if outcome.next else math.nan
    if margin < spread:
        notes.append(
            f"the margin to the runner-up, {margin:.3g}, is below the standard deviation over "
            f"fold seeds, {spread:.3g}"
        )
    return notes


def seed_spread(outcome: Outcome, seeds: int = 20) -> float:
    """Return the standard deviation of the best subset's cross-validated error over fold seeds."""
    settings = outcome.settings
    folds = [dataclasses.replace(settings.folds, seed=seed, repeats=1) for seed in range(seeds)]
    losses = [
        fit_of(
            outcome.prepared, outcome.best.columns, dataclasses.replace(settings, folds=f)
        ).cv_mse
        for f in folds
    ]
    return float(np.std(losses, ddof=1))
