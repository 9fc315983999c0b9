"""A small study made of numbers, not of runs."""

import json

import numpy as np
import pandas as pd

from jbrl.report.sections import sections
from jbrl.stats.table import summarise

AGENTS = (
    ("Random", {}),
    ("e-Greedy", {"epsilon": 0.0}),
    ("e-Greedy", {"epsilon": 0.1}),
    ("BEB", {"beta": 2.5, "bonus": "visits"}),
    ("Optimal", {}),
)
SETTINGS = {"name": "small", "seed": 0, "n_mdps": 40}
MANIFEST = {
    "format": 1,
    "study": SETTINGS | {"horizon": 250, "discount": 0.95, "latency": False},
    "oracles": ["Optimal"],
    "versions": {"jbrl": "0.1.0", "jax": "0.10.2"},
    "machine": {"processor": "some processor", "cores": 2},
}
# The same of environments, as `Store.open` writes it.
LEARNERS = AGENTS[:-1]
CHAIN = ("Chain-10d", "Chain-10d", "Chain-10d")
SEA = ("Deep sea", "DeepSea(size=5)", "DeepSea(size=5)")
EPISODES = [
    {"name": "Chain-10d", "test": "Chain-10d", "lifetime": "100 episodes"},
    {"name": "Deep sea", "test": "DeepSea(size=5)", "horizon": 500, "lifetime": "500 steps"},
]
EPISODIC = {key: value for key, value in MANIFEST.items() if key != "oracles"} | {
    "study": SETTINGS | {"latency": False},
    "experiments": [one | {"criterion": "mean return per episode"} for one in EPISODES],
}
GC = {"name": "GC", "prior": "GC", "test": "GC"}
GC |= {"criterion": "discounted return", "lifetime": "250 steps"}
MIXED = MANIFEST | {"experiments": [GC, *EPISODIC["experiments"]]}


def study(n=40, experiments=(("GC", "GC", "GC"), ("GC, inaccurate", "UGC", "GC")), agents=AGENTS):
    """(scores, returns): in each experiment BEB is best, e-Greedy(0.1) tied with it, e-Greedy(0)
    and Random worse.
    """
    mdps = np.linspace(20, 60, n)
    wave = np.resize([-1.0, 1.0], n)
    levels = {"Random": mdps - 10, "BEB": mdps, "Optimal": 1.5 * mdps + 20}
    returns = []
    for name, _, _ in experiments:
        for algorithm, parameters in agents:
            scores = levels.get(
                algorithm,
                mdps - 0.2 + wave if parameters.get("epsilon") == 0.1 else mdps - 2 + wave,
            )
            row = {
                "experiment": name,
                "algorithm": algorithm,
                "parameters": json.dumps(parameters, sort_keys=True),
                "seed": 0,
            }
            returns.append(pd.DataFrame({**row, "unit": np.arange(n), "score": scores}))
    table = pd.concat(returns, ignore_index=True)
    scores = summarise(table)
    places = {name: (prior, test) for name, prior, test in experiments}
    scores["prior"], scores["test"] = zip(
        *(places[name] for name in scores["experiment"]), strict=True
    )
    scores["offline_seconds"] = 0.0
    scores["online_seconds"] = 1e-7 * (1.0 + np.arange(len(scores)))
    scores["latency_seconds"] = np.nan
    scores["compile_seconds"] = 0.5
    return scores.assign(device="cpu x2", seed=0, status="done"), table


def undo(scores, returns, algorithm, status="missing", experiment="GC"):
    """The same study before the units of an algorithm were done."""
    mine = (scores["algorithm"] == algorithm) & (scores["experiment"] == experiment)
    lost = ["mean", "std", "ci95", "offline_seconds", "online_seconds", "compile_seconds"]
    scores = scores.copy()
    scores.loc[mine, lost] = np.nan
    scores.loc[mine, "n"] = 0
    scores.loc[mine, "status"] = status
    scores["device"] = scores["device"].astype(object).where(~mine, None)
    return scores, returns[
        (returns["algorithm"] != algorithm) | (returns["experiment"] != experiment)
    ]


def one_section(oracles=("Optimal",), cut=0, n=40, agents=AGENTS, **columns):
    """The section of a study of GC alone, without its first `cut` returns."""
    scores, returns = study(n, (("GC", "GC", "GC"),), agents)
    return sections(scores.assign(**columns), returns.iloc[cut:], oracles)[0]


def plain(words):
    """The text of a sentence."""
    return "".join(w if isinstance(w, str) else w.text for w in words)
