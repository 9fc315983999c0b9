"""On an accelerator: the law of the CPU, the same bits twice, double precision near.

Skipped where there is none, but for what can be lowered without one.

Every agent meets the same MDPs with the same luck on both devices, so that differences of returns
have mean 0 and little spread: false alarm rate 7 in a million for each agent.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks import gpu
from jbrl.agents.registry import AGENTS
from jbrl.environments.spec import Episodes, Steps
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import OfflineSearch
from jbrl.rollout.simulate import simulate
from jbrl.study import selftest
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
SEARCHES = {n for n in AGENTS if issubclass(AGENTS[n].agent, OfflineSearch)} - set(
    test_rounds.AGENTS
)
QUICK = {"Random", "BAMCP", "PPO"}  # one that plans, and one whose lifetime has episodes


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in sorted(set(AGENTS) - SEARCHES)
    ],
)
def test_programs_are_lowered_for_cuda_without_calls_that_only_a_cpu_has(name):
    """A lifetime, or a round of training on the prior; searches play other agents of the register
    on the prior.
    """
    if name in test_rounds.AGENTS:
        agent, prior = test_rounds.AGENTS[name]()
        lesson = agent.lesson(prior)
        inputs: tuple[Any, ...] = (lesson.start(KEY), jnp.float32(1), KEY, lesson.settings)
        program = jax.jit(lambda *given: lesson.round(given))
    else:
        made = AGENTS[name].agent(**PARAMETERS.get(name, {}))
        finite = plays_finite_mdps(name) or name == "Gittins"
        special = {"Gittins": "Bandit", "Scripted": "Catch"}
        where = problem(special.get(name, "GC" if finite else "CartPole"))
        lifetime = Steps(3) if finite else Episodes(2)
        inputs = (KEY, jnp.arange(4))
        program = jax.jit(
            jax.vmap(
                lambda key, index: simulate(made, where, key, index, lifetime=lifetime), (None, 0)
            )
        )
    text = program.trace(*inputs).lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.while" in text
    assert set(re.findall(r"custom_call @(\w+)", text)) <= {"Sharding"}
