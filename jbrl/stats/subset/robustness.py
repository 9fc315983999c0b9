"""Robustness of a choice: weights under resampling, winners under other folds, other algorithms and
other sizes; each environment alone, and each predicted from the subset.
"""

import collections
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.stats.subset.fit import Fit, Folds, fit_subset, shuffled
from jbrl.stats.subset.preparation import Prepared
from jbrl.stats.subset.problem import Problem, Search, candidates
from jbrl.stats.subset.search import Outcome, Progress, exhaustive, search


@dataclasses.dataclass(frozen=True)
class Weights:
    """Percentile intervals of a bootstrap over algorithms."""

    low: np.ndarray  # [C] float64
    high: np.ndarray  # [C] float64
    r2: tuple[float, float]


def bootstrap_weights(
    prepared: Prepared,
    fit: Fit,
    *,
    intercept: bool = False,
    n: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Weights:
    """Return intervals of the weights of a fixed subset: algorithms drawn with replacement, weights
    fitted anew (of free sign).
    """
    a, t = prepared.features[fit.rows][:, fit.columns], prepared.target[fit.rows]
    design = np.column_stack([a, np.ones(len(a))]) if intercept else a
    rng = np.random.default_rng(seed)
    times = rng.multinomial(len(t), np.full(len(t), 1 / len(t)), n).astype(np.float64)  # [n, N]
    gram = np.einsum("br,ri,rj->bij", times, design, design, optimize=True)
    right = np.einsum("br,ri,r->bi", times, design, t, optimize=True)
    b = np.einsum("bij,bj->bi", np.linalg.pinv(gram, hermitian=True), right)
    error = (times * (t - b @ design.T) ** 2).sum(1)
    mean = times @ t / len(t)
    r2 = 1 - error / (times @ t**2 - len(t) * mean**2)
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(b[:, : a.shape[1]], tails, axis=0)
    return Weights(low, high, tuple(np.quantile(r2, tails).tolist()))


@dataclasses.dataclass(frozen=True)
class Choice:
    """Winners of repeated searches."""

    winners: collections.Counter[tuple[str, ...]]
    repeats: int
    first: tuple[str, ...] = ()  # the least mean loss over the repeats, where that is known
    honest_mse: float = math.nan  # of the winners on algorithms that had no part in choosing them
    honest_n: int = 0
    honest_r2: float = math.nan  # 1 - their squares / those about the mean of the other algorithms

    @property
    def environments(self) -> collections.Counter[str]:
        """Number of searches whose winner has each environment."""
        members = [dict.fromkeys(names, times) for names, times in self.winners.items()]
        return sum(map(collections.Counter, members), collections.Counter())


def over_seeds(outcome: Outcome, *, seeds: int = 50, shortlist: int = 3000) -> Choice:
    """Return winners of cross-validation with folds drawn from seeds 0, 1, …, among the best
    subsets in sample.
    """
    folds = dataclasses.replace(outcome.settings.folds, repeats=1)
    settings = dataclasses.replace(outcome.settings, criterion="kfold", folds=folds)
    problem = candidates(outcome.prepared, settings)
    in_sample = dataclasses.replace(settings, criterion="in-sample", top=shortlist // 2)
    listed = exhaustive(dataclasses.replace(problem, settings=in_sample)).subsets
    total, names = np.zeros(len(listed)), [_names(problem, s) for s in listed]
    winners: collections.Counter[tuple[str, ...]] = collections.Counter()
    for seed in range(seeds):
        seeded = dataclasses.replace(settings, folds=dataclasses.replace(folds, seed=seed))
        problem = dataclasses.replace(problem, settings=seeded)
        loss = np.asarray(problem.compiled(listed.shape[1]).of_subsets(listed).loss)
        total += loss
        winners[names[int(loss.argmin())]] += 1
    return Choice(winners, seeds, names[int(total.argmin())])


def over_algorithms(
    outcome: Outcome, *, parts: int = 10, seed: int = 0, progress: Progress | None = None
) -> Choice:
    """Return winners of searches without each tenth of the algorithms in turn, and their error on
    that tenth: nested validation, with the choice of the subset inside.

    The cross-validated error of a winner is the least of many and therefore too small; the error on
    algorithms that were left out of search and fit is not. Searches are by leave-one-out, or by the
    criterion of the settings where that is not defined.
    """
    prepared, settings = outcome.prepared, outcome.settings
    criterion = settings.criterion if settings.non_negative else "loo"
    folds = dataclasses.replace(settings.folds, groups=None)
    parts = max(2, min(parts, len(prepared.algorithms) // 2))
    fewer = max(settings.size + 2, (settings.min_rows or 0) - -(-len(prepared.algorithms) // parts))
    settings = dataclasses.replace(
        settings, criterion=criterion, shortlist=0, top=0, folds=folds, min_rows=fewer
    )
    part = _parts(outcome, parts, seed)
    names = np.array(prepared.algorithms, object)
    cases = [
        (prepared.without(list(names[part == number])), part == number)
        for number in range(int(part.max()) + 1)
    ]
    return _repeated(prepared, settings, cases, progress)


def _parts(outcome: Outcome, parts: int, seed: int) -> np.ndarray:
    """Return the part [m] int of each algorithm; families that are held out together stay
    together.
    """
    groups = outcome.settings.folds.groups
    if groups is None:
        return shuffled(len(outcome.prepared.algorithms), parts, seed)
    names, group = np.unique(np.asarray(groups, object).astype(str), return_inverse=True)
    return shuffled(len(names), max(2, min(parts, len(names))), seed)[group]


def over_resamples(
    outcome: Outcome, *, resamples: int = 10, seed: int = 0, progress: Progress | None = None
) -> Choice:
    """Return winners of searches on algorithms drawn with replacement, the bootstrap of the choice,
    and their error on those not drawn.

    Searches are by the error in sample: with folds, copies of an algorithm would stand on both
    sides. Subsets whose environments have holes are left with few different algorithms and fit them
    too well, so winners differ more than the data warrant: `over_algorithms` is the
    sounder question.
    """
    prepared, m = outcome.prepared, len(outcome.prepared.algorithms)
    folds = dataclasses.replace(outcome.settings.folds, groups=None)
    settings = dataclasses.replace(
        outcome.settings, criterion="in-sample", shortlist=0, top=0, folds=folds
    )
    generator = np.random.default_rng(seed)
    drawn = [np.sort(generator.integers(0, m, m)) for _ in range(resamples)]
    cases = [(prepared.drawn(rows), ~np.isin(np.arange(m), rows)) for rows in drawn]
    return _repeated(prepared, settings, cases, progress)


def _repeated(
    prepared: Prepared,
    settings: Search,
    cases: Sequence[tuple[Prepared, np.ndarray]],
    progress: Progress | None,
) -> Choice:
    """Search in each case, and judge the winner on the algorithms that have no part in it.

    Args:
      cases: what is searched, and which of the algorithms are left out of it, [m] bool.
    """
    winners: collections.Counter[tuple[str, ...]] = collections.Counter()
    errors: list[float] = []
    plain: list[float] = []  # errors of the mean of the algorithms that are not left out
    for number, (part, out) in enumerate(cases, 1):
        best = search(part, settings).best
        winners[tuple(sorted(best.subset, key=prepared.column))] += 1
        a, target = prepared.features[out][:, best.columns], prepared.target[out]
        known = ~np.isnan(a).any(1)
        errors += list((target - a @ best.coefficients - best.intercept)[known])
        plain += list(target[known] - prepared.target[~out].mean())
        if progress:
            progress(number, len(cases))
    mse = float(np.mean(np.square(errors))) if errors else math.nan
    r2 = 1 - float(np.sum(np.square(errors)) / np.sum(np.square(plain))) if errors else math.nan
    return Choice(winners, len(cases), (), mse, len(errors), r2)


def over_sizes(prepared: Prepared, settings: Search, most: int = 5_000_000) -> pd.DataFrame:
    """Find the best subset of each size up to that of the settings and two more; exhaustive while
    there are at most `most` subsets.

    Returns:
      Columns size, subset (text), n, mse, cv_mse, loo_mse, heuristic (bool).
    """
    rows = []
    problem = candidates(prepared, settings)
    free, forced = problem.free, problem.forced
    last = min(settings.size + 2, len(free) + len(forced), len(prepared.algorithms) - 2)
    for size in range(max(1, len(forced)), last + 1):
        heuristic = math.comb(len(free), size - len(forced)) > most
        mine = dataclasses.replace(settings, size=size, heuristic=heuristic, top=0)
        try:
            best = search(prepared, mine).best
        except JbrlError:  # too few algorithms for so many environments
            break
        losses = (best.mse, best.cv_mse, best.loo_mse)
        rows.append((size, ", ".join(best.subset), best.n, *losses, heuristic))
    columns = ["size", "subset", "n", "mse", "cv_mse", "loo_mse", "heuristic"]
    return pd.DataFrame(rows, columns=columns)


def _names(problem: Problem, chosen: np.ndarray) -> tuple[str, ...]:
    return tuple(problem.prepared.environments[c] for c in sorted(problem.columns(chosen)))


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
            fit_subset(*prepared.data, (j,), folds, intercept=with_intercept)
            for with_intercept in (True, False)
        )
        pearson = np.corrcoef(prepared.features[known, j], prepared.target[known])[0, 1]
        slopes = fit.coefficients[0], alone.coefficients[0]
        both = (name, fit.n, fit.intercept, slopes[0], fit.r2, fit.cv_mse)
        rows.append((*both, slopes[1], alone.r2, pearson))
    columns = ["environment", "n", "intercept", "slope", "r2", "cv_mse"]
    table = pd.DataFrame(rows, columns=[*columns, "slope_alone", "r2_alone", "pearson"])
    return table.sort_values("r2", ascending=False, kind="stable", ignore_index=True)


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
        n, spread = int(known.sum()), math.nan
        if n:
            spread = float(((target[known] - target[known].mean()) ** 2).sum())
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
                data = (only, np.where(known, target, 0.0), prepared.environments)
                fit = fit_subset(*data, columns, folds, intercept=with_intercept)
                adjusted = 1 - (1 - fit.r2) * (n - 1) / (n - p)
                row |= dict(zip(names, (fit.r2, adjusted, fit.cv_r2, n * fit.mse), strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def pooled_r2(table: pd.DataFrame, *, intercept: bool) -> float:
    """Return the share of the variance of all environments that the subset explains: 1 - sum of SSE
    / sum of TSS, of a `per_environment` table.
    """
    known = table[table["sse_intercept"].notna()]
    errors = known["sse_intercept" if intercept else "sse_no_intercept"]
    return 1 - float(errors.sum() / known["tss"].sum())


def correlations(prepared: Prepared) -> pd.DataFrame:
    """Return Pearson's r of the transformed scores of each two environments, over the algorithms
    that have both; NaN where undefined.
    """
    return pd.DataFrame(prepared.features, columns=list(prepared.environments)).corr(min_periods=2)
