"""Bandits that pull the arm of the greatest upper confidence bound: UCB1 and UCB-V."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl.agents.opps.bandits import Bandit, Streams, StreamState, any_of, no_pulls, pulled_arms
from jbrl.base.pytree import record

# waiting returns are padded to this and its multiples by 4, each of which is compiled once
_SMALLEST_BUFFER = 4096
ZETA = 1.2  # of UCB-V
# Rows of the table that the loop over pulls works on, one column for each arm: a single array,
# updated in place.
_MEAN, _A, _B, _COUNT, _SUM, _SQUARES, _USED, _WANTED = range(8)


class IndexBandit(Bandit[StreamState]):
    """Bandit that pulls each arm once, in order, then always the one with the greatest index, ties
    broken at random.

    The index of an arm is its mean + a sqrt(log t) + b log t, t the number of pulls so far of all
    arms. Recommends the most pulled arm that has not been discarded, equals at random.
    """

    def widths(self, count: Array, variance: Array) -> tuple[Array, Array]:
        """Return the numbers a and b of an arm pulled `count` times, of this mean squared
        deviation.

        Traced by JAX, float64.
        """
        raise NotImplementedError

    def start(self, n_arms: int, seed: int = 0) -> StreamState:
        return no_pulls(n_arms, seed)

    def compile(self, n_arms: int, max_length: int) -> None:
        nothing, length = np.zeros(n_arms, np.int64), _SMALLEST_BUFFER
        _run(self, no_pulls(n_arms, 0), Streams(np.zeros(length), nothing), 0, 0)
        while length < max_length:
            length *= 4
            _run(self, no_pulls(n_arms, 0), Streams(np.zeros(length), nothing), 0, 0)

    def demand(self, state: StreamState, streams: Streams, size: int, budget: int) -> np.ndarray:
        """Return the returns that the bandit would want if each missing return were the mean of
        those of its arm.
        """
        unpulled = np.flatnonzero((state.counts == 0) & ~state.discarded)[: budget - state.pulls]
        missing = unpulled[streams.lengths[unpulled] == 0][:size]
        wanted = np.bincount(missing, minlength=len(state.counts))
        if len(missing) == size:
            return wanted
        supposed, waiting = _suppose_pulled(state, streams, unpulled)
        table, _ = _run(self, supposed, waiting, budget, size - len(missing))
        return wanted + table[_WANTED].astype(np.int64)

    def advance(
        self, state: StreamState, streams: Streams, budget: int
    ) -> tuple[StreamState, Streams]:
        state, streams, ready = _pull_first(state, streams, budget)
        if not ready or self.finished(state, budget):
            return state, streams
        table, discarded = _run(self, state, streams, budget, 0)
        state = StreamState(
            table[_COUNT].astype(np.int64), table[_SUM], table[_SQUARES], discarded, state.seed
        )
        return state, streams.drop(table[_USED].astype(np.int64), discarded)

    def recommend(self, state: StreamState) -> int:
        """Return the most pulled arm that has not failed, ties broken at random.

        Raises:
          JbrlError: every pull has failed.
        """
        counts = np.where(pulled_arms(state), state.counts, -1)
        return any_of(state, counts == counts.max())


@record
class UCB1(IndexBandit):
    """Upper confidence bound: mean + c sqrt(log t / n).

    Auer et al. 2002, for returns of range 1 and c = sqrt(2): for others multiply c by the range.
    The program published with Castronovo et al. 2016 uses 660 for all its problems.
    """

    c: float = math.sqrt(2)

    def widths(self, count: Array, variance: Array) -> tuple[Array, Array]:
        del variance
        return self.c / jnp.sqrt(count), jnp.zeros_like(count)


@record
class UCBV(IndexBandit):
    """Upper confidence bound with the variance: mean + sqrt(2 zeta V log t / n) + 3 zeta scale log
    t / n.

    V is the mean squared deviation from the mean. Audibert, Munos and Szepesvári 2009, with their
    c = 1.
    """

    scale: float = 1.0  # range of the returns

    def widths(self, count: Array, variance: Array) -> tuple[Array, Array]:
        return jnp.sqrt(2 * ZETA * variance / count), 3 * ZETA * self.scale / count


def _pull_first(
    state: StreamState, streams: Streams, budget: int
) -> tuple[StreamState, Streams, bool]:
    """Pull arms never pulled, in order, as far as returns and budget reach; and whether no more are
    to be pulled first.
    """
    unpulled = np.flatnonzero((state.counts == 0) & ~state.discarded)
    there = streams.lengths[unpulled] > 0
    arms = unpulled if there.all() else unpulled[: np.argmin(there)]
    values = streams.values[streams.starts[arms]]
    failed = np.isnan(values)
    arms = arms[np.cumsum(~failed) - ~failed < budget - state.pulls]
    values, failed = values[: len(arms)], failed[: len(arms)]
    counts, sums, squares, discarded = (
        part.copy() for part in (state.counts, state.sums, state.squares, state.discarded)
    )
    counts[arms] += ~failed
    sums[arms] += np.where(failed, 0.0, values)
    squares[arms] += np.where(failed, 0.0, values) ** 2
    discarded[arms] |= failed
    used = np.bincount(arms, minlength=len(counts))
    state = StreamState(counts, sums, squares, discarded, state.seed)
    return state, streams.drop(used, discarded), len(arms) == len(unpulled)


def _suppose_pulled(
    state: StreamState, streams: Streams, arms: np.ndarray
) -> tuple[StreamState, Streams]:
    """As if these arms, never pulled, had been, and each had returned the mean of all returns
    so far.
    """
    pulls = max(1, state.pulls)
    counts, sums, squares = state.counts.copy(), state.sums.copy(), state.squares.copy()
    counts[arms] = 1
    sums[arms], squares[arms] = state.sums.sum() / pulls, state.squares.sum() / pulls
    used = np.minimum(np.bincount(arms, minlength=len(counts)), streams.lengths)
    never = (counts == 0) & ~state.discarded  # the budget ends before their turn
    supposed = StreamState(counts, sums, squares, state.discarded | never, state.seed)
    return supposed, streams.drop(used, state.discarded)


def _run(
    bandit: IndexBandit, state: StreamState, streams: Streams, budget: int, wanted: int
) -> tuple[np.ndarray, np.ndarray]:
    """Run the loop over pulls; return the table [8, N] at its end, and the mask [N] of arms
    discarded by then.

    Args:
      wanted: 0: stop at the first return that is missing. Else suppose that missing ones are the
        mean of their arm, and stop after so many.
    """
    length = _SMALLEST_BUFFER
    while length < len(streams.values):
        length *= 4
    values = np.pad(streams.values, (0, length - len(streams.values)))
    with _precisely():
        table = np.zeros((8, len(state.counts)))
        table[_COUNT], table[_SUM], table[_SQUARES] = state.counts, state.sums, state.squares
        limits = np.array([state.pulls, budget, wanted, state.seed % 2**63], np.int64)
        table = np.array(
            _loop(bandit, table, state.discarded, values, streams.starts, streams.lengths, limits)
        )
    return table, np.isneginf(table[_MEAN])


@contextlib.contextmanager
def _precisely() -> Iterator[None]:
    """Compute in float64, and on the CPU if there is one: a loop of tiny steps."""
    try:
        device: Any = jax.devices("cpu")[0]
    except RuntimeError:
        device = None
    with jax.enable_x64(True), jax.default_device(device):
        yield


@jax.jit
def _loop(
    bandit: IndexBandit,
    table: Array,
    discarded: Array,
    values: Array,
    starts: Array,
    lengths: Array,
    limits: Array,
) -> Array:
    """Call `_run` on the device; `limits` are pulls so far, budget, wanted and seed."""
    pulls, budget, wanted, seed = limits
    alive = ~discarded
    mean = table[_SUM] / table[_COUNT]
    a, b = bandit.widths(table[_COUNT], jnp.maximum(table[_SQUARES] / table[_COUNT] - mean**2, 0.0))
    for row, begun, none in ((_MEAN, mean, -jnp.inf), (_A, a, 0.0), (_B, b, 0.0)):
        table = table.at[row].set(jnp.where(alive, begun, none))
    number = jnp.arange(table.shape[1], dtype=jnp.int64)

    def going_on(carry: tuple[Any, ...]) -> Array:
        _, _, _, t, n_alive, n_supposed, stalled = carry
        return (t < budget) & (n_alive > 0) & ~stalled & ((wanted == 0) | (n_supposed < wanted))

    def pull(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        table, arm, column, t, n_alive, n_supposed, _ = carry
        # The last arm's column is written before anything is read: were it written after, XLA would
        # copy the table for each pull.
        table = _write(table, arm, column)
        log_t = jnp.log(t.astype(jnp.float64))
        score = table[_MEAN] + table[_A] * jnp.sqrt(log_t) + table[_B] * log_t
        arm = jnp.where(score == score.max(), _priorities(number, seed, t), -1).max() & 0xFFFFFFFF
        column = _read(table, arm)
        used = column[_USED].astype(jnp.int64)
        there = used < lengths[arm]
        drawn = values[jnp.minimum(starts[arm] + used, len(values) - 1)]
        value = jnp.where(there, drawn, column[_MEAN])
        square = jnp.where(there, drawn**2, column[_SQUARES] / column[_COUNT])
        failed = jnp.isnan(value)
        made = there | (wanted > 0)
        column = jnp.where(made, _pulled(bandit, column, value, square, there), column)
        succeeded, lost, supposed = (
            flag.astype(jnp.int64) for flag in (made & ~failed, failed, made & ~there)
        )
        return table, arm, column, t + succeeded, n_alive - lost, n_supposed + supposed, ~made

    first = jnp.zeros_like(pulls)
    start: Any = (
        table,
        first,
        _read(table, first),
        pulls,
        alive.sum(dtype=jnp.int64),
        jnp.zeros_like(pulls),
        jnp.bool_(False),
    )
    table, arm, column, *_ = lax.while_loop(going_on, pull, start)
    return _write(table, arm, column)


def _read(table: Array, arm: Array) -> Array:
    return lax.dynamic_slice(table, (jnp.zeros_like(arm), arm), (len(table), 1))[:, 0]


def _write(table: Array, arm: Array, column: Array) -> Array:
    return lax.dynamic_update_slice(table, column[:, None], (jnp.zeros_like(arm), arm))


def _pulled(bandit: IndexBandit, column: Array, value: Array, square: Array, there: Array) -> Array:
    """Return the column of an arm, [8], after one more return; a return of NaN discards it."""
    failed = jnp.isnan(value)
    count = column[_COUNT] + 1
    total, squares = column[_SUM] + value, column[_SQUARES] + square
    mean = total / count
    a, b = bandit.widths(count, jnp.maximum(squares / count - mean**2, 0.0))
    seen = jnp.stack([mean, a, b, count, total, squares])
    lost = jnp.stack([-jnp.inf, 0.0, 0.0, column[_COUNT], column[_SUM], column[_SQUARES]])
    one = jnp.ones_like(count)
    moved = jnp.stack(
        [column[_USED] + jnp.where(there, one, 0.0), column[_WANTED] + jnp.where(there, 0.0, one)]
    )
    return jnp.concatenate([jnp.where(failed, lost, seen), moved])


def _priorities(arms: Array, seed: Array, pull: Array) -> Array:
    """Return a random order of the arms for one pull: numbers [N] int64, all different, whose lower
    32 bits are the arm.
    """
    # splitmix64, Steele et al. 2014
    word = seed.astype(jnp.uint64) + (pull.astype(jnp.uint64) + 1) * jnp.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> 30)) * jnp.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> 27)) * jnp.uint64(0x94D049BB133111EB)
    word ^= word >> 31
    x = word.astype(jnp.uint32) ^ (arms.astype(jnp.uint32) * jnp.uint32(0x9E3779B1))
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)  # finaliser of MurmurHash3
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    x ^= x >> 16
    return ((x >> 1).astype(jnp.int64) << 32) | arms
