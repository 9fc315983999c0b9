"""Comparisons and ranks under resampling, by loops and definitions."""

import numpy as np
from scipy.special import ndtr, ndtri


def bca(values, counts, level):
    """Interval of the mean of `values` [N], given how often each occurs in each resample."""
    values = np.asarray(values, float)
    means = np.array([np.mean(np.repeat(values, row)) for row in counts])
    point = values.mean()
    near = np.isclose(means, point, rtol=0, atol=1e-12)
    below = np.mean((means < point) & ~near) + np.mean(near) / 2
    smallest = 0.5 / len(means)
    bias = ndtri(min(max(below, smallest), 1 - smallest))
    left_out = np.array([np.delete(values, i).mean() for i in range(len(values))])
    pulls = left_out.mean() - left_out
    acceleration = (pulls**3).sum() / (6 * (pulls**2).sum() ** 1.5) if pulls.any() else 0.0
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        shifted = bias + ndtri(tail)
        ends.append(np.quantile(means, ndtr(bias + shifted / (1 - acceleration * shifted))))
    return ends


def improvement(a, b):
    return np.mean([1.0 if x > y else 0.5 if x == y else 0.0 for x, y in zip(a, b, strict=True)])


def ranks(means):
    return [1 + sum(other > mine for other in means) for mine in means]
