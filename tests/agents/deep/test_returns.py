"""Lambda-returns and advantages: numbers by hand, and their definition by double loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.deep.returns import generalised_advantages, lambda_returns, sequence_returns
from tests.agents.deep import reference

BY_HAND = [
    # rewards, discounts, next values, traces, returns
    ([1.0], [0.5], [4.0], [0.0], [3.0]),
    # G_1 = 2 + 0.5 * 4 = 4, G_0 = 1 + 0.5 (0.5 * 8 + 0.5 * 4) = 4
    ([1.0, 2.0], [0.5, 0.5], [8.0, 4.0], [0.5, 0.0], [4.0, 4.0]),
    # terminated: the last value does not count
    ([1.0, 2.0], [0.5, 0.0], [8.0, 4.0], [1.0, 0.0], [2.0, 2.0]),
    # two sequences: the first one ends with its value, and learns nothing of the second
    ([1.0, 2.0, 100.0], [0.5, 0.5, 0.5], [8.0, 4.0, 0.0], [1.0, 0.0, 0.0], [3.0, 4.0, 100.0]),
]


@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case):
    *given, expected = (np.array(v, np.float32) for v in case)
    np.testing.assert_array_equal(lambda_returns(*given), expected)
    values = np.arange(len(expected), dtype=np.float32)
    rewards, discounts, following, traces = given
    advantages = generalised_advantages(rewards, discounts, values, following, traces)
    np.testing.assert_array_equal(advantages, expected - values)


@pytest.mark.parametrize(("terminated", "trace_decay"), [(True, 0.9), (False, 0.9), (False, 1.0)])
def test_a_sequence_by_its_definition(terminated, trace_decay):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=9), rng.normal(size=10)
    with jax.enable_x64(True):
        for length in (1, 5, 9):
            found = sequence_returns(
                jnp.asarray(rewards),
                jnp.asarray(values[1:]),
                jnp.int32(length),
                jnp.bool_(terminated),
                discount=0.8,
                trace_decay=trace_decay,
            )
            expected = reference.returns(
                rewards[:length], values[: length + 1], terminated, 0.8, trace_decay
            )
            np.testing.assert_allclose(found[:length], expected, rtol=1e-13, atol=1e-13)
            np.testing.assert_array_equal(found[length:], 0)


def test_what_follows_a_sequence_does_not_matter_even_if_infinite():
    rewards, values = np.ones((2, 4), np.float32)
    values[2:] = np.inf
    found = sequence_returns(
        rewards, values, jnp.int32(2), jnp.bool_(False), discount=0.5, trace_decay=0.5
    )
    # G_1 = 1 + 0.5, G_0 = 1 + 0.5 (0.5 + 0.75)
    np.testing.assert_array_equal(found, [1.625, 1.5, 0, 0])


def test_advantages_are_discounted_sums_of_errors():
    """Schulman et al. 2016, equation 16, episode by episode."""
    rng = np.random.default_rng(1)
    count, discount, decay = 40, 0.9, 0.7
    rewards, values, following = rng.normal(size=(3, count)).astype(np.float32)
    end = rng.choice(3, count, p=[0.8, 0.1, 0.1])  # goes on, terminated, truncated
    end[-1] = 2
    discounts = np.where(end == 1, 0, discount).astype(np.float32)
    traces = np.where(end > 0, 0, decay).astype(np.float32)
    # the value at the end of a step is that at the start of the next, where an episode goes on
    joined = np.where(end > 0, following, np.append(values[1:], 0)).astype(np.float32)
    errors = rewards + discounts * joined - values
    expected = np.zeros(count)
    for t in range(count):
        stop = t + np.flatnonzero(end[t:] > 0)[0] + 1
        expected[t] = sum((discount * decay) ** (k - t) * errors[k] for k in range(t, stop))
    found = generalised_advantages(rewards, discounts, values, joined, traces)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
