"""Trees in flat arrays."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from jbrl.agents.search import uct
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
            new = move(used, old.parents, old.statistics, old.size, jnp.int32(link))
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
    words = jnp.asarray(np.random.default_rng(3).integers(0, 2**32, 30_000, dtype=np.uint32))
    chosen = jax.vmap(lambda w: uct.greatest(jnp.array([1.0, 2.0, -jnp.inf, 2.0, 2.0]), w))(words)
    counts = np.bincount(np.asarray(chosen), minlength=5)
    assert counts[[0, 2]].sum() == 0 and stats.chisquare(counts[[1, 3, 4]]).pvalue > 1e-3


def test_selection_is_uct():
    word, log_visits = jnp.uint32(5), jnp.log(jnp.float32(14))
    visits, means = jnp.array([10.0, 3.0]), jnp.array([1.0, 0.5])
    bounds = [
        1 + c * np.sqrt(np.log(14) / 10) - (0.5 + c * np.sqrt(np.log(14) / 3)) for c in (0.5, 2.0)
    ]
    assert bounds[0] > 0 > bounds[1]
    assert int(uct.select(visits, means, jnp.float32(0.5), log_visits, word)) == 0
    assert int(uct.select(visits, means, jnp.float32(2.0), log_visits, word)) == 1
    assert int(uct.select(jnp.array([10.0, 0.0]), means, jnp.float32(0.0), log_visits, word)) == 1
