"""Recorders: the record of a lifetime, and its score.

A recorder is a frozen pytree without randomness. Its state is small: its size does not depend on
the number of steps.
"""

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step


class Recorder(Protocol):
    """The contract.

    `begin` and `record` are pure functions that JAX can trace, for one lane; `scores` runs on
    the host.

    Class attributes:
      criterion: what the scores are, in words, for example "mean return per episode".
    """

    criterion: ClassVar[str]

    def begin(self, environment: Environment, state: Any) -> Any:
        """Return the state at the start of a lifetime, before the first step; `state` is the
        environment's.
        """

    def record(
        self, state: Any, environment: Environment, environment_state: Any, step: Step
    ) -> Any:
        """Return the state after one step of the lifetime; `environment_state` is the one after
        that step, `step.terminated` may end an episode.
        """

    def scores(self, state: Any) -> np.ndarray:
        """Return the score of each lane, [n] float64, from states of n lanes stacked along a
        leading axis, as NumPy arrays.
        """

    def metrics(self, state: Any) -> dict[str, np.ndarray]:
        """Return other records of each lane, by name, [n] float64 each, from states as above."""


class Guarded:
    """Mixin of recorders that do not change a lifetime that is over.

    The driver calls `record_if` in place of `record` and does not select between old and new
    states, which would copy all of them at each step: worth it for states of more than a
    few numbers.
    """

    def record_if(
        self, counts: jax.Array, state: Any, environment: Environment, after: Any, step: Step
    ) -> Any:
        """As `record`, but a step that does not count, [] bool, changes nothing that is
        looked at.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method record_if")

    def record(
        self, state: Any, environment: Environment, environment_state: Any, step: Step
    ) -> Any:
        """Return the state after one step of the lifetime."""
        return self.record_if(jnp.bool_(True), state, environment, environment_state, step)


@record
class EpisodeTotals:
    """Totals of a lifetime so far."""

    episodes: jax.Array  # [] int32, episodes that have ended
    current: jax.Array  # [] float32, return of the current episode
    steps: jax.Array  # [] int32, steps of the current episode
    total: jax.Array  # [] float32, sum of the returns of the episodes that have ended
    lost: jax.Array  # [] float32, what rounding has taken from `total`
    # name: [] float32, the environment's counters, summed over the episodes that have ended
    metrics: dict[str, Any]


@record
class EpisodeMean:
    """Recorder that scores a lifetime by its mean undiscounted return per episode (Jordan et al.
    2020, section 3).

    An episode that the lifetime cuts off counts with what it has earned. Sums are compensated
    (Neumaier 1974), so that 10^4 episodes lose no digits of float32.
    """

    criterion: ClassVar[str] = "mean return per episode"

    def begin(self, environment: Environment, state: Any) -> EpisodeTotals:
        zero = jnp.float32(0)
        counters = {
            name: jnp.zeros_like(value) for name, value in environment.metrics(state).items()
        }
        return EpisodeTotals(jnp.int32(0), zero, jnp.int32(0), zero, zero, counters)

    def record(
        self, state: EpisodeTotals, environment: Environment, environment_state: Any, step: Step
    ) -> EpisodeTotals:
        ended = step.terminated | step.truncated
        earned = state.current + step.reward
        gain = jnp.where(ended, earned, 0.0)
        total = state.total + gain
        larger, smaller = (
            jnp.where(jnp.abs(state.total) >= jnp.abs(gain), *pair)
            for pair in ((state.total, gain), (gain, state.total))
        )
        counters = environment.metrics(environment_state)
        return EpisodeTotals(
            state.episodes + ended.astype(jnp.int32),
            jnp.where(ended, 0.0, earned),
            jnp.where(ended, 0, state.steps + 1),
            total,
            state.lost + ((larger - total) + smaller),
            {
                name: value + jnp.where(ended, counters[name], 0.0)
                for name, value in state.metrics.items()
            },
        )

    def scores(self, state: EpisodeTotals) -> np.ndarray:
        begun = np.asarray(state.episodes, np.float64) + (np.asarray(state.steps) > 0)
        earned = (
            np.asarray(state.total, np.float64)
            + np.asarray(state.lost, np.float64)
            + np.asarray(state.current, np.float64)
        )
        return earned / np.maximum(begun, 1)

    def metrics(self, state: EpisodeTotals) -> dict[str, np.ndarray]:
        """Return episodes that have ended, and the environment's counters summed over them."""
        counters = {name: np.asarray(values, np.float64) for name, values in state.metrics.items()}
        return {"episodes": np.asarray(state.episodes, np.float64), **counters}
