"""Time of BAMCP per simulation, of BFS3 per trajectory, of SBOSS and BOSS per decision, beside the
published C++ program and plain NumPy.

python benchmarks/search.py [AGENT …]
python benchmarks/search.py --tables

One JSON line for each row: microseconds for each unit of work, amortised over MDPs played at once
on all cores, the least of two runs after compilation, the whole simulation included; `target`, what
it should be at most; `cpp`, what one thread of the C++ program needs; `numpy`, the same by the twin
in `benchmarks/twins`, at the first decision.

Lines are added to benchmarks/results/search-cpu2.jsonl (cpu2: two cores); `--tables` makes the
tables of the pages of BAMCP, BFS3 and SBOSS from the latest ones.
"""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the twins

from benchmarks import kept
from benchmarks.planner import distribution
from benchmarks.twins import bamcp, forward_search, merged
from jbrl.agents.registry import AGENTS
from jbrl.environments.spec import Steps
from jbrl.play import batching
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem

# Agent, parameters, prior, test, MDPs, decisions, target, C++: microseconds for each unit.
ROWS = (
    ("BAMCP", {"simulations": 500, "depth": 15}, "GC", "GC", 64, 20, 0.7, 3.4),
    ("BAMCP", {"simulations": 500, "depth": 15}, "GDL", "GDL", 64, 20, 0.8, 8.4),
    ("BAMCP", {"simulations": 500, "depth": 15}, "Grid", "Grid", 64, 20, 1.0, 104.0),
    ("BAMCP", {"simulations": 500, "depth": 15}, "UGrid", "Grid", 64, 20, 1.2, 66.0),
    ("BAMCP", {"simulations": 25_000, "depth": 15}, "GC", "GC", 16, 4, None, None),
    ("BAMCP", {"simulations": 25_000, "depth": 15}, "GDL", "GDL", 16, 4, None, None),
    ("BAMCP", {"simulations": 25_000, "depth": 15}, "Grid", "Grid", 16, 4, None, None),
    ("BAMCP", {"simulations": 25_000, "depth": 15}, "UGrid", "Grid", 16, 4, None, None),
    ("BFS3", {"trajectories": 15, "samples": 15, "depth": 15}, "GC", "GC", 512, 8, 4.0, 20.0),
    ("BFS3", {"trajectories": 15, "samples": 15, "depth": 15}, "GDL", "GDL", 512, 8, 3.0, 15.0),
    ("BFS3", {"trajectories": 15, "samples": 15, "depth": 15}, "UGC", "GC", 512, 8, 6.0, 30.0),
    ("BFS3", {"trajectories": 500, "samples": 15, "depth": 15}, "GC", "GC", 512, 1, None, None),
    ("SBOSS", {"epsilon": 0.001, "delta": 0.001}, "UGC", "GC", 512, 250, 26.0, 520.0),
    ("SBOSS", {"epsilon": 0.01, "delta": 1.0}, "GC", "GC", 512, 250, None, None),
    ("SBOSS", {"epsilon": 0.01, "delta": 1.0}, "Grid", "Grid", 512, 50, None, None),
    ("BOSS", {"sampled": 10, "known": 5}, "GC", "GC", 512, 250, None, None),
)


def units(name: str, parameters: dict, n_actions: int) -> tuple[str, int]:
    """Return the name of the counted things, and how many a decision takes."""
    if name == "BAMCP":
        return "simulation", parameters["simulations"]
    if name == "BFS3":
        trees, samples = (
            max(1, parameters["trajectories"] // parameters["samples"]),
            parameters["samples"],
        )
        return "trajectory", n_actions * samples * trees
    return "decision", 1


def by_numpy(name: str, parameters: dict, prior: str) -> float:
    """Return microseconds that the twin needs for the first decision."""
    mdps = distribution(prior)
    counts, rewards = np.asarray(mdps.concentrations, float), np.asarray(mdps.rewards, float)
    if name == "BAMCP":
        act = lambda: bamcp.Twin(counts, rewards, **parameters).act((1, 2), 0)  # noqa: E731
    elif name == "BFS3":
        budget = (
            max(1, parameters["trajectories"] // parameters["samples"]),
            parameters["samples"],
            parameters["depth"],
        )
        act = lambda: forward_search.Search(  # noqa: E731
            rewards, 0.95, 0.0, rewards.max() / 0.05, *budget
        ).resampled((1, 2), 0, counts)
    elif name == "SBOSS":
        act = lambda: merged.SBOSS(mdps, **parameters).act(0, (1, 2), 0.5)  # noqa: E731
    else:
        act = lambda: merged.BOSS(mdps, **parameters).act(0, (1, 2), 0.5)  # noqa: E731
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1e6


def measure(
    name: str,
    parameters: dict,
    prior: str,
    test: str,
    n_environments: int,
    horizon: int,
    target: float | None,
    cpp: float | None,
) -> dict:
    """Measure one row."""
    run = Run(
        AGENTS[name].agent(**parameters),
        Protocol(
            problem(prior), problem(test), n_environments=n_environments, lifetime=Steps(horizon)
        ),
    )
    run.prepare()
    seconds = min(sum(chunk.online_seconds for chunk in run.chunks()) for _ in range(2))
    unit, count = units(name, parameters, distribution(prior).n_actions)
    micros = seconds / (n_environments * horizon * count) * 1e6
    row = {
        "agent": name,
        "parameters": parameters,
        "key": key_of(parameters),
        "prior": prior,
        "test": test,
        f"microseconds_per_{unit}": round(micros, 3),
    }
    if cpp:
        row |= {"target": target, "cpp": cpp, "times_faster": round(cpp / micros, 1)}
        row["numpy"] = round(by_numpy(name, parameters, prior) / count)
    return row | {
        "n_environments": n_environments,
        "compile_seconds": round(run.compile_seconds, 2),
        "device": run.device,
    }


def rows_of(file: Path, agent: str) -> list[dict]:
    """Return the latest row of each configuration of an agent, in the order of `ROWS`."""
    found = kept.latest(file, ("key", "prior"), agent=agent)
    keys = [(key_of(row[1]), row[2]) for row in ROWS if row[0] == agent]
    return [found[key] for key in keys if key in found]


def key_of(parameters: dict) -> str:
    """Return the parameters of a row as text."""
    return ", ".join(f"{name} = {value:g}" for name, value in parameters.items())


def write_tables(file: Path) -> None:
    """Write a table for each agent: microseconds for each simulation, trajectory or decision."""
    for agent in dict.fromkeys(row[0] for row in ROWS):
        rows = rows_of(file, agent)
        unit = units(agent, {"simulations": 1, "trajectories": 1, "samples": 1}, 1)[0]
        lines = [
            [
                row["prior"],
                row["test"],
                row["key"],
                *(
                    kept.number(row.get(name))
                    for name in (f"microseconds_per_{unit}", "cpp", "numpy")
                ),
            ]
            for row in rows
        ]
        header = ("prior", "test", "parameters", f"µs for each {unit}", "C++", "NumPy")
        kept.write(agent.lower(), rows, kept.table(header, lines, texts=3))


def main(arguments: list[str] | None = None) -> None:
    """Measure the rows of the agents wanted, all of them by default."""
    parser = kept.parser(__doc__, "search")
    known = list(dict.fromkeys(row[0] for row in ROWS))
    parser.add_argument("agents", nargs="*", help=f"default: {', '.join(known)}")
    chosen = parser.parse_args(arguments)
    if chosen.tables:
        write_tables(chosen.out)
        return
    batching.use_all_cores()
    for row in ROWS:
        if not chosen.agents or row[0] in chosen.agents:
            kept.keep(measure(*row), chosen.out)


if __name__ == "__main__":
    main()
