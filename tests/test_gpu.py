"""On an accelerator: the law of the CPU, the same bits twice, double precision near.

Skipped where there is none.

Every agent meets the same MDPs with the same luck on both devices, so that differences of returns
have mean 0 and little spread: false alarm rate 7 in a million for each agent.
"""

from typing import Any

import jax
import pytest

from benchmarks import gpu
from jbrl.agents.registry import AGENTS
from jbrl.environments.spec import Steps
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from jbrl.study import selftest

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
