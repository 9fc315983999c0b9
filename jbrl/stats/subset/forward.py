"""Forward selection with swaps: a heuristic for more subsets than can be tried.

It finds a good subset, not surely the best.
"""

import numpy as np

from jbrl.stats.subset.problem import POOL, Found, Problem

ROUNDS = 50  # of swaps, far more than it takes


def select(problem: Problem) -> Found:
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
            found = problem.compiled(len(new[0]), tables=False).of_subsets(np.array(new))
            seen.update(zip(new, map(float, found.loss), strict=True))
            counts["evaluated"] += int(np.isfinite(found.loss).sum())
            for name in ("skipped", "singular"):
                counts[name] += int(getattr(found, name).sum())

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
    return Found(np.array([s for _, s in full[:keep]], np.int64).reshape(-1, wanted), counts)
