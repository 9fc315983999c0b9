"""Features of observations: a table of one-hot features, or a Fourier basis.

Weights and traces are arrays [A, F] float32: one row of F features for each action, or one row
alone for a value function. `Table` has the passes over them that learning consists of; `Fourier`
has the same ones.
"""

import math

import numpy as np

from jbrl.agents.linear.fourier import Fourier
from jbrl.agents.linear.table import Table
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Box, Observation

GREATEST_CAPACITY = 1 << 20  # features: a lane then takes some 50 MB

Features = Table | Fourier


def features_of(observation: Observation, dependent: int, independent: int) -> Features:
    """Return the features of observations of this kind. On the host.

    Args:
      dependent, independent: the greatest orders of a Fourier basis.

    Raises:
      JbrlError: an observation without finite ends, or a basis with too many features.
    """
    if not isinstance(observation, Box):
        return Table(observation.n)
    inputs = math.prod(observation.shape)
    low, high = (
        np.broadcast_to(np.asarray(end, np.float64), observation.shape).ravel()
        for end in (observation.low, observation.high)
    )
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise JbrlError(
            f"expected observations between finite ends: {observation} has an entry without"
        )
    count = (dependent + 1) ** inputs + inputs * max(0, independent - dependent)
    if count > GREATEST_CAPACITY:
        raise JbrlError(
            f"dependent_high = {dependent} and independent_high = {independent} give "
            f"{_number(count)} features of {inputs} inputs: expected orders that give at most "
            f"{GREATEST_CAPACITY:,}"
        )
    return Fourier(tuple(low.tolist()), tuple(high.tolist()), dependent, independent)


def _number(count: int) -> str:
    return f"{count:,}" if count < 10**12 else f"{float(count):.3g}" if count < 1e300 else "10^300"
