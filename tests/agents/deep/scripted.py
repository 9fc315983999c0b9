"""Transitions that do not depend on what an agent does, in episodes of given lengths."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.environments.spec import Box, Discrete, OneHot, Spec
from jbrl.rollout.contract import Transition
from tests.agents.linear.scripted import SpecPrior

N_STATES, N_ACTIONS = 4, 3
# lengths of episodes, and whether they are cut off
EPISODES = ((3, False), (11, False), (1, True), (8, False), (6, True), (12, False))
ONE_HOT = Spec(OneHot(N_STATES), Discrete(N_ACTIONS))
BOX = Spec(Box((2, 2)), Discrete(N_ACTIONS))


@functools.cache
def transitions(seed=0, dense=False):
    """Transitions along a leading axis, [T]: observations are indices, -1 at terminal steps, or,
    `dense`, the vectors that these stand for as matrices.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for length, cut in EPISODES:
        states = rng.integers(0, N_STATES, length + 1)
        states[-1] = states[-1] if cut else -1
        rows += [
            (states[t], states[t + 1], t + 1 == length and not cut, t + 1 == length and cut)
            for t in range(length)
        ]
    first, second, terminated, truncated = (np.array(column) for column in zip(*rows, strict=True))
    count = len(rows)
    if dense:
        table = np.concatenate([np.eye(N_STATES), np.zeros((1, N_STATES))]).astype(np.float32)
        first, second = (table[v].reshape(-1, 2, 2) for v in (first, second))
    else:
        first, second = first.astype(np.int32), second.astype(np.int32)
    return Transition(
        first,
        rng.integers(0, N_ACTIONS, count).astype(np.int32),
        rng.normal(size=count).astype(np.float32),
        second,
        terminated,
        truncated,
    )


def part(given, start, stop):
    return jax.tree.map(lambda v: v[start:stop], given)


def begun(agent, spec, key):
    return agent.reset(key, SpecPrior(spec))


def continued(agent, begin, key, given):
    def step(state, now):
        key, transition = now
        state = agent.act(key, state, transition.observation)[1]
        state = agent.observe(jax.random.fold_in(key, 1), state, transition)
        return state, state

    keys = jax.random.split(key, given.action.shape[0])
    after = jax.lax.scan(step, begin, (keys, given))[1]
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), begin, after)


# Two programs: within one, each use of the first parameters may draw them again, rounded otherwise
begin_one = jax.jit(begun, static_argnames="spec")
continue_one = jax.jit(continued)


def follow_one(agent, spec, key, given):
    """The state of an agent before the first and after each of the transitions: acts, learns."""
    return continue_one(agent, begin_one(agent, spec, key), key, given)


def changed(states):
    """Transitions after which the parameters are others than before."""
    first = np.concatenate(
        [np.asarray(v).reshape(v.shape[0], -1) for v in jax.tree.leaves(states.learner.parameters)],
        axis=1,
    )
    return np.flatnonzero((first[1:] != first[:-1]).any(axis=1))
