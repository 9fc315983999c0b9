"""Error rate and power of the intervals of an evaluation.

The experiment of table 2 of Jordan et al. (2020).

python experiments/failure_rates.py [TABLE] [--algorithms A,B…] [--sizes 10,30,100] [--replications
    100] [--resamples 200]

A population of scores is given: a score table, a directory of results, or (default) a synthetic
one. Each replication draws `size` scores with replacement for each algorithm and environment, and
computes all intervals at delta = 0.05. Printed as JSON lines, for each size and method:

cross      the paper's failure rate: of all ordered pairs of replications, how many have an estimate
           of the one outside the intervals of the other. Two estimates differ by more than an
           estimate and the truth, so this overstates failure.
missed     how many replications have an interval that misses the score that the population itself
           has. What delta promises to bound.
significant  share of the pairs of algorithms that differ significantly. What is left of the
             data's power.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.play.batching import use_all_cores
from jbrl.results import Results
from jbrl.stats.evaluation.bootstrap import Bootstrap, bootstrap
from jbrl.stats.evaluation.game import equilibrium
from jbrl.stats.evaluation.propagation import payoff_bounds, payoff_t_intervals, propagate
from jbrl.stats.evaluation.ranking import significant
from jbrl.stats.evaluation.samples import Samples, payoffs, samples_of
from jbrl.stats.score_files import read_score_table
from jbrl.stats.score_table import restrict

DELTA = 0.05
Ends = tuple[np.ndarray, np.ndarray]


def synthetic(algorithms: int = 4, environments: int = 9, scores: int = 5_000) -> pd.DataFrame:
    """Return two pairs of algorithms; within a pair one is a little better.

    Skewed scores with a cap that some reach, as in real tables.
    """
    generator = np.random.default_rng(0)
    parts = []
    for j in range(environments):
        hardness = generator.uniform(0.5, 2)
        for i in range(algorithms):
            ability = 1.0 * (i // 2) + 0.25 * (i % 2) + 0.1 * generator.normal()
            drawn = -np.exp(hardness - ability + 0.8 * generator.normal(size=scores))
            parts.append(
                pd.DataFrame(
                    {
                        "algorithm": f"a{i}",
                        "environment": f"e{j}",
                        "score": np.maximum(drawn, -20.0),
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def replications(population: Samples, size: int, count: int, seed: int) -> Iterator[Samples]:
    """Draw samples of `size` scores for each cell; bounds are those of each replication."""
    cells = [
        (i, j, population.sample(i, j))
        for j in range(population.shape[1])
        for i in range(population.shape[0])
    ]
    names = [(population.algorithms[i], population.environments[j]) for i, j, _ in cells]
    generator = np.random.default_rng([seed, size])
    for _ in range(count):
        scores = np.concatenate([generator.choice(scores, size) for _, _, scores in cells])
        who, where = (np.repeat(column, size) for column in zip(*names, strict=True))
        yield samples_of(pd.DataFrame({"algorithm": who, "environment": where, "score": scores}))


def intervals(samples: Samples, resamples: int, seed: int) -> dict[str, Ends]:
    """Return the interval ends by each method."""
    student = payoff_t_intervals(samples, DELTA)
    return {
        "pbp": propagate(*payoff_bounds(samples, DELTA), samples.same),
        "pbp-t": propagate(*student, samples.same),
        "pbp-t as published": propagate(*student, samples.same, published=True),
        "bootstrap": _ends(bootstrap(samples, DELTA, resamples=resamples, seed=seed)),
    }


def _ends(found: Bootstrap) -> Ends:
    return found.lower, found.upper


def rates(
    truth: np.ndarray, scores: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> dict[str, float]:
    """Return rates of one method from the estimates and interval ends [R, n] of all
    replications.
    """
    R, n = scores.shape
    outside = np.any((scores[:, None] < lower[None]) | (scores[:, None] > upper[None]), axis=2)
    pairs = [
        significant(low, high).sum() / (n * (n - 1)) for low, high in zip(lower, upper, strict=True)
    ]
    return {
        "cross": float(outside[~np.eye(R, dtype=bool)].mean()),
        "missed": float(((truth < lower) | (truth > upper)).any(axis=1).mean()),
        "significant": float(np.mean(pairs)),
    }


def experiment(
    population: Samples, size: int, count: int, resamples: int, seed: int
) -> Iterator[dict]:
    """Yield rates of all methods at one sample size."""
    truth = equilibrium(payoffs(population)).scores
    scores, ends = [], []
    for number, samples in enumerate(replications(population, size, count, seed)):
        scores.append(equilibrium(payoffs(samples)).scores)
        ends.append(intervals(samples, resamples, number))
    for method in ends[0]:
        lower, upper = (np.array([found[method][side] for found in ends]) for side in (0, 1))
        found = rates(truth, np.array(scores), lower, upper)
        yield {
            "size": size,
            "method": method,
            "replications": count,
            "resamples": resamples,
            **found,
        }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "table",
        nargs="?",
        type=Path,
        help="score table or directory of results (default: synthetic scores)",
    )
    parser.add_argument("--algorithms", help="only these, separated by commas")
    parser.add_argument(
        "--sizes",
        default="10,30,100",
        help="scores for each algorithm and environment, separated by commas",
    )
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument(
        "--resamples", type=int, default=200, help="of the bootstrap in each replication"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    use_all_cores()
    if given.table is None:
        rows = synthetic()
    else:
        rows = (
            Results(given.table).score_table()
            if given.table.is_dir()
            else read_score_table(given.table)
        )
    population = samples_of(
        restrict(rows, algorithms=given.algorithms.split(",") if given.algorithms else None)
    )
    for size in map(int, given.sizes.split(",")):
        for line in experiment(population, size, given.replications, given.resamples, given.seed):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
