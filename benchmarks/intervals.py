"""The coverage of 95% intervals of means and of paired differences, for few and skewed scores.

python benchmarks/intervals.py [--data-sets 4000] [--resamples 1000]

Prints one JSON line for each distribution and number of scores N: the share of data sets whose
interval holds the true mean, by 1.96 s/√N ("normal"), Student's t, the percentile bootstrap, BCa
and the studentised bootstrap (bootstrap-t). The standard error of a share of 0.95 in 4,000 data
sets is 0.0034. All with seed 0. Results are kept in `benchmarks/results/intervals.jsonl`.
"""

import argparse
import json
from collections.abc import Callable

import numpy as np

from jbrl.stats.paired_bootstrap import bca_intervals, draw_counts, studentised_intervals
from jbrl.stats.table import Z95, factor95

SIZES = (10, 20, 50, 99, 250)
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
POPULATIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, size: rng.normal(size=size), 0.0),
    "exponential": (lambda rng, size: rng.exponential(size=size), 1.0),  # skewness 2
    "lognormal": (lambda rng, size: rng.lognormal(size=size), float(np.exp(0.5))),  # skewness 6.2
    "mostly zero": (lambda rng, size: 1.0 * (rng.random(size) < 0.15), 0.15),  # as on Grid
}


def covered(draw: Draw, truth: float, n: int, data_sets: int, resamples: int) -> dict[str, float]:
    """Measure shares of data sets of n scores whose intervals hold the true mean."""
    values = draw(np.random.default_rng([0, n]), (n, data_sets))
    counts = draw_counts(n, resamples, 0)
    point, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(n)
    means = np.concatenate([point[None], counts.astype(np.float64) @ values / n])
    ends = {
        "normal": (point - Z95 * error, point + Z95 * error),
        "student": (point - factor95(n) * error, point + factor95(n) * error),
        "percentile": tuple(np.quantile(means[1:], [0.025, 0.975], axis=0)),
        "bca": bca_intervals(means, [values]),
        "studentised": studentised_intervals(counts, values),
    }
    return {
        name: float(((low <= truth) & (truth <= high)).mean()) for name, (low, high) in ends.items()
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-sets", type=int, default=4000)
    parser.add_argument("--resamples", type=int, default=1000)
    given = parser.parse_args()
    for name, (draw, truth) in POPULATIONS.items():
        for n in SIZES:
            shares = covered(draw, truth, n, given.data_sets, given.resamples)
            print(json.dumps({"population": name, "n": n, **shares}), flush=True)


if __name__ == "__main__":
    main()
