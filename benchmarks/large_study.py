"""Scores as a study of the published size would give them: 242 agents, six experiments, N MDPs;
drawn, not played.

    python benchmarks/large_study.py FOLDER

writes 9,000 finished units (250 agents, six experiments, six seeds, 500 MDPs each) to FOLDER as a
results directory.
"""

import argparse
import hashlib
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from jbrl.base.schema import AGENT
from jbrl.play.machine import machine, versions
from jbrl.play.unit import FORMAT, canonical
from jbrl.stats.table import summarise
from jbrl.study.storage import files

EXPERIMENTS = [
    (f"{name}{case}", f"{case and 'U'}{name}", name)
    for case in ("", "-inaccurate")
    for name in ("GC", "GDL", "Grid")
]
GRID: dict[str, dict[str, list]] = {
    "Random": {},
    "e-Greedy": {"epsilon": [k / 10 for k in range(11)]},
    "Soft-max": {"tau": [0.05, 0.1, 0.2, 0.33, 0.5, 1.0, 2.0, 3.0, 5.0, 25.0]},
    "OPPS-DS": {
        "space": [f"F{k}" for k in range(2, 7)],
        "budget": [50, 500, 1250, 2500, 5000, 10_000, 100_000, 1_000_000],
    },
    "BAMCP": {"simulations": [1, 500, 1250, 2500, 5000, 10_000, 25_000], "depth": [15, 25, 50]},
    "BFS3": {
        "trajectories": [1, 500, 1250, 2500, 5000, 10_000],
        "samples": [2, 5, 10, 15],
        "depth": [15, 25, 50],
    },
    "SBOSS": {
        "epsilon": [10.0**-k for k in range(7)],
        "delta": [9.0, 7.0, 5.0, 3.0, *(10.0**-k for k in range(7))],
    },
    "BEB": {"beta": [0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0, 16.0]},
    "Optimal": {},
}
LEVELS = {
    "Random": -2.0,
    "Soft-max": -1.0,
    "SBOSS": -0.8,
    "BFS3": -0.4,
    "BAMCP": -0.2,
    "e-Greedy": -0.1,
    "BEB": 0.0,
    "OPPS-DS": 0.1,
    "Optimal": 1.0,
}
ONLINE = {
    "Random": 1e-8,
    "e-Greedy": 6e-7,
    "Soft-max": 6e-7,
    "OPPS-DS": 7e-7,
    "BEB": 8e-7,
    "SBOSS": 2e-6,
    "BAMCP": 1e-6,
    "BFS3": 1e-5,
}


def agents():
    """Return (algorithm, parameters) of every agent."""
    return [
        (name, dict(zip(grid, values, strict=True)))
        for name, grid in GRID.items()
        for values in itertools.product(*grid.values())
    ]


def study(n=500, experiments=EXPERIMENTS, seed=0, who=None):
    """Return (scores, returns): larger budgets are slower and better, the rest is chance.

    MDPs are shared, as is most of the spread. `who` lists the agents, `agents()` by default.
    """
    rng = np.random.default_rng(seed)
    who, tables, times = who or agents(), [], []
    for experiment, _, _ in experiments:
        spread = rng.gamma(4.0, 5.0, n)
        for name, parameters in who:
            budget = float(
                np.prod(
                    [
                        v
                        for k, v in parameters.items()
                        if k in ("budget", "simulations", "trajectories", "samples")
                    ]
                )
            )
            text = json.dumps(parameters, sort_keys=True)
            level = LEVELS[name] + 0.1 * np.log10(budget) + 0.3 * rng.normal()
            score = np.maximum(0.0, 20.0 + spread + 4.0 * level + rng.normal(0.0, 3.0, n))
            who_is_it = dict(zip(AGENT, (experiment, name, text), strict=True))
            tables.append(
                pd.DataFrame({**who_is_it, "seed": seed, "unit": np.arange(n), "score": score})
            )
            online = (
                ONLINE.get(name, 1e-8)
                * (1.0 if name == "OPPS-DS" else budget**0.8)
                * rng.lognormal(0.0, 0.1)
            )
            offline = 2e-3 * budget if name == "OPPS-DS" else 0.0
            times.append(
                {
                    **who_is_it,
                    "offline_seconds": offline,
                    "online_seconds": online,
                    "latency_seconds": 200 * online + 1e-5,
                }
            )
    returns = pd.concat(tables, ignore_index=True)
    scores = summarise(returns).merge(pd.DataFrame(times), on=list(AGENT))
    places = pd.DataFrame(experiments, columns=["experiment", "prior", "test"])
    fixed = {"compile_seconds": 1.0, "device": "cpu x2", "seed": seed, "status": "done"}
    return scores.merge(places, on="experiment").assign(**fixed), returns


def write(folder: Path, n_agents: int = 250, seeds: Sequence[int] = range(6), n: int = 500) -> int:
    """Write a results directory of finished units as `jbrl run` leaves it; return their number.

    Agents beyond those of the published grid are more values of e-Greedy. Files are not forced to
    the disk one by one, unlike those of a run.
    """
    extra = [("e-Greedy", {"epsilon": round(0.001 * (k + 1), 3)}) for k in range(n_agents)]
    who = (agents() + extra)[:n_agents]
    (folder / "units").mkdir(parents=True)
    (folder / "knowledge").mkdir()
    listed = []
    for seed in seeds:
        scores, returns = study(n, seed=seed, who=who)
        samples = returns["score"].to_numpy().reshape(-1, n)
        for row, sample in zip(scores.to_dict("records"), samples, strict=True):
            listed.append(_write_unit(folder, row, sample))
    settings = {"name": "large", "seed": list(seeds), "horizon": 250, "discount": 0.95, "n_mdps": n}
    rules = {"criterion": "discounted return", "lifetime": "250 steps"}
    manifest = {
        "format": FORMAT,
        "study": settings | {"latency": False, "record": False},
        "experiments": [
            dict(zip(("name", "prior", "test"), e, strict=True)) | rules for e in EXPERIMENTS
        ],
        "agents": [{"algorithm": name} for name in GRID],
        "units": listed,
        "versions": versions(),
        "machine": machine(),
    }
    (folder / "study.json").write_bytes(files.pack_json(manifest))
    return len(listed)


def _write_unit(folder: Path, row: dict, sample: np.ndarray) -> dict:
    """Write the file of a unit; return its entry in the manifest."""
    names = ("experiment", "prior", "test", "algorithm", "parameters", "seed")
    what = {name: row[name] for name in names}
    digests = {name: _digest(row[name]) for name in ("prior", "test")}
    configuration = {**what, **digests, "format": FORMAT, "discount": 0.95, "horizon": 250}
    configuration |= {"parameters": json.loads(row["parameters"]), "n_mdps": len(sample)}
    configuration |= {"agent_version": 1, "agent_source": None}
    id = _digest(canonical(configuration))[:32]
    times = {name: row[name] for name in row if name.endswith("_seconds")}
    header = {
        "format": FORMAT,
        "id": id,
        "configuration": configuration,
        "seed": row["seed"],
        "n": len(sample),
        "status": "done",
        "device": "cpu x 2",
        "platform": "cpu",
        "batch": 512,
        **times,
        "decisions": 250 * len(sample),
        "versions": versions(),
        "machine": machine(),
        "written": "2026-01-01T00:00:00+00:00",
    }
    (folder / "units" / f"{id}.npz").write_bytes(files.pack(header, {"returns": sample}))
    label = f"{row['experiment']}/{row['algorithm']} {row['parameters']} seed {row['seed']}"
    oracle = row["algorithm"] == "Optimal"
    return {"id": id, "label": label, **what, "oracle": oracle, "knowledge": None}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    print(write(parser.parse_args().folder))
