"""Recorders: the record of a lifetime, and its score: the mean return of an episode, and the rows
of the logs of bsuite, at its schedule and with its columns.

A recorder is a frozen pytree without randomness. Its state is small: its size does not depend on
the number of steps.
"""

import dataclasses
from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl import vectorize
from jbrl.base import bsuite_sweep
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record, select, static
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


def scores_of(recorder: Recorder, state: Any, n: int) -> np.ndarray:
    """Return the scores of n lifetimes, [n] float64.

    Raises:
      JbrlError: the recorder returns other than n numbers.
    """
    with np.errstate(all="ignore"):  # what is no finite number is refused where it is stored
        scores = np.asarray(recorder.scores(state), np.float64)
    if scores.shape != (n,):
        raise JbrlError(
            f"{type(recorder).__name__}.scores returned an array of shape {scores.shape}: expected "
            f"({n},), one score for each lifetime"
        )
    return scores


class Guarded:
    """Mixin of recorders that do not change a lifetime that is over.

    The driver calls `record_if` in place of `record` and does not select between old and new
    states, which would copy all of them at each step: worth it for states of more than a
    few numbers.
    """

    def record_if(
        self, counts: Array, state: Any, environment: Environment, after: Any, step: Step
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


PART = 2048  # steps of an episode after which its return so far joins the total


@record
class EpisodeTotals:
    """Totals of a lifetime so far."""

    episodes: Array  # [] int32, episodes that have ended
    current: Array  # [] float32, return of the current episode, its last part
    steps: Array  # [] int32, steps of the current episode
    total: Array  # [] float32, sum of the returns of the episodes that have ended, and of parts
    lost: Array  # [] float32, what rounding has taken from `total`
    # name: [] float32, the environment's counters, summed over the episodes that have ended
    metrics: dict[str, Any]


@record
class EpisodeMean:
    """Recorder that scores a lifetime by its mean undiscounted return per episode (Jordan et al.
    2020, section 3).

    An episode that the lifetime cuts off counts with what it has earned. Sums are compensated
    (Neumaier 1974), that of a long episode in parts, so that 10^4 episodes, or one of 10^6 steps,
    lose no more digits of float32 than one part.
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
        earned, steps = state.current + step.reward, state.steps + 1
        joins = ended | (steps & (PART - 1) == 0)  # a power of two
        gain = jnp.where(joins, earned, 0.0)
        total = state.total + gain
        larger, smaller = (
            jnp.where(jnp.abs(state.total) >= jnp.abs(gain), *pair)
            for pair in ((state.total, gain), (gain, state.total))
        )
        counters = environment.metrics(environment_state)
        return EpisodeTotals(
            state.episodes + ended.astype(jnp.int32),
            jnp.where(joins, 0.0, earned),
            jnp.where(ended, 0, steps),
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


MOST_EPISODES = 10**6  # of a lifetime: rows for so many are kept
SCHEDULE = np.array(bsuite_sweep.logged_episodes(MOST_EPISODES), np.int32)
BEST = "best_episode"  # column that is no sum: the greatest raw return of an episode, at least 0


@record
class Sum:
    """A sum in two float32 numbers, which keeps 48 bits."""

    high: Array  # [] float32
    low: Array  # [] float32

    def plus(self, value: Array) -> "Sum":
        """Add a float32 number (Knuth's exact addition)."""
        total = self.high + value
        part = total - self.high
        lost = (self.high - (total - part)) + (value - part)
        return Sum(total, self.low + lost)


@record
class BsuiteRows:
    """A log so far, and the data of the next row."""

    steps: Array  # [] int32
    episodes: Array  # [] int32, that have ended
    length: Array  # [] int32, steps of the current episode
    total: Sum  # of all rewards of the episodes that have ended
    current: Sum  # rewards of the current episode
    counters: dict[
        str, Any
    ]  # name: Sum of the environment's counter over the episodes that have ended
    best: Array  # [] float32, greatest raw return of an episode, 0 at first
    row: Array  # [] int32, rows written
    due: Array  # [] int32, number of the episode after which the next one is
    rows: Array  # [rows, columns] int32: integers, then pairs of the bits of float32 numbers


@record
class BsuiteLog(Guarded):
    """Recorder of the rows that the original's logging wrapper writes; the score is the mean return
    of a lifetime.

    A row is written after episode 1, 2, …, 10, 12, 14, 17, 20, 25, 30, 40, …, 100, 120, … : 49 rows
    for 10,000 episodes. It has the columns `steps`, `episode`, `total_return`, `episode_len`,
    `episode_return` and those of `columns`, sums of the environment's counters since the start of
    the lifetime, which belong to rewards without noise and scale; `best_episode` is the greatest
    `raw_return` of an episode, at least 0. `metrics` has each as `log_<column>`, NaN beyond the
    rows that were written.

    Source: google-deepmind/bsuite 0.3.6, `utils/wrappers.py` and `logging/`.
    """

    criterion: ClassVar[str] = "mean return per episode"

    columns: tuple[str, ...] = static(())

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of a row, in the order of the original."""
        return (*bsuite_sweep.LOG_COLUMNS, *self.columns)

    def begin(self, environment: Environment, state: Any) -> BsuiteRows:
        zero, nothing = jnp.int32(0), Sum(jnp.float32(0), jnp.float32(0))
        width = 3 + 2 * (2 + len(self.columns))
        return BsuiteRows(
            steps=zero,
            episodes=zero,
            length=zero,
            total=nothing,
            current=nothing,
            counters={name: nothing for name in self.columns if name != BEST},
            best=jnp.float32(0),
            row=zero,
            due=jnp.int32(SCHEDULE[0]),
            rows=jnp.zeros((len(SCHEDULE), width), jnp.int32),
        )

    def record_if(
        self,
        counts: Array,
        state: BsuiteRows,
        environment: Environment,
        environment_state: Any,
        step: Step,
    ) -> BsuiteRows:
        ended = counts & (step.terminated | step.truncated)
        counters = environment.metrics(environment_state)
        nothing, current = Sum(jnp.float32(0), jnp.float32(0)), state.current.plus(step.reward)
        total = state.total.plus(current.high).plus(current.low)
        best, length = state.best, state.length + 1
        if BEST in self.columns:
            best = jnp.maximum(best, counters["raw_return"])
        sums_of = {name: kept.plus(counters[name]) for name, kept in state.counters.items()}
        after = dataclasses.replace(
            state,
            steps=state.steps + counts.astype(jnp.int32),
            episodes=state.episodes + ended.astype(jnp.int32),
            length=jnp.where(ended, 0, jnp.where(counts, length, state.length)),
            total=select(ended, total, state.total),
            current=select(ended, nothing, select(counts, current, state.current)),
            counters=select(ended, sums_of, state.counters),
            best=jnp.where(ended, best, state.best),
        )
        names = [name for name in self.columns if name != BEST]
        sums = [after.total, current, *(after.counters[name] for name in names)]
        parts = [part for one in sums for part in (one.high, one.low)]
        if BEST in self.columns:  # the last column wherever it is one
            parts += [after.best, jnp.float32(0)]
        due = ended & (after.episodes == state.due)
        table = (state.rows, state.row, state.due)
        whole = (after.steps, after.episodes, length)
        rows, row, due, _, _ = vectorize.when_any(due, _written, (*table, whole, tuple(parts)))
        return dataclasses.replace(after, rows=rows, row=row, due=due)

    def scores(self, state: BsuiteRows) -> np.ndarray:
        total = _double(state.total.high, state.total.low)
        return total / np.maximum(np.asarray(state.episodes), 1)

    def metrics(self, state: BsuiteRows) -> dict[str, np.ndarray]:
        """Return each column of the rows, [n, rows] float64, as `log_<column>`, NaN where none was
        written.
        """
        rows = np.asarray(state.rows)
        written = np.arange(rows.shape[1]) < np.asarray(state.row)[:, None]
        floats = np.ascontiguousarray(rows[..., 3:]).view(np.float32)
        doubles = _double(floats[..., 0::2], floats[..., 1::2])
        steps, episode, length = (rows[..., k].astype(np.float64) for k in range(3))
        first = (steps, episode, doubles[..., 0], length, doubles[..., 1])
        values = (*first, *np.moveaxis(doubles[..., 2:], -1, 0))
        return {
            f"{bsuite_sweep.LOG}{name}": np.where(written, value, np.nan)
            for name, value in zip(self.names, values, strict=True)
        }


def _written(operand: tuple[Any, ...]) -> tuple[Any, ...]:
    """Write the row of an episode that has just ended, and look up when the next one is due."""
    rows, row, _, whole, parts = operand
    bits = [lax.bitcast_convert_type(part, jnp.int32) for part in parts]
    rows = vectorize.set_row(rows, row, jnp.stack([*whole, *bits]))
    after = jnp.minimum(row + 1, len(SCHEDULE) - 1)
    due = jnp.asarray(SCHEDULE).at[after].get(mode="promise_in_bounds")
    return rows, row + 1, due, whole, parts


def _double(high: Any, low: Any) -> np.ndarray:
    return np.asarray(high, np.float64) + np.asarray(low, np.float64)
