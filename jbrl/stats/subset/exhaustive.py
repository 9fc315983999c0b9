"""Every subset, in chunks; the best are kept."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.stats.subset import kernel
from jbrl.stats.subset.problem import POOL, Evaluator, Found, Problem

TIED = 1e-9  # losses this close, relatively, are equal
REMEMBERED = 2**24  # losses that are kept for their distribution
SHARES = {"0.1%": 0.001, "1%": 0.01, "50%": 0.5, "95%": 0.95}
Progress = Callable[[int, int], None]  # subsets done, and all


def exhaustive(
    problem: Problem, progress: Progress | None = None, asked: tuple[tuple[str, ...], ...] = ()
) -> Found:
    """Return the best of all subsets. The result depends on losses and numbers alone, not on
    chunks.
    """
    size = problem.settings.size - len(problem.forced)
    if size == 0:
        return Found(np.zeros((1, 0), np.int64), {"evaluated": 1, "skipped": 0, "singular": 0})
    compiled = problem.compiled(size)
    total = math.comb(len(problem.free), size)
    keep = max(POOL, 2 * problem.settings.top, problem.settings.shortlist)
    watched = {names: _loss_of(problem, compiled, names) for names in asked}
    best_loss, best_rank = np.empty(0), np.empty(0, np.int64)
    counts = {"evaluated": 0, "skipped": 0, "singular": 0}
    better = dict.fromkeys(asked, 0)
    losses = np.empty(total if total <= REMEMBERED else 0)
    for start, found in compiled.all(problem.settings.chunk):
        loss, n = np.asarray(found.loss), len(found.loss)
        counts = {
            **counts,
            **{
                k: counts[k] + int(np.asarray(getattr(found, k)).sum())
                for k in ("skipped", "singular")
            },
        }
        counts["evaluated"] += int(np.isfinite(loss).sum())
        better = {
            names: count + int((loss < watched[names] * (1 - TIED)).sum())
            for names, count in better.items()
        }
        if len(losses):
            losses[start : start + n] = loss
        worst = best_loss[-1] if len(best_loss) == keep else math.inf
        near = np.flatnonzero((loss <= worst) & np.isfinite(loss))
        if len(near) > keep:
            near = near[loss[near] <= np.partition(loss[near], keep - 1)[keep - 1]]
        best_loss, best_rank = (
            np.concatenate([best_loss, loss[near]]),
            np.concatenate([best_rank, start + near]),
        )
        order = np.lexsort((best_rank, best_loss))[:keep]
        best_loss, best_rank = best_loss[order], best_rank[order]
        if progress:
            progress(min(start + n, total), total)
    finite = losses[np.isfinite(losses)]
    quantiles = (
        dict(zip(SHARES, np.quantile(finite, list(SHARES.values())).tolist(), strict=True))
        if len(finite)
        else None
    )
    return Found(_unranked(best_rank, len(problem.free), size), counts, quantiles, better)


def _unranked(ranks: np.ndarray, n: int, size: int) -> np.ndarray:
    if not len(ranks):
        return np.empty((0, size), int)
    with jax.enable_x64(True):
        return np.asarray(kernel.unrank(jnp.asarray(ranks), jnp.asarray(kernel.binomials(n, size))))


def _loss_of(problem: Problem, compiled: Evaluator, names: tuple[str, ...]) -> float:
    columns = [problem.prepared.column(name) for name in names]
    rest = sorted(problem.free.index(c) for c in columns if c in problem.free)
    if len(columns) != problem.settings.size or len(rest) != compiled.size:
        raise JbrlError(
            f"subset: asked about {', '.join(names)}: expected "
            f"{problem.settings.size} environments of the search"
        )
    return float(compiled.of_subsets(np.array([rest])).loss[0])
