"""Random numbers by their number: no key to split, no state to carry."""

import jax
import jax.numpy as jnp


def stream(words: jax.Array) -> jax.Array:
    """Return the stream named by two words, [2] uint32: another two words, such that streams of
    similar names are unrelated.
    """
    first = mix(words[0] + mix(words[1]))
    return jnp.stack([first, mix(words[1] ^ first)])


def word(stream: jax.Array, counter: jax.Array) -> jax.Array:
    """Return the random word number `counter` ([] uint32) of a stream: [] uint32.

    The counter is mixed as in `mix`, one word of the stream let in before each of the two
    multiplications.
    """
    w = counter ^ stream[0]
    w = (w ^ (w >> 16)) * jnp.uint32(0x7FEB352D) + stream[1]
    w = (w ^ (w >> 15)) * jnp.uint32(0x846CA68B)
    return w ^ (w >> 16)


def lots(word: jax.Array, count: int) -> jax.Array:
    """Return `count` random words out of one, independent enough to break ties: [count] uint32."""
    indices = jnp.arange(count, dtype=jnp.uint32)
    return mix(word + spread(indices))


def mix(w: jax.Array) -> jax.Array:
    """Return a permutation of the words in which each bit depends on all: lowbias32 of C. Wellons,
    hash-prospector.
    """
    w = (w ^ (w >> 16)) * jnp.uint32(0x7FEB352D)
    w = (w ^ (w >> 15)) * jnp.uint32(0x846CA68B)
    return w ^ (w >> 16)


def bits(words: jax.Array) -> jax.Array:
    """Return 24 random bits of each word, int32."""
    return (mix(words) >> 8).astype(jnp.int32)


def spread(number: int | jax.Array) -> jax.Array:
    """Return numbers 0, 1, 2, … far apart modulo 2^32: uint32."""
    return jnp.asarray(number).astype(jnp.uint32) * jnp.uint32(0x9E3779B9)
