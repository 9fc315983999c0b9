"""Attention by numbers of transitions is attention to each of them, one after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.prior_trained.networks import Attention, attend
from tests.agents.prior_trained.test_training import finite_differences

SIZES = (2, 5, 6, 3, 2, 4)  # two inputs, five transitions, three heads of size 2, two blocks


def slow_attention(
    parameters: np.ndarray, sizes: tuple[int, ...], x: np.ndarray, history: list[int]
) -> np.ndarray:
    """The outputs of a transformer whose tokens are the transitions of a history, in double
    precision.

    Args:
      x: the inputs that are no numbers.
      history: the kinds of the transitions.
    """
    _, kinds, width, heads, blocks, outputs = sizes
    rest = np.asarray(parameters, np.float64)

    def cut(*shape: int) -> np.ndarray:
        nonlocal rest
        found, rest = rest[: np.prod(shape)].reshape(shape), rest[np.prod(shape) :]
        return found

    def linear(v: np.ndarray, rows: int) -> np.ndarray:
        layer = cut(rows, len(v) + 1)
        return layer[:, :-1] @ v + layer[:, -1]

    x = linear(np.asarray(x, np.float64), width)
    for _ in range(blocks):
        query = linear(x, width).reshape(heads, -1)
        keys = cut(kinds, width).reshape(kinds, heads, -1)
        values = cut(width, kinds).T.reshape(kinds, heads, -1)
        found = np.zeros_like(query)
        for h, q in enumerate(query):
            tokens = [(0.0, np.zeros_like(q))]
            tokens += [(q @ keys[j, h] / np.sqrt(len(q)), values[j, h]) for j in history]
            greatest = max(score for score, _ in tokens)
            weights = np.array([np.exp(score - greatest) for score, _ in tokens])
            found[h] = (weights / weights.sum()) @ np.array([value for _, value in tokens])
        x = x + linear(found.reshape(-1), width)
        hidden = np.maximum(linear(x, width), 0)
        x = x + linear(hidden, width)
    result = linear(x, outputs)
    assert not len(rest)
    return result


@pytest.mark.parametrize("size", [0.5, 30.0], ids=["small weights", "scores of thousands"])
def test_outputs_are_those_of_tokens_one_by_one(size):
    network, drawn = Attention(SIZES), np.random.default_rng(2)
    parameters = (size * drawn.standard_normal(network.parameters)).astype(np.float32)
    histories = [[], [1], [0, 0, 4], drawn.integers(0, 5, 40).tolist()]
    x = drawn.standard_normal((2, len(histories))).astype(np.float32)
    numbers = np.stack([np.bincount(np.array(h, int), minlength=5) for h in histories], 1)
    inputs = np.concatenate([x, numbers.astype(np.float32)])
    found = jax.jit(lambda p, v: network.apply(network.layers(p), v))(parameters, inputs)
    for n, history in enumerate(histories):
        expected = slow_attention(parameters, SIZES, x[:, n], history)
        np.testing.assert_allclose(found[:, n], expected, rtol=1e-3, atol=1e-4 * size)


def test_the_gradient_is_that_of_finite_differences():
    with jax.enable_x64(True):
        network, drawn = Attention(SIZES), np.random.default_rng(3)
        inputs = drawn.standard_normal((7, 3))
        inputs[2:] = drawn.integers(0, 4, (5, 3))
        weights = drawn.standard_normal((4, 3))
        at = jnp.asarray(0.5 * drawn.standard_normal(network.parameters))

        @jax.jit
        def loss(parameters: jax.Array) -> jax.Array:
            return (weights * network.apply(network.layers(parameters), inputs)).sum()

        np.testing.assert_allclose(
            jax.jit(jax.grad(loss))(at), finite_differences(loss, at), rtol=1e-4, atol=1e-6
        )


def test_what_has_not_happened_counts_for_nothing():
    """However great its score, and where its exponential would be infinite."""
    keys, values = jnp.array([[1.0], [1e4]]), jnp.array([[2.0, 7.0]])
    numbers = jnp.array([[3.0, 0.0], [0.0, 0.0]])
    found = jax.jit(attend)(jnp.ones((1, 2)), keys, values, numbers)
    np.testing.assert_allclose(found, [[2 * 3 * np.e / (1 + 3 * np.e), 0.0]], rtol=1e-6)


def test_weights_start_with_variances_that_keep_signals_as_they_are():
    """1 / inputs, keys and values 1, and of the last layer `last`² / inputs: within 15 %, seven
    standard errors or more; biases 0.
    """
    network = Attention((20, 60, 40, 4, 1, 50))
    layers = network.layers(jax.jit(network.init)(jax.random.key(4), 0.1))
    variances = [1 / 20, 1 / 40, 1, 1, 1 / 40, 1 / 40, 1 / 40, 0.01 / 40]
    for number, (layer, variance) in enumerate(
        zip(map(np.asarray, layers), variances, strict=True)
    ):
        weights = layer if number in (2, 3) else layer[:, :-1]
        assert weights.var() == pytest.approx(variance, rel=0.15)
        assert number in (2, 3) or not layer[:, -1].any()
