"""Features of observations: a table of one-hot features, or a Fourier basis.

Weights and traces are arrays [A, F] float32: one row of F features for each action, or one row
alone for a value function. `Table` has the passes over them that learning consists of; `Fourier`
has the same ones.
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jbrl import vectorize
from jbrl.agents.linear.fourier import Fourier, Orders
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Box, Observation

GREATEST_CAPACITY = 1 << 20  # features: a lane then takes some 50 MB


@dataclasses.dataclass(frozen=True)
class Table:
    """One-hot features of n observations; below 0, as the observation of zeros is, all of them
    are 0.
    """

    n: int

    @property
    def capacity(self) -> int:
        """Number of features, F."""
        return self.n

    def sizes(self, orders: Orders) -> jax.Array:
        """Return the number of features that a lane uses: [] int32."""
        return jnp.int32(self.n)

    @property
    def blank(self) -> jax.Array:
        """An encoded observation before the first one."""
        return jnp.int32(0)

    def encoded(self, x: jax.Array, orders: Orders) -> jax.Array:
        """Return the observation `x` as passes over weights take it, here as it is: [] int32."""
        return x

    def values(self, weights: jax.Array, at: jax.Array, orders: Orders) -> jax.Array:
        """Return the products of `weights` [A, F] with the features of an observation: [A] float32.

        Args:
          at: the observation, `encoded`.
        """
        rows, n = weights.shape
        where = jnp.maximum(at, 0) + n * jnp.arange(rows, dtype=jnp.int32)
        values = vectorize.get_rows(weights.reshape(-1, 1), where)[:, 0]
        return jnp.where(at < 0, 0.0, values)

    def products(
        self, weights: jax.Array, ats: tuple[jax.Array, ...], orders: Orders
    ) -> tuple[jax.Array, ...]:
        """Return `values` of several observations."""
        return tuple(self.values(weights, at, orders) for at in ats)

    def traced(
        self, trace: jax.Array, at: jax.Array, orders: Orders, decay: jax.Array, gradient: jax.Array
    ) -> jax.Array:
        """Return the trace [A, F] after decaying and adding the gradient, [A], at the features of
        an observation.
        """
        here = jnp.arange(self.n, dtype=jnp.int32) == at
        return decay * trace + jnp.where(here[None], gradient[:, None], 0.0)

    def stepped(
        self,
        weights: jax.Array,
        direction: jax.Array,
        orders: Orders,
        step: jax.Array,
        learns: jax.Array,
    ) -> jax.Array:
        """Return `weights` + `step` * `direction` where `learns` ([] bool), else `weights`."""
        return jnp.where(learns, weights + step * direction, weights)

    def squares(self, weights: jax.Array, orders: Orders) -> jax.Array:
        """Return the sum of the squares of all weights: [] float32."""
        return jnp.square(weights).sum()

    def rows(self, weights: jax.Array, xs: jax.Array, orders: Orders) -> jax.Array:
        """Return `values` of B observations `xs`: [B, A] float32. Of one lane, not mapped."""
        values = weights.at[:, jnp.maximum(xs, 0)].get(mode="promise_in_bounds")
        return jnp.where(xs < 0, 0.0, values).T

    def ascended(
        self,
        learner: tuple[jax.Array, ...],
        xs: jax.Array,
        gradients: jax.Array,
        orders: Orders,
        update: Callable[..., tuple[jax.Array, ...]],
        numbers: tuple[jax.Array, ...],
    ) -> tuple[jax.Array, ...]:
        """Return arrays [A, F] after `update(arrays, gradient, *numbers)`, the gradient [A, F]
        being the sum of `gradients` [B, A] times the features of `xs`. Of one lane, not mapped.
        """
        kept = jnp.where(xs[:, None] < 0, 0.0, gradients)
        zeros = jnp.zeros_like(learner[0])
        summed = zeros.at[:, jnp.maximum(xs, 0)].add(kept.T, mode="promise_in_bounds")
        return update(learner, summed, *numbers)


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
    basis = Fourier(tuple(low.tolist()), tuple(high.tolist()), dependent, independent)
    count = basis.size(dependent, independent)
    if count > GREATEST_CAPACITY:
        raise JbrlError(
            f"dependent_high = {dependent} and independent_high = {independent} give "
            f"{_number(count)} features of {inputs} inputs: expected orders that give at most "
            f"{GREATEST_CAPACITY:,}"
        )
    return basis


def _number(count: int) -> str:
    return f"{count:,}" if count < 10**12 else f"{float(count):.3g}" if count < 1e300 else "10^300"
