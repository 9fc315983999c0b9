"""Updates at some steps only: where, of which length, one lane after the other or all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.deep import sequence

LENGTH = 10


def update(state, context, sizes):
    """Add up the first numbers, and count; the place of the size that was chosen is seen."""
    numbers, length = context
    total, count, _ = state

    def add(size):
        within = jnp.arange(size, dtype=jnp.int32) < length
        return jnp.where(within, numbers[:size], jnp.float32(0)).sum(), jnp.int32(size)

    added, size = sequence.by_length(add, length, sizes)
    return total + added, count + 1, size


def lanes():
    """Return flags of those that want it, states, and contexts."""
    numbers = 2.0 ** np.arange(LENGTH, dtype=np.float32)
    lengths = np.array([1, 4, 5, 10, 9], np.int32)
    states = (np.full(5, 0.5, np.float32), np.zeros(5, np.int32), np.zeros(5, np.int32))
    return np.array([True, True, False, True, True]), states, (np.stack([numbers] * 5), lengths)


def one(wanted, state, context):
    return sequence.update_where(wanted, update, state, context, LENGTH)


def test_inputs_end_with_the_observation_after_the_last_step():
    places, numbers = jnp.zeros((4, 1), jnp.int32), jnp.zeros((4, 1), jnp.float32)
    observations = jnp.arange(10, dtype=jnp.float32).reshape(5, 2)
    played = sequence.Sequence(observations, places, numbers, jnp.int32(3))
    np.testing.assert_array_equal(played.inputs(3), observations[:4])


def test_the_lengths_that_programs_are_compiled_for():
    assert sequence.sizes(32) == (4, 8, 16, 32)
    assert sequence.sizes(10) == (4, 8, 10)
    assert sequence.sizes(3) == (3,)


def test_lanes_that_want_it_are_updated_by_programs_of_their_length():
    total, count, size = jax.jit(jax.vmap(one))(*lanes())
    # 2^n - 1 are the first n powers of two
    np.testing.assert_array_equal(total, [1.5, 15.5, 0.5, 1023.5, 511.5])
    np.testing.assert_array_equal(count, [1, 1, 0, 1, 1])
    np.testing.assert_array_equal(size, [4, 4, 0, 10, 10])


def test_one_lane_alone():
    alone, expected = jax.jit(one), jax.vmap(one)(*lanes())
    for lane in range(5):
        found = alone(*jax.tree.map(lambda v, lane=lane: v[lane], lanes()))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b[lane])


def test_all_lanes_at_once_as_on_accelerators():
    total, count, size = jax.jit(lambda *given: sequence._at_once(update, LENGTH, *given))(*lanes())
    np.testing.assert_array_equal(total, [1.5, 15.5, 0.5, 1023.5, 511.5])
    np.testing.assert_array_equal(count, [1, 1, 0, 1, 1])
    np.testing.assert_array_equal(size, [10, 10, 0, 10, 10])


@pytest.mark.parametrize("width", [3, sequence.UNROLLED_WRITES + 1])
def test_rows_are_replaced(width):
    tables = np.arange(width * 8, dtype=np.float32).reshape(width, 4, 2)
    at = np.arange(width, dtype=np.int32) % 4
    rows = -np.ones((width, 2), np.float32)
    expected = tables.copy()
    expected[np.arange(width), at] = -1
    many, one = jax.jit(jax.vmap(sequence.put_row)), jax.jit(sequence.put_row)
    np.testing.assert_array_equal(many(tables, at, rows), expected)
    np.testing.assert_array_equal(one(tables[0], at[0], rows[0]), expected[0])
