"""Estimates of cost: in proportion to the work, with the memory of the states."""

import dataclasses
import functools

import pytest

from jbrl.agents.deep.actor_critic import ActorCritic
from jbrl.agents.deep.boot_dqn import BootDQN
from jbrl.agents.deep.dqn import DQN
from jbrl.agents.deep.ppo import PPO
from jbrl.agents.deep.recurrent_actor_critic import RecurrentActorCritic
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Episodes
from jbrl.problems.lookup import problem
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Agent, cost

AGENTS = (DQN(), BootDQN(), ActorCritic(), RecurrentActorCritic(), PPO())


@functools.cache
def prior(name: str) -> Prior:
    return problem(f"bsuite/{name}/0").prior(Episodes(10), 0.99)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: type(agent).__name__)
def test_wider_networks_and_longer_observations_cost_more(agent: Agent) -> None:
    here = cost(agent, prior("catch"))
    assert here.steps > 0 and here.memory_bytes > 0
    wider = dataclasses.replace(agent, hidden_width=2 * agent.hidden_width)
    for more in (cost(wider, prior("catch")), cost(agent, prior("mnist"))):
        assert more.steps > here.steps
        assert more.memory_bytes > here.memory_bytes


def test_sizes_of_updates() -> None:
    """On catch, 50 inputs and 3 actions: 5,150 products of a sample."""
    one = cost(DQN(), prior("catch"))
    assert one.steps * 40e-9 == pytest.approx(4 * 32 * 5150 * 4e-11 + 5253 * 3e-9)
    assert one.memory_bytes > 2 * 10_000 * 2 * 51 * 4, "two lanes, both observations"
    double = cost(DQN(batch_size=64), prior("catch"))
    assert double.steps - one.steps == pytest.approx(4 * 32 * 5150 * 4e-11 / 40e-9)
    rare = cost(DQN(sgd_period=4), prior("catch"))
    assert rare.steps == pytest.approx(one.steps / 4)


def test_inputs_that_are_looked_up_are_no_products() -> None:
    """deep_sea/0 has 100 cells and 2 actions; DQN has a row for each of the 55 that occur."""
    found = cost(DQN(), prior("deep_sea"))
    assert found.steps * 40e-9 == pytest.approx(4 * 32 * 2600 * 4e-11 + 5452 * 3e-9)
    same = cost(ActorCritic(), prior("deep_sea"))
    products, parameters = 64 * 64 + 64 * 3 + 64 * 2 + 3, 64 * 100 + 64 * 64 + 64 * 3 + 64 * 2 + 3
    assert same.steps * 40e-9 == pytest.approx(3 * products * 2e-10 + parameters * 3e-9 / 8)


def test_a_step_of_adam_for_each_minibatch():
    agent, parameters = PPO(), 64 * 100 + 64 * 64 + 64 * 3 + 64 * 2 + 3
    twice = dataclasses.replace(agent, minibatches=2 * agent.minibatches)
    more = cost(twice, prior("deep_sea")).steps - cost(agent, prior("deep_sea")).steps
    steps = agent.epochs * agent.minibatches / agent.rollout_length
    assert more * 40e-9 == pytest.approx(steps * parameters * 3e-9)


def test_what_takes_too_much_is_refused() -> None:
    with pytest.raises(JbrlError, match="GiB"):
        cost(DQN(replay_capacity=2**24), prior("mnist"))
