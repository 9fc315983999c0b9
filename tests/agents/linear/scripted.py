"""Lifetimes whose transitions do not depend on what the agent does, so that its twin sees the same
ones.
"""

import math
import re

import jax

from jbrl.base.pytree import record, static
from jbrl.environments.spec import Episodes, Spec
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Transition


@record
class SpecPrior(Prior):
    """A prior that tells sizes and nothing else."""

    given: Spec = static()
    lifetime: Episodes = static(Episodes(10))

    @property
    def spec(self):
        return self.given


def play(agent, prior, key, *arrays):
    """Actions [T] of one lane, and the state of the agent after each step.

    Args:
      arrays: observations, rewards, next observations, terminated, truncated, and the keys of both
        functions of the agent, [T, ...] each.
    """

    def step(state, now):
        observation, reward, following, terminated, truncated, act_key, observe_key = now
        action, state = agent.act(act_key, state, observation)
        seen = Transition(observation, action, reward, following, terminated, truncated)
        state = agent.observe(observe_key, state, seen)
        return state, (action, state)

    return jax.lax.scan(step, agent.reset(key, agent.train(key, prior)), arrays)[1]


def passes_in_loops(text, size):
    """Instructions of an optimised program, but for its entry, that write `size` numbers of
    float32: passes over tables, and copies.
    """
    bodies = re.split(r"\n(?=ENTRY )", text)[0]
    written = re.findall(
        r"%\S+ = f32\[([\d,]+)\]\S* (?:fusion|copy|call|dynamic-update-slice|transpose)\(", bodies
    )
    return sum(math.prod(map(int, shape.split(","))) == size for shape in written)
