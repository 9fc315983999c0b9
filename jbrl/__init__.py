"""jbrl: a benchmark for Bayesian reinforcement learning, played as arrays.

    import jbrl

    played = jbrl.play(agent, prior="UGC", test="GC", n_mdps=100, seed=0)  # one agent in one experiment
    results = jbrl.run("experiments/quick.toml", out="out/quick")          # a whole study; again: resumes
    results.scores, results.returns                                        # tables

Public names are imported when first used: `import jbrl` is quick and starts nothing.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

# Where each public name is defined.
_HOME = {
    "run": "jbrl.results",
    "compare": "jbrl.comparison",
    "play": "jbrl.runner.play.experiment",
    "Results": "jbrl.results",
    "Played": "jbrl.runner.play.experiment",
    "JbrlError": "jbrl.errors",
    "Agent": "jbrl.agents.agent",
    "parameter": "jbrl.agents.agent",
    "register_agent": "jbrl.agents.agent",
    "AGENTS": "jbrl.agents.agent",
    "Problem": "jbrl.problems.problem",
    "problem": "jbrl.problems.problem",
    "PROBLEMS": "jbrl.problems.problem",
    "summarise": "jbrl.analysis.intervals",
    "paired_z": "jbrl.analysis.paired_test",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jbrl' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
