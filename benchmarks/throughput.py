"""Decisions per second against the number of MDPs, with the peak memory of the process.

python benchmarks/throughput.py [--figure FILE] [--problem GC] [--agent e-Greedy]

Prints one JSON line for each number of MDPs: the best of several runs after compilation, the whole simulation included. The last line
holds the peak resident memory and what it ran on.
"""

import argparse
import json
import resource
from pathlib import Path

import jax

import jbrl
from jbrl.agents.agent import AGENTS
from jbrl.environments.lifetime import Steps
from jbrl.problems.problem import problem
from jbrl.runner.play import batching
from jbrl.runner.play.experiment import Run
from jbrl.runner.play.protocol import Protocol

SIZES = (1, 10, 100, 512, 1_000, 10_000, 100_000)
HORIZON = 250


def measure(agent: str, name: str, n_environments: int) -> dict:
    """Best throughput over a few runs of `n_environments` MDPs."""
    run = Run(AGENTS[agent].agent(), Protocol(problem(name), problem(name), n_environments=n_environments, lifetime=Steps(HORIZON)))
    run.prepare()
    repeats = 5 if n_environments <= 10_000 else 2
    seconds = min(sum(chunk.online_seconds for chunk in run.chunks()) for _ in range(repeats))
    decisions = n_environments * HORIZON
    return {
        "agent": agent,
        "problem": name,
        "n_environments": n_environments,
        "decisions_per_second": decisions / seconds,
        "microseconds": seconds / decisions * 1e6,
    }


def draw(rows: list[dict], file: Path) -> None:
    """The figure: throughput against the number of MDPs, one line for each problem."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for marker, name in zip("o^s", dict.fromkeys(row["problem"] for row in rows), strict=False):
        line = [row for row in rows if row["problem"] == name]
        axes.loglog([row["n_environments"] for row in line], [row["decisions_per_second"] for row in line], marker=marker, label=name)
    axes.set(xlabel="MDPs played", ylabel="decisions per second", title=f"{rows[0]['agent']}, {batching.available_cores()} CPU cores")
    axes.grid(alpha=0.3), axes.legend()
    figure.savefig(file)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", default="e-Greedy", choices=sorted(AGENTS))
    parser.add_argument("--problem", nargs="+", default=["GC", "GDL", "Grid"], help="names of the catalogue")
    parser.add_argument("--figure", type=Path, help="file to draw into (.svg, .png)")
    arguments = parser.parse_args()
    batching.use_all_cores()
    rows = []
    for name in arguments.problem:
        for n_environments in SIZES:
            rows.append(measure(arguments.agent, name, n_environments))
            print(json.dumps(rows[-1]), flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        json.dumps({"peak_memory_gib": round(memory, 2), "devices": str(jax.devices()), "jax": jax.__version__, "jbrl": jbrl.__version__})
    )
    if arguments.figure:
        draw(rows, arguments.figure)


if __name__ == "__main__":
    main()
