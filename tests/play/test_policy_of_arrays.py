"""Policies on observations that are arrays: the decisions of the unit, to the last bit, where its
observations and rewards happen.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jbrl
from jbrl.agents.complete import is_oracle
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record, static
from jbrl.environments.environment import Environment, Perturbed, drawn
from jbrl.play.play import make_run
from jbrl.play.protocol import Protocol
from jbrl.policy import of_trained
from jbrl.rollout.contract import OfflineSearch

CARTPOLE, SEED, STEPS = jbrl.problem("CartPole"), 1, 512
TERMINATED, TRUNCATED = 1, 2


@record
class Watched(Environment, Perturbed):
    """CartPole; its state says what was observed and done."""

    inner: Any

    spec = property(lambda self: self.inner.spec)
    lifetime = property(lambda self: self.inner.lifetime)

    def perturb(self, key):
        return Watched(drawn(self.inner, key))

    def reset(self, key):
        state, seen = self.inner.reset(key)
        return (state, seen, seen, jnp.int32(0)), seen

    def step(self, key, state, action):
        inner, step = self.inner.step(key, state[0], action)
        return (inner, step.observation, state[1], action), step

    def metrics(self, state):
        return {}


@record
class Moves:
    """Recorder of all that happens in a lifetime."""

    steps: int = static()
    criterion = "nothing"
    kept = []  # noqa: RUF012  # states of the lifetimes that are over

    def begin(self, environment, state):
        seen, numbers = jnp.zeros((self.steps, 4)), jnp.zeros(self.steps)
        whole = numbers.astype(jnp.int32)
        return jnp.int32(0), (seen, whole, numbers, seen, whole)

    def record(self, state, environment, after, step):
        t, arrays = state
        ends = jnp.where(step.terminated, TERMINATED, TRUNCATED * step.truncated.astype(jnp.int32))
        now = (after[2], after[3], step.reward, step.observation, ends)
        return t + 1, tuple(v.at[t].set(w) for v, w in zip(arrays, now, strict=True))

    def scores(self, state):
        self.kept.append(state[1])
        return np.zeros(len(state[0]))

    def metrics(self, state):
        return {}


def plays_arrays(name: str) -> bool:
    agent = AGENTS[name].agent()
    try:
        Protocol(CARTPOLE, CARTPOLE, 1, 0, jbrl.Steps(1), 0.95).check_agent(agent, name)
    except JbrlError:
        return False
    return not (is_oracle(agent) or isinstance(agent, OfflineSearch) or name == "Scripted")


# AC may part where it has thousands of features: docs/deploy.md
CASES = [
    pytest.param(name, marks=() if name == "Random" else pytest.mark.slow)
    for name in sorted(filter(plays_arrays, AGENTS))
    if name != "AC"
]


@pytest.mark.parametrize("name", CASES)
def test_decides_as_the_unit(name):
    watched = dataclasses.replace(
        CARTPOLE,
        environment=Watched(CARTPOLE.environment),
        recorder=Moves(STEPS),
        lifetime=jbrl.Steps(STEPS),
    )
    agent = AGENTS[name].agent()
    run = make_run(agent, Protocol(CARTPOLE, watched, 2, SEED, jbrl.Steps(STEPS), 0.95))
    run.prepare()
    list(run.chunks())
    seen, actions, rewards, reached, ends = (v[1] for v in Moves.kept.pop())
    life = of_trained(run.trained()).start(seed=SEED, index=1)
    for t in range(STEPS):
        assert life.act(seen[t]) == actions[t]
        life.observe(rewards[t], reached[t], ends[t] == TERMINATED, ends[t] == TRUNCATED)
    assert len(np.unique(actions)) > 1
