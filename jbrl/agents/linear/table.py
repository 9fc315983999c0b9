"""One-hot features: weights are looked up."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.linear.traces import Orders, TraceStep


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
        del orders
        return jnp.int32(self.n)

    @property
    def blank(self) -> jax.Array:
        """An encoded observation before the first one."""
        return jnp.int32(0)

    def encoded(self, x: jax.Array, orders: Orders) -> jax.Array:
        """Return the observation `x` as passes over weights take it, here as it is: [] int32."""
        del orders
        return x

    def values(self, weights: jax.Array, at: jax.Array, orders: Orders) -> jax.Array:
        """Return the products of `weights` [A, F] with the features of an observation: [A] float32.

        Args:
          at: the observation, `encoded`.
        """
        del orders
        rows, n = weights.shape
        where = jnp.maximum(at, 0) + n * jnp.arange(rows, dtype=jnp.int32)
        found = vectorize.get_rows(weights.reshape(-1, 1), where)[:, 0]
        return jnp.where(at < 0, 0.0, found)

    def products(
        self, weights: jax.Array, ats: tuple[jax.Array, ...], orders: Orders
    ) -> tuple[jax.Array, ...]:
        """Return `values` of several observations."""
        return tuple(self.values(weights, at, orders) for at in ats)

    def learned(
        self,
        weights: jax.Array,
        trace: jax.Array,
        at: jax.Array,
        orders: Orders,
        rule: TraceStep,
    ) -> tuple[jax.Array, jax.Array]:
        """Return weights and trace [A, F] after `rule`."""
        trace = self.traced(trace, at, orders, rule.decay, rule.gradient)
        return self.stepped(weights, trace, orders, rule.step, rule.learns), trace

    def traced(
        self,
        trace: jax.Array,
        at: jax.Array,
        orders: Orders,
        decay: jax.Array,
        gradient: jax.Array,
    ) -> jax.Array:
        """Return the trace [A, F] after decaying and adding the gradient, [A], at the features of
        an observation.
        """
        del orders
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
        del orders
        return jnp.where(learns, weights + step * direction, weights)

    def squares(self, weights: jax.Array, orders: Orders) -> jax.Array:
        """Return the sum of the squares of all weights: [] float32."""
        del orders
        return jnp.square(weights).sum()

    def rows(self, weights: jax.Array, xs: jax.Array, orders: Orders) -> jax.Array:
        """Return `values` of B observations `xs`: [B, A] float32. Of one lane, not mapped."""
        del orders
        found = weights.at[:, jnp.maximum(xs, 0)].get(mode="promise_in_bounds")
        return jnp.where(xs < 0, 0.0, found).T

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
        del orders
        kept = jnp.where(xs[:, None] < 0, 0.0, gradients)
        zeros = jnp.zeros_like(learner[0])
        summed = zeros.at[:, jnp.maximum(xs, 0)].add(kept.T, mode="promise_in_bounds")
        return update(learner, summed, *numbers)
