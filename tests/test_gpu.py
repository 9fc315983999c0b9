"""On an accelerator: the law of the CPU, the same bits twice, double precision near.

Skipped where there is none, but for what can be lowered without one.

Every agent meets the same MDPs with the same luck on both devices, so that differences of returns
have mean 0 and little spread: false alarm rate 7 in a million for each agent.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import gpu
from jbrl.agents.opps.formulas import formula_set
from jbrl.agents.opps.ranking import formula_policies, linear_policies
from jbrl.agents.registry import AGENTS
from jbrl.environments.spec import Episodes, Steps
from jbrl.play import offline
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from jbrl.rollout import faults
from jbrl.rollout.contract import OfflineSearch
from jbrl.rollout.simulate import simulate
from jbrl.study import selftest
from jbrl.vectorize import native
from tests.agents.prior_trained import test_rounds
from tests.conformance.test_agents import PARAMETERS, plays_finite_mdps

AGENT_CASES: list[tuple[str, dict[str, Any], int]] = [
    ("Random", {}, 100),
    ("e-Greedy", {"epsilon": 0.1}, 100),
    ("BEB", {"beta": 2.0}, 100),
    ("PSRL", {"period": 20}, 60),
    ("BAMCP", {"simulations": 20, "depth": 10}, 15),
    ("BFS3", {"trajectories": 1, "samples": 2}, 15),
    ("SBOSS", {"epsilon": 0.1}, 15),
    ("DQN", {"hidden_width": 8, "batch_size": 8, "min_replay": 8, "replay_capacity": 64}, 60),
    ("PPO", {"hidden_width": 8, "rollout_length": 16}, 60),
]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "parameters", "horizon"), AGENT_CASES, ids=[case[0] for case in AGENT_CASES]
)
def test_scores_are_those_of_the_cpu_and_runs_repeat(name, parameters, horizon):
    row = gpu.agent(name, parameters, "GC", horizon, 256, jax.devices(), beside_cpu=True)
    assert row["agrees"], row
    assert row["same_bits"], row


@pytest.mark.gpu
def test_the_self_test_passes():
    assert [outcome for outcome in selftest.run_checks() if not outcome.passed] == []


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(5, 3), (25, 4)])
def test_solutions_are_near_those_in_double_precision(shape):
    found = gpu.precision(*shape)
    # the stopping rule allows 9e-6
    assert max(found["value_iteration"], found["policy_iteration"]) < 2e-5, found


@pytest.mark.gpu
def test_the_plan_that_is_kept_is_near_the_one_in_double_precision():
    assert max(gpu.incremental_precision(name)["error"] for name in ("GC", "Grid")) < 1e-5


@pytest.mark.gpu
def test_all_mdps_are_played_in_one_call_of_the_accelerator():
    run = Run(
        AGENTS["Random"].agent(),
        Protocol(problem("GC"), problem("GC"), n_environments=1000, lifetime=Steps(2)),
    )
    run.prepare()
    assert run.batch >= 1000


KEY = jax.random.key(0)
# one that plans, two whose search is another one on CPUs, and one whose lifetime has episodes
QUICK = {"Random", "BAMCP", "SBOSS", "PPO"}


def training_round(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A round of training on the prior."""
    agent, prior = test_rounds.AGENTS[name]()
    lesson = agent.lesson(prior)
    inputs = (lesson.start(KEY), jnp.float32(1), KEY, lesson.settings)
    return lambda *given: lesson.round(given), inputs


def lifetimes(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Lifetimes of four lanes."""
    made = AGENTS[name].agent(**PARAMETERS.get(name, {}))
    finite = plays_finite_mdps(name) or name == "Gittins"
    special = {"Gittins": "Bandit", "Scripted": "Catch"}
    where = problem(special.get(name, "GC" if finite else "CartPole"))
    lifetime = Steps(3) if finite else Episodes(2)

    def play(key: jax.Array, index: jax.Array) -> Any:
        return simulate(made, where, key, index, lifetime=lifetime)

    return jax.vmap(play, (None, 0)), (KEY, jnp.arange(4))


def trials(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Trajectories of the strategies that a search tries."""
    tried: Any = linear_policies(("Q0", "Q1"), np.ones((4, 2), np.float32))
    if name == "OPPS-DS":
        tried = formula_policies([e for e in formula_set("F3") if len(e.variables) == 2][:4])
    prior = problem("GC").prior(Steps(3), 0.9)
    knowledge = jax.eval_shape(faults.train, jax.tree.map(lambda v: v[0], tried), KEY, prior)
    numbers = jnp.arange(4)
    inputs = ((knowledge, prior, KEY), (tried, numbers, numbers))
    return jax.vmap(offline._trial, (None, 0)), inputs


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in sorted(AGENTS)]
)
def test_programs_are_exported_for_cuda_without_what_only_a_cpu_has(monkeypatch, name):
    """Traced and lowered as where there is a GPU, so that a program may choose another path."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    searches = issubclass(AGENTS[name].agent, OfflineSearch)
    kind = training_round if name in test_rounds.AGENTS else trials if searches else lifetimes
    program, inputs = kind(name)
    text = jax.export.export(jax.jit(program), platforms=["cuda"])(*inputs).mlir_module()
    assert "stablehlo.while" in text
    assert "xla_cpu" not in text  # marks of paths for CPUs
    assert set(re.findall(r"custom_call @(\w+)", text)) <= {"Sharding"}


def test_code_for_cpus_alone_is_marked():
    """The mark whose absence the test above takes for another path."""
    assert "xla_cpu" in jax.jit(native.native(jnp.sin)).lower(jnp.float32(1)).as_text()
