"""Time of BAMCP per simulation, of BFS3 per trajectory, of SBOSS and BOSS per decision, beside the published C++ program and plain NumPy.

python benchmarks/search.py [AGENT …]

One JSON line for each row: microseconds for each unit of work, amortised over MDPs played at once on all cores, the least of two runs
after compilation, the whole simulation included; `target`, what it should be at most; `cpp`, what one thread of the C++ program needs;
`numpy`, the same by the twin in `benchmarks/twins`, at the first decision. Last come, for BAMCP, how much dearer a simulation is at
K = 25,000 than at K = 500, and the peak memory of the process.
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the twins

from benchmarks.twins import bamcp, forward_search, merged
from jbrl.agents.agent import AGENTS
from jbrl.environments.lifetime import Steps
from jbrl.problems.problem import problem
from jbrl.runner.play import batching
from jbrl.runner.play.experiment import Run
from jbrl.runner.play.protocol import Protocol

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
    ("BAMCP", {"simulations": 25_000, "depth": 50}, "Grid", "Grid", 500, 1, None, None),
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
    """What is counted, and how many a decision takes."""
    if name == "BAMCP":
        return "simulation", parameters["simulations"]
    if name == "BFS3":
        trees, samples = max(1, parameters["trajectories"] // parameters["samples"]), parameters["samples"]
        return "trajectory", n_actions * samples * trees
    return "decision", 1


def by_numpy(name: str, parameters: dict, prior: str) -> float:
    """Microseconds that the twin needs for the first decision."""
    mdps = problem(prior).mdps
    counts, rewards = np.asarray(mdps.concentrations, float), np.asarray(mdps.rewards, float)
    if name == "BAMCP":
        act = lambda: bamcp.Twin(counts, rewards, **parameters).act((1, 2), 0)  # noqa: E731
    elif name == "BFS3":
        budget = max(1, parameters["trajectories"] // parameters["samples"]), parameters["samples"], parameters["depth"]
        act = lambda: forward_search.Search(rewards, 0.95, 0.0, rewards.max() / 0.05, *budget).resampled((1, 2), 0, counts)  # noqa: E731
    elif name == "SBOSS":
        act = lambda: merged.SBOSS(mdps, **parameters).act(0, (1, 2), 0.5)  # noqa: E731
    else:
        act = lambda: merged.BOSS(mdps, **parameters).act(0, (1, 2), 0.5)  # noqa: E731
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1e6


def measure(
    name: str, parameters: dict, prior: str, test: str, n_environments: int, horizon: int, target: float | None, cpp: float | None
) -> dict:
    """One row."""
    run = Run(
        AGENTS[name].agent(**parameters), Protocol(problem(prior), problem(test), n_environments=n_environments, lifetime=Steps(horizon))
    )
    run.prepare()
    seconds = min(sum(chunk.online_seconds for chunk in run.chunks()) for _ in range(2))
    unit, count = units(name, parameters, problem(prior).mdps.n_actions)
    micros = seconds / (n_environments * horizon * count) * 1e6
    row = {"agent": name, "parameters": parameters, "prior": prior, "test": test, f"microseconds_per_{unit}": round(micros, 3)}
    if cpp:
        row |= {"target": target, "cpp": cpp, "times_faster": round(cpp / micros, 1)}
        row["numpy"] = round(by_numpy(name, parameters, prior) / count)
    return row | {"n_environments": n_environments, "compile_seconds": round(run.compile_seconds, 2), "device": run.device}


def main(wanted: list[str]) -> None:
    """Measure the rows of the agents wanted, all of them by default."""
    batching.use_all_cores()
    costs: dict[str, dict[int, float]] = {}
    for row in ROWS:
        if wanted and row[0] not in wanted:
            continue
        found = measure(*row)
        print(json.dumps(found), flush=True)
        if row[0] == "BAMCP" and row[1]["depth"] == 15:
            costs.setdefault(row[2], {})[row[1]["simulations"]] = found["microseconds_per_simulation"]
    for prior, cost in costs.items():
        print(json.dumps({"agent": "BAMCP", "prior": prior, "cost_at_25000_over_cost_at_500": round(cost[25_000] / cost[500], 2)}))
    print(json.dumps({"peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)}))


if __name__ == "__main__":
    main(sys.argv[1:])
