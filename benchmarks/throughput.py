"""Decisions per second against the number of MDPs, with the peak memory of the process.

python benchmarks/throughput.py [--problem GC] [--agent e-Greedy]
python benchmarks/throughput.py --tables [--figure FILE]

Prints one JSON line for each number of MDPs, with the best of several runs after compilation, the
whole simulation included, and the peak memory of the process so far. Lines are added to
benchmarks/results/throughput-cpu2.jsonl (cpu2: two cores); `--tables` makes the table and the
figure of docs/performance.md from the latest ones.
"""

import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import kept
from jbrl.agents.registry import AGENTS
from jbrl.environments.spec import Steps
from jbrl.play import batching
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem

SIZES = (1, 10, 100, 512, 1_000, 10_000, 100_000)
HORIZON = 250


def measure(agent: str, name: str, n_environments: int) -> dict:
    """Measure the best throughput over a few runs of `n_environments` MDPs."""
    run = Run(
        AGENTS[agent].agent(),
        Protocol(
            problem(name), problem(name), n_environments=n_environments, lifetime=Steps(HORIZON)
        ),
    )
    run.prepare()
    repeats = 5 if n_environments <= 10_000 else 2
    seconds = min(sum(chunk.online_seconds for chunk in run.chunks()) for _ in range(repeats))
    decisions = n_environments * HORIZON
    return {
        "agent": agent,
        "problem": name,
        "n_environments": n_environments,
        "decisions_per_second": round(decisions / seconds),
        "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def draw(rows: list[dict], file: Path) -> None:
    """Draw the figure: throughput against the number of MDPs, one line for each problem."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for marker, name in zip("o^s", dict.fromkeys(row["problem"] for row in rows), strict=False):
        line = [row for row in rows if row["problem"] == name]
        axes.loglog(
            [row["n_environments"] for row in line],
            [row["decisions_per_second"] for row in line],
            marker=marker,
            label=name,
        )
    axes.set(
        xlabel="MDPs played",
        ylabel="decisions per second",
        title=f"{rows[0]['agent']}, {rows[0]['machine']['cores']} CPU cores",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file)


def write_table(rows: list[dict]) -> None:
    """Write decisions per second for each number of MDPs and problem."""
    found = {(row["n_environments"], row["problem"]): row["decisions_per_second"] for row in rows}
    names = list(dict.fromkeys(row["problem"] for row in rows))
    lines = [
        [f"{size:,}", *(kept.number(found.get((size, name))) for name in names)] for size in SIZES
    ]
    kept.write("throughput", rows, kept.table(("MDPs", *names), lines, texts=0))


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = kept.parser(__doc__, "throughput")
    parser.add_argument("--agent", default="e-Greedy", choices=sorted(AGENTS))
    parser.add_argument(
        "--problem", nargs="+", default=["GC", "GDL", "Grid"], help="names of the catalogue"
    )
    parser.add_argument("--figure", type=Path, help="file to draw into (.svg, .png)")
    chosen = parser.parse_args(arguments)
    if chosen.tables:
        found = kept.latest(chosen.out, ("problem", "n_environments"), agent=chosen.agent)
        rows = sorted(
            (row for row in found.values() if row["problem"] in chosen.problem),
            key=lambda row: (chosen.problem.index(row["problem"]), row["n_environments"]),
        )
        write_table(rows)
        if chosen.figure:
            draw(rows, chosen.figure)
        return
    batching.use_all_cores()
    for name in chosen.problem:
        for n_environments in SIZES:
            kept.keep(measure(chosen.agent, name, n_environments), chosen.out)


if __name__ == "__main__":
    main()
