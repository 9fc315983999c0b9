"""Trees in flat arrays, random numbers by their number, and the urn that draws as a row of a
Dirichlet distribution would.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from benchmarks.twins import bamcp as reference
from jbrl.agents.search import draws, uct
from jbrl.agents.search.uct import SearchTree

S, A, ROOM = 3, 2, 40
GROW = jax.jit(uct.grow)
CHILD = jax.jit(uct.child)


def random_tree(seed: int, size: int = 30) -> tuple[SearchTree, dict[int, int]]:
    """A tree grown at random in memory full of rubbish, and what each link leads to."""
    rng = np.random.default_rng(seed)
    grown = uct.empty_tree(ROOM, S, A)
    rubbish = jnp.asarray(rng.integers(0, ROOM + 1, grown.children.shape), jnp.int32)
    left_over = jnp.asarray(rng.integers(-1, ROOM * A * S, grown.parents.shape), jnp.int32)
    grown = uct.plant(dataclasses.replace(grown, children=rubbish, parents=left_over))
    links: dict[int, int] = {}
    while len(links) < size - 1:
        link = int(rng.integers((len(links) + 1) * A * S))
        if link not in links:
            links[link] = int(grown.size)
            grown = GROW(grown, jnp.int32(link))
    statistics = rng.random(grown.statistics.shape).astype(np.float32)
    statistics[size * 2 * A :] = 0
    return dataclasses.replace(grown, statistics=jnp.asarray(statistics)), links


def test_links_lead_to_the_nodes_grown_there_and_to_no_others():
    for seed in range(3):
        grown, links = random_tree(seed)
        for link in range(int(grown.size) * A * S):
            node, exists = CHILD(grown, jnp.int32(link))
            assert bool(exists) == (link in links)
            assert link not in links or int(node) == links[link]


def test_a_new_node_has_no_visits_and_growing_nowhere_changes_nothing():
    grown, _ = random_tree(0)
    same = GROW(grown, jnp.int32(-1))
    assert int(same.size) == int(grown.size)
    size = int(grown.size) * A * S
    free = next(i for i in range(size) if not bool(CHILD(grown, jnp.int32(i))[1]))
    more = GROW(grown, jnp.int32(free))
    visits, means = uct.at_node(more, grown.size)
    assert int(more.size) == int(grown.size) + 1 and not visits.any() and not means.any()


def below(links: dict[int, int], parents: dict[int, int], top: int) -> list[int]:
    """Numbers of `top` and all nodes beyond it, in order."""
    kept = []
    for node in range(top, max(parents) + 1):
        parent = parents[node] // (A * S)
        if node == top or parent in kept:
            kept.append(node)
    return kept


def test_transplanting_keeps_the_part_beyond_a_link_and_nothing_else():
    move = jax.jit(uct.transplant)
    for seed in range(3):
        old, links = random_tree(seed)
        parents = {node: link for link, node in links.items()}
        used, _ = random_tree(seed + 10)
        for link in [-1, *range(A * S)]:
            new = move(used, uct.Kept(old.parents, old.statistics, old.size, jnp.int32(link)))
            kept = below(links, parents, links[link]) if link in links else []
            assert int(new.size) == max(1, len(kept))
            statistics = np.asarray(new.statistics).reshape(-1, 2 * A)
            expected = (
                np.asarray(old.statistics).reshape(-1, 2 * A)[kept]
                if kept
                else np.zeros((1, 2 * A))
            )
            np.testing.assert_array_equal(statistics[: int(new.size)], expected)
            assert not statistics[int(new.size)].any(), "the next node has no visits yet"
            leads = {}
            for node in kept[1:]:
                leads[kept.index(parents[node] // (A * S)) * A * S + parents[node] % (A * S)] = (
                    kept.index(node)
                )
            for place in range(int(new.size) * A * S):
                node, exists = CHILD(new, jnp.int32(place))
                assert bool(exists) == (place in leads)
                assert place not in leads or int(node) == leads[place]


def test_the_greatest_value_is_chosen_and_ties_are_even():
    # 3 of 5 values tie: false alarm rate 1 in 1,000.
    words = np.random.default_rng(3).integers(0, 2**32, 30_000, dtype=np.uint32)
    values = np.array([1, 2, -np.inf, 2, 2], np.float32)
    chosen = jax.jit(jax.vmap(lambda word: uct.greatest(values, word)))(words)
    counts = np.bincount(np.asarray(chosen), minlength=5)
    assert counts[[0, 2]].sum() == 0 and stats.chisquare(counts[[1, 3, 4]]).pvalue > 1e-3


def test_selection_is_uct():
    word, log_visits = np.uint32(5), np.log(np.float32(14))
    visits, means = np.array([[10, 3], [1, 0.5]], np.float32)
    select = jax.jit(uct.select)
    bounds = [
        1 + c * np.sqrt(np.log(14) / 10) - (0.5 + c * np.sqrt(np.log(14) / 3)) for c in (0.5, 2.0)
    ]
    assert bounds[0] > 0 > bounds[1]
    assert int(select(visits, means, np.float32(0.5), log_visits, word)) == 0
    assert int(select(visits, means, np.float32(2.0), log_visits, word)) == 1
    assert int(select(np.float32([10, 0]), means, np.float32(0.0), log_visits, word)) == 1


N = 1 << 16
KEYS = [(0, 0), (1, 0), (0, 1), (0x9E3779B9, 0x85EBCA6B)]


def words(key: tuple[int, int], n: int = N) -> np.ndarray:
    drawn = jax.jit(lambda key, i: draws.word(draws.stream(key), i))
    return np.asarray(drawn(np.array(key, np.uint32), np.arange(n, dtype=np.uint32)))


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
    lots = np.asarray(jax.jit(jax.vmap(lambda w: draws.lots(w, 4)))(words((7, 7))))
    orders = np.unique(np.argsort(lots, axis=1), axis=0, return_counts=True)[1]
    assert len(orders) == 24 and stats.chisquare(orders).pvalue > 1e-3


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

    @jax.jit
    def drawn(extreme):
        def one(carry, _):
            urns, last = carry
            urns = draws.put_down(urns, last)
            last = draws.draw_next(urns, last, cdf, jnp.int32(0), extreme, 6)
            return (urns, last), last.y

        urns = draws.empty_urns(1, 30)
        return jax.lax.scan(one, (urns, draws.begin_draws(urns, jnp.int32(0))), length=30)[1]

    for extreme in (0.0, 1 - 2**-24):
        assert (row[np.asarray(drawn(jnp.float32(extreme)))] > 0).all()
