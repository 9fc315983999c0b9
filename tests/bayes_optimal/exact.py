"""The Bayes-optimal value of small problems, by expectimax over histories in plain Python."""

import functools

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


def action_values(
    prior: np.ndarray, rewards: np.ndarray, x: int, discount: float, left: int, leaf: float = 0.0
) -> list[float]:
    """Return the Bayes-optimal value of each action in a state: a call for each history, or for all
    that saw the same. What follows the last decision is worth `leaf`.
    """
    n_states, n_actions, _ = np.shape(prior)
    paid = np.asarray(rewards, float).tolist()

    @functools.cache
    def values(x: int, counts: tuple[float, ...], left: int) -> list[float]:
        found = []
        for u in range(n_actions):
            first = (x * n_actions + u) * n_states
            row, q = counts[first : first + n_states], 0.0
            for y, weight in enumerate(row):
                if weight > 0:
                    after = (*counts[: first + y], weight + 1, *counts[first + y + 1 :])
                    later = max(values(y, after, left - 1)) if left > 1 else leaf
                    q += weight / sum(row) * (paid[x][u][y] + discount * later)
            found.append(q)
        return found

    return values(x, tuple(np.ravel(prior).astype(float).tolist()), left)


def exact(mdps: DirichletMDPs, discount: float, horizon: int) -> float:
    """Return the Bayes-optimal value."""
    given = np.asarray(mdps.concentrations), np.asarray(mdps.rewards)
    first = int(mdps.initial_state)
    states = range(mdps.n_states) if first < 0 else [first]
    return float(np.mean([max(action_values(*given, x, discount, horizon)) for x in states]))


def iterated(transitions: np.ndarray, rewards: np.ndarray, discount: float, n: int) -> np.ndarray:
    """Return the optimal values of an MDP for so many decisions."""
    values = np.zeros(len(transitions))
    for _ in range(n):
        values = (transitions * (rewards + discount * values)).sum(-1).max(-1)
    return values


def computed_again(*_: object, **__: object) -> None:
    """Stand for what must have been kept."""
    raise AssertionError("computed again")
