"""Write the random problems of experiments/suite.toml: Dirichlet distributions over MDPs, sparse
and dense, as JSON files.

python experiments/suite_problems.py
"""

import argparse
from pathlib import Path

import numpy as np

from jbrl.mdp.dirichlet import DirichletMDPs, distribution
from jbrl.problems.json_format import write_json
from jbrl.problems.problem import DirichletProblem

FOLDER = Path(__file__).parent / "suite"
SIZES = ((5, 3), (9, 2), (10, 3), (16, 4))  # states, actions
BRANCHES = 3  # next states that are possible in a sparse problem


def sparse(rng: np.random.Generator, n_states: int, n_actions: int) -> np.ndarray:
    """Return concentrations [S, A, S]: 1 for `BRANCHES` next states of each state and action, 0 for
    the others (the Garnet construction).
    """
    order = rng.random((n_states, n_actions, n_states)).argsort(-1)
    return (order < BRANCHES).astype(np.float64)


def dense(rng: np.random.Generator, n_states: int, n_actions: int) -> np.ndarray:
    """Return concentrations [S, A, S] log-uniform between 0.1 and 10: all transitions are possible,
    some are well known.
    """
    return np.round(10 ** rng.uniform(-1, 1, (n_states, n_actions, n_states)), 3)


def rewards(rng: np.random.Generator, n_states: int, n_actions: int) -> np.ndarray:
    """Return rewards [S, A, S] that depend on state and action: 1 to 10 for a fifth of the pairs, 0
    for the others.
    """
    paying = rng.permutation(n_states * n_actions) < max(2, n_states * n_actions // 5)
    values = np.where(paying, rng.integers(1, 11, n_states * n_actions), 0).astype(np.float64)
    return np.repeat(values.reshape(n_states, n_actions, 1), n_states, axis=2)


def problems() -> list[DirichletProblem]:
    """Return two problems for each kind and size."""
    found = []
    for kind, make in (("sparse", sparse), ("dense", dense)):
        for n_states, n_actions in SIZES:
            name = f"{kind}-{n_states}x{n_actions}"
            rng = np.random.default_rng([ord(kind[0]), n_states, n_actions])
            mdps: DirichletMDPs = distribution(
                make(rng, n_states, n_actions), rewards(rng, n_states, n_actions)
            )
            text = "three next states possible" if kind == "sparse" else "every next state possible"
            found.append(
                DirichletProblem(
                    f"Random {kind} MDPs, {n_states} states, {n_actions} actions",
                    name,
                    mdps,
                    description=f"Random rewards, {text}.",
                )
            )
    return found


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    FOLDER.mkdir(exist_ok=True)
    for made in problems():
        path = FOLDER / f"{made.short_name}.json"
        write_json(made, path)
        print(path)
