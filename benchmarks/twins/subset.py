"""The subset search as one would write it down: a loop over subsets, a loop over folds, least
squares by SVD.
"""

import itertools

import numpy as np
from scipy.optimize import nnls


def folds_of(n, k, seed):
    """Fold of each of n rows; the first n mod k folds have one row more."""
    order = np.random.RandomState(seed).permutation(n)
    found = np.empty(n, int)
    start = 0
    for fold in range(k):
        size = n // k + (fold < n % k)
        found[order[start : start + size]] = fold
        start += size
    return found


def solve(a, t, non_negative=False):
    return nnls(a, t)[0] if non_negative else np.linalg.lstsq(a, t, rcond=None)[0]


def dependent(a):
    """Return whether columns are linearly dependent, for any scales."""
    scale = np.linalg.norm(a, axis=0)
    return (
        len(a) < a.shape[1]
        or not scale.all()
        or np.linalg.matrix_rank(a / scale, tol=1e-5) < a.shape[1]
    )


def loss_of(x, t, columns, criterion, folds, *, intercept=False, non_negative=False, min_rows=1):
    """Return the loss of a subset; infinite if it has too few rows or dependent columns in some
    training set.

    Args:
      folds: k, seed, repeats, groups (fold of each row of the table, or None), pooled.
    """
    k, seed, repeats, groups, pooled = folds
    rows = np.flatnonzero(~np.isnan(x[:, columns]).any(1))
    if len(rows) < min_rows:
        return np.inf
    a, y = x[rows][:, columns], t[rows]
    if intercept:
        a = np.column_stack([a, np.ones(len(a))])
    if criterion == "in-sample":
        return np.inf if dependent(a) else np.mean((y - a @ solve(a, y, non_negative)) ** 2)
    if criterion == "loo":
        held = [np.eye(len(rows), dtype=bool)]
    else:
        assigned = [
            folds_of(len(rows), k, seed + r) if groups is None else groups[rows]
            for r in range(repeats)
        ]
        held = [np.array([f == fold for fold in range(k)]) for f in assigned]
    if criterion == "loo" and dependent(a):
        return np.inf
    losses = []
    for sets in held:
        errors = []
        for out in sets:
            if dependent(a[~out]):
                return np.inf
            errors.append((y[out] - a[out] @ solve(a[~out], y[~out], non_negative)) ** 2)
        losses.append(
            np.mean(np.concatenate(errors))
            if pooled
            else np.mean([e.mean() for e in errors if len(e)])
        )
    return float(np.mean(losses))


def search(x, t, size, criterion, folds, **options):
    """Return the losses of all subsets, in lexicographic order: {columns: loss}."""
    n = x.shape[1]
    return {
        c: loss_of(x, t, list(c), criterion, folds, **options)
        for c in itertools.combinations(range(n), size)
    }
