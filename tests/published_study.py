"""A study made of numbers whose means are those that were published."""

import json

import numpy as np
import pandas as pd

from jbrl.stats.published import castronovo2016

NAMES = {("accurate", e): e for e in ("GC", "GDL", "Grid")} | {
    ("inaccurate", e): f"{e}-inaccurate" for e in ("GC", "GDL", "Grid")
}
TIMES = {"Random": 1e-8, "SBOSS": 1e-7, "e-Greedy": 1e-6, "Soft-max": 2e-6, "BEB": 3e-6}
TIMES |= {"BFS3": 1e-3, "BAMCP": 2e-3}


def sample(mean, half_width, n=500, seed=0):
    """Returns whose mean and half-width are exactly those."""
    noise = np.random.default_rng(seed).normal(size=n)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    return mean + half_width / 1.96 * np.sqrt(n) * noise


def rows(case, experiment, algorithm, parameters, scores, seed=0):
    """Returns of one agent, with the prior and test distribution."""
    told = {
        "experiment": NAMES[case, experiment],
        "prior": experiment if case == "accurate" else f"U{experiment}",
        "test": experiment,
    }
    return pd.DataFrame(
        {**told, "algorithm": algorithm, "parameters": json.dumps(parameters, sort_keys=True)}
        | {"unit": np.arange(len(scores)), "seed": seed, "score": scores}
    )


def study(shift=0.0):
    """(returns, units): all 48 cells played by the agents that `castronovo2016.cells` names, each
    `shift` half-widths off.
    """
    parts, units = [], []
    for number, cell in enumerate(castronovo2016.cells().to_dict("records")):
        scores = sample(cell["mean"] + shift * cell["ci95"], cell["ci95"], seed=number)
        parts.append(
            rows(
                cell["case"],
                cell["experiment"],
                cell["agent"],
                json.loads(cell["parameters"]),
                scores,
            )
        )
        units.append(parts[-1].iloc[:1].drop(columns=["unit", "score"]))
    times = pd.concat(units, ignore_index=True).assign(offline_seconds=0.0)
    times = times.assign(online_seconds=[TIMES.get(name, 1.0) for name in times["algorithm"]])
    return pd.concat(parts, ignore_index=True), times
