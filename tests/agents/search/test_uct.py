"""The search: what it counts, and that each search runs as if it were alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins.bamcp import Twin, nodes
from jbrl.agents.search import draws, uct, uct_groups
from jbrl.agents.search.bamcp import uniform_policy
from jbrl.agents.search.uct import SearchTask
from jbrl.problems.lookup import problem
from jbrl.vectorize import native

K, DEPTH, CAPACITY, MAX_DEPTH = 60, 9, 64, 16
GC = problem("GC").mdps
S, A = GC.n_states, GC.n_actions
SEARCH = jax.jit(uct.search)
SEARCHES = jax.jit(jax.vmap(uct.search))
LOCKSTEP = jax.jit(uct.in_lockstep)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Counts, two random words and a state, by the seed."""
    rng = np.random.default_rng(seed)
    times = 1 + rng.integers(0, 3, GC.concentrations.shape).astype(np.float32)
    words = rng.integers(0, 2**32, 2, dtype=np.uint32)
    return GC.concentrations * times, words, int(rng.integers(S))


def task(seed: int, **changes) -> SearchTask:
    """One decision in GC, in a state and with counts that depend on the seed."""
    counts, words, x = drawn(seed)
    policy = uniform_policy(S, A)
    made = SearchTask(
        stream=draws.stream(jnp.asarray(words)),
        x=jnp.int32(x),
        cdf=draws.cumulative(jnp.asarray(counts)).reshape(-1),
        rewards=jnp.asarray(GC.rewards).reshape(-1),
        greedy=policy.greedy.reshape(-1),
        n_greedy=policy.n_greedy,
        simulations=jnp.int32(K),
        depth=jnp.int32(DEPTH),
        exploration=jnp.float32(10),
        discount=jnp.float32(0.95),
        kept=uct.nothing_kept(CAPACITY, A),
        n_actions=A,
        capacity=CAPACITY,
        max_depth=MAX_DEPTH,
    )
    return dataclasses.replace(made, **changes)


def stack(tasks: list[SearchTask]) -> SearchTask:
    return jax.tree.map(lambda *v: np.stack(v), *tasks)


def same(one: uct.Root, other: uct.Root) -> None:
    """Bit for bit."""
    jax.tree.map(np.testing.assert_array_equal, one, other)


def twin_of(seed: int) -> Twin:
    counts, words, x = drawn(seed)
    numbers = {"simulations": K, "depth": DEPTH, "exploration": 10}
    twin = Twin(counts, np.asarray(GC.rewards), **numbers, learns=False)
    twin.act(tuple(int(w) for w in words), x)
    return twin


def histories(root: uct.Root) -> dict[tuple, tuple[np.ndarray, np.ndarray]]:
    """Visits and means of each node, by its history."""
    parents = np.asarray(root.kept.parents)
    statistics = np.asarray(root.kept.statistics).reshape(-1, A, 2)
    names: list[tuple] = [()]
    for link in parents[1 : int(root.kept.size)].tolist():
        edge, y = divmod(link, S)
        names.append((*names[edge // A], (edge % A, y)))
    return {name: (statistics[i, :, 0], statistics[i, :, 1]) for i, name in enumerate(names)}


@pytest.mark.parametrize("seed", range(4))
def test_the_tree_is_that_of_the_twin_and_means_are_those_of_all_returns(seed):
    grown = histories(SEARCH(task(seed)))
    expected = dict(nodes(twin_of(seed).root))
    assert grown.keys() == expected.keys() and len(grown) > 20
    for history, node in expected.items():
        visits, means = grown[history]
        np.testing.assert_array_equal(visits, [len(r) for r in node.returns])
        np.testing.assert_allclose(means, [np.mean(r) if r else 0 for r in node.returns], rtol=2e-6)


def test_visits_add_up():
    for seed in range(4):
        grown = histories(SEARCH(task(seed)))
        assert grown[()][0].sum() == K
        for history, (visits, _) in grown.items():
            for u in range(A):
                beyond = sum(
                    v.sum()
                    for h, (v, _) in grown.items()
                    if h[:-1] == history and h and h[-1][0] == u
                )
                # The first visit ends in a rollout; the others enter a node unless the depth
                # is reached.
                assert beyond == (max(visits[u] - 1, 0) if len(history) + 1 < DEPTH else 0)


@pytest.mark.slow
def test_batched_is_one_by_one_whatever_the_batch():
    tasks = [task(seed) for seed in range(5)]
    alone = [SEARCH(t) for t in tasks]
    same(SEARCHES(stack(tasks)), stack(alone))
    same(SEARCHES(stack(tasks[:2])), stack(alone[:2]))
    same(uct.search(tasks[0]), alone[0])


def test_maps_may_be_nested_and_need_not_repeat_what_lanes_have_in_common():
    tasks = stack([task(seed, rewards=task(0).rewards) for seed in range(5)])
    explorations = jnp.array([0.5, 10.0])
    axes = dataclasses.replace(
        jax.tree.map(lambda _: 0, tasks), rewards=None, discount=None, kept=None, exploration=None
    )
    shared = dataclasses.replace(
        tasks,
        rewards=tasks.rewards[0],
        discount=tasks.discount[0],
        kept=jax.tree.map(lambda v: v[0], tasks.kept),
    )

    def explore(c: jax.Array, given: SearchTask) -> uct.Root:
        return jax.vmap(uct.search, (axes,))(dataclasses.replace(given, exploration=c))

    explored = jax.jit(jax.vmap(explore, (0, None)))(explorations, shared)
    grid = jax.tree.map(np.asarray, explored)
    for i, c in enumerate(explorations):
        expected = SEARCHES(dataclasses.replace(tasks, exploration=jnp.full(5, c)))
        same(jax.tree.map(lambda v, i=i: v[i], grid), expected)


def test_lanes_do_not_see_each_other():
    tasks = [task(seed) for seed in range(5)]
    before = SEARCHES(stack(tasks))
    after = SEARCHES(
        stack([task(9, simulations=jnp.int32(7), depth=jnp.int32(3)), *tasks[1:4], task(8)])
    )
    same(jax.tree.map(lambda v: v[1:4], before), jax.tree.map(lambda v: v[1:4], after))
    assert not np.array_equal(before.means[0], after.means[0])


def test_budgets_may_differ_from_lane_to_lane_one_by_one_and_in_lockstep():
    budgets = [(60, 9), (1, 9), (13, 1), (40, 16), (60, 2)]
    tasks = [
        task(i, simulations=jnp.int32(k), depth=jnp.int32(d)) for i, (k, d) in enumerate(budgets)
    ]
    roots = SEARCHES(stack(tasks))
    np.testing.assert_array_equal(roots.visits.sum(1), [k for k, _ in budgets])
    assert int(roots.kept.size[2]) == 1, "depth 1: nothing but the root"
    for i, one in enumerate(tasks):
        same(jax.tree.map(lambda v, i=i: v[i], roots), SEARCH(one))
    together = LOCKSTEP(stack(tasks))
    np.testing.assert_array_equal(together.visits, roots.visits)
    np.testing.assert_array_equal(together.kept.size, roots.kept.size)
    np.testing.assert_allclose(together.means, roots.means, rtol=1e-5)


@pytest.mark.slow
def test_lockstep_in_groups_is_lockstep(monkeypatch):
    tasks = stack([task(seed) for seed in range(5)])
    each = uct.bytes_needed(S, A, CAPACITY, MAX_DEPTH)
    monkeypatch.setattr(uct, "MEMORY", 2 * each)
    np.testing.assert_array_equal(
        jax.jit(lambda t: uct.in_lockstep(t))(tasks).visits, SEARCHES(tasks).visits
    )


def test_a_full_tree_stops_growing_and_goes_on_counting():
    root = SEARCH(task(0, simulations=jnp.int32(300)))
    assert int(root.kept.size) == CAPACITY and root.visits.sum() == 300


def budgets(count: int) -> list[SearchTask]:
    """Tasks without an earlier tree, no two with the same budget."""
    return [
        task(i, kept=None, simulations=jnp.int32(60 - 3 * i), depth=jnp.int32(1 + i % 9))
        for i in range(count)
    ]


def test_groups_of_lanes_search_as_one_lane_does_also_where_the_last_group_is_not_full():
    """They share what lanes have in common, the rewards."""
    tasks = stack(budgets(native.LANES + 3))
    assert uct_groups.worthwhile(tasks)
    axes = dataclasses.replace(jax.tree.map(lambda _: 0, tasks), rewards=None)
    shared = dataclasses.replace(tasks, rewards=tasks.rewards[0])
    grouped = jax.jit(jax.vmap(uct_groups.search, (axes,)))(shared)
    for i, alone in enumerate(budgets(native.LANES + 3)):
        same(jax.tree.map(lambda v, i=i: v[i], grouped), SEARCH(alone))


def test_groups_are_for_new_trees_in_small_problems():
    small, kept = budgets(native.LANES), [task(i) for i in range(native.LANES)]
    large = dataclasses.replace(stack(small), capacity=1 << 24)
    assert uct_groups.worthwhile(stack(small))
    assert not uct_groups.worthwhile(stack(kept)) and not uct_groups.worthwhile(large)
