"""Adam, for one array of weights that ascends."""

import jax
import jax.numpy as jnp

from jbrl.base.pytree import record
from jbrl.vectorize import prevent_fusion

FIRST_DECAY, SECOND_DECAY = 0.9, 0.999
EPSILON = 1e-5


@record
class Ascent:
    """Numbers of one step: weights <- weights + rate * first / (sqrt(second) + EPSILON)."""

    rate: jax.Array  # [] float32, step size times the corrections of both moments
    learns: jax.Array  # [] bool; where False nothing changes


def ascent(alpha: jax.Array, step: jax.Array, learns: jax.Array) -> Ascent:
    """Return step number `step`, [] int32 from 1, with step size `alpha`.

    Kingma and Ba 2015, section 2, with the corrections as factors of the rate and epsilon, 1e-5,
    added to the root of the second moment as it is.
    """
    steps = step.astype(jnp.float32)
    first, second = (1 - jnp.float32(decay) ** steps for decay in (FIRST_DECAY, SECOND_DECAY))
    return Ascent(alpha * jnp.sqrt(second) / first, learns)


def ascended(
    arrays: tuple[jax.Array, ...], gradient: jax.Array, ascent: Ascent
) -> tuple[jax.Array, ...]:
    """Return weights, first and second moments after a step along a gradient, all of one shape."""
    weights, first, second = arrays
    # moments are computed once, or XLA computes them for the weights again, from copies
    new_first = prevent_fusion(FIRST_DECAY * first + (1 - FIRST_DECAY) * gradient)
    new_second = prevent_fusion(SECOND_DECAY * second + (1 - SECOND_DECAY) * gradient * gradient)
    moved = weights + ascent.rate * new_first / (jnp.sqrt(new_second) + EPSILON)
    new = (moved, new_first, new_second)
    return tuple(jnp.where(ascent.learns, n, o) for n, o in zip(new, arrays, strict=True))
