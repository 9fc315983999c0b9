"""Cost of a decision of a deep agent, learning included, for estimates and schedules.

The constants are those of one core with vectors of 512 bits (`benchmarks/deep.py`).
"""

import functools
import math
from typing import Any

import jax
import numpy as np

from jbrl.problems.prior import Prior
from jbrl.rollout.contract import SECONDS_PER_STEP, Agent, Cost

# Seconds of one core.
PRODUCT = 4e-11  # a multiplication and addition in the products of a batch
LONE_PRODUCT = 2e-10  # the same where a network sees one input, or a few
ADAM = 3e-9  # a parameter in a step of Adam
COMPILING = 4.0  # times as long as for a plain learner


# bytes of states, by structures and shapes: studies have thousands of units
_BYTES: dict[Any, int] = {}


def cost_of(agent: Agent, prior: Prior, seconds: float) -> Cost:
    """Return the cost of a decision that takes `seconds`, with the memory of the agent's states.

    Raises:
      JbrlError: the agent refuses to take so much memory.
    """
    leaves, structure = jax.tree.flatten((agent, prior))
    key = structure, tuple(np.shape(leaf) for leaf in leaves)
    if key not in _BYTES:
        state = jax.eval_shape(lambda key: agent.reset(key, prior), jax.random.key(0))
        sizes = (math.prod(v.shape) * v.dtype.itemsize for v in jax.tree.leaves(state))
        _BYTES[key] = sum(sizes)
    return Cost(seconds / SECONDS_PER_STEP, agent.lanes * _BYTES[key], compiling=COMPILING)


def weights(network: Any, inputs: int) -> tuple[int, int]:
    """Return how many parameters a network has, and how many of them an input is multiplied with.

    Args:
      network: has `init`.
      inputs: weights of the first layer that are looked up instead; 0 for none.
    """
    parameters = _parameters(network)
    return parameters, parameters - inputs


@functools.cache
def _parameters(network: Any) -> int:
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    return sum(math.prod(v.shape) for v in jax.tree.leaves(shapes))
