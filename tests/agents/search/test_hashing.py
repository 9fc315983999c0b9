"""Random numbers by their number."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from benchmarks.twins import bamcp as reference
from jbrl.agents.search import draws

N = 1 << 16
KEYS = [(0, 0), (1, 0), (0, 1), (0x9E3779B9, 0x85EBCA6B)]


def words(key: tuple[int, int], n: int = N) -> np.ndarray:
    return np.asarray(
        draws.word(draws.stream(jnp.array(key, jnp.uint32)), jnp.arange(n, dtype=jnp.uint32))
    )


def test_words_are_those_of_the_twin():
    for key in KEYS:
        assert words(key, 50).tolist() == [
            reference.word(reference.stream(key), i) for i in range(50)
        ]
    expected = [reference.mix((12345 + i * 0x9E3779B9) % 2**32) for i in range(5)]
    assert np.asarray(draws.lots(jnp.uint32(12345), 5)).tolist() == expected


def test_each_bit_is_set_half_of_the_time_and_flips_with_half_of_the_counters():
    # 32 bits, 4 keys, 2 statistics, each within 5 standard deviations: false alarm rate 2e-4.
    for key in KEYS:
        bits = words(key)[:, None] >> np.arange(32) & 1
        for shares in (bits.mean(0), (bits[1:] ^ bits[:-1]).mean(0)):
            assert (abs(shares - 0.5) < 5 * 0.5 / np.sqrt(N)).all()


def test_pairs_of_successive_words_fill_the_square_evenly():
    # One test of 255 degrees of freedom for each key: false alarm rate 4 in 10,000.
    for key in KEYS:
        high = (words(key) >> 28).reshape(-1, 2)
        cells = np.bincount(high[:, 0] * 16 + high[:, 1], minlength=256)
        assert stats.chisquare(cells).pvalue > 1e-4


def test_streams_of_near_keys_are_unrelated():
    # Correlations of 2^16 pairs within 5 standard deviations: false alarm rate 4e-6.
    first = words(KEYS[0]).astype(np.float64)
    for key in KEYS[1:]:
        for other in (words(key), np.roll(words(key), 1)):
            assert abs(np.corrcoef(first, other)[0, 1]) < 5 / np.sqrt(N)


def test_lots_order_indices_evenly():
    # 24 orders of 4 indices: false alarm rate 1 in 1,000.
    lots = np.asarray(jax.vmap(lambda w: draws.lots(w, 4))(jnp.asarray(words((7, 7)))))
    orders = np.unique(np.argsort(lots, axis=1), axis=0, return_counts=True)[1]
    assert len(orders) == 24 and stats.chisquare(orders).pvalue > 1e-3
