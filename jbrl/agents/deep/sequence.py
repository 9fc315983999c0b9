"""Transitions of the current sequence, updates that happen at some steps only, and terms of the
losses of policies: lambda-returns, the generalised advantages that are their distance from the
values, and log-probabilities.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from jbrl import vectorize
from jbrl.base.pytree import record
from jbrl.environments.spec import Box, Observation
from jbrl.rollout.contract import Transition

UNROLLED_WRITES = 16  # lanes up to which each writes its row by an operation of its own
_SHORTEST = 4  # steps of a sequence: no program is compiled for shorter ones


@record
class Sequence:
    """Consecutive transitions of one episode, at most T of them."""

    # [T + 1, D] float32, or [T + 1, 1] int32 where observations are indices; row t is the
    # observation before step t
    observations: Array
    actions: Array  # [T, 1] int32
    rewards: Array  # [T, 1] float32
    length: Array  # [] int32, transitions that it holds

    @property
    def capacity(self) -> int:
        """Number of transitions that fit, T."""
        return self.actions.shape[0]

    @classmethod
    def empty(cls, observation: Observation, capacity: int) -> "Sequence":
        """Return a sequence without transitions."""
        one = jnp.zeros((capacity, 1), jnp.int32)
        return cls(_empty(observation, capacity + 1), one, jnp.zeros((capacity, 1)), jnp.int32(0))

    def append(self, transition: Transition) -> "Sequence":
        """Return the sequence with one more transition; it must not be full."""
        at = self.length
        observations = put_row(self.observations, at, transition.observation.reshape(-1))
        return Sequence(
            put_row(observations, at + 1, transition.next_observation.reshape(-1)),
            put_row(self.actions, at, transition.action[None]),
            put_row(self.rewards, at, transition.reward[None]),
            at + 1,
        )

    def emptied(self, wanted: Array) -> "Sequence":
        """Return the sequence without its transitions where `wanted`, [] bool."""
        return dataclasses.replace(self, length=jnp.where(wanted, 0, self.length))

    def inputs(self, size: int) -> Array:
        """Return the first size + 1 observations `as_inputs`."""
        return as_inputs(self.observations[: size + 1])


TERMINATED, TRUNCATED = 1, 2


@record
class Rollout:
    """The last T transitions, of one episode or several; entries from `length` on are not set."""

    observations: Array  # [T, D] float32, or [T, 1] int32 where observations are indices
    next_observations: Array  # as well
    actions: Array  # [T, 1] int32
    rewards: Array  # [T, 1] float32
    ends: Array  # [T, 1] int32: 0: the episode goes on; `TERMINATED`; `TRUNCATED`
    length: Array  # [] int32

    @property
    def capacity(self) -> int:
        """T."""
        return self.actions.shape[0]

    @classmethod
    def empty(cls, observation: Observation, capacity: int) -> "Rollout":
        """Return a rollout without transitions."""
        seen, one = _empty(observation, capacity), jnp.zeros((capacity, 1), jnp.int32)
        return cls(seen, seen, one, jnp.zeros((capacity, 1)), one, jnp.int32(0))

    def append(self, transition: Transition) -> "Rollout":
        """Return the rollout with one more transition; it must not be full."""
        at = self.length
        end = jnp.where(transition.truncated, TRUNCATED, 0)
        end = jnp.where(transition.terminated, TERMINATED, end)
        return Rollout(
            put_row(self.observations, at, transition.observation.reshape(-1)),
            put_row(self.next_observations, at, transition.next_observation.reshape(-1)),
            put_row(self.actions, at, transition.action[None]),
            put_row(self.rewards, at, transition.reward[None]),
            put_row(self.ends, at, end[None]),
            at + 1,
        )

    def emptied(self, wanted: Array) -> "Rollout":
        """Return the rollout without its transitions where `wanted`, [] bool."""
        return dataclasses.replace(self, length=jnp.where(wanted, 0, self.length))


def _empty(observation: Observation, capacity: int) -> Array:
    """Return room for observations: [capacity, D], or [capacity, 1] for indices."""
    size = math.prod(observation.shape) if isinstance(observation, Box) else 1
    return jnp.zeros((capacity, size), observation.dtype)


def as_inputs(rows: Array) -> Array:
    """Return rows of observations as networks and features take them: [B, D] float32, or [B] int32
    where observations are indices.
    """
    return rows if jnp.issubdtype(rows.dtype, jnp.floating) else rows[:, 0]


@custom_vmap
def put_row(table: Array, i: Array, row: Array) -> Array:
    """Return `table` [R, C] with row `i` replaced by `row` [C]; `i` must lie in range.

    As `vectorize.set_row`, but for few lanes each row is copied whole, without a loop over entries.
    """
    return lax.dynamic_update_index_in_dim(table, row, i, 0)


@put_row.def_vmap
def _(size: int, batched: list[bool], *given: Array) -> tuple[Array, bool]:
    table, i, row = (
        v if b else jnp.broadcast_to(v, (size, *v.shape))
        for v, b in zip(given, batched, strict=True)
    )
    if size > UNROLLED_WRITES:
        return jax.vmap(vectorize.set_row)(table, i, row), True
    for lane in range(size):
        table = lax.dynamic_update_slice(
            table, row[lane][None, None], (jnp.int32(lane), i[lane], jnp.int32(0))
        )
    return table, True


def sizes(capacity: int) -> tuple[int, ...]:
    """Return the lengths that programs are compiled for: powers of two, and the capacity."""
    powers = []
    size = _SHORTEST
    while size < capacity:
        powers.append(size)
        size *= 2
    return (*powers, capacity)


def by_length(compute: Callable[[int], Any], length: Array, choices: tuple[int, ...]) -> Any:
    """Return `compute(size)` for the first of `choices`, ascending, that is not below `length`, []
    int32.
    """
    place = sum(((length > size).astype(jnp.int32) for size in choices[:-1]), start=jnp.int32(0))
    return lax.switch(place, [functools.partial(compute, size) for size in choices])


def update_where(
    wanted: Array, update: Callable[..., Any], state: Any, context: Any, capacity: int
) -> Any:
    """Return `update(state, context, sizes)` where `wanted` ([] bool), else `state`.

    Mapped, on CPUs, the lanes that want it take turns, so that a lane computes a sequence of its
    own length, none waits for another, and no bit depends on company. On other devices all lanes
    compute the longest where any wants it.

    Args:
      update: of (state, context, sizes), returns a pytree like `state`; must not close over traced
        arrays. It may compute a sequence by a program for any of `sizes` that is long enough.
      context: pytree that `update` reads. What depends on it alone XLA may compute at every step.
      capacity: the greatest length.
    """

    @custom_vmap
    def apply(wanted: Array, state: Any, context: Any) -> Any:
        def once(_: Array, now: Any) -> Any:
            return update(now, context, sizes(capacity))

        # a loop of no or one iteration, which XLA runs in place
        return lax.fori_loop(0, wanted.astype(jnp.int32), once, state)

    @apply.def_vmap
    def _(size: int, batched: list[bool], *given: Any) -> tuple[Any, Any]:
        wanted, state, context = jax.tree.map(
            lambda v, b: v if b else jnp.broadcast_to(v, (size, *v.shape)), given, tuple(batched)
        )
        result = lax.platform_dependent(
            wanted,
            state,
            context,
            cpu=functools.partial(_in_turns, update, sizes(capacity)),
            default=functools.partial(_at_once, update, capacity),
        )
        return result, jax.tree.map(lambda _: True, result)

    return apply(wanted, state, context)


def _in_turns(
    update: Callable[..., Any], choices: tuple[int, ...], wanted: Array, states: Any, contexts: Any
) -> Any:
    """Update the lanes that want it, one after the other: `wanted` [N] bool."""
    if wanted.shape[0] == 1:
        # The state is taken out of its lane before the loop, the context within it: the other way
        # about, either is copied.
        def only(_: Array, state: Any) -> Any:
            return update(state, jax.tree.map(lambda v: v[0], contexts), choices)

        first = jax.tree.map(lambda v: v[0], states)
        result = lax.fori_loop(0, wanted[0].astype(jnp.int32), only, first)
        return jax.tree.map(lambda v: v[None], result)
    lanes = jnp.arange(wanted.shape[0], dtype=jnp.int32)

    def one(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        left, states = carry
        lane = jnp.argmax(left).astype(jnp.int32)
        state, context = jax.tree.map(
            lambda v: lax.dynamic_index_in_dim(v, lane, keepdims=False), (states, contexts)
        )
        states = jax.tree.map(
            lambda table, new: lax.dynamic_update_index_in_dim(table, new, lane, 0),
            states,
            update(state, context, choices),
        )
        return left & (lanes != lane), states

    return lax.while_loop(lambda carry: carry[0].any(), one, (wanted, states))[1]


def _at_once(
    update: Callable[..., Any], capacity: int, wanted: Array, states: Any, contexts: Any
) -> Any:
    """Update all lanes where any wants it, and keep those that do: `wanted` [N] bool."""

    def both(lane: tuple[Any, Any]) -> tuple[Any, Any]:
        state, context = lane
        return update(state, context, (capacity,)), context

    def one(wanted: Array, state: Any, context: Any) -> Any:
        return vectorize.when_any(wanted, both, (state, context))[0]

    return jax.vmap(one)(wanted, states, contexts)


def lambda_returns(rewards: Array, discounts: Array, next_values: Array, traces: Array) -> Array:
    """Return G_t = r_t + g_t ((1 - l_t) v_{t+1} + l_t G_{t+1}) for t < T: [T], of the dtype of
    `rewards`.

    Sutton and Barto 2018, equation 12.19, with a discount and a trace of each step. Where a
    sequence ends, its trace must be 0: so does the last of all, beyond which G is not known.
    Sequences may follow each other.

    Args:
      rewards: r, [T].
      discounts: g, [T]; 0 where the episode has terminated.
      next_values: v_{t+1}, [T], the value of the observation that step t has led to.
      traces: l, [T] in [0, 1]; 0 where the return ends with the value.
    """
    chex.assert_rank([rewards, discounts, next_values, traces], 1)
    chex.assert_equal_shape([rewards, discounts, next_values, traces])

    def step(following: Array, terms: tuple[Array, Array]) -> tuple[Array, Array]:
        base, slope = terms
        total = base + slope * following
        return total, total

    slopes = discounts * traces
    bases = rewards + (discounts - slopes) * next_values
    return lax.scan(step, jnp.zeros_like(rewards[0]), (bases, slopes), reverse=True)[1]


def sequence_returns(
    rewards: Array,
    next_values: Array,
    length: Array,
    terminated: Array,
    *,
    discount: float | Array,
    trace_decay: float | Array,
) -> Array:
    """Return the lambda-returns of the first `length` steps of one episode, 0 after them: [T].

    Args:
      rewards, next_values: [T]; what follows the sequence does not matter.
      length: [] int32, from 1 to T.
      terminated: [] bool, the episode has terminated with the last step; otherwise its return ends
        with the value of the observation that it has led to.
      discount, trace_decay: [] in [0, 1].
    """
    step = jnp.arange(rewards.shape[0], dtype=jnp.int32)
    within, last = step < length, step == length - 1
    none = jnp.zeros_like(rewards)
    return lambda_returns(
        jnp.where(within, rewards, none),
        jnp.where(within & ~(last & terminated), none + discount, none),
        jnp.where(within, next_values, none),
        jnp.where(last, none, none + trace_decay),
    )


def generalised_advantages(
    rewards: Array, discounts: Array, values: Array, next_values: Array, traces: Array
) -> Array:
    """Return A_t = d_t + g_t l_t A_{t+1} with d_t = r_t + g_t v_{t+1} - v_t: [T].

    Generalised advantage estimation (Schulman et al. 2016, equation 16), which is `lambda_returns`
    minus `values`, where the value of an observation is the same as the end of one step and as the
    start of the next.

    Args: as `lambda_returns`, and
      values: [T], of the observations that steps start from.
    """
    return lambda_returns(rewards, discounts, next_values, traces) - values


def log_probabilities(logits: Array, actions: Array) -> tuple[Array, Array]:
    """Return the log-probabilities of actions [T], and the entropies [T] of the policies.

    Args:
      logits: [T, A].
      actions: [T] int32.
    """
    logs = jax.nn.log_softmax(logits)
    chosen = actions[:, None] == jnp.arange(logits.shape[1], dtype=jnp.int32)[None]
    return jnp.where(chosen, logs, jnp.zeros_like(logs)).sum(1), -(jnp.exp(logs) * logs).sum(1)
