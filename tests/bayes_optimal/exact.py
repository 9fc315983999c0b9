"""The Bayes-optimal value of small problems, by expectimax over histories in plain Python."""

import math
from typing import Any

import numpy as np

from jbrl.mdp.dirichlet import DirichletMDPs, distribution
from jbrl.problems.problem import DirichletProblem

GC2 = ([[[1, 1], [1, 1]], [[1, 1], [1, 1]]], [[[2, 10], [2, 10]], [[2, 10], [2, 10]]])
ZEROS = ([[[1, 0], [1, 1]], [[0, 2], [3, 1]]], [[[1, 0], [0, 4]], [[0, 2], [5, 0]]])
FRACTIONS = (
    [[[0.3, 0.7], [0.5, 0.5]], [[0.2, 0.2], [1.5, 0.4]]],
    [[[0, 1], [0.5, 0]], [[1, -2], [0, 3]]],
)
UNLIKE = ([[[1, 2], [2, 1]], [[0.5, 4], [1, 1]]], [[[0, 1], [1, 0]], [[3, 0], [0, 2]]])
PRIORS = {"GC2": GC2, "zeros": ZEROS, "fractions": FRACTIONS, "unlike": UNLIKE}


def problem(prior: tuple, first: int = 0, name: str = "two") -> DirichletProblem:
    return DirichletProblem(name, name, distribution(*prior, first))


def exact(mdps: DirichletMDPs, discount: float, horizon: int) -> float:
    """Return the Bayes-optimal value: no array, nothing merged, a call for each history."""
    prior = np.asarray(mdps.concentrations, float).tolist()
    rewards = np.asarray(mdps.rewards, float).tolist()

    def value(x: int, counts: Any, left: int) -> float:
        if left == 0:
            return 0.0
        best = -math.inf
        for u, row in enumerate(counts[x]):
            total, q = sum(row), 0.0
            for y, weight in enumerate(row):
                if weight > 0:
                    after = [[list(r) for r in rows] for rows in counts]
                    after[x][u][y] += 1
                    gain = rewards[x][u][y] + discount * value(y, after, left - 1)
                    q += weight / total * gain
            best = max(best, q)
        return best

    first = int(mdps.initial_state)
    states = range(len(prior)) if first < 0 else [first]
    return float(np.mean([value(x, prior, horizon) for x in states]))
