"""Random numbers of searches: words by their number, and next states from a Polya urn.

Words need no key to split and no state to carry: each is a hash of its stream and its number.

Next states are those of root sampling without sampling. BAMCP plays each simulation in an MDP drawn
from the posterior, a Dirichlet row for each (state, action). All that a simulation sees of that MDP
are the next states it draws. Integrate the rows out: the (m+1)-th next state drawn from a row with
posterior concentrations a(y), of total W, given the m drawn before, has probability

    (a(y) + number of the m that were y) / (W + m),

independently of all other rows. That is Polya's urn (Blackwell and MacQueen 1973): with probability
W / (W + m) draw from the posterior mean, else repeat one of the m earlier draws, each being equally
likely. Simulations have the same law as with explicit sampling, without a gamma variate, and rows
never visited cost nothing.
"""

import jax.numpy as jnp
from jax import Array, lax

from jbrl.base.pytree import record, static
from jbrl.vectorize.native import read, read_row, write


def stream(words: Array) -> Array:
    """Return the stream named by two words, [2] uint32: another two words, such that streams of
    similar names are unrelated.
    """
    first = mix(words[0] + mix(words[1]))
    return jnp.stack([first, mix(words[1] ^ first)])


def word(stream: Array, counter: Array) -> Array:
    """Return the random word number `counter` ([] uint32) of a stream: [] uint32.

    The counter is mixed as in `mix`, one word of the stream let in before each of the two
    multiplications.
    """
    w = counter ^ stream[0]
    w = (w ^ (w >> 16)) * jnp.uint32(0x7FEB352D) + stream[1]
    w = (w ^ (w >> 15)) * jnp.uint32(0x846CA68B)
    return w ^ (w >> 16)


def lots(word: Array, count: int) -> Array:
    """Return `count` random words out of one, independent enough to break ties: [count] uint32."""
    indices = jnp.arange(count, dtype=jnp.uint32)
    return mix(word + spread(indices))


def mix(w: Array) -> Array:
    """Return a permutation of the words in which each bit depends on all: lowbias32 of C. Wellons,
    hash-prospector.
    """
    w = (w ^ (w >> 16)) * jnp.uint32(0x7FEB352D)
    w = (w ^ (w >> 15)) * jnp.uint32(0x846CA68B)
    return w ^ (w >> 16)


def bits(words: Array) -> Array:
    """Return 24 random bits of each word, int32."""
    return (mix(words) >> 8).astype(jnp.int32)


def spread(number: int | Array) -> Array:
    """Return numbers 0, 1, 2, … far apart modulo 2^32: uint32."""
    return jnp.asarray(number).astype(jnp.uint32) * jnp.uint32(0x9E3779B9)


@record
class Urns:
    """The draws of one simulation after the other.

    Entry R of the rows is no row: what is written there is never read.

    A row was drawn from `counts[row] - start` times since the counter stood at `start`, so nothing
    is cleared between simulations.
    """

    counts: Array  # [R + 1] int32
    draws: Array  # [(R + 1) * max_depth] int32, next states in order, row after row
    max_depth: int = static()  # draws of a simulation, at most


@record
class Draw:
    """A draw that has yet to be put down, because reads must come after writes (`native`)."""

    row: Array  # [] int32
    count: Array  # [] int32, of this row, this draw included
    y: Array  # [] int32
    start: Array  # [] int32, where the counter stood when the simulation began


def cumulative(concentrations: Array) -> Array:
    """Return cumulative concentrations along the last axis, same shape, zeros repeating the entry
    before exactly, however sums are rounded.
    """
    sums = jnp.where(concentrations > 0, jnp.cumsum(concentrations, axis=-1), 0.0)
    return lax.cummax(sums, axis=sums.ndim - 1)


def empty_urns(n_rows: int, max_depth: int) -> Urns:
    """Return urns from which nothing was drawn."""
    return Urns(
        jnp.zeros(n_rows + 1, jnp.int32), jnp.zeros((n_rows + 1) * max_depth, jnp.int32), max_depth
    )


def begin_draws(urns: Urns, start: Array) -> Draw:
    """Return the state before the first draw of a simulation. Counts so far must not exceed
    `start`.
    """
    nowhere = jnp.int32(urns.counts.shape[0] - 1)
    return Draw(nowhere, jnp.int32(1), jnp.int32(0), start)


def put_down(urns: Urns, draw: Draw) -> Urns:
    """Remember a draw. Doing so twice is harmless."""
    counts = write(urns.counts, draw.row, draw.start + draw.count)
    return Urns(
        counts,
        write(urns.draws, draw.row * urns.max_depth + draw.count - 1, draw.y),
        urns.max_depth,
    )


def draw_next(
    urns: Urns, last: Draw, cdf: Array, row: Array, uniform: Array, n_states: int
) -> Draw:
    """Return the next state drawn from `row`, given this simulation's earlier draws, including
    `last`, which has been recorded.

    Args:
      cdf: [R * S] cumulative posterior concentrations of each row, zeros repeating the
        entry before.
      uniform: a multiple of 2^-24 in [0, 1).
    """
    before = jnp.maximum(read(urns.counts, row) - last.start, 0)
    first = row * n_states
    total = read(cdf, first + n_states - 1)
    ball = uniform * (total + before.astype(jnp.float32))  # below total + before, also when rounded
    earlier = jnp.clip((ball - total).astype(jnp.int32), 0, before - 1)
    repeated = read(urns.draws, row * urns.max_depth + jnp.maximum(earlier, 0))
    mean = jnp.minimum((read_row(cdf, first, n_states) <= ball).sum(dtype=jnp.int32), n_states - 1)
    return Draw(
        row, before + 1, jnp.where((ball < total) | (before == 0), mean, repeated), last.start
    )
