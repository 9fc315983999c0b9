"""No random key serves two purposes, steps, lifetimes, groups or rounds."""

from typing import Any

import jax
import numpy as np
import pytest

from jbrl.agents.complete import build
from jbrl.agents.linear.tabular import QLearning
from jbrl.environments.environment import as_arrays
from jbrl.environments.spec import Episodes, Steps
from jbrl.environments.wrappers import RewardNoise
from jbrl.mdp import sampling
from jbrl.mdp.dirichlet import draw_mdp
from jbrl.problems.lookup import problem
from jbrl.problems.problem import EnvironmentProblem
from jbrl.problems.recorder import EpisodeMean
from jbrl.rollout import episodes, steps
from tests import streams
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
