"""Cost of a decision of a deep agent, learning included, for estimates and schedules.

The constants are those of one core with vectors of 512 bits (`benchmarks/deep.py`).
"""

import math
from typing import Any

import jax

from jbrl.agents.agent import Agent, Cost
from jbrl.problems.prior import Prior

# Seconds. The first is that of a step of `Cost`, a step that BAMCP simulates.
STEP = 40e-9
PRODUCT = 4e-11  # a multiplication and addition in the products of a batch
LONE_PRODUCT = 2e-10  # the same where a network sees one input, or a few
ADAM = 3e-9  # a parameter in a step of Adam
COMPILING = 4.0  # times as long as for a plain learner


def cost_of(agent: Agent, prior: Prior, seconds: float) -> Cost:
    """Return the cost of a decision that takes `seconds`, with the memory of the agent's states.

    Raises:
      JbrlError: the agent refuses to take so much memory.
    """
    key = jax.random.key(0)
    state = jax.eval_shape(lambda key: agent.reset(key, prior), key)
    sizes = (math.prod(v.shape) * v.dtype.itemsize for v in jax.tree.leaves(state))
    return Cost(seconds / STEP, agent.lanes * sum(sizes), compiling=COMPILING)


def weights(network: Any, inputs: int) -> tuple[int, int]:
    """Return how many parameters a network has, and how many of them an input is multiplied with.

    Args:
      network: has `init`.
      inputs: weights of the first layer that are looked up instead; 0 for none.
    """
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    parameters = sum(math.prod(v.shape) for v in jax.tree.leaves(shapes))
    return parameters, parameters - inputs
