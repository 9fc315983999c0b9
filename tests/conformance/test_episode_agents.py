"""Properties of every agent in lifetimes of episodes: a table over the register."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.spec import Steps
from jbrl.problems.lookup import problem
from jbrl.rollout import episodes
from jbrl.rollout.contract import Agent, DrawsParameters, Oracle, Transition, check_requirements
from tests.conformance.test_agents import decided_otherwise, make, quick_first, swapped

N, T = 48, 2 * episodes.BLOCK
KEY = jax.random.key(0)
PROBLEMS = ("Chain-10s", "MountainCar")  # discrete states, arrays of numbers: random ones


@record
class Logged(Agent[Any, tuple]):
    """Another agent, and what it meets and does: the state is (that of the agent, step, met [T + 1,
    K], actions [T + 1]).
    """

    agent: Any

    def train(self, key: jax.Array, prior: Any) -> Any:
        return self.agent.train(key, prior)

    def reset(self, key: jax.Array, knowledge: Any) -> tuple:
        size = int(np.prod(knowledge_size(knowledge)))
        log = (jnp.zeros((T + 1, size + 2)), jnp.zeros(T + 1, jnp.int32))
        return self.agent.reset(key, knowledge), jnp.int32(0), *log

    def act(self, key: jax.Array, state: tuple, observation: jax.Array) -> tuple:
        inner, t, met, actions = state
        action, inner = self.agent.act(key, inner, observation)
        seen = jnp.ravel(jnp.asarray(observation, jnp.float32))
        return action, (inner, t, met.at[t, : seen.size].set(seen), actions.at[t].set(action))

    def observe(self, key: jax.Array, state: tuple, transition: Transition) -> tuple:
        inner, t, met, actions = state
        ended = (transition.terminated | transition.truncated).astype(jnp.float32)
        met = met.at[t + 1, -2:].set(jnp.stack([transition.reward, ended]))
        return self.agent.observe(key, inner, transition), t + 1, met, actions


def knowledge_size(prior: Any) -> tuple[int, ...]:
    return prior.spec.observation.shape


def accepting(name: str) -> str | None:
    """The first of the problems that an agent can play."""
    for found in map(problem, PROBLEMS):
        prior = found.prior(Steps(T), 0.95)
        try:
            check_requirements(AGENTS[name].agent(), name, prior, found.short_name)
        except JbrlError:
            continue
        return found.short_name
    return None


# Scripted is shown the environment and learns nothing; RL2 plays what it was trained on, which
# `make` does on GC.
PLAYERS = [name for name in sorted(set(AGENTS) - {"Scripted", "RL2"}) if accepting(name)]


@functools.cache
def program(name: str, decided_by: str) -> Callable[[jax.Array, jax.Array], episodes.Lane]:
    """Lifetimes of an agent, by their numbers and those of the lifetimes whose random numbers move
    them.
    """
    found: Any = problem(accepting(name) or "")
    agent = make(name)
    assert not isinstance(agent, DrawsParameters | Oracle), (
        "the driver would not find them inside `Logged`"
    )
    rules = episodes.Rules(Logged(agent), found.environment, found.recorder, KEY, Steps(T))
    knowledge = rules.agent.train(KEY, found.prior(Steps(T), 0.95))

    def lifetime(index: jax.Array, moved_by: jax.Array) -> episodes.Lane:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(episodes, "stream", swapped(moved_by, decided_by))
            lane = episodes.begin(rules, knowledge, index)
            for _ in range(T // episodes.BLOCK):
                lane = episodes.advance(rules, lane)
        return lane

    return jax.jit(jax.vmap(lifetime))


def played(name: str, noise: int, decided_by: str = "agent") -> tuple[np.ndarray, np.ndarray]:
    """Return observations of N lifetimes of T steps, [N, T, ...], and their actions [N, T], moved
    by the random numbers of lifetimes from `noise` on.
    """
    index = jnp.arange(N, dtype=jnp.int32)
    lanes = program(name, decided_by)(index, index + noise)
    assert not np.asarray(lanes.fault).any()
    _, _, met, actions = lanes.agent
    return np.asarray(met)[:, :T], np.asarray(actions)[:, :T]


def met_as_numbers(*runs: tuple[np.ndarray, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The runs with a number, [N, T], for all that is met at a step: equal where it is equal."""
    rows = np.concatenate([met.reshape(-1, met.shape[-1]) for met, _ in runs])
    numbers = np.unique(rows, axis=0, return_inverse=True)[1].reshape(len(runs), N, T)
    return [(number, actions) for number, (_, actions) in zip(numbers, runs, strict=True)]


@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", quick_first(PLAYERS))
def test_decisions_do_not_depend_on_what_moves_the_environment(name):
    """Other random numbers in the environment, the same keys for the agent: the same decisions
    until something else happens.
    """
    first, second = met_as_numbers(played(name, 0), played(name, N))
    assert decided_otherwise(first, second).size == 0
    assert (first[0] != second[0]).any(axis=1).mean() > 0.9, "other things happen"
    assert len(np.unique(first[1][:, 0])) > 1 or name != "Random"


@pytest.mark.slow  # the same of finite MDPs is quick
@pytest.mark.parametrize("name", ["Random", "Q-learning", "Sarsa"])
def test_an_agent_whose_keys_are_those_of_the_environment_would_be_found(name):
    first, second = met_as_numbers(played(name, 0, "environment"), played(name, N, "environment"))
    assert decided_otherwise(first, second).size > 0
