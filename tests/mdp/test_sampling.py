"""Uniforms, categorical draws, gamma and Dirichlet variates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jbrl.mdp import sampling

gamma = jax.jit(sampling.gamma)
dirichlet = jax.jit(sampling.dirichlet)
dirichlet_lanes = jax.jit(jax.vmap(sampling.dirichlet))

SHAPES = (0.1, 0.3, 0.999, 1.0, 1.5, 2.0, 3.7, 10.0, 100.0, 1e4, 1e6)
DRAWS = 20_000


def test_words_become_uniforms_below_one():
    words = jnp.array([0, 255, 256, 2**31, 2**32 - 1], jnp.uint32)
    expected = np.array([0, 0, 1, 2**23, 2**24 - 1]) / 2**24
    np.testing.assert_array_equal(sampling.words_to_uniforms(words), expected)


def test_uniforms_are_the_words_of_the_key():
    key = jax.random.key(7)
    words = jax.random.key_data(key)
    np.testing.assert_array_equal(sampling.uniforms(key), sampling.words_to_uniforms(words))


def test_cumulative_repeats_at_zeros_and_ends_in_one():
    cdf = jax.jit(sampling.cumulative)(jnp.array([0.0, 0.25, 0.0, 0.75, 0.0]))
    np.testing.assert_array_equal(cdf, [0, 0.25, 0.25, 1, 1])


@jax.jit
def pick(row, uniforms):
    return jax.vmap(sampling.inverse_cdf, in_axes=(None, 0))(sampling.cumulative(row), uniforms)


@given(
    st.lists(st.sampled_from([0.0, 1e-7, 0.1, 0.3, 1.0]), min_size=7, max_size=7).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_inverse_cdf_never_returns_an_impossible_entry(weights, uniform):
    row = np.array(weights, np.float32) / np.float32(sum(weights))
    uniforms = np.array([min(uniform, 1 - 2**-24), 0, 1 - 2**-24], np.float32)
    assert (row[np.asarray(pick(row, uniforms))] > 0).all()


def test_inverse_cdf_takes_the_first_entry_above():
    uniforms = np.array([0, 0.2499, 0.25, 0.7499, 0.75, 0.9999], np.float32)
    drawn = pick(np.array([0.25, 0.0, 0.5, 0.25], np.float32), uniforms)
    assert drawn.tolist() == [0, 0, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("values", "tolerance", "expected"),
    [
        ((1.0, 3.0, 3.0, 2.0, 3.0), 0.0, (1, 2, 4)),
        ((1.0, 3.0, 2.9999, 2.0, 3.0), 1e-3, (1, 2, 4)),
        ((-5.0, -7.0), 0.0, (0, 0, 0)),
        ((4.0,), 0.0, (0, 0, 0)),
    ],
)
def test_maximisers_share_the_unit_interval_in_order(values, tolerance, expected):
    values, uniforms = np.array(values, np.float32), np.float32([0.0, 0.5, 1 - 2**-24])
    choose = jax.jit(sampling.choose_maximiser)
    chosen = [int(choose(values, u, tolerance)) for u in uniforms]
    assert tuple(chosen) == expected


def test_exponentials_are_positive_and_exponential():
    draw = jax.jit(lambda key: sampling.exponentials(key, (DRAWS,)))
    drawn = np.asarray(draw(jax.random.key(0)), np.float64)
    assert drawn.min() > 0
    assert stats.kstest(drawn, "expon").pvalue > 1e-4  # false-alarm rate 1e-4


@pytest.fixture(scope="module")
def gammas():
    shapes = jnp.broadcast_to(jnp.array(SHAPES, jnp.float32)[:, None], (len(SHAPES), DRAWS))
    return np.asarray(gamma(jax.random.key(1), shapes), np.float64)


@pytest.mark.parametrize("row", range(len(SHAPES)), ids=[f"{shape:g}" for shape in SHAPES])
def test_gamma_has_the_right_distribution(gammas, row):
    # False-alarm rate 1e-4. Both moments are averages of DRAWS independent numbers: 4.5 standard
    # errors, false-alarm rate below 1e-5 each (1e-4 for the skewed shapes).
    shape, drawn = SHAPES[row], gammas[row]
    assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > 1e-4
    assert abs(drawn.mean() - shape) < 4.5 * np.sqrt(shape / DRAWS)
    fourth = 3 * shape * (shape + 2)
    assert abs(((drawn - shape) ** 2).mean() - shape) < 4.5 * np.sqrt((fourth - shape**2) / DRAWS)


def test_gamma_draws_are_uncorrelated(gammas):
    # 4.5 standard errors of a correlation coefficient of independent numbers, 55 pairs: false-alarm
    # rate below 4e-4.
    correlations = np.corrcoef(stats.rankdata(gammas, axis=1))[np.triu_indices(len(SHAPES), 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(DRAWS)


def test_the_logarithm_of_the_acceptance_probability():
    t = np.concatenate([np.linspace(-0.9, 2, 59), [-0.05, -0.01, 0.02, 0.099]])
    exact = 3 * (np.log1p(t) - t + t**2 / 2) - t**3  # loses 8 of 16 digits at most
    # terms of 0.3 have errors of 2^-25, and their sum at t = 0.1 is 7e-5
    np.testing.assert_allclose(sampling.excess(jnp.float32(t)), exact, rtol=2e-3, atol=1e-30)


def test_gamma_of_shape_zero_is_zero_wherever_it_stands():
    chances = np.random.default_rng(0).random((len(SHAPES), DRAWS))
    shapes = np.where(chances < 0.5, 0, 2).astype(np.float32)
    np.testing.assert_array_equal(gamma(jax.random.key(2), shapes) == 0, shapes == 0)
    assert not gamma(jax.random.key(2), np.zeros_like(shapes)).any()


def rows_of(*concentrations, seed):
    """DRAWS rows from one Dirichlet distribution of four entries."""
    row = np.array(concentrations, np.float32)
    return np.asarray(dirichlet(jax.random.key(seed), np.broadcast_to(row, (DRAWS, 4))), np.float64)


@pytest.mark.parametrize("entry", [0, 1, 3])
def test_dirichlet_has_beta_marginals(entry):
    # False-alarm rate 1e-4 for each entry.
    row = np.array([0.5, 2.0, 0.0, 1.5])
    drawn = rows_of(*row, seed=3)
    assert (drawn[:, 2] == 0).all()
    np.testing.assert_allclose(drawn.sum(1), 1, atol=3e-7)
    law = stats.beta(row[entry], row.sum() - row[entry]).cdf
    assert stats.kstest(drawn[:, entry], law).pvalue > 1e-4


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e8, 1e29])
def test_dirichlet_rows_are_sound_at_any_scale(scale):
    rows = rows_of(scale, scale, 0, scale, seed=4)
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(1), 1, atol=3e-7)
    assert (rows[:, 2] == 0).all()


def test_dirichlet_of_tiny_concentrations_picks_one_entry_in_proportion():
    # Chi-square test, false-alarm rate 1e-4.
    rows = rows_of(1e-6, 3e-6, 4e-6, 0, seed=5)
    assert (rows.max(1) > 0.999).mean() > 0.99
    counts = np.bincount(rows.argmax(1), minlength=3)
    assert stats.chisquare(counts, np.array([0.125, 0.375, 0.5]) * DRAWS).pvalue > 1e-4


def test_one_possible_entry_is_certain():
    assert (rows_of(0, 0.3, 0, 0, seed=6) == [0, 1, 0, 0]).all()
    assert (rows_of(5, 0, 0, 0, seed=6) == [1, 0, 0, 0]).all()


def test_dirichlet_draws_do_not_depend_on_their_company():
    keys = jax.random.split(jax.random.key(8), 24)
    rng = np.random.default_rng(1)
    shape = (24, 5, 2, 5)
    numbers = rng.random(shape) * rng.choice([0, 0.1, 3, 50], shape) + np.eye(5)[:, None]
    concentrations = jnp.asarray(numbers, jnp.float32)
    together = np.asarray(dirichlet_lanes(keys, concentrations))
    # newer compilers round one lane alone otherwise; programs have a fixed width for this reason
    last_bits = 0 if jax.__version__.startswith("0.10.") else 1e-6
    for lane in (0, 7, 23):
        alone = dirichlet(keys[lane], concentrations[lane])
        np.testing.assert_allclose(alone, together[lane], rtol=last_bits, atol=0)
    order = rng.permutation(24)
    again = dirichlet_lanes(keys[order], np.asarray(concentrations)[order])
    np.testing.assert_array_equal(again, together[order])
