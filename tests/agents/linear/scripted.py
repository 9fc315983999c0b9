"""Lifetimes whose transitions do not depend on what the agent does, so that its twin sees the same
ones; and what table agents share.
"""

import functools
import math
import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.base.pytree import record, static
from jbrl.environments.spec import Discrete, Episodes, OneHot, Spec
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Transition

N_STATES, N_ACTIONS, STEPS = 5, 3, 200


@record
class SpecPrior(Prior):
    """A prior that tells sizes and nothing else."""

    given: Spec = static(Spec(OneHot(N_STATES), Discrete(N_ACTIONS)))

    @property
    def spec(self):
        return self.given

    @property
    def lifetime(self):
        return Episodes(10)


@dataclass(frozen=True)
class Script:
    """Transitions of each of L lanes, and the keys of its agent.

    One episode in five steps ends, half of them truncated.
    """

    observation: np.ndarray  # [L, T] int32
    reward: np.ndarray  # [L, T] float32
    # [L, T] int32; -1, the vector of zeros, after some of the terminal steps
    next_observation: np.ndarray
    terminated: np.ndarray  # [L, T] bool
    truncated: np.ndarray  # [L, T] bool
    act_keys: jax.Array  # [L, T]
    observe_keys: jax.Array  # [L, T]

    @property
    def arrays(self):
        flags = (self.terminated, self.truncated)
        return (
            self.observation,
            self.reward,
            self.next_observation,
            *flags,
            self.act_keys,
            self.observe_keys,
        )

    def steps(self, lane):
        """Return arrays for the twin: observation, reward, next observation, terminated, truncated,
        and the uniforms of both keys.
        """
        uniforms = (
            np.asarray(jax.vmap(sampling.uniforms)(keys[lane]))
            for keys in (self.act_keys, self.observe_keys)
        )
        return zip(*(a[lane] for a in self.arrays[:5]), *uniforms, strict=True)


@functools.cache
def script(lanes):
    rng = np.random.default_rng(8)
    shape = (lanes, STEPS)
    arrival, start = rng.integers(0, N_STATES, (2, *shape)).astype(np.int32)
    end = rng.choice(3, shape, p=[0.8, 0.1, 0.1])
    observation = np.roll(np.where(end > 0, start, arrival), 1, axis=1)
    next_observation = np.where((end == 1) & (arrival < 2), -1, arrival).astype(np.int32)
    keys = jax.random.split(jax.random.key(3), (2, *shape))
    return Script(
        observation,
        rng.normal(size=shape).astype(np.float32),
        next_observation,
        end == 1,
        end == 2,
        *keys,
    )


def play(agent, *arrays):
    """Actions [T] of one lane, and the state of the agent after each step."""

    def step(state, now):
        observation, reward, following, terminated, truncated, act_key, observe_key = now
        action, state = agent.act(act_key, state, observation)
        state = agent.observe(
            observe_key,
            state,
            Transition(observation, action, reward, following, terminated, truncated),
        )
        return state, (action, state)

    begin = agent.reset(jax.random.key(0), agent.train(jax.random.key(0), SpecPrior()))
    return jax.lax.scan(step, begin, arrays)[1]


play_one = jax.jit(play)
play_many = jax.jit(jax.vmap(play))


def stacked(agents):
    """Agents as one, with a leading axis on each parameter."""
    return jax.tree.map(lambda *values: jnp.array(values, jnp.float32), *agents)


def explored(uniforms, epsilon):
    """The uniformly random action of a twin, None if it is to be greedy."""
    return int(uniforms[1] * np.float32(N_ACTIONS)) if uniforms[0] < np.float32(epsilon) else None


def passes_in_loops(text, size):
    """Instructions of an optimised program, but for its entry, that write `size` numbers of
    float32: passes over tables, and copies.
    """
    bodies = re.split(r"\n(?=ENTRY )", text)[0]
    written = re.findall(
        r"%\S+ = f32\[([\d,]+)\]\S* (?:fusion|copy|call|dynamic-update-slice|transpose)\(", bodies
    )
    return sum(math.prod(map(int, shape.split(","))) == size for shape in written)
