"""A replay buffer: the last transitions of a lifetime, in a ring.

The buffer is one array of rows, so that a transition is written once and a batch is one gather.
Nothing copies a buffer or selects between two. Its entries are the bits of the numbers, as
integers: a search for NaN in the state of an agent then passes it over, which is right, since
observations and rewards are checked as they arrive.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl import vectorize
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Box, Observation
from jbrl.mdp import sampling
from jbrl.rollout.contract import Transition

_GOLDEN = 0x9E3779B9  # 2^32 divided by the golden ratio: spreads counters over all words


@record
class Batch:
    """Transitions, and what was stored with each."""

    observation: Array  # [B, inputs + 1] float32, a 1 at the end; or [B] int32, indices
    action: Array  # [B] int32
    reward: Array  # [B] float32
    goes_on: Array  # [B] float32, 0 after a terminal transition, else 1
    next_observation: Array  # as `observation`
    extra: Array  # [B, E] float32


@record
class Replay:
    """The last `capacity` transitions of a lifetime."""

    # [capacity, 2 D + 3 + E] int32, bits of: observation, next observation, action, reward,
    # goes_on, extra
    rows: Array
    added: Array  # [] int32, transitions so far
    inputs: int = static()  # D, numbers of an observation, with a 1 at the end; 1 for an index
    lookup: bool = static()  # observations are indices

    @property
    def capacity(self) -> int:
        """Number of transitions that are kept."""
        return self.rows.shape[0]

    @property
    def size(self) -> Array:
        """Number of transitions that there are, [] int32."""
        return jnp.minimum(self.added, self.capacity)


def check_sizes(min_replay: Any, capacity: int) -> None:
    """Refuse a buffer that never holds as many transitions as learning waits for.

    Args:
      min_replay: of no meaning while it is traced.

    Raises:
      JbrlError: `min_replay` is greater than `capacity`.
    """
    if type(min_replay) is int and min_replay > capacity:
        raise JbrlError(f"min_replay = {min_replay}: expected at most replay_capacity = {capacity}")


def row_numbers(observation: Observation, extra: int = 0) -> int:
    """Return the numbers that are kept of a transition."""
    return 2 * _inputs(observation) + 3 + extra


def _inputs(observation: Observation) -> int:
    """Return the numbers that are kept of an observation: its own and a 1, or its index."""
    return math.prod(observation.shape) + 1 if isinstance(observation, Box) else 1


def empty(observation: Observation, capacity: int, extra: int = 0) -> Replay:
    """Return an empty buffer.

    Args:
      extra: E, further numbers that are kept of each transition.
    """
    rows = jnp.zeros((capacity, row_numbers(observation, extra)), jnp.int32)
    lookup = not isinstance(observation, Box)
    return Replay(rows, jnp.int32(0), _inputs(observation), lookup)


def add(replay: Replay, transition: Transition, extra: Array | None = None) -> Replay:
    """Return the buffer with a transition, in place of the oldest if it is full.

    Args:
      extra: [E] float32, further numbers.
    """
    goes_on = 1 - transition.terminated.astype(jnp.float32)
    parts = [
        _input(transition.observation, replay.lookup),
        _input(transition.next_observation, replay.lookup),
        transition.action[None],
        _bits(jnp.stack([transition.reward, goes_on])),
        *([] if extra is None else [_bits(extra)]),
    ]
    place = lax.rem(replay.added, jnp.int32(replay.capacity))
    rows = vectorize.set_row(replay.rows, place, jnp.concatenate(parts))
    return dataclasses.replace(replay, rows=rows, added=replay.added + 1)


def sample(replay: Replay, key: Array, size: int) -> Batch:
    """Draw transitions uniformly, with replacement, from a buffer that is not empty.

    Args:
      size: B, how many.
    """
    return sample_by(replay, sampling.words_to_uniforms(random_words(key, size)))


def sample_by(replay: Replay, uniforms: Array) -> Batch:
    """Return a batch by uniform numbers in [0, 1), [B] float32, one for each transition."""
    at = (uniforms * replay.size.astype(jnp.float32)).astype(jnp.int32)
    return read(replay, jnp.minimum(at, replay.size - 1))


def random_words(key: Array, n: int) -> Array:
    """Return n random words, [n] uint32, from the two words of a key.

    A counter is mixed with each word by the last steps of MurmurHash3 (Appleby 2011): one short
    loop, where the generator of JAX is a loop of twenty operations. Use a key either here or with
    `jax.random`, not both.
    """
    words = jax.random.key_data(key)
    counted = jnp.arange(1, n + 1, dtype=jnp.uint32) * jnp.uint32(_GOLDEN)
    return _mixed(_mixed(counted + words[0]) ^ words[1])


def _mixed(words: Array) -> Array:
    words = (words ^ (words >> 16)) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> 16)


def read(replay: Replay, at: Array) -> Batch:
    """Return the transitions at places `at`, [B] int32."""
    d, rows = replay.inputs, vectorize.get_rows(replay.rows, at)
    observation, following, numbers = rows[:, :d], rows[:, d : 2 * d], _numbers(rows[:, 2 * d :])
    return Batch(
        observation[:, 0] if replay.lookup else _numbers(observation),
        rows[:, 2 * d],
        numbers[:, 1],
        numbers[:, 2],
        following[:, 0] if replay.lookup else _numbers(following),
        numbers[:, 3:],
    )


def _input(observation: Array, lookup: bool) -> Array:
    """Return an observation as it is kept, [D] int32."""
    if lookup:
        return observation[None]
    flat = observation.reshape(-1)
    return _bits(jnp.append(flat, jnp.ones((1,), flat.dtype)))


def _bits(numbers: Array) -> Array:
    return lax.bitcast_convert_type(numbers, jnp.int32)


def _numbers(bits: Array) -> Array:
    return lax.bitcast_convert_type(bits, jnp.float32)
