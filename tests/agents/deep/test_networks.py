"""Networks: hand-computed numbers, a NumPy twin, gradients by finite differences, and that a lookup
is the product with one-hot vectors.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jbrl.agents import selection
from jbrl.agents.deep import adam, networks
from jbrl.agents.deep.networks import Linear, Mlp, QNetwork, taken
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import LowerTriangle

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
INDICES = np.array([2, 0, -1, 2, 4, -1, 2])  # of five rows, some of them several times


def one_hot(index, n):
    return (index[:, None] == np.arange(n)).astype(np.float64)


def dense(layers, x):
    """Outputs [B, O] of layers of (weights, bias), in NumPy."""
    for i, (weights, bias) in enumerate(layers):
        x = x @ weights + bias
        x = np.maximum(x, 0) if i + 1 < len(layers) else x
    return x


def random_layers(sizes):
    return [(RNG.normal(size=(i, o)), RNG.normal(size=o)) for i, o in itertools.pairwise(sizes)]


def test_weights_are_drawn_by_fan_in_and_cut_at_two_deviations():
    """The sample deviation of 40,000 weights is within 2% of that of the law; it is further off
    with a probability below 1e-6.
    """
    for fan_in, scale in ((None, 400**-0.5), (25, 0.2)):
        layer = jax.jit(lambda key, n=fan_in: networks.linear(key, 400, 100, n))(KEY)
        weights = np.asarray(layer.weights)
        assert np.abs(weights).max() <= 2 * scale * (1 + 1e-6)
        assert np.abs(weights).max() > 1.99 * scale
        assert weights.std() == pytest.approx(0.8796257 * scale, rel=0.02)
        assert abs(weights.mean()) < 0.02 * scale
        assert not np.asarray(layer.bias).any()


def test_the_first_layer_alone_counts_its_inputs_otherwise():
    init = jax.jit(Mlp(8, (4, 4)).init, static_argnums=1)
    usual, padded = (init(KEY, fan_in) for fan_in in (None, 2))
    np.testing.assert_allclose(padded[0].weights, 2 * usual[0].weights, rtol=1e-6)
    np.testing.assert_array_equal(padded[1].weights, usual[1].weights)


def test_outputs_are_those_of_layers_in_numpy():
    layers, x = random_layers((3, 5, 4, 2)), RNG.normal(size=(7, 3))
    expected = dense(layers, x)
    with jax.enable_x64(True):
        records, rectifier = (
            tuple(Linear(*v) for v in layers),
            Mlp(3, (5, 4, 2), final_activation=True),
        )
        found = jax.jit(Mlp(3, (5, 4, 2)).apply)(records, x)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        rectified = jax.jit(rectifier.apply)(records, x)
        np.testing.assert_allclose(rectified, np.maximum(expected, 0), rtol=1e-12)


def test_a_lookup_is_the_product_with_one_hot_vectors_forward_and_backward():
    layers, seen = random_layers((5, 6, 3)), jnp.asarray(INDICES, jnp.int32)
    weighed = RNG.normal(size=(7, 3))
    with jax.enable_x64(True):
        records = tuple(Linear(*map(jnp.asarray, v)) for v in layers)

        def loss(records, inputs, lookup):
            return (Mlp(5, (6, 3), lookup).apply(records, inputs) * weighed).sum()

        slopes = jax.jit(jax.value_and_grad(loss), static_argnums=2)
        looked_up = slopes(records, seen, True)
        multiplied = slopes(records, one_hot(INDICES, 5), False)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13), *[looked_up, multiplied]
        )


@pytest.mark.parametrize("lookup", [False, True])
def test_action_values_are_those_of_layers_in_numpy(lookup):
    layers = random_layers((5, 6, 4, 3))
    x = one_hot(INDICES, 5) if lookup else RNG.normal(size=(7, 5))
    network = QNetwork(5, (6, 4, 3), lookup)
    assert network.parameters == 5 * 6 + 6 + 6 * 4 + 4 + 4 * 3 + 3
    assert network.products == 6 * 4 + 4 * 3 + (0 if lookup else 5 * 6)
    with jax.enable_x64(True):
        packed = jax.jit(network.pack)(layers)
        inputs = jnp.asarray(INDICES, jnp.int32) if lookup else with_one(x)
        found = jax.jit(network.values)(packed, inputs)
        np.testing.assert_allclose(found.T, dense(layers, x), rtol=1e-12)
        seen = jnp.int32(INDICES[0]) if lookup else jnp.asarray(x[0].reshape(5, 1))
        found = jax.jit(network.values_of)(packed, seen)
        np.testing.assert_allclose(found, dense(layers, x)[0], rtol=1e-12)


@pytest.mark.slow
def test_inputs_that_never_occur_have_no_weights_and_change_no_value():
    triangle, widths = LowerTriangle(4), (6, 3)
    whole, part = QNetwork(16, widths, True), QNetwork(16, widths, True, triangle)
    assert part.rows == 10 and whole.parameters - part.parameters == 6 * widths[0]
    every, some = whole.init(KEY), part.init(KEY)
    np.testing.assert_array_equal(
        some[0], np.append(every[0][triangle.indices()], every[0][-1:], 0)
    )
    index = jnp.asarray([*triangle.indices(), -1, 5, 5], jnp.int32)

    def loss(layers, network):
        return (network.values(layers, index) ** 2).sum()

    np.testing.assert_array_equal(whole.values(every, index), part.values(some, index))
    expected, found = jax.grad(loss)(every, whole), jax.grad(loss)(some, part)
    np.testing.assert_array_equal(found[0][:-1], expected[0][triangle.indices()])
    assert not np.delete(expected[0][:-1], triangle.indices(), 0).any()
    np.testing.assert_array_equal(found[1], expected[1])


def with_one(x):
    return jnp.asarray(np.append(x, np.ones((len(x), 1)), 1))


@pytest.mark.first_case_quick
@pytest.mark.parametrize("lookup", [False, True])
def test_gradients_of_action_values_are_finite_differences(lookup):
    network = QNetwork(5, (6, 4, 3), lookup)
    with jax.enable_x64(True):
        packed = jax.jit(network.pack)(random_layers((5, 6, 4, 3)))
        inputs = jnp.asarray(INDICES, jnp.int32) if lookup else with_one(RNG.normal(size=(7, 5)))
        action = jnp.asarray(RNG.integers(0, 3, 7), jnp.int32)

        @jax.jit
        def loss(layers):
            return (taken(network.values(layers, inputs), action) ** 2).sum()

        slopes = jax.jit(jax.grad(loss))(packed)
        for _ in range(20):
            way = [RNG.normal(size=layer.shape) for layer in packed]
            up, down = (
                loss(tuple(v + step * w for v, w in zip(packed, way, strict=True)))
                for step in (1e-6, -1e-6)
            )
            along = sum((np.asarray(s) * w).sum() for s, w in zip(slopes, way, strict=True))
            assert float(up - down) / 2e-6 == pytest.approx(along, rel=1e-6)


def test_the_backward_pass_of_few_rows_is_that_of_a_product(monkeypatch):
    monkeypatch.setattr(networks, "MANY_WEIGHTS", 1)
    rows, weights, slopes = (RNG.normal(size=shape) for shape in ((3, 4), (4, 5), (3, 5)))
    with jax.enable_x64(True):
        found, backward = jax.vjp(networks.product, jnp.asarray(rows), jnp.asarray(weights))
        np.testing.assert_allclose(found, rows @ weights)
        for got, expected in zip(
            backward(jnp.asarray(slopes)), (slopes @ weights.T, rows.T @ slopes), strict=True
        ):
            np.testing.assert_allclose(got, expected)


def test_actions_of_lanes_come_with_their_log_probabilities():
    logits = np.log(np.array([[1.0, 4.0], [2.0, 2.0], [5.0, 2.0]], np.float32))
    sample = jax.jit(selection.softmax_sample_lanes)
    action, logs = sample(logits, np.array([0.3, 0.9], np.float32))
    assert action.tolist() == [1, 2]
    np.testing.assert_allclose(logs, np.log([2 / 8, 2 / 8]), rtol=1e-5)


def test_the_value_of_the_action_taken_is_read_by_its_number():
    values = jnp.float32([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(jax.jit(taken)(values, jnp.int32([1, 0, 1])), [4, 2, 6])


def test_a_lookup_in_lanes_is_that_of_each_lane():
    """Mapped, a table is another one in each lane, and so is its gradient."""
    network = QNetwork(5, (3, 2), True)
    layers = tuple(map(np.asarray, jax.jit(jax.vmap(network.init))(jax.random.split(KEY, 4))))
    index = RNG.integers(-1, 5, (4, 6)).astype(np.int32)

    def loss(layers, index):
        return (network.values(layers, index) ** 2).sum()

    slope = jax.jit(jax.grad(loss))
    together = map(np.asarray, jax.jit(jax.vmap(jax.grad(loss)))(layers, index))
    together = list(together)
    for lane in range(4):
        alone = slope(tuple(v[lane] for v in layers), index[lane])
        for many, one in zip(together, alone, strict=True):
            np.testing.assert_allclose(many[lane], one, atol=1e-6)


def test_rows_are_summed_alike_by_additions_and_by_a_product():
    """The first is the program of CPUs, the second that of other devices: 32 rows for 7 places,
    some of none.
    """
    at, added = RNG.integers(0, 9, 32).astype(np.int32), RNG.normal(size=(32, 5)).astype(np.float32)
    expected = np.zeros((9, 5))
    np.add.at(expected, at, added)
    ways = (networks.sums_of_rows, networks.scattered, networks.multiplied)
    found, scattered, multiplied = (jax.jit(way, static_argnums=2)(added, at, 7) for way in ways)
    np.testing.assert_array_equal(found, scattered)
    for sums in (found, multiplied):
        np.testing.assert_allclose(sums, expected[:7], atol=1e-6)
    # a lane each, as a batch of agents has them
    lanes = jax.jit(jax.vmap(lambda *given: networks.multiplied(*given, 7)))(added[None], at[None])
    np.testing.assert_allclose(lanes[0], expected[:7], atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-13)])
def test_optimisers_are_those_of_optax(dtype, tolerance):
    """Twenty steps with gradients of all sizes: `descend`, and the steps of DQN."""
    shapes, rate = ((4, 3), (3,)), 0.02

    def drawn():
        return tuple(jnp.asarray(RNG.normal(size=shape), dtype) for shape in shapes)

    with jax.enable_x64(dtype == "float64"):
        start, original = drawn(), optax.adam(rate)
        learner, layers = adam.learner(start), (start, adam.begin(start))
        expected, moments = start, original.init(start)

        @jax.jit
        def stepped(learner, layers, moments, expected, slopes):
            layers = adam.optimiser_step(rate, slopes, layers[1], layers[0])
            with jax.numpy_dtype_promotion("standard"):
                change, moments = original.update(slopes, moments)
            expected = optax.apply_updates(expected, change)
            return adam.descend(learner, slopes, rate), layers, moments, expected

        for step in range(20):
            slopes = tuple(v * 10.0 ** (step % 5 - 3) for v in drawn())
            learner, layers, moments, expected = stepped(learner, layers, moments, expected, slopes)
            for found in (learner.parameters, layers[0]):
                for one, other in zip(found, expected, strict=True):
                    assert one.dtype == dtype
                    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
        moved = np.abs(np.asarray(expected[0]) - np.asarray(start[0]))
        assert moved.max() > 0.1


def test_all_arrays_that_are_kept_beside_a_network_count(monkeypatch):
    network = type("Network", (), {"init": lambda key: jnp.zeros(3)})
    monkeypatch.setattr(networks, "MAX_BYTES", 4 * (4 * 3 + 10))
    networks.check_size("it", network, [np.zeros(5), np.zeros(5)])
    with pytest.raises(JbrlError, match=r"^it takes .* for one lifetime, 3 parameters"):
        networks.check_size("it", network, [np.zeros(5), np.zeros(6)])
