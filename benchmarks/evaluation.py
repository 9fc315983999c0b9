"""The evaluation of score tables: seconds for each method against the number of samples, algorithms
and environments.

python benchmarks/evaluation.py [--full | --large N,M,T] [--figure FILE]

Prints one JSON line for each size; without ties, the hardest case. Bootstrap: seconds for each
resample, compilation apart. `--full` runs 10,000 resamples of 11 algorithms on 15 environments with
10,000 samples each and nothing else, `--large` PBP for any sizes, with seconds of all cores, which
say more where the machine has other work.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from jbrl.play.batching import use_all_cores
from jbrl.stats.evaluation.bootstrap import bootstrap, resampled_scores
from jbrl.stats.evaluation.game import equilibrium
from jbrl.stats.evaluation.propagation import payoff_bounds, payoff_t_intervals, propagate
from jbrl.stats.evaluation.samples import Samples, payoffs, samples_of

PAPER = (11, 15, 10_000)  # algorithms, environments, samples
LINES = {
    "samples": [(11, 15, T) for T in (100, 1_000, 10_000)],
    "algorithms": [(n, 15, 1_000) for n in (3, 6, 11, 20)],
    "environments": [(11, m, 1_000) for m in (3, 8, 15, 30)],
}


def table(n: int, m: int, T: int) -> pd.DataFrame:
    """Draw normal scores; algorithms differ by less than the spread, and not in the same order
    everywhere.
    """
    generator = np.random.default_rng(0)
    centres = np.linspace(0, 0.5, n)[:, None] + 0.2 * generator.normal(size=(n, m))
    return pd.DataFrame(
        {
            "algorithm": np.repeat([f"a{i}" for i in range(n)], m * T),
            "environment": np.tile(np.repeat([f"e{j}" for j in range(m)], T), n),
            "score": (centres[:, :, None] + generator.normal(size=(n, m, T))).ravel(),
        }
    )


def timed(function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    found = function(*args)
    return found, time.perf_counter() - started


def point(rows: pd.DataFrame) -> Samples:
    samples = samples_of(rows)
    equilibrium(payoffs(samples))
    return samples


def measure(n: int, m: int, T: int, resamples: int) -> dict[str, Any]:
    """Measure seconds of each method, the point estimate from the table on, intervals from the
    samples on.
    """
    samples, seconds = timed(point, table(n, m, T))
    found: dict[str, Any] = {"algorithms": n, "environments": m, "samples": T, "point": seconds}
    found["pbp"] = timed(lambda: propagate(*payoff_bounds(samples, 0.05), samples.same))[1]
    found["pbp-t"] = timed(lambda: propagate(*payoff_t_intervals(samples, 0.05), samples.same))[1]
    resampled_scores(samples, resamples)  # compiles
    found["bootstrap_per_resample"] = timed(resampled_scores, samples, resamples)[1] / resamples
    return found


def full() -> dict[str, Any]:
    """Time 10,000 resamples of the paper's size, compilation included."""
    samples = point(table(*PAPER))
    seconds = timed(lambda: bootstrap(samples, resamples=10_000))[1]
    return {
        "algorithms": PAPER[0],
        "environments": PAPER[1],
        "samples": PAPER[2],
        "resamples": 10_000,
        "bootstrap": seconds,
    }


def large(n: int, m: int, T: int) -> dict[str, Any]:
    """Time PBP for n algorithms on m environments with T samples each: seconds, and seconds of
    cores.
    """
    samples, seconds = timed(point, table(n, m, T))
    bounds = payoff_bounds(samples, 0.05)
    cores = time.process_time()
    (lower, upper), pbp = timed(lambda: propagate(*bounds, samples.same))
    cores = time.process_time() - cores
    sizes = {"algorithms": n, "environments": m, "samples": T}
    apart = int((lower[:, None] > upper[None, :]).sum())
    return {**sizes, "point": seconds, "pbp": pbp, "pbp_cores": cores, "pairs_apart": apart}


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Draw seconds against each of the three sizes."""
    import matplotlib.pyplot as plt

    figure, all_axes = plt.subplots(1, 3, figsize=(9.5, 3.4), layout="constrained", sharey=True)
    for axes, (name, sizes) in zip(all_axes, LINES.items(), strict=True):
        line = [
            next(r for r in rows if (r["algorithms"], r["environments"], r["samples"]) == size)
            for size in sizes
        ]
        for marker, (column, label) in zip("o^sD", COLUMNS.items(), strict=True):
            axes.loglog(
                [row[name] for row in line],
                [row[column] for row in line],
                marker=marker,
                label=label,
            )
        axes.set_xlabel(name)
        axes.set_xticks([row[name] for row in line], [f"{row[name]:,}" for row in line])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel("seconds")
    figure.legend(
        *all_axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False
    )
    figure.savefig(file)


COLUMNS = {
    "point": "point estimate",
    "pbp": "PBP",
    "pbp-t": "PBP-t",
    "bootstrap_per_resample": "bootstrap, one resample",
}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--full", action="store_true", help="the paper's bootstrap only")
    parser.add_argument("--large", metavar="N,M,T", help="PBP for these sizes only")
    parser.add_argument("--figure", type=Path, help="file to draw into (.svg, .png)")
    arguments = parser.parse_args()
    use_all_cores()
    rows = []
    for size in (
        dict.fromkeys(size for sizes in LINES.values() for size in sizes)
        if not (arguments.full or arguments.large)
        else []
    ):
        rows.append(measure(*size, resamples=64))
        print(json.dumps(rows[-1]), flush=True)
    if arguments.large:
        print(json.dumps(large(*map(int, arguments.large.split(",")))), flush=True)
    if arguments.full:
        print(json.dumps(full()), flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        json.dumps(
            {
                "peak_memory_gib": round(memory, 2),
                "devices": str(jax.devices()),
                "jax": jax.__version__,
            }
        )
    )
    if arguments.figure and rows:
        draw(rows, arguments.figure)


if __name__ == "__main__":
    main()
