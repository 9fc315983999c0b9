"""Small score tables for subset selection."""

import numpy as np
import pandas as pd

from jbrl.stats.subset.preparation import Preparation, prepare


def matrix(seed=0, m=18, n=6, holes=0.0):
    """Scores [m, n] of algorithms that differ in skill, NaN where missing."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(0, 1, (m, 2))
    scores = skill @ rng.normal(0, 1, (2, n)) + 0.3 * rng.normal(0, 1, (m, n)) + 5
    scores[rng.random((m, n)) < holes] = np.nan
    return scores


def table_of(scores, environments=None):
    """The long table of a matrix: algorithms a00, a01, …, environments A, B, …; rows in
    reverse order.
    """
    m, n = scores.shape
    names = environments or [chr(ord("A") + j) for j in range(n)]
    rows = [
        (f"a{i:02d}", names[j], scores[i, j])
        for i in range(m)
        for j in range(n)
        if not np.isnan(scores[i, j])
    ]
    return pd.DataFrame(rows[::-1], columns=["algorithm", "environment", "score"])


def prepared_of(scores, **preparation):
    return prepare(table_of(scores), Preparation(**{"target": "mean", **preparation}))
