"""Features and passes over them: the basis by its definition, dense NumPy, lanes of any size."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.linear import features
from jbrl.agents.linear.features import Fourier, Orders, Table, cosine_of_pi, features_of
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Box, Discrete
from jbrl.play import compilation

LOW, HIGH = (-1.0, 0.0, 2.0), (1.0, 0.5, 6.0)
BASIS = Fourier(LOW, HIGH, 4, 6)  # 125 + 6 features


def orders(dependent, independent):
    return Orders(jnp.int32(dependent), jnp.int32(independent), jnp.bool_(True))


def vectors(inputs, dependent, independent):
    """The vectors of a basis by their definition."""
    found = set(itertools.product(range(dependent + 1), repeat=inputs))
    for k in range(dependent + 1, independent + 1):
        found |= {tuple(k * (j == i) for j in range(inputs)) for i in range(inputs)}
    return found


def used(basis, dependent, independent):
    columns, first, alone = features._padded_terms(
        len(basis.low), basis.dependent, basis.independent, basis.capacity
    )
    active = (first <= dependent) | (alone <= independent)
    return columns, active


def phi(basis, x, dependent, independent):
    """Features in double precision, [capacity]."""
    columns, active = used(basis, dependent, independent)
    low, high = np.array(basis.low), np.array(basis.high)
    return np.where(active, np.cos(np.pi * ((x - low) / (high - low)) @ columns), 0)


@pytest.mark.parametrize(
    ("inputs", "dependent", "independent"), [(1, 0, 0), (1, 4, 9), (2, 3, 5), (3, 0, 7), (4, 4, 2)]
)
def test_the_basis_is_the_one_defined(inputs, dependent, independent):
    basis = Fourier((0.0,) * inputs, (1.0,) * inputs, 4, 9)
    columns, active = used(basis, dependent, independent)
    found = [tuple(int(v) for v in column) for column in columns.T[active]]
    assert len(found) == len(set(found))
    assert set(found) == vectors(inputs, dependent, independent)
    given_orders = orders(dependent, independent)
    assert basis.sizes(given_orders) == len(found)
    assert np.flatnonzero(active).max() < basis.chunk * basis._chunks(given_orders)


def test_the_published_orders_give_at_most_10_036_features():
    """Jordan et al. 2020, table 4: four inputs, orders up to 9."""
    assert Fourier((0.0,) * 4, (1.0,) * 4, 9, 9).sizes(orders(9, 9)) == 10_000
    assert Fourier((0.0,) * 4, (1.0,) * 4, 9, 9).capacity == 20 * features.CHUNK
    assert Fourier((0.0,) * 2, (1.0,) * 2, 9, 9).capacity == 104


def test_a_basis_that_fills_its_chunks_has_no_other():
    basis = Fourier((0.0,) * 5, (1.0,) * 5, 3, 3)
    assert basis.capacity == basis.sizes(orders(3, 3)) == 1024
    assert basis._chunks(orders(3, 3)) == 1024 // features.CHUNK


def test_the_shape_of_an_observation_does_not_matter():
    basis = Fourier((0.0,) * 6, (1.0, 2.0) * 3, 1, 3)
    board = np.random.default_rng(0).uniform(size=(2, 3)).astype(np.float32)
    given_orders = orders(1, 2)
    encoded = jax.jit(lambda board: basis.encoded(board, given_orders))
    np.testing.assert_array_equal(encoded(board), encoded(board.reshape(-1)))


def test_the_cosine_is_right():
    t = np.linspace(-60, 60, 100_001).astype(np.float32)
    found = np.asarray(jax.jit(cosine_of_pi)(t))
    np.testing.assert_allclose(found, np.cos(np.pi * t.astype(np.float64)), atol=2.5e-7)


def lanes(count, basis):
    """Weights, traces, observations and orders of lanes that differ in size."""
    rng = np.random.default_rng(2)
    dependent = rng.integers(0, basis.dependent + 1, count)
    independent = rng.integers(1, basis.independent + 1, count)
    active = np.array([used(basis, *o)[1] for o in zip(dependent, independent, strict=True)])
    shape = (2, count, 3, basis.capacity)
    weights, traces = np.where(active[:, None], rng.normal(size=shape), 0).astype(np.float32)
    x = rng.uniform(-0.5, 3, (count, 2, 3)).astype(np.float32)
    return weights, traces, x, dependent, independent


def one_step(basis, weights, trace, x, orders, decay, gradient, step):
    here, there = (basis.encoded(point, orders) for point in x)
    values, following = basis.products(weights, (here, there), orders)
    trace = basis.traced(trace, here, orders, decay, gradient)
    weights = basis.stepped(weights, trace, orders, step, jnp.bool_(True))
    return values, following, weights, trace, basis.squares(weights, orders)


GRADIENT = np.float32([0.5, -1.0, 0.25])


def arguments(weights, traces, x, dependent, independent, step=0.1):
    both = Orders(jnp.int32(dependent), jnp.int32(independent), jnp.ones(len(x), bool))
    gradient = jnp.asarray(GRADIENT[: weights.shape[1]])
    return weights, traces, x, both, jnp.float32(0.8), gradient, jnp.float32(step)


def compiled(basis, given, options=None):
    """Args: options: of the compiler, as `compilation.options`; None: those of the tests."""
    fn = jax.vmap(one_step, in_axes=(None, 0, 0, 0, 0, None, None, None))
    lowered = jax.jit(fn, static_argnums=0).lower(basis, *arguments(*given))
    program = lowered.compile(compiler_options=options)
    return lambda *given, **step: [np.asarray(v) for v in program(*arguments(*given, **step))]


def check_weights_beyond(program, weights, traces, x, *sizes):
    """Weights beyond the features of a lane stay 0 whatever the error."""
    moved = program(weights, traces, x, *sizes, step=np.inf)[2]
    for lane in range(len(x)):
        _, active = used(BASIS, sizes[0][lane], sizes[1][lane])
        assert (moved[lane][:, ~active] == 0).all()
        assert not np.isfinite(moved[lane][:, active]).any()


@pytest.mark.first_case_quick
@pytest.mark.parametrize("chunk", [512, 32], ids=["at once", "in chunks"])
def test_passes_are_those_of_dense_arrays(chunk, monkeypatch):
    monkeypatch.setattr(features, "CHUNK", chunk)
    given = lanes(5, BASIS)
    program, (weights, traces, x, *sizes) = compiled(BASIS, given), given
    check_weights_beyond(program, *given)
    found = program(*given)
    for lane in range(5):
        a, b = (phi(BASIS, x[lane, k], sizes[0][lane], sizes[1][lane]) for k in range(2))
        w, e = weights[lane].astype(np.float64), traces[lane].astype(np.float64)
        expected = [w @ a, w @ b]
        e = 0.8 * e + GRADIENT[:, None] * a
        w = w + 0.1 * e
        expected += [w, e, (w**2).sum()]
        for value, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(value[lane], right, rtol=2e-5, atol=2e-5)


def test_no_bit_depends_on_the_other_lanes_of_a_group(monkeypatch):
    """Passes end where the largest lane of a group ends."""
    monkeypatch.setattr(features, "CHUNK", 32)
    weights, traces, x, dependent, independent = lanes(8, BASIS)
    small = np.argsort(dependent, kind="stable")[:4]
    small = np.concatenate([small, small])  # the same number of lanes, none of them large
    assert dependent[small].max() < dependent.max()
    given = weights, traces, x, dependent, independent
    program = compiled(BASIS, given)
    everything, alone = program(*given), program(*(v[small] for v in given))
    for value, other in zip(everything, alone, strict=True):
        np.testing.assert_array_equal(value[small], other)


@pytest.mark.parametrize("rows", [3, 1])
def test_lanes_in_turn_are_those_in_lockstep_to_the_bit(rows, monkeypatch):
    """CPUs take one lane after the other, other devices all together; as users compile them."""
    basis = Fourier((0.0,) * 3, (1.0,) * 3, 8, 8)
    assert basis.capacity == 2 * basis.chunk
    weights, traces, *rest = lanes(5, basis)
    given, options = (weights[:, :rows], traces[:, :rows], *rest), compilation.options("cpu")
    in_turn = compiled(basis, given, options)(*given)
    monkeypatch.setattr(features.native, "by_device", lambda _, elsewhere, tasks: elsewhere(tasks))
    jax.clear_caches()
    for value, other in zip(in_turn, compiled(basis, given, options)(*given), strict=True):
        np.testing.assert_array_equal(value, other)


def test_no_pass_touches_a_lane_that_is_over(monkeypatch):
    monkeypatch.setattr(features, "CHUNK", 32)
    _, traces, x, *sizes = lanes(3, BASIS)
    playing = jnp.array([True, False, True])

    def decayed(trace, point, orders):
        return BASIS.traced(trace, BASIS.encoded(point, orders), orders, *ends)

    ends = (jnp.float32(0.8), jnp.asarray(GRADIENT))
    both = Orders(*(jnp.int32(v) for v in sizes), playing)
    found = np.asarray(jax.jit(jax.vmap(decayed))(traces, x[:, 0], both))
    assert [(a == b).all() for a, b in zip(found, traces, strict=True)] == [False, True, False]


def test_a_table_is_a_basis_of_one_hot_features():
    table, none = Table(4), orders(0, 0)
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    values = jax.jit(lambda place: table.values(weights, place, none))
    np.testing.assert_array_equal(values(jnp.int32(2)), [2, 6, 10])
    np.testing.assert_array_equal(values(jnp.int32(-1)), [0, 0, 0])
    traced = jax.jit(lambda *given: table.traced(weights, given[0], none, given[1], GRADIENT))
    expected = 0.5 * np.arange(12).reshape(3, 4)
    expected[:, 1] += GRADIENT
    np.testing.assert_array_equal(traced(jnp.int32(1), jnp.float32(0.5)), expected)
    np.testing.assert_array_equal(traced(jnp.int32(-1), jnp.float32(0)), np.zeros((3, 4)))
    xs, gradients = jnp.array([-1, 0, 2, 2]), np.float32([[8] * 3, [1, 2, 3], [4] * 3, [5] * 3])
    ascended = jax.jit(
        lambda *given: table.ascended((weights,), *given, none, lambda _, total: (total,), ())
    )
    assert [list(row) for row in ascended(xs, gradients)[0]] == [[k, 0, 9, 0] for k in (1, 2, 3)]
    assert features_of(Discrete(4), 9, 9) == table


def test_observations_without_ends_and_too_many_features_are_refused():
    assert features_of(Box((2,), (0.0, 1.0), (1.0, 2.0)), 3, 4).sizes(orders(3, 4)) == 18
    # the distance of the last ones is infinite, 0 or has no inverse in float32
    ends = ((0.0, 1.0), (1.0, 1.0)), (-3e38, 3e38), (1.0, 1.0 + 1e-9), (0.0, 1e-39)
    for box in (Box((2,)), *(Box((2,), *pair) for pair in ends)):
        with pytest.raises(
            JbrlError, match=r"^expected observations between finite ends: Box\(2,\)"
        ):
            features_of(box, 3, 3)
    with pytest.raises(
        JbrlError,
        match=r"^dependent_high = 99 and independent_high = 9 give 100,000,000 features of 4 "
        r"inputs: expected orders that give at most 1,048,576",
    ):
        features_of(Box((4,), 0.0, 1.0), 99, 9)
    with pytest.raises(JbrlError, match="give 1e\\+50 features of 50 inputs"):
        features_of(Box((10, 5), 0.0, 1.0), 9, 9)
