"""No random key serves two purposes, steps, lifetimes, groups or rounds."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jbrl.agents.complete import build
from jbrl.agents.linear.action_values import QLearning
from jbrl.agents.registry import AGENTS
from jbrl.environments.environment import ENVIRONMENTS, RewardNoise, as_arrays
from jbrl.environments.spec import Episodes, Steps
from jbrl.mdp import sampling
from jbrl.mdp.dirichlet import draw_mdp
from jbrl.problems.lookup import problem
from jbrl.problems.problem import EnvironmentProblem
from jbrl.problems.recorder import EpisodeMean
from jbrl.rollout import episodes, steps
from jbrl.rollout.contract import OfflineSearch
from jbrl.rollout.simulate import simulate
from tests import streams
from tests.agents.prior_trained import test_rounds
from tests.conformance.test_agents import PARAMETERS, plays_finite_mdps
from tests.draws import draws_of
from tests.rollout.test_episodes import Counter
from tests.streams import Die

KEY = jax.random.key(3)
NUMBERS = np.arange(2, dtype=np.int32)


def test_keys_that_serve_twice_are_found():
    with streams.recorded() as keys:

        @jax.jit
        @jax.vmap
        def draw(i: Any) -> Any:
            own = jax.random.fold_in(KEY, i)
            first, second = jax.random.split(own)
            return sampling.uniforms(first)[0] + jax.random.uniform(second)

        draw(NUMBERS)
        assert not keys.shared and len(keys.users) == 6
        draw(NUMBERS[1:])
        assert len(keys.shared) == 3


def test_keys_of_lifetimes_in_blocks(monkeypatch):
    """Of the environment, its noise, resets and steps, and of the agent: 2 lifetimes of 2 blocks of
    3 steps, for each of which 5 keys serve.
    """
    monkeypatch.setattr(episodes, "BLOCK", 3)
    environment = as_arrays(RewardNoise(Die()))
    rules = episodes.Rules(Counter(2), environment, EpisodeMean(), KEY, Episodes(10))
    with streams.recorded() as keys:

        @jax.jit
        @jax.vmap
        def play(index: Any) -> Any:
            lane = episodes.begin(rules, None, index)
            return episodes.advance(rules, episodes.advance(rules, lane)).steps

        assert play(NUMBERS).tolist() == [6, 6]
    assert not keys.shared
    assert len(keys.users) == 2 * (2 + 2 * 2 + 6 * 5)


def test_keys_of_lifetimes_of_decisions():
    """Two are split, one draws the noise, one is for the first state, two are for parameters that
    are drawn; then one for each of 5 decisions.
    """
    mdps = problem("GC").mdps
    mdp, prior = draw_mdp(KEY, mdps, unit=True), problem("GC").prior(Steps(5), 0.9)
    drawn = {"alpha": {"uniform": [0.1, 0.2]}, "q0": {"uniform": [0.0, 1.0]}}
    agent = as_arrays(build(QLearning, drawn, "")[0])
    with streams.recorded() as keys:

        @jax.jit
        @jax.vmap
        def play(index: Any) -> Any:
            inputs = steps.draw_inputs(mdp, KEY, index, 5)
            return steps.play_steps(agent, prior, inputs, keep=False)[0].rewards

        play(NUMBERS)
    assert not keys.shared
    assert len(keys.users) == 2 * (2 + 2 + 2 + 5)


@pytest.mark.parametrize(("mode", "max_steps"), [("NextStep", 10), ("SameStep", 11)])
def test_keys_of_lanes_of_gymnasium(mode, max_steps):
    """Three lanes, with one seed for all: a reset, then a step and a reset for each of 4 actions.

    Programs are kept by `max_steps`, and what they record goes where they were traced.
    """
    gymnasium = pytest.importorskip("jbrl.gymnasium")
    die = EnvironmentProblem("Die", "Die", environment=Die(), lifetime=Steps(10))
    with streams.recorded() as keys:
        envs = gymnasium.make_vec(die, 3, max_steps=max_steps, autoreset_mode=mode)
        envs.reset(seed=11)
        assert not keys.shared and len(keys.users) == 3
        for _ in range(4):
            envs.step(np.zeros(3, int))
    assert not keys.shared
    assert len(keys.users) == 3 * (1 + 4 * 2)


def twice(key: Any) -> Any:
    return jax.random.uniform(key) + sampling.uniforms(key)[0]


def part_and_whole(key: Any) -> Any:
    keys = jax.random.split(key)
    return jax.vmap(jax.random.uniform)(keys).sum() + jax.random.normal(keys[1])


def split_and_folded(key: Any) -> Any:
    first = jax.random.split(key)[0]
    return jax.random.uniform(first) + jax.random.uniform(jax.random.fold_in(key, 1))


def same_in_each_turn(key: Any) -> Any:
    return lax.scan(lambda total, x: (total + x * jax.random.uniform(key), None), 0.0, jnp.ones(3))


def carried_along(key: Any) -> Any:
    def turn(carried: tuple[Any, Any]) -> tuple[Any, Any]:
        return carried[0], carried[1] + jax.random.uniform(carried[0])

    return lax.while_loop(lambda carried: carried[1] < 2, turn, (key, 0.0))


def in_vain(key: Any) -> Any:
    first, _ = jnp.split(jax.random.uniform(key, (4,)), 2)
    return first


def of_none(key: Any) -> Any:
    return jax.random.uniform(key) + jax.random.uniform(KEY)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (twice, "a key is drawn from 2 times"),
        (part_and_whole, "a key is drawn from, and so is what it is a part of"),
        (split_and_folded, "a key is drawn from, and folded"),
        (same_in_each_turn, "a key does not depend on loop 0"),
        (carried_along, "a key does not depend on loop 0"),
        (in_vain, "words that are drawn are not used"),
        (of_none, "a key does not depend on index"),
    ],
)
def test_faults_of_draws_are_found(function, fault):
    assert fault in draws_of(function, KEY, varies="index").faults


def test_draws_of_branches_and_of_loops_with_keys_of_their_own_are_no_faults():
    def right(key: Any, chosen: Any) -> Any:
        first, second, third = jax.random.split(key, 3)
        either = lax.cond(chosen, jax.random.normal, jax.random.uniform, first)
        return (
            either
            + lax.map(jax.random.uniform, jax.random.split(second, 4)).sum()
            + lax.map(lambda i: jax.random.uniform(jax.random.fold_in(third, i)), jnp.arange(3))
        )

    found = draws_of(right, KEY, True, varies="key")
    assert not found.faults
    assert sum(found.draws.values()) == 5


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_draws_of_a_lifetime_of_each_agent(name):
    """Of T decisions in a finite MDP where the agent plays that, else of episodes; of one that is
    trained on its prior, of a round.
    """
    agent = AGENTS[name].agent(**PARAMETERS.get(name, {}))
    if name in test_rounds.AGENTS:
        found = draws_of_training(*test_rounds.AGENTS[name]())
    elif isinstance(agent, OfflineSearch):
        return  # draws on the host; its strategies are other agents of the register
    else:
        finite = plays_finite_mdps(name) or name == "Gittins"
        thrown = problem("Catch").environment if name == "Scripted" else RewardNoise(Die())
        where = problem("Bandit" if name == "Gittins" else "GC") if finite else as_arrays(thrown)
        lifetime = Steps(3) if finite else Episodes(2)

        def play(index: Any, key: Any) -> Any:
            return simulate(agent, where, key, index, lifetime=lifetime)

        found = draws_of(play, np.int32(0), KEY, varies="index")
    assert not found.faults
    assert len(found.draws) > 2


def draws_of_training(agent: Any, prior: Any) -> Any:
    """Of the next round, whose keys have to depend on its number."""
    lesson = agent.lesson(prior)

    def play(number: Any, state: Any, share: Any, key: Any, settings: Any) -> Any:
        state = dataclasses.replace(state, round=number)
        return lesson.round((state, share, key, settings))

    state = lesson.start(KEY)
    return draws_of(play, state.round, state, np.float32(1), KEY, lesson.settings, varies="round")


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_draws_of_each_environment(name):
    """Of the noise of rewards, too, whose key is made of that of the step."""
    environment = RewardNoise(as_arrays(problem(name).environment))
    state, _ = environment.reset(KEY)
    starting = draws_of(lambda key: environment.reset(key), KEY, varies="key")
    moving = draws_of(lambda key: environment.step(key, state, np.int32(0)), KEY, varies="key")
    assert not starting.faults and not moving.faults
    assert moving.draws
