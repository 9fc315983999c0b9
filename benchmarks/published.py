"""Planners and BAMCP in turns with one thread of the published C++ program, on one machine.

python benchmarks/published.py --program BBRL-DDS --distributions data/distributions
    [--turns 5] [--agents NAME …]
python benchmarks/published.py --tables

`--program` and `--distributions` are those of https://github.com/mcastron/BBRL, built with -O3. A
turn plays lifetimes of 250 decisions with the program, then with jbrl on all cores, compiled
before; each measures what all its lifetimes take, the simulation included. One JSON line for each
case: microseconds for each decision, the median over turns, and how many times faster jbrl is, the
median of the ratios within a turn with the least and the greatest. Lines are added to
benchmarks/results/published-cpu2.jsonl (cpu2: two cores); `--tables` makes the table of
docs/performance.md from the latest ones.
"""

import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import kept
from jbrl.agents.registry import AGENTS
from jbrl.environments.spec import Steps
from jbrl.play import batching
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem

HORIZON = 250
PLANNERS = (("GC", "GC"), ("GDL", "GDL"), ("Grid", "Grid"), ("UGrid", "Grid"))
SEARCHES = (("GC", "GC"), ("GDL", "GDL"), ("UGC", "GC"))
DISTRIBUTION = ("--mdp_distribution", "DirMultiDistribution", "--mdp_distribution_file")


@dataclass(frozen=True)
class Case:
    """An agent of both, a prior and a test."""

    agent: str
    parameters: dict[str, Any]
    options: str  # of the program
    prior: str
    test: str
    lifetimes: int  # of the program
    own: int  # of jbrl


CASES = (
    *(
        Case(agent, parameters, options, prior, test, 100 if prior == "GC" else 30, 10_000)
        for agent, parameters, options in (
            ("e-Greedy", {"epsilon": 0.0}, "EGreedyAgent --epsilon 0"),
            ("BEB", {"beta": 2.0}, "BEBAgent --beta 2"),
        )
        for prior, test in PLANNERS
    ),
    *(
        Case("BAMCP", {"simulations": 500}, "BAMCPAgent --K 500 --D 15", prior, test, 3, 128)
        for prior, test in SEARCHES
    ),
)


def published(case: Case, program: Path, distributions: Path, folder: Path) -> Callable[[], float]:
    """Prepare a case of the program; return a call that returns seconds of a decision."""

    def run(*options: str) -> str:
        made = subprocess.run([program, *options], capture_output=True, text=True, check=True)
        return made.stdout

    def file(name: str) -> str:
        return str(distributions / f"{name}-distrib.dat")

    scores = folder / "scores"
    experiment, agent = str(folder / "experiment"), str(folder / "agent")
    run(
        *("--new_experiment", "--name", "e", *DISTRIBUTION, file(case.test)),
        *("--n_mdps", str(case.lifetimes), "--n_simulations_per_mdp", "1"),
        *("--discount_factor", "0.95", "--horizon_limit", str(HORIZON), "--output", experiment),
    )
    run(
        *("--offline_learning", "--agent", *case.options.split()),
        *(*DISTRIBUTION, file(case.prior), "--output", agent),
    )

    def turn() -> float:
        scores.unlink(missing_ok=True)
        told = run(
            *("--run_experiment", "--experiment", "--experiment_file", experiment),
            *("--agent", case.options.split()[0], "--agent_file", agent, "--n_threads", "1"),
            *("--refresh_frequency", "60", "--backup_frequency", "0"),
            *("--output", str(scores)),
        )
        return online_seconds(told) / HORIZON

    return turn


def online_seconds(told: str) -> float:
    """Return seconds of a lifetime from what the program prints."""
    found = re.search(r"Online time \(per trajectory\):\s*([\d.e+-]+)ms", told)
    if found is None:
        raise SystemExit(f"the program prints no online time: {told[-300:]!r}")
    return float(found[1]) / 1e3


def own(case: Case) -> Callable[[], float]:
    """Compile a case; return a call that returns seconds of a decision."""
    protocol = Protocol(
        problem(case.prior), problem(case.test), n_environments=case.own, lifetime=Steps(HORIZON)
    )
    run = Run(AGENTS[case.agent].agent(**case.parameters), protocol)
    run.prepare()
    return lambda: sum(c.online_seconds for c in run.chunks()) / (case.own * HORIZON)


def measure(case: Case, program: Path, distributions: Path, turns: int) -> dict[str, Any]:
    """Play a case in turns."""
    ours = own(case)
    with tempfile.TemporaryDirectory() as folder:
        theirs = published(case, program, distributions, Path(folder))
        pairs = [(theirs() * 1e6, ours() * 1e6) for _ in range(turns)]
    ratios = [a / b for a, b in pairs]
    return {
        "agent": case.agent,
        "prior": case.prior,
        "test": case.test,
        "cpp": round(statistics.median(a for a, _ in pairs), 3),
        "microseconds": round(statistics.median(b for _, b in pairs), 4),
        "times_faster": round(statistics.median(ratios), 1),
        "least": round(min(ratios), 1),
        "greatest": round(max(ratios), 1),
        "turns": turns,
    }


def write_table(file: Path) -> None:
    """Write a row for each case."""
    found = kept.latest(file, ("agent", "prior", "test")).values()
    rows = [
        (
            *(row["agent"], row["prior"], row["test"]),
            *(kept.number(row[key]) for key in ("microseconds", "cpp", "times_faster")),
            f"{kept.number(row['least'])} to {kept.number(row['greatest'])}",
        )
        for row in found
    ]
    header = ("agent", "prior", "test", "µs", "C++, µs", "times as fast", "in five turns")
    kept.write("published", found, kept.table(header, rows, texts=3))


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = kept.parser(__doc__, "published")
    parser.add_argument("--program", type=Path, help="the C++ program")
    parser.add_argument("--distributions", type=Path, help="its folder of distributions")
    parser.add_argument("--turns", type=int, default=5)
    names = sorted({case.agent for case in CASES})
    parser.add_argument("--agents", nargs="+", choices=names, default=names)
    chosen = parser.parse_args(arguments)
    if chosen.tables:
        write_table(chosen.out)
        return
    if not chosen.program or not chosen.distributions:
        parser.error("--program and --distributions are needed")
    batching.use_all_cores()
    for case in CASES:
        if case.agent in chosen.agents:
            kept.keep(
                measure(case, chosen.program.resolve(), chosen.distributions, chosen.turns),
                chosen.out,
            )


if __name__ == "__main__":
    main()
