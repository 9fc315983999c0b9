"""The replay buffer: a list of transitions as its twin, the law of its samples, and that a compiled
program copies no buffer; updates at some steps only.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.deep import replay, sequence
from jbrl.environments.spec import Box, Discrete, OneHot
from jbrl.rollout.contract import Transition

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
CAPACITY = 5


def transitions(observation, n):
    """n random transitions, as NumPy has them."""
    for i in range(n):
        seen, following = (
            RNG.normal(size=observation.shape).astype(np.float32)
            if isinstance(observation, Box)
            else np.int32(RNG.integers(-1 if isinstance(observation, OneHot) else 0, observation.n))
            for _ in range(2)
        )
        yield Transition(
            seen,
            np.int32(RNG.integers(3)),
            np.float32(RNG.normal()),
            following,
            np.bool_(i % 3 == 0),
            np.bool_(i % 3 == 1),
        )


def with_one(v):
    return np.append(np.ravel(v), 1)


@pytest.mark.parametrize("observation", [Box((2, 3)), Discrete(7), OneHot(7)], ids=str)
def test_it_keeps_the_last_transitions(observation):
    """Seven in a buffer of five; a truncated episode goes on, a terminated one does not."""
    buffer, extras = replay.empty(observation, CAPACITY, 2), RNG.normal(size=(7, 2))
    add, kept = jax.jit(replay.add), list(transitions(observation, 7))
    for i, (transition, extra) in enumerate(zip(kept, np.float32(extras), strict=True)):
        assert int(buffer.size) == min(i, CAPACITY)
        buffer = add(buffer, transition, extra)
    assert int(buffer.size) == buffer.capacity == CAPACITY
    places = np.array([0, 1, 2, 3, 4, 2])
    found = jax.tree.map(np.asarray, jax.jit(replay.read)(buffer, places.astype(np.int32)))
    for row, place in enumerate(places):
        i = place + CAPACITY if place < 2 else place
        transition = kept[i]
        form = with_one if isinstance(observation, Box) else np.asarray
        np.testing.assert_array_equal(found.observation[row], form(transition.observation))
        np.testing.assert_array_equal(
            found.next_observation[row], form(transition.next_observation)
        )
        assert found.action[row] == transition.action
        assert found.reward[row] == transition.reward
        assert found.goes_on[row] == (0 if transition.terminated else 1)
        np.testing.assert_array_equal(found.extra[row], np.float32(extras[i]))


def test_every_transition_is_drawn_equally_often():
    """Chi-square of 64,000 draws with 63 degrees of freedom: above 130 with a probability of 1e-6.

    So are pairs of draws at each distance up to 4, over 8 x 8 classes.
    """
    keys = jax.random.split(KEY, 1000)
    words = jax.jit(jax.vmap(lambda key: replay.random_words(key, 64)))(keys)
    drawn = np.asarray(words) >> 26
    counts = np.bincount(drawn.ravel(), minlength=64)
    assert ((counts - 1000) ** 2 / 1000).sum() < 130
    for distance in (1, 2, 3, 4):
        pairs = (drawn[:, distance:] >> 3) * 8 + (drawn[:, :-distance] >> 3)
        expected = pairs.size / 64
        counts = np.bincount(pairs.ravel(), minlength=64)
        assert ((counts - expected) ** 2 / expected).sum() < 130
    across = (drawn[1:] >> 3) * 8 + (drawn[:-1] >> 3)
    counts = np.bincount(across.ravel(), minlength=64)
    assert ((counts - across.size / 64) ** 2 / (across.size / 64)).sum() < 130


def test_what_is_not_there_yet_is_not_drawn():
    buffer = replay.empty(Discrete(9), 100)
    add = jax.jit(replay.add)
    for transition in transitions(Discrete(9), 3):
        buffer = add(buffer, transition)
    found = jax.jit(lambda b, key: replay.sample(b, key, 200))(buffer, KEY)
    rewards = set(np.asarray(jax.jit(replay.read)(buffer, np.arange(3)).reward).tolist())
    assert set(np.asarray(found.reward).tolist()) == rewards


@pytest.mark.parametrize("lanes", [1, 4])
def test_no_program_copies_a_buffer(lanes):
    """A loop over steps takes, beside the buffers themselves, less than a tenth of their memory,
    and none of its operations makes an array of their size but the one that writes.
    """
    capacity, observation = 4096, Box((6,))
    one = replay.empty(observation, capacity)
    buffers = jax.vmap(lambda _: one)(jnp.arange(lanes))

    def step(buffer, key):
        seen = jax.random.normal(key, (6,))
        true = jnp.bool_(True)
        buffer = replay.add(
            buffer, Transition(seen, jnp.int32(1), jnp.float32(0), 2 * seen, true, ~true)
        )
        return buffer, replay.sample(buffer, key, 8).observation.sum()

    def run(buffers, keys):
        return jax.lax.scan(jax.vmap(step), buffers, keys)

    keys = jax.random.split(KEY, (20, lanes))
    compiled = jax.jit(run, donate_argnums=0).lower(buffers, keys).compile()
    size = lanes * one.rows.size * 4
    assert compiled.memory_analysis().temp_size_in_bytes < size / 10
    lane = f"s32[{capacity},{one.rows.shape[1]}]"
    shapes = (lane, lane.replace("[", f"[{lanes},"), f"s32[{size // 4}]")
    made = [
        line.split("=")[1].split("(")[0].split()[-1]
        for line in compiled.as_text().splitlines()
        if "=" in line and line.split("=")[1].strip().startswith(shapes)
    ]
    assert not {"copy", "select", "broadcast"} & set(made)


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
    """As on accelerators all at once, by the longest."""
    at_once = lambda *given: sequence._at_once(update, LENGTH, *given)  # noqa: E731
    for updated, sizes in ((jax.vmap(one), [4, 4, 0, 10, 10]), (at_once, [10, 10, 0, 10, 10])):
        total, count, size = jax.jit(updated)(*lanes())
        # 2^n - 1 are the first n powers of two
        np.testing.assert_array_equal(total, [1.5, 15.5, 0.5, 1023.5, 511.5])
        np.testing.assert_array_equal(count, [1, 1, 0, 1, 1])
        np.testing.assert_array_equal(size, sizes)


def test_one_lane_alone():
    alone, expected = jax.jit(one), jax.vmap(one)(*lanes())
    for lane in range(5):
        found = alone(*jax.tree.map(lambda v, lane=lane: v[lane], lanes()))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b[lane])


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
