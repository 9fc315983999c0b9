"""jbrl: one benchmark for Bayesian planners, linear learners and deep agents, played as arrays.

    import jbrl

    # One agent in one experiment.
    played = jbrl.play(agent, prior="UGC", test="GC", n_environments=100, seed=0)
    # A whole study; the same call again resumes it.
    results = jbrl.run("experiments/quick.toml", out="out/quick")
    results.scores, results.returns  # tables

Authors of agents, environments and problems need no other import: `jbrl.Agent`, `jbrl.Environment`,
`jbrl.parameter`, `jbrl.register_agent`, … Public names are imported when first used: `import jbrl`
is quick and starts nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what an editor sees; `_HOME` below says the same to Python
    from jbrl import vectorize
    from jbrl.agents.agent import (
        AGENTS,
        BAYESIAN,
        NO_ACTION,
        TABULAR,
        Agent,
        Cost,
        HasCost,
        Requirements,
        register_agent,
    )
    from jbrl.agents.offline_search import OfflineSearch
    from jbrl.analysis.intervals import summarise
    from jbrl.analysis.paired_test import paired_z
    from jbrl.bounds.bracket import bound
    from jbrl.comparison import compare
    from jbrl.environments.environment import (
        ENVIRONMENTS,
        Box,
        Discrete,
        Environment,
        OneHot,
        Perturbed,
        Spec,
        Step,
        register_environment,
    )
    from jbrl.environments.lifetime import Episodes, Steps
    from jbrl.environments.tabular import Tabular
    from jbrl.errors import JbrlError
    from jbrl.mdp import planning, sampling
    from jbrl.mdp.dirichlet import DirichletMDPs
    from jbrl.mdp.mdp import MDP
    from jbrl.parameters import parameter
    from jbrl.problems.lookup import problem
    from jbrl.problems.prior import DirichletPrior, EnvironmentPrior, Prior
    from jbrl.problems.problem import (
        PROBLEMS,
        DirichletProblem,
        EnvironmentProblem,
        Problem,
        Setting,
        register_problem,
    )
    from jbrl.problems.recorder import EpisodeMean, Recorder
    from jbrl.pytree import record, static
    from jbrl.results import Results, run
    from jbrl.rollout.contract import Oracle, Stepwise, Transition
    from jbrl.runner.play.play import play
    from jbrl.runner.play.protocol import Played

__version__ = "0.1.0"

# Where each public name is defined.
_HOME = {
    "run": "jbrl.results",
    "compare": "jbrl.comparison",
    "bound": "jbrl.bounds.bracket",
    "play": "jbrl.runner.play.play",
    "Results": "jbrl.results",
    "Played": "jbrl.runner.play.protocol",
    "JbrlError": "jbrl.errors",
    "record": "jbrl.pytree",
    "static": "jbrl.pytree",
    "parameter": "jbrl.parameters",
    **dict.fromkeys(
        (
            "Agent",
            "AGENTS",
            "BAYESIAN",
            "Cost",
            "HasCost",
            "NO_ACTION",
            "Requirements",
            "TABULAR",
            "register_agent",
        ),
        "jbrl.agents.agent",
    ),
    "OfflineSearch": "jbrl.agents.offline_search",
    **dict.fromkeys(("Oracle", "Stepwise", "Transition"), "jbrl.rollout.contract"),
    **dict.fromkeys(
        (
            "Box",
            "Discrete",
            "ENVIRONMENTS",
            "Environment",
            "OneHot",
            "Perturbed",
            "Spec",
            "Step",
            "register_environment",
        ),
        "jbrl.environments.environment",
    ),
    **dict.fromkeys(("Episodes", "Steps"), "jbrl.environments.lifetime"),
    "Tabular": "jbrl.environments.tabular",
    "MDP": "jbrl.mdp.mdp",
    "DirichletMDPs": "jbrl.mdp.dirichlet",
    **dict.fromkeys(
        (
            "DirichletProblem",
            "EnvironmentProblem",
            "PROBLEMS",
            "Problem",
            "Setting",
            "register_problem",
        ),
        "jbrl.problems.problem",
    ),
    "problem": "jbrl.problems.lookup",
    **dict.fromkeys(("DirichletPrior", "EnvironmentPrior", "Prior"), "jbrl.problems.prior"),
    **dict.fromkeys(("EpisodeMean", "Recorder"), "jbrl.problems.recorder"),
    "planning": "jbrl.mdp.planning",
    "sampling": "jbrl.mdp.sampling",
    "vectorize": "jbrl.vectorize",
    "summarise": "jbrl.analysis.intervals",
    "paired_z": "jbrl.analysis.paired_test",
}

__all__ = [  # noqa: RUF022, the order of `_HOME`
    "__version__",
    "run",
    "compare",
    "bound",
    "play",
    "Results",
    "Played",
    "JbrlError",
    "record",
    "static",
    "parameter",
    "Agent",
    "AGENTS",
    "BAYESIAN",
    "Cost",
    "HasCost",
    "NO_ACTION",
    "Requirements",
    "TABULAR",
    "register_agent",
    "OfflineSearch",
    "Oracle",
    "Stepwise",
    "Transition",
    "Box",
    "Discrete",
    "ENVIRONMENTS",
    "Environment",
    "OneHot",
    "Perturbed",
    "Spec",
    "Step",
    "register_environment",
    "Episodes",
    "Steps",
    "Tabular",
    "MDP",
    "DirichletMDPs",
    "DirichletProblem",
    "EnvironmentProblem",
    "PROBLEMS",
    "Problem",
    "Setting",
    "register_problem",
    "problem",
    "DirichletPrior",
    "EnvironmentPrior",
    "Prior",
    "EpisodeMean",
    "Recorder",
    "planning",
    "sampling",
    "vectorize",
    "summarise",
    "paired_z",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jbrl' has no attribute '{name}'")
    module = importlib.import_module(_HOME[name])
    return (
        module
        if _HOME[name].endswith(f".{name}") and not hasattr(module, name)
        else getattr(module, name)
    )


def __dir__() -> list[str]:
    return sorted(__all__)
