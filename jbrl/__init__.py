"""jbrl: one benchmark for Bayesian planners, linear learners and deep agents, played as arrays.

    import jbrl

    # One agent in one experiment.
    played = jbrl.play(agent, prior="UGC", test="GC", n_environments=100, seed=0)
    # The same lifetimes as a pure function, for jit and vmap.
    jbrl.simulate(agent, jbrl.problem("GC"), key, index)
    # A whole study; the same call again resumes it.
    results = jbrl.run("experiments/quick.toml", out="out/quick")
    results.scores, results.returns  # tables

Authors of agents, environments and problems need no other import: `jbrl.Agent`, `jbrl.Environment`,
`jbrl.parameter`, `jbrl.register_agent`, … Public names are imported when first used: `import jbrl`
is quick and starts nothing.
"""

import ast
import importlib
import inspect
import os
import platform
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the public names, written once: editors read this block, and so does `_HOME`
    from jbrl import agents as agents
    from jbrl import vectorize as vectorize
    from jbrl.agents.registry import AGENTS as AGENTS
    from jbrl.agents.registry import register_agent as register_agent
    from jbrl.analysis import evaluate as evaluate
    from jbrl.analysis import metrics as metrics
    from jbrl.analysis import subset as subset
    from jbrl.base.errors import JbrlError as JbrlError
    from jbrl.base.parameters import parameter as parameter
    from jbrl.base.pytree import record as record
    from jbrl.base.pytree import static as static
    from jbrl.base.schema import MetricFigure as MetricFigure
    from jbrl.bayes_optimal.bracket import bound as bound
    from jbrl.choice import Choice as Choice
    from jbrl.choose import choose as choose
    from jbrl.comparison import compare as compare
    from jbrl.datasets import load_pretrained as load_pretrained
    from jbrl.datasets import load_results as load_results
    from jbrl.environments.environment import ENVIRONMENTS as ENVIRONMENTS
    from jbrl.environments.environment import Environment as Environment
    from jbrl.environments.environment import Perturbed as Perturbed
    from jbrl.environments.environment import Step as Step
    from jbrl.environments.environment import Tabular as Tabular
    from jbrl.environments.environment import register_environment as register_environment
    from jbrl.environments.spec import Box as Box
    from jbrl.environments.spec import Discrete as Discrete
    from jbrl.environments.spec import Episodes as Episodes
    from jbrl.environments.spec import OneHot as OneHot
    from jbrl.environments.spec import Spec as Spec
    from jbrl.environments.spec import Steps as Steps
    from jbrl.mdp import planning as planning
    from jbrl.mdp import sampling as sampling
    from jbrl.mdp.dirichlet import DirichletMDPs as DirichletMDPs
    from jbrl.mdp.mdp import MDP as MDP
    from jbrl.play.play import play as play
    from jbrl.play.protocol import Played as Played
    from jbrl.policy import Policy as Policy
    from jbrl.policy import load_policy as load_policy
    from jbrl.policy import policy as policy
    from jbrl.problems.features import problem_features as problem_features
    from jbrl.problems.lookup import problem as problem
    from jbrl.problems.prior import DirichletPrior as DirichletPrior
    from jbrl.problems.prior import EnvironmentPrior as EnvironmentPrior
    from jbrl.problems.prior import Prior as Prior
    from jbrl.problems.problem import PROBLEMS as PROBLEMS
    from jbrl.problems.problem import DirichletProblem as DirichletProblem
    from jbrl.problems.problem import EnvironmentProblem as EnvironmentProblem
    from jbrl.problems.problem import Problem as Problem
    from jbrl.problems.problem import Setting as Setting
    from jbrl.problems.problem import register_problem as register_problem
    from jbrl.problems.recorder import EpisodeMean as EpisodeMean
    from jbrl.problems.recorder import Recorder as Recorder
    from jbrl.results import Results as Results
    from jbrl.results import run as run
    from jbrl.rollout.contract import BAYESIAN as BAYESIAN
    from jbrl.rollout.contract import NO_ACTION as NO_ACTION
    from jbrl.rollout.contract import TABULAR as TABULAR
    from jbrl.rollout.contract import Agent as Agent
    from jbrl.rollout.contract import Cost as Cost
    from jbrl.rollout.contract import HasCost as HasCost
    from jbrl.rollout.contract import OfflineSearch as OfflineSearch
    from jbrl.rollout.contract import Oracle as Oracle
    from jbrl.rollout.contract import Requirements as Requirements
    from jbrl.rollout.contract import Stepwise as Stepwise
    from jbrl.rollout.contract import Transition as Transition
    from jbrl.rollout.simulate import Simulated as Simulated
    from jbrl.rollout.simulate import simulate as simulate
    from jbrl.stats.evaluation import EvaluateOptions as EvaluateOptions
    from jbrl.stats.paired_test import paired_z as paired_z
    from jbrl.stats.table import summarise as summarise

__version__ = "1.0.0"


def _limit_instructions() -> None:
    """Let XLA use AVX2 and nothing beyond, where `XLA_FLAGS` does not say what: LLVM sums in an
    order that depends on the instructions it has. JAX reads this at its first array.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if platform.machine() in ("x86_64", "AMD64") and "xla_cpu_max_isa" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_max_isa=AVX2".strip()


_limit_instructions()

# module of each public name, read from the block above
_HOME: dict[str, str] = {
    alias.name: str(node.module)
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[__name__])))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith(__name__)
    for alias in node.names
}

__all__ = ["__version__", *_HOME]


class _Package(ModuleType):
    """The package: `jbrl.play` is the function, even when the folder of that name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and _HOME.get(name, __name__) != __name__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jbrl' has no attribute '{name}'")
    home = None if _HOME[name] == __name__ else importlib.import_module(_HOME[name])
    return getattr(home, name, None) or importlib.import_module(f"{_HOME[name]}.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
