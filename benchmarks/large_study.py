"""Scores as a study of the published size would give them: 242 agents, six experiments, N MDPs; drawn, not played."""

import itertools
import json

import numpy as np
import pandas as pd

from jbrl.analysis.intervals import summarise
from jbrl.analysis.table import AGENT

EXPERIMENTS = [(f"{name}{case}", f"{case and 'U'}{name}", name) for case in ("", "-inaccurate") for name in ("GC", "GDL", "Grid")]
GRID = {
    "Random": {},
    "e-Greedy": {"epsilon": [k / 10 for k in range(11)]},
    "Soft-max": {"tau": [0.05, 0.1, 0.2, 0.33, 0.5, 1.0, 2.0, 3.0, 5.0, 25.0]},
    "OPPS-DS": {"space": [f"F{k}" for k in range(2, 7)], "budget": [50, 500, 1250, 2500, 5000, 10_000, 100_000, 1_000_000]},
    "BAMCP": {"simulations": [1, 500, 1250, 2500, 5000, 10_000, 25_000], "depth": [15, 25, 50]},
    "BFS3": {"trajectories": [1, 500, 1250, 2500, 5000, 10_000], "samples": [2, 5, 10, 15], "depth": [15, 25, 50]},
    "SBOSS": {"epsilon": [10.0**-k for k in range(7)], "delta": [9.0, 7.0, 5.0, 3.0, *(10.0**-k for k in range(7))]},
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
ONLINE = {"Random": 1e-8, "e-Greedy": 6e-7, "Soft-max": 6e-7, "OPPS-DS": 7e-7, "BEB": 8e-7, "SBOSS": 2e-6, "BAMCP": 1e-6, "BFS3": 1e-5}


def agents():
    """(algorithm, parameters) of every agent."""
    return [(name, dict(zip(grid, values, strict=True))) for name, grid in GRID.items() for values in itertools.product(*grid.values())]


def study(n=500, experiments=EXPERIMENTS, seed=0):
    """(scores, returns): larger budgets are slower and better, the rest is chance; MDPs are shared, as is most of the spread."""
    rng = np.random.default_rng(seed)
    who, tables, times = agents(), [], []
    for experiment, _, _ in experiments:
        spread = rng.gamma(4.0, 5.0, n)
        for name, parameters in who:
            budget = float(np.prod([v for k, v in parameters.items() if k in ("budget", "simulations", "trajectories", "samples")]))
            text = json.dumps(parameters, sort_keys=True)
            level = LEVELS[name] + 0.1 * np.log10(budget) + 0.3 * rng.normal()
            score = np.maximum(0.0, 20.0 + spread + 4.0 * level + rng.normal(0.0, 3.0, n))
            who_is_it = dict(zip(AGENT, (experiment, name, text), strict=True))
            tables.append(pd.DataFrame({**who_is_it, "seed": 0, "unit": np.arange(n), "score": score}))
            online = ONLINE.get(name, 1e-8) * (1.0 if name == "OPPS-DS" else budget**0.8) * rng.lognormal(0.0, 0.1)
            offline = 2e-3 * budget if name == "OPPS-DS" else 0.0
            times.append({**who_is_it, "offline_seconds": offline, "online_seconds": online, "latency_seconds": 200 * online + 1e-5})
    returns = pd.concat(tables, ignore_index=True)
    scores = summarise(returns).merge(pd.DataFrame(times), on=list(AGENT))
    places = pd.DataFrame(experiments, columns=["experiment", "prior", "test"])
    fixed = {"compile_seconds": 1.0, "device": "cpu x2", "seed": 0, "status": "done"}
    return scores.merge(places, on="experiment").assign(**fixed), returns
