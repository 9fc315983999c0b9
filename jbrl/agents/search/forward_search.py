"""Bayesian forward search sparse sampling: the value of each action by trees of sampled futures,
for many decisions at once.

Decisions come unbatched and stay so for their callers; mapped, all trees of all lanes are searched
in lockstep (`forward_tree`). All random numbers of a decision are functions of its 64 random bits,
for any number of lanes.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jbrl.agents.search.forward_tree import SAMPLES_BITS, Capacity, Forest, Limits, grow
from jbrl.agents.search.hashing import bits, mix, spread
from jbrl.agents.search.trees_last import increment, take, thresholds
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record

# searched at once on one device, when so many are wanted: what they need at each step fits the
# cache of a CPU core
TREES = 512
MEMORY = 1 << 29  # bytes of tree nodes on one device


@record
class Decision:
    """Inputs of a decision: the belief, the state, the limits and 64 random bits."""

    words: jax.Array  # [2] uint32
    state: jax.Array  # [] int32
    counts: jax.Array  # [S, A, S] float32, posterior concentrations
    rewards: jax.Array  # [S, A, S] float32
    limits: Limits


def resampled(decision: Decision, capacity: Capacity) -> jax.Array:
    """Return Q(x, u), [A] float32: the mean over C sampled next states y of R(x, u, y) + g U(y),
    each y being the root of a tree of its own.

    This is what the program of Castronovo et al. 2016 computes (appendix A, algorithm 6).

    Raises:
      JbrlError: not even one tree of that capacity fits in memory.
    """
    return _mapped(capacity, _resampled)(jax.tree.map(lambda v: v[None], decision))[0]


def single(decision: Decision, capacity: Capacity) -> jax.Array:
    """Return U(x, u), [A] float32, of one tree whose root is the state itself: Asmuth and Littman
    2011.

    Raises:
      JbrlError: not even one tree of that capacity fits in memory.
    """
    return _mapped(capacity, _single)(jax.tree.map(lambda v: v[None], decision))[0]


@lru_cache(maxsize=64)
def _mapped(capacity: Capacity, run: Callable[[Decision, Capacity, int], jax.Array]) -> Any:
    """Search for stacked decisions ([L, ...] each) -> [L, A], as one call that `jax.vmap` does not
    split.
    """

    @custom_vmap
    def search(decisions: Decision) -> jax.Array:
        n_lanes, n_states, n_actions, _ = decisions.counts.shape
        max_trees = trees_in_memory(capacity, n_states, n_actions)
        decisions = _cut(decisions, capacity)
        parts = next(
            p for p in range(1, n_lanes + 1) if n_lanes % p == 0 and n_lanes // p <= max_trees
        )
        if parts == 1:
            return run(decisions, capacity, max_trees)
        decisions = replace(
            decisions, rewards=jnp.broadcast_to(decisions.rewards, decisions.counts.shape)
        )
        split = jax.tree.map(lambda v: v.reshape(parts, n_lanes // parts, *v.shape[1:]), decisions)
        return lax.map(lambda part: run(part, capacity, max_trees), split).reshape(
            n_lanes, n_actions
        )

    @search.def_vmap
    def _(size: int, batched: list[Any], decisions: Decision) -> tuple[Any, ...]:
        each = jax.tree.map(
            lambda v, b: v if b else jnp.broadcast_to(v, (size, *v.shape)), decisions, batched[0]
        )
        merged = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), each)
        if not batched[0].rewards and decisions.rewards.shape[0] == 1:
            # one small table for all lanes stays in the cache
            merged = replace(merged, rewards=decisions.rewards)
        return search(merged).reshape(size, -1, decisions.counts.shape[-2]), True

    return search


def _cut(decisions: Decision, capacity: Capacity) -> Decision:
    """Cut budgets to those that the compiled program has capacity for."""
    limits = decisions.limits
    budget = {
        name: jnp.minimum(getattr(limits, name), max_trees)
        for name, max_trees in capacity._asdict().items()
    }
    return replace(decisions, limits=replace(limits, **budget))


def trees_in_memory(capacity: Capacity, n_states: int, n_actions: int) -> int:
    """Return the number of trees that may be searched at once. Raise `JbrlError` when one is too
    large.
    """
    nodes = capacity.trajectories * capacity.depth
    bytes_per_tree = tree_bytes(capacity, n_states, n_actions)
    if bytes_per_tree > MEMORY or nodes >= 1 << (31 - SAMPLES_BITS):
        raise JbrlError(
            f"forward search: {capacity.trajectories} trajectories of depth {capacity.depth}, "
            f"{n_states} states and {n_actions} actions need {bytes_per_tree / 2**20:.0f} MiB for "
            f"one tree: expected at most {MEMORY / 2**20:.0f}; take fewer or shorter trajectories"
        )
    return MEMORY // bytes_per_tree


def tree_bytes(capacity: Capacity, n_states: int, n_actions: int) -> int:
    """Return the memory that one tree takes."""
    nodes = capacity.trajectories * capacity.depth if capacity.trajectories > 1 else 0
    path = capacity.depth * (2 * n_actions + 5) + 2 * n_states * n_actions * n_states
    return 4 * (path + nodes * (n_actions * (n_states + 2) + 1))


def _resampled(decisions: Decision, capacity: Capacity, max_trees: int) -> jax.Array:
    n_lanes, n_states, n_actions, _ = decisions.counts.shape
    width = max(1, min(n_actions * capacity.samples, min(max_trees, TREES) // n_lanes))

    def group(number: jax.Array, q: jax.Array) -> jax.Array:
        """Search trees number width * number, … of every lane; a tree's number is sample * A +
        action.
        """
        tree = number * width + jnp.arange(width, dtype=jnp.int32)
        action, sample = (jnp.repeat(v, n_lanes) for v in (tree % n_actions, tree // n_actions))
        forest, reward = _after_action(decisions, action, _seeds(decisions, tree))
        limits = forest.limits
        upper = grow(forest, capacity, n_states, n_actions)[0].max(0)
        value = reward + limits.discount * jnp.maximum(limits.low, upper)
        value = jnp.where(sample < limits.samples, value / limits.samples.astype(jnp.float32), 0.0)
        mine = action[:, None] == jnp.arange(n_actions, dtype=jnp.int32)[None, :]
        return q + jnp.where(mine, value[:, None], 0.0).reshape(width, n_lanes, n_actions).sum(0)

    groups = -(-decisions.limits.samples.max() * n_actions // width)
    return lax.fori_loop(0, groups, group, jnp.zeros((n_lanes, n_actions), jnp.float32))


def _single(decisions: Decision, capacity: Capacity, max_trees: int) -> jax.Array:
    del max_trees
    _, n_states, n_actions, _ = decisions.counts.shape
    seeds = _seeds(decisions, jnp.zeros((1,), jnp.int32))
    counts, rewards = _trees_last(decisions.counts, 1), decisions.rewards.reshape(-1)
    forest = Forest(
        seeds, decisions.state, counts, rewards, _tables(decisions, 1), decisions.limits
    )
    return grow(forest, capacity, n_states, n_actions)[0].T


def _seeds(decisions: Decision, tree: jax.Array) -> jax.Array:
    """Return seeds of the trees of given numbers [W]: [W L] uint32."""
    first, second = decisions.words[:, 0], decisions.words[:, 1]
    return mix(first[None, :] ^ mix(second[None, :] + spread(tree)[:, None])).reshape(-1)


def _trees_last(counts: jax.Array, width: int) -> jax.Array:
    """Return counts [L, S, A, S], repeated for `width` trees of each lane: [S A S W L] flat."""
    return jnp.tile(counts.reshape(counts.shape[0], -1).T, (1, width)).reshape(-1)


def _after_action(
    decisions: Decision, action: jax.Array, seed: jax.Array
) -> tuple[Forest, jax.Array]:
    """Return trees behind one sampled transition each, known to the belief at their roots, and the
    reward of that transition ([B]).
    """
    n_lanes, n_states, n_actions, _ = decisions.counts.shape
    size, trees = n_states * n_actions * n_states, action.shape[0]
    lane = jnp.tile(jnp.arange(n_lanes, dtype=jnp.int32), trees // n_lanes)
    table = _tables(decisions, trees // n_lanes)
    pair = take(decisions.state, lane) * n_actions + action
    entries = pair[None, :] * n_states + jnp.arange(n_states, dtype=jnp.int32)[:, None]
    row = take(decisions.counts.reshape(-1), lane[None, :] * size + entries)
    y = (thresholds(row[None])[0] <= bits(seed)[None, :]).sum(0, dtype=jnp.int32)
    rewards = decisions.rewards.reshape(-1)
    counts = increment(_trees_last(decisions.counts, trees // n_lanes), pair * n_states + y)
    limits = jax.tree.map(lambda v: take(v, lane), decisions.limits)
    return Forest(seed, y, counts, rewards, table, limits), take(
        rewards, table * size + pair * n_states + y
    )


def _tables(decisions: Decision, width: int) -> jax.Array:
    """Return the index of the reward table of each tree: [W L] int32."""
    n_lanes, own = decisions.state.shape[0], decisions.rewards.shape[0] > 1
    return jnp.tile(jnp.arange(n_lanes, dtype=jnp.int32) * int(own), width)
