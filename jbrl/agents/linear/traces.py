"""Records that passes over weights and traces take: the orders of a lane, and one step along a
trace.
"""

import chex

from jbrl.pytree import record


@record
class Orders:
    """Orders of the Fourier basis of a lane, 0 for a table, and whether its passes count."""

    dependent: chex.Array  # [] int32, the highest frequency of terms of several inputs
    independent: chex.Array  # [] int32, the highest frequency of terms of one input
    playing: chex.Array  # [] bool; where False, passes in chunks leave the lane out


@record
class TraceStep:
    """One step of a linear function: e <- decay e + gradient phi, then w <- w + step e."""

    decay: chex.Array  # [] float32; 0 at the first step of an episode
    gradient: chex.Array  # [A] float32, of the features of each row
    step: chex.Array  # [] float32, step size times error
    learns: chex.Array  # [] bool; the weights stay as they are where False, the trace moves
