"""Records that passes over weights and traces take: the orders of a lane, and one step along a
trace.
"""

import jax

from jbrl.base.pytree import record


@record
class Orders:
    """Orders of the Fourier basis of a lane, 0 for a table, and whether its passes count."""

    dependent: jax.Array  # [] int32, the highest frequency of terms of several inputs
    independent: jax.Array  # [] int32, the highest frequency of terms of one input
    playing: jax.Array  # [] bool; where False, passes in chunks leave the lane out


@record
class TraceStep:
    """One step of a linear function: e <- decay e + gradient phi, then w <- w + step e."""

    decay: jax.Array  # [] float32; 0 at the first step of an episode
    gradient: jax.Array  # [A] float32, of the features of each row
    step: jax.Array  # [] float32, step size times error
    learns: jax.Array  # [] bool; the weights stay as they are where False, the trace moves
