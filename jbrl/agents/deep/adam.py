"""Adam, as optax has it, and in the form that costs agents least that learn at every step.

`optimiser_step` is optax's own, for updates from batches, beside which it costs little. `descend`
computes the same step with fewer divisions; its last bits differ, and so would those of what the
actor-critics and PPO have learned.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jbrl.base.pytree import record

FIRST_DECAY, SECOND_DECAY, EPSILON = 0.9, 0.999, 1e-8  # of `optax.adam`


def begin(parameters: Any) -> Any:
    """Return the state of the optimiser before the first step."""
    return optax.scale_by_adam().init(parameters)


def optimiser_step(
    learning_rate: float | Array,
    gradient: Any,
    state: Any,
    parameters: Any,
    max_norm: float | Array | None = None,
) -> tuple[Any, Any]:
    """Return parameters and state after one step of `optax.adam`.

    Args:
      gradient: like the parameters.
      max_norm: as in `descend`.
    """
    if max_norm is not None:
        gradient = clipped(gradient, max_norm)
    # optax mixes integers and floats in its bias correction
    with jax.numpy_dtype_promotion("standard"):
        change, state = optax.scale_by_adam().update(gradient, state)
    return jax.tree.map(lambda p, c: p - learning_rate * c, parameters, change), state


@record
class Learner:
    """Parameters of a network and the state of their optimiser.

    The parameters are separate arrays: a decision at each step reads them, and as slices of one
    vector they would be copied before each product.
    """

    parameters: Any
    optimiser: Any


def learner(parameters: Any) -> Learner:
    """Return the learner that starts from these parameters."""
    return Learner(parameters, begin(parameters))


def descend(
    state: Learner,
    gradient: Any,
    learning_rate: float | Array,
    *,
    max_norm: float | Array | None = None,
) -> Learner:
    """Return the learner after one step of `optax.adam`, with its decays 0.9 and 0.999 and its
    epsilon 1e-8.

    The moments' corrections are factors here, not divisors: of optax's three divisions and a root
    for each parameter, which take longer than the rest, one and the root are left.

    Args:
      gradient: like the parameters.
      max_norm: Euclidean length that the gradient is scaled down to where it is longer; None: it is
        used as it is.
    """
    if max_norm is not None:
        gradient = clipped(gradient, max_norm)
    before = state.optimiser
    count = optax.safe_increment(before.count)
    first = _moving(gradient, before.mu, FIRST_DECAY)
    second = _moving(jax.tree.map(jnp.square, gradient), before.nu, SECOND_DECAY)

    def moved(parameter: Array, first: Array, second: Array) -> Array:
        steps = count.astype(parameter.dtype)
        rate = learning_rate / (1 - FIRST_DECAY**steps)
        correction = lax.rsqrt(1 - SECOND_DECAY**steps)
        return parameter - rate * first / (jnp.sqrt(second) * correction + EPSILON)

    parameters = jax.tree.map(moved, state.parameters, first, second)
    return Learner(parameters, optax.ScaleByAdamState(count, first, second))


def _moving(new: Any, average: Any, decay: float) -> Any:
    return jax.tree.map(lambda n, a: (1 - decay) * n + decay * a, new, average)


def clipped(gradient: Any, max_norm: float | Array) -> Any:
    """Return the gradient, a pytree, scaled down to the length `max_norm` where it is longer.

    One of length NaN stays as it is.
    """
    squares = [(g * g).sum() for g in jax.tree.leaves(gradient)]
    norm = jnp.sqrt(jnp.stack(squares).sum())
    scale = jnp.where(norm > max_norm, max_norm / norm, jnp.ones_like(norm))
    return jax.tree.map(lambda g: g * scale, gradient)
