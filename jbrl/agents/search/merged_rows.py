"""The rows of a merged MDP (`merged`): several transition rows of each (state, action), drawn from
the Dirichlet posterior.

Rows lie one after the other, as many as there are: sum K, not S A max K. A row is its
concentrations at first, then the logarithms of gamma variates of these shapes, then probabilities.
All random numbers are functions of the stream of the task and of the order of the draws.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jbrl.agents.search import draws
from jbrl.agents.search.native import read, read_row, write_row
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.vectorize import while_active

BLOCK = 32  # gamma variates proposed at once


@record
class MergedTask:
    """One merged MDP to draw and to solve."""

    stream: jax.Array  # [2] uint32, of random words (`draws.stream`)
    counts: jax.Array  # [S * A * S] float32, posterior concentrations
    rewards: jax.Array  # [S * A * S] float32
    # [S * A] int32, K(x, u), from 1 to `max_samples`; 0 for all pairs: nothing is wanted
    samples: jax.Array
    values: jax.Array  # [S] float32, a guess of differences of values: the closer, the sooner done
    discount: jax.Array  # [] float32
    start: jax.Array | None  # [] int32, where the agent is; None: there is a single state
    n_states: int = static()
    n_actions: int = static()
    max_samples: int = static()  # samples of a pair


@record
class Memory:
    """The rows drawn, one after the other, behind them what is no row."""

    rows: jax.Array  # [(S * A * max_samples + 1) * S + BLOCK] float32


@record
class Place:
    """Position of a loop over all rows."""

    i: jax.Array  # [] int32, number of the row
    pair: jax.Array  # [] int32, x A + u
    left: jax.Array  # [] int32, rows of this pair to come, this one included; 0: none is left


@record
class Block:
    """State of the generation of gamma variates: each round proposes one for every entry of the
    present block that has none yet.
    """

    round: jax.Array  # [] int32
    start: jax.Array  # [] int32, of the block
    shapes: jax.Array  # [BLOCK] float32
    logs: jax.Array  # [BLOCK] float32, logarithms of the variates
    accepted: jax.Array  # [BLOCK] bool, whether the variate is final
    rows: jax.Array


def bytes_needed(n_states: int, n_actions: int, max_samples: int) -> int:
    """Return the memory that one task takes."""
    return 4 * ((n_states * n_actions * max_samples + 1) * n_states + BLOCK)


def blank(task: MergedTask) -> Memory:
    """Return the memory of a task, empty."""
    return Memory(jnp.zeros(bytes_needed(task.n_states, task.n_actions, task.max_samples) // 4))


def draw(task: MergedTask, memory: Memory) -> Memory:
    """Draw all rows: copy the concentrations, put the logarithms of gamma variates in their place,
    then probabilities.
    """
    place, rows = while_active(
        _rows_left, _copy, (first_row(task), memory.rows), task, keep="numbers"
    )
    zero = jnp.int32(0)
    block = Block(zero, zero, rows[:BLOCK], jnp.zeros(BLOCK), jnp.zeros(BLOCK, bool), rows)
    rows = while_active(
        _variates_left, _propose, block, (task.stream, place.i * task.n_states), keep="numbers"
    ).rows
    return Memory(
        while_active(_rows_left, _normalise, (first_row(task), rows), task, keep="numbers")[1]
    )


def first_row(task: MergedTask) -> Place:
    """Return the place of the first row."""
    zero = jnp.int32(0)
    return Place(zero, zero, task.samples[0])


def next_row(place: Place, task: MergedTask) -> Place:
    """Return the place of the next row."""
    last, n_pairs = place.left == 1, task.n_states * task.n_actions
    after = place.pair + last.astype(jnp.int32)
    more = jnp.where(after < n_pairs, read(task.samples, jnp.minimum(after, n_pairs - 1)), 0)
    return Place(
        place.i + 1, jnp.minimum(after, n_pairs - 1), jnp.where(last, more, place.left - 1)
    )


def _rows_left(carry: tuple[Any, ...], _: MergedTask) -> jax.Array:
    return carry[0].left > 0


def _here(place: Place, task: MergedTask) -> jax.Array:
    """Return the index of the first number of the present row; of the placeholder row, when no row
    is left.
    """
    return (
        jnp.where(place.left > 0, place.i, task.n_states * task.n_actions * task.max_samples)
        * task.n_states
    )


def _copy(carry: tuple[Any, ...], task: MergedTask) -> tuple[Any, ...]:
    place, rows = carry
    concentrations = read_row(task.counts, place.pair * task.n_states, task.n_states)
    return next_row(place, task), write_row(rows, _here(place, task), concentrations)


def _normalise(carry: tuple[Any, ...], task: MergedTask) -> tuple[Any, ...]:
    place, rows = carry
    here = _here(place, task)
    logs = read_row(rows, here, task.n_states)
    weights = jnp.exp(logs - logs.max())
    return next_row(place, task), write_row(rows, here, weights / weights.sum())


def _variates_left(now: Block, consts: tuple[Any, ...]) -> jax.Array:
    return now.start < consts[1]


def _propose(now: Block, consts: tuple[Any, ...]) -> Block:
    """Run one round.

    Shape 1: an exponential variate. Other shapes: Marsaglia and Tsang 2000. Shape 0:
    minus infinity.
    """
    (stream, total), shape = consts, now.shapes
    normal, accept = _open_uniforms(stream, now.round, 0), _open_uniforms(stream, now.round, 1)
    d = jnp.where(shape < 1, shape + 1, shape) - jnp.float32(1 / 3)
    t = jnp.float32(2**0.5) * lax.erf_inv(2 * normal - 1) / jnp.sqrt(9 * d)
    passed = ((t > -1) & (jnp.log(accept) < d * sampling.excess(t))) | (shape == 1)
    proposed = jnp.log(d) + 3 * jnp.log1p(jnp.maximum(t, jnp.float32(-0.9999999)))
    proposed = jnp.where(shape == 1, jnp.log(-jnp.log(accept)), proposed) + _boost(
        shape, stream, now.round
    )
    logs = jnp.where(now.accepted, now.logs, jnp.where(shape > 0, proposed, -jnp.inf))
    accepted = (
        now.accepted
        | passed
        | (shape <= 0)
        | (now.start + jnp.arange(BLOCK, dtype=jnp.int32) >= total)
    )
    done = accepted.all() & (now.start < total)
    rows = write_row(now.rows, jnp.minimum(now.start, now.rows.shape[0] - BLOCK), logs)
    start = now.start + jnp.where(done, BLOCK, 0)
    following = read_row(rows, jnp.minimum(start, rows.shape[0] - BLOCK), BLOCK)
    return Block(
        now.round + 1, start, jnp.where(done, following, shape), logs, accepted & ~done, rows
    )


def _boost(shape: jax.Array, stream: jax.Array, round: jax.Array) -> jax.Array:
    """Return log(U) / shape where shape is below 1, else 0: a variate of shape a + 1, times
    U^(1/a), has shape a.

    Ibid., section 6.
    """

    def wanted(carry: tuple[Any, ...], _: tuple[Any, ...]) -> jax.Array:
        return carry[0]

    def compute(_: tuple[Any, ...], consts: tuple[Any, ...]) -> tuple[Any, ...]:
        shape, stream, round = consts
        return jnp.bool_(False), jnp.where(
            (shape > 0) & (shape < 1), jnp.log(_open_uniforms(stream, round, 2)) / shape, 0.0
        )

    small = ((shape > 0) & (shape < 1)).any()  # seldom
    return while_active(
        wanted, compute, (small, jnp.zeros(BLOCK)), (shape, stream, round), keep="numbers"
    )[1]


def _open_uniforms(stream: jax.Array, round: jax.Array, which: int) -> jax.Array:
    """Return numbers strictly between 0 and 1 for a block, the first, second or third of a round:
    [BLOCK] float32, odd multiples of 2^-24.
    """
    number = (
        round.astype(jnp.uint32) * (3 * BLOCK) + jnp.arange(BLOCK, dtype=jnp.uint32) + which * BLOCK
    )
    return ((draws.word(stream, number) >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2**-23)
