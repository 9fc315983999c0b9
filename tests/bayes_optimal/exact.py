"""The Bayes-optimal value of small problems, by expectimax over histories in plain Python."""

import math
from typing import Any

import numpy as np

import jbrl
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


BANDITS = range(244, 324)  # numbers of problems that are bandits


def some_problem(number: int) -> DirichletProblem:
    """Two states and two actions, of one of four kinds: ordinary, with an outcome that is rare and
    pays or costs very much, with rewards that differ by orders of magnitude, with rows that are
    nearly certain. Or else a bandit of two arms with two or three outcomes.
    """
    generator = np.random.default_rng(number)
    if number in BANDITS:
        rows = generator.choice([0.05, 0.5, 1.0, 4.0], (2, 2 + number % 2))
        prior = ";".join(" ".join(map(str, row)) for row in rows)
        return jbrl.problem(f'Bandit(prior="{prior}")')
    shape = (2, 2, 2)
    weights, rewards = generator.choice([0.5, 1.0, 2.0], shape), generator.normal(size=shape)
    kind = number % 4
    if kind == 1:
        chance = 10.0 ** -generator.integers(2, 7)
        weights[0, 1], rewards[0, 1] = (1, chance), (0, generator.choice([-1, 1]) / chance)
    elif kind == 2:
        rewards *= 10.0 ** generator.uniform(-2, 4, shape)
    elif kind == 3:
        weights = generator.choice([0.01, 0.02, 3.0], shape)
    return problem((weights, rewards))


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
