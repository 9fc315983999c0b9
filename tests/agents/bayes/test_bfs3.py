"""BFS3 and the trees it searches."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins.forward_search import Search
from jbrl.agents.search import bfs3
from jbrl.agents.search.bfs3 import BFS3, Decision
from jbrl.agents.search.forward_tree import Capacity, Forest, Limits, grow
from jbrl.base.errors import JbrlError
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import as_arrays
from tests.bayes_optimal.exact import action_values, iterated
from tests.reference.trajectories import KEY, transition

CAPACITY = Capacity(8, 4, 8)


def limits(discount, low, high, trajectories, samples, depth) -> Limits:
    budget = (jnp.int32(v) for v in (trajectories, samples, depth))
    return Limits(jnp.float32(discount), jnp.float32(low), jnp.float32(high), *budget)


def random_problem(seed, n_states=3, n_actions=2):
    """Counts with zeros among them, and rewards, some of them equal."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, (n_states, n_actions, n_states)) * (
        rng.random((n_states, n_actions, n_states)) < 0.7
    )
    counts[..., 0] += counts.sum(-1) == 0
    return counts.astype(np.float32), rng.integers(0, 3, counts.shape).astype(np.float32)


def seeds(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)


def six_problems():
    """Counts, rewards, states and random words of six problems."""
    tables = zip(*(random_problem(seed) for seed in range(6)), strict=True)
    states, words = np.arange(6, dtype=np.int32) % 3, [seeds(2, seed) for seed in range(6)]
    return *map(np.stack, tables), states, np.stack(words)


def slow(budget):
    return pytest.param(budget, marks=pytest.mark.slow)


@partial(jax.jit, static_argnames=("kind", "capacity"))
def search_many(counts, rewards, state, bits, limit, kind, capacity=CAPACITY):
    search = bfs3._search(capacity, getattr(bfs3, kind))
    return jax.vmap(lambda w, x, c, r: search(Decision(w, x, c, r, limit)))(
        bits, state, counts, rewards
    )


@pytest.mark.parametrize("kind", ["resampled", "single"])
@pytest.mark.parametrize(
    "budget",
    [(8, 4, 3), *(pytest.param(b, marks=pytest.mark.slow) for b in ((1, 3, 4), (5, 1, 8)))],
)
def test_the_plain_twin_gets_the_same_values_from_the_same_random_numbers(kind, budget):
    counts, rewards, states, bits = six_problems()
    ours = search_many(counts, rewards, states, bits, limits(0.9, 0, 20, *budget), kind)
    for i in range(6):
        twin = Search(rewards[i].astype(float), 0.9, 0.0, 20.0, *budget)
        expected = getattr(twin, kind)(bits[i], int(states[i]), counts[i].astype(float))
        np.testing.assert_allclose(ours[i], expected, atol=2e-5 * 20)


@jax.jit
def root_bounds(counts, rewards, state, seeds, limit):
    """(U, L) at the root, [B] each, of one tree for each seed."""
    trees, (n_states, n_actions, _) = seeds.shape[0], counts.shape
    forest = Forest(
        seeds,
        jnp.broadcast_to(state, (trees,)),
        jnp.repeat(counts.reshape(-1, 1), trees, 1).reshape(-1),
        rewards.reshape(-1),
        jnp.zeros((trees,), jnp.int32),
        jax.tree.map(lambda v: jnp.broadcast_to(v, (trees,)), limit),
    )
    upper, lower = grow(forest, Capacity(512, 128, 4), n_states, n_actions)
    return upper.max(0), lower.max(0)


def test_bounds_enclose_the_value_of_a_known_mdp_and_close_in_on_it():
    # Deterministic rows: the belief never changes, every tree is exact to its depth.
    counts, rewards = np.zeros((3, 2, 3), np.float32), np.zeros((3, 2, 3), np.float32)
    for x, u in np.ndindex(3, 2):
        counts[x, u, (x + u) % 3] = 5
    rewards[2, 1, 0], rewards[1, 0, 1] = 1.0, 0.3
    optimal = iterated(counts / 5, rewards, 0.8, 200)
    widths = []
    for trajectories in (1, 2, 4, 16, 64):
        upper, lower = root_bounds(
            counts, rewards, jnp.int32(0), seeds(8), limits(0.8, 0, 5, trajectories, 2, 4)
        )
        assert (lower <= optimal[0] + 1e-5).all() and (upper >= optimal[0] - 1e-5).all()
        widths.append(float((upper - lower).mean()))
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == pytest.approx(0.8**4 * 5, abs=1e-5)  # all that the depth limit leaves open


@pytest.mark.slow
def test_with_many_samples_and_trajectories_the_bounds_enclose_the_bayes_optimal_value():
    counts, rewards = np.ones((2, 2, 2), np.float32), np.zeros((2, 2, 2), np.float32)
    rewards[:, :, 1], rewards[0, 0, 0] = 1.0, 0.4
    high = 1 / 0.6
    roof, floor = (max(action_values(counts, rewards, 0, 0.4, 4, leaf)) for leaf in (high, 0.0))
    errors = []
    for trajectories, samples in ((8, 2), (64, 16), (512, 128)):
        upper, lower = root_bounds(
            counts, rewards, jnp.int32(0), seeds(64), limits(0.4, 0, high, trajectories, samples, 4)
        )
        errors.append(float(jnp.abs(upper - roof).mean()))
    assert errors == sorted(errors, reverse=True)
    # Means of 64 trees, each with a standard deviation of 0.03: 0.02 is five standard errors beyond
    # the bias that 128 samples leave.
    assert abs(float(upper.mean()) - roof) < 0.035 and abs(float(lower.mean()) - floor) < 0.035


@pytest.mark.parametrize("discount", [0.0, 0.9])
def test_impossible_transitions_are_never_simulated(discount):
    counts, rewards = random_problem(3)
    forbidden = np.where(counts > 0, rewards, 1e6).astype(np.float32)
    # Without a future all bounds close at once and all next states tie, possible or not.
    args = (jnp.int32(0), seeds(8), limits(discount, 0, 20, 20, 7, 4))
    for ours, expected in zip(
        root_bounds(counts, forbidden, *args), root_bounds(counts, rewards, *args), strict=True
    ):
        np.testing.assert_array_equal(ours, expected)


def test_lanes_that_do_not_fit_in_memory_together_are_searched_in_turn(monkeypatch):
    args = (*six_problems(), limits(0.9, 0, 20, 4, 3, 5), "resampled")
    together = search_many(*args)
    monkeypatch.setattr(bfs3, "MEMORY", 8000)
    in_turn = search_many(*args, capacity=Capacity(8, 4, 7))  # another capacity: another program
    np.testing.assert_allclose(in_turn, together, rtol=1e-6)


def prior(seed=0) -> DirichletPrior:
    counts, rewards = random_problem(seed)
    return DirichletPrior(
        DirichletMDPs(jnp.asarray(counts), jnp.asarray(rewards), jnp.int32(0)), jnp.float32(0.9), 10
    )


@pytest.mark.slow
def test_a_grid_of_budgets_gives_the_actions_of_each_budget():
    knowledge, key = prior(), jax.random.key(5)
    budgets = [
        BFS3(K, C, depth, max_trajectories=8, max_samples=4, max_depth=8)
        for K, C, depth in ((1, 4, 8), (12, 3, 4), (32, 4, 1))
    ]
    traces = []

    @jax.jit
    def values(agent):
        traces.append(agent)
        return agent._values(jax.random.key_data(key), agent.reset(KEY, knowledge), jnp.int32(1))

    grid = jax.tree.map(lambda *v: jnp.stack(v), *(as_arrays(agent) for agent in budgets))
    for agent, expected in zip(budgets, jax.jit(jax.vmap(values))(grid), strict=True):
        np.testing.assert_allclose(values(as_arrays(agent)), expected, rtol=1e-6)
    assert len(traces) == 1


def test_ties_are_drawn_uniformly(monkeypatch):
    # 300 draws among 2: beyond 4 standard deviations once in 16,000 seeds.
    monkeypatch.setattr(BFS3, "_values", lambda *_: jnp.zeros(2))
    agent, state = BFS3(), BFS3().reset(KEY, prior())
    act = jax.jit(jax.vmap(lambda key: agent.act(key, state, jnp.int32(0))[0]))
    assert abs(int(act(jax.random.split(KEY, 300)).sum()) - 150) < 4 * np.sqrt(75)


def test_what_is_seen_is_counted():
    agent = BFS3()
    before = jax.jit(agent.reset)(KEY, prior())
    after = jax.jit(agent.observe)(KEY, before, transition(2, 1, 0))
    change = np.zeros((3, 2, 3))
    change[2, 1, 0] = 1
    np.testing.assert_array_equal(after.counts - before.counts, change)


def test_the_trees_of_a_decision_share_its_trajectories(monkeypatch):
    seen, state = [], BFS3().reset(KEY, prior())
    search = lambda capacity, run: lambda each: seen.append((run.__name__, each, capacity))  # noqa: E731
    monkeypatch.setattr(bfs3, "_search", search)
    for trajectories, root in ((12, "resampled"), (2, "resampled"), (12, "single")):
        agent = BFS3(trajectories, 3, 2, root)
        agent._values(jax.random.key_data(KEY), state, jnp.int32(0))
    assert [(kind, int(each.limits.trajectories), *capacity) for kind, each, capacity in seen] == [
        ("resampled", 4, 4, 3, 2),
        ("resampled", 1, 1, 3, 2),
        ("single", 12, 16, 3, 2),
    ]


def test_budgets_beyond_memory_are_refused_before_compilation():
    agent = BFS3(10**6, 2, 10**4)
    state = agent.reset(KEY, prior())
    for refused in (
        partial(jax.eval_shape, agent.act, KEY, state, jnp.int32(0)),
        partial(agent.cost, prior()),
    ):
        with pytest.raises(JbrlError, match=r"need \d+ MiB for one tree: expected at most 512"):
            refused()


def test_a_decision_costs_its_nodes_and_the_memory_of_the_trees_searched_at_once():
    agent = BFS3(trajectories=12, samples=3, depth=5)
    cost, each = agent.cost(prior()), bfs3.tree_bytes(agent._capacity, 3, 2)
    assert cost.memory_bytes == each * 6 * 8  # A C trees of each of 8 lanes
    assert cost.steps == pytest.approx(
        6 * 4 * 5 * (2.5 + 3 * 2 / 20) * (1 + cost.memory_bytes / (1 << 26))
    )
    assert (cost.fewest_lanes, BFS3(samples=100).cost(prior()).fewest_lanes) == (8, 3)
    agent = BFS3(trajectories=12, samples=3, depth=5, root="single")
    cost, each = agent.cost(prior()), bfs3.tree_bytes(agent._capacity, 3, 2)
    assert (cost.memory_bytes, cost.fewest_lanes) == (each * 8, 8)  # one tree of each lane
    assert cost.steps == pytest.approx(12 * 5 * (2.5 + 3 * 2 / 20) * (1 + 8 * each / (1 << 26)))
