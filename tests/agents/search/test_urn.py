"""The urn draws as a row drawn from its Dirichlet distribution would."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from jbrl.agents.search import draws

CONCENTRATIONS = np.array([[1.0, 0.0, 2.5, 0.5], [0.2, 0.3, 0.0, 0.0]], np.float32)
ROWS = (0, 1, 0, 0, 1, 0)  # order in which a simulation draws from the two rows


@jax.jit
def simulations(uniforms: jax.Array) -> jax.Array:
    """Next states of one simulation after the other in the same urns: [K, L] from uniform numbers
    [K, L].
    """
    cdf = draws.cumulative(jnp.asarray(CONCENTRATIONS)).reshape(-1)
    longest = len(ROWS)

    def simulate(urns: draws.Urns, inputs: tuple) -> tuple:
        k, uniforms = inputs
        last, ys = draws.begin_draws(urns, k * longest), []
        for row, uniform in zip(ROWS, uniforms, strict=True):
            urns = draws.put_down(urns, last)
            last = draws.draw_next(urns, last, cdf, jnp.int32(row), uniform, 4)
            ys.append(last.y)
        return urns, jnp.stack(ys)

    return jax.lax.scan(
        simulate,
        draws.empty_urns(2, longest),
        (jnp.arange(uniforms.shape[0], dtype=jnp.int32), uniforms),
    )[1]


def uniforms(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**24, (n, len(ROWS))).astype(
        np.float32
    ) / np.float32(2**24)


def dirichlet_multinomial(a: np.ndarray, ys: tuple[int, ...]) -> float:
    """Probability of the draws `ys`, in this order, from a row drawn from Dirichlet(a)."""
    n, a = np.bincount(ys, minlength=len(a)), a.astype(np.float64)
    if n[a == 0].any():
        return 0.0
    a, n = a[a > 0], n[a > 0]
    return float(
        np.exp(gammaln(a + n).sum() - gammaln(a).sum() + gammaln(a.sum()) - gammaln((a + n).sum()))
    )


def test_sequences_have_the_law_of_draws_from_one_random_row():
    # All sequences of both rows: false alarm rate 1 in 1,000 for each of the two rows.
    drawn = np.asarray(simulations(uniforms(40_000, 0)))
    for row in (0, 1):
        mine = drawn[:, [i for i, r in enumerate(ROWS) if r == row]]
        sequences = list(
            itertools.product(np.flatnonzero(CONCENTRATIONS[row]), repeat=mine.shape[1])
        )
        seen = np.array([(mine == s).all(1).sum() for s in sequences])
        assert seen.sum() == len(mine), "only possible next states are drawn"
        law = np.array([dirichlet_multinomial(CONCENTRATIONS[row], s) for s in sequences])
        assert abs(law.sum() - 1) < 1e-6
        assert stats.chisquare(seen, law / law.sum() * len(mine)).pvalue > 1e-3
        mean = CONCENTRATIONS[row].astype(np.float64) / CONCENTRATIONS[row].sum()
        without_memory = np.array([mean[list(s)].prod() for s in sequences])
        assert (
            stats.chisquare(seen, without_memory / without_memory.sum() * len(mine)).pvalue < 1e-9
        ), "the test can tell"


def test_rows_are_independent():
    # First draws of the two rows, 3 x 2 cells: false alarm rate 1 in 1,000.
    drawn = np.asarray(simulations(uniforms(20_000, 1)))
    table = np.histogram2d(drawn[:, 0], drawn[:, 1], bins=[range(5), range(5)])[0]
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    assert table.shape == (3, 2) and stats.chi2_contingency(table).pvalue > 1e-3


def test_nothing_is_remembered_from_one_simulation_to_the_next():
    numbers = uniforms(50, 2)
    together = np.asarray(simulations(numbers))
    alone = np.concatenate([np.asarray(simulations(numbers[i : i + 1])) for i in range(50)])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 3.7, 1e6])
def test_impossible_states_are_not_drawn_even_by_the_extreme_numbers(scale):
    row = np.array([0.0, 1.0, 0.0, 0.3, 0.1, 0.0], np.float32) * np.float32(scale)
    cdf = draws.cumulative(jnp.asarray(row))
    for extreme in (0.0, 1 - 2**-24):
        urns = draws.empty_urns(1, 30)
        last = draws.begin_draws(urns, jnp.int32(0))
        for _ in range(30):
            urns = draws.put_down(urns, last)
            last = draws.draw_next(urns, last, cdf, jnp.int32(0), jnp.float32(extreme), 6)
            assert row[int(last.y)] > 0
