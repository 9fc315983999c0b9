"""Runs of the deep agents: those on policy learn, are resumed to the bit and diverge; no two seeds
play alike; estimates of cost.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jbrl
from jbrl.agents.complete import build
from jbrl.agents.deep.actor_critic import ActorCritic
from jbrl.agents.deep.boot_dqn import BootDQN
from jbrl.agents.deep.dqn import DQN
from jbrl.agents.deep.ppo import PPO
from jbrl.agents.deep.recurrent_actor_critic import RecurrentActorCritic
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.bsuite_tasks import Bandit
from jbrl.environments.environment import Environment, Step
from jbrl.environments.spec import Discrete, Episodes, Spec, Steps
from jbrl.mdp.sampling import stream
from jbrl.play.play import make_run
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources
from jbrl.problems.lookup import problem
from jbrl.problems.prior import Prior
from jbrl.problems.problem import EnvironmentProblem
from jbrl.rollout.contract import cost


def drawn(*rates):
    sizes = {"hidden_width": 8, "sequence_length": 4}
    return build(ActorCritic, {"learning_rate": {"choice": list(rates)}, **sizes}, "")[0]


ARMS = EnvironmentProblem("Arms", "Arms", environment=Bandit(), lifetime=Episodes(400))

# What a policy that learns nothing is paid on average: 1/2 by 11 arms with rewards 0, 0.1, ... 1;
# 0 by a chain that asks for one of two bits, whatever does not remember it.
CASES = [
    (ARMS, drawn(3e-3, 2e-3), 400, 0.6),  # the program of a test below
    pytest.param(
        *(ARMS, PPO(hidden_width=8, rollout_length=32, learning_rate=0.01), 400, 0.6),
        marks=pytest.mark.slow,
    ),
    pytest.param(
        *(problem("bsuite/memory_len/2"), RecurrentActorCritic(hidden_width=16, sequence_length=4)),
        *(400, 0.3),
        marks=pytest.mark.slow,
    ),
]


def run_of(test, agent, lifetime, *, seed=0, n_environments=12):
    protocol = Protocol(test, test, n_environments, seed, lifetime)
    run = make_run(agent, protocol, resources=Resources(jax.devices()[:1]))
    run.prepare()
    return run


def scores(run, **options):
    return np.concatenate([chunk.returns for chunk in run.chunks(**options)])


@pytest.mark.parametrize(("test", "agent", "episodes", "level"), CASES)
def test_it_learns_and_is_taken_up_again_to_the_bit(test, agent, episodes, level):
    """Interrupted after the second call. An agent that learns nothing passes by chance with a
    probability below 1e-9: standard errors are 0.01 on the bandit and 0.03 on the chain.
    """
    run = run_of(test, agent, Episodes(episodes))
    saved = []
    expected = scores(run, between=lambda flight: saved.append(flight.arrays()))
    assert expected.mean() > level
    again = scores(run, checkpoints=[(saved[1], 1.0)])
    np.testing.assert_array_equal(again, expected)


QUICK = ActorCritic(hidden_width=8, sequence_length=4)
SLOWER = [
    DQN(hidden_width=8, batch_size=4, replay_capacity=64, min_replay=8),
    BootDQN(hidden_width=8, batch_size=4, replay_capacity=64, min_replay=8, ensemble=2),
    RecurrentActorCritic(hidden_width=8, sequence_length=4),
    PPO(hidden_width=8, rollout_length=8),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [QUICK, *(pytest.param(agent, marks=pytest.mark.slow) for agent in SLOWER)],
    ids=lambda agent: type(agent).__name__,
)
def test_two_seeds_never_give_the_same_curve(agent):
    """In deep sea all is fixed but the decisions: what differs is the agent's. Equal seeds give
    equal rows.
    """
    curves = []
    for seed in (0, 1, 0):
        run = run_of(problem("bsuite/deep_sea/0"), agent, Episodes(40), seed=seed, n_environments=1)
        chunk = next(run.chunks())
        curves.append(chunk.metrics["log_total_return"][0])
    first, second, again = curves
    written = np.isfinite(first)
    assert written.sum() > 10
    # sums of so many episodes differ from some row on
    assert (first != second)[written].any()
    np.testing.assert_array_equal(first, again)


def rates_of(run, n):
    keys = [stream(run.protocol.test.key(run.protocol.seed), i, "parameters") for i in range(n)]
    return np.array([run.agent.values(key)["learning_rate"] for key in keys])


def test_a_lifetime_that_diverges_fails_with_a_sentence_and_the_others_go_on():
    """To the bit as beside lifetimes that learn, and as it is taken up again."""
    run = run_of(ARMS, drawn(3e-3, 1e9), Episodes(400))
    saved = []
    chunk = next(run.chunks(between=lambda flight: saved.append(flight.arrays())))
    failed, high = np.isnan(chunk.returns), rates_of(run, 12) > 1
    # a policy may become certain, and stay so, before a weight is NaN
    assert 3 < failed.sum() <= high.sum() < 12 and high[failed].all()
    for values in chunk.metrics.values():
        assert np.isnan(values[failed]).all() and np.isfinite(values[~failed]).all()
    first = np.flatnonzero(failed)[0]
    assert re.fullmatch(
        rf"ActorCritic, lifetime {first}, step \d+ \(episode \d+\) of 'Arms': its "
        "policy is NaN: learning has diverged; a smaller learning_rate may help",
        chunk.failure,
    )
    tame = run_of(ARMS, drawn(3e-3, 1e-3), Episodes(400))
    np.testing.assert_array_equal(chunk.returns[~high], scores(tame)[~high])
    (again,) = run.chunks(checkpoints=[(saved[-1], 1.0)])
    np.testing.assert_array_equal(again.returns, chunk.returns)
    assert again.failure == chunk.failure


@record
class Extremes(Environment):
    """One endless episode, in about every other lifetime with rewards whose squares overflow."""

    @property
    def spec(self):
        return Spec(Discrete(2), Discrete(2))

    def reset(self, key):
        return jax.random.bernoulli(key), jnp.int32(0)

    def step(self, key, state, action):
        reward = jnp.where(state, 3e38, 1.0).astype(jnp.float32)
        return state, Step(action, reward, jnp.bool_(False), jnp.bool_(False))


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [QUICK, *(pytest.param(agent, marks=pytest.mark.slow) for agent in SLOWER)],
    ids=lambda agent: type(agent).__name__,
)
def test_of_every_deep_agent_only_the_lifetimes_fail_that_diverge(agent):
    test = EnvironmentProblem("Extremes", "Extremes", environment=Extremes(), lifetime=Steps(100))
    found = jbrl.play(agent, test=test, n_environments=8)
    failed = np.isnan(found.returns)
    assert 0 < failed.sum() < 8
    assert (found.returns[~failed] <= 100).all()
    assert re.match(
        rf"{type(agent).__name__}, lifetime {np.argmax(failed)}, step \d+ \(episode 1\) of "
        "'Extremes': its (policy is|action values are) NaN: learning has diverged",
        found.failure,
    )


def test_a_network_too_large_for_memory_is_refused_before_it_is_drawn():
    prior = problem("bsuite/bandit/0").prior(Episodes(1), 1.0)
    for agent in (ActorCritic, PPO, RecurrentActorCritic):
        with pytest.raises(
            JbrlError, match=rf"^{agent.__name__} takes .* GiB for one lifetime, .* parameters"
        ):
            jax.eval_shape(agent(hidden_width=20_000).reset, jax.random.key(0), prior)


@pytest.mark.slow
def test_learning_rates_that_are_drawn_for_each_lifetime_play_problems_without_episodes():
    """Draws that are too low to learn play otherwise than the default."""
    sizes = {"hidden_width": 8, "sequence_length": 4}
    low = {"learning_rate": {"log_uniform": [1e-30, 1e-29]}, **sizes}
    found, usual = (
        scores(run_of(problem("GC"), agent, Steps(60)))
        for agent in (build(ActorCritic, low, "")[0], ActorCritic(**sizes))
    )
    assert np.isfinite([found, usual]).all()
    assert (found != usual).any()


@functools.cache
def prior(name: str) -> Prior:
    return problem(f"bsuite/{name}/0").prior(Episodes(10), 0.99)


def test_sizes_of_updates():
    """On catch, 50 inputs and 3 actions: 5,150 products of a sample."""
    one = cost(DQN(), prior("catch"))
    assert one.steps * 40e-9 == pytest.approx(4 * 32 * 5150 * 4e-11 + 5253 * 3e-9)
    assert one.memory_bytes > 2 * 10_000 * 2 * 51 * 4, "two lanes, both observations"
    double = cost(DQN(batch_size=64), prior("catch"))
    assert double.steps - one.steps == pytest.approx(4 * 32 * 5150 * 4e-11 / 40e-9)
    rare = cost(DQN(sgd_period=4), prior("catch"))
    assert rare.steps == pytest.approx(one.steps / 4)


def test_inputs_that_are_looked_up_are_no_products():
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


def test_what_takes_too_much_is_refused():
    with pytest.raises(JbrlError, match="GiB"):
        cost(DQN(replay_capacity=2**24), prior("mnist"))
