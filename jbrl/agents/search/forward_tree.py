"""Trees of sampled futures with bounds on the value of each: forward search sparse sampling, FSSS.

A node is a state and the history of transitions that led to it, hence a belief. Where it is first
reached, each action samples C next states from the mean of that belief. Its bounds follow from
those of its children, which start at `low` and `high`:

    U(node, u) = (1/C) sum_i [R(x, u, y_i) + g U(child y_i)],
    U(node) = max_u U(node, u), never below `low`;   L likewise.

A trajectory walks from the root to the depth limit, always to the action of greatest U and to the
next state of greatest (U - L) times how often it was sampled, ties uniform, and takes the new
bounds back up. Nodes at the depth limit keep the bounds `low` and `high`. Kearns, Mansour and Ng
2002; Walsh, Goschin and Littman 2010; Asmuth and Littman 2011.

Many trees are searched in lockstep, trees along the last axis of every array. Trajectory number k
creates its nodes in the slots k D, k D + 1, … of every tree, so new nodes are written as whole
slabs; only nodes that existed before are addressed one by one. Random numbers are hashes of (tree,
trajectory, depth, draw): no generator has a state.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl.agents.search.draws import bits, mix, spread
from jbrl.base.pytree import record


def take(flat: Array, at: Array) -> Array:
    """Return entries `at`, all of them in range, of a flat array."""
    return flat.at[at].get(mode="promise_in_bounds")


def read(table: Array, at: Array) -> Array:
    """Return row `at` [], the same of all trees, of the first axis, which disappears."""
    return lax.dynamic_index_in_dim(table, at, 0, keepdims=False)


def write(table: Array, new: Array, at: Array) -> Array:
    """Return `table` with row `at` [] of the first axis replaced in all trees."""
    return lax.dynamic_update_index_in_dim(table, new, at, 0)


def put_where(table: Array, at: Array, wanted: Array, values: Array) -> Array:
    """Return `table` [..., B] with one entry of each tree replaced where wanted; `at` [B] counts
    entries of one tree.
    """
    flat = of_tree(jnp.where(wanted, at, table.size // at.shape[0]))  # past the end: dropped
    return (
        table.reshape(-1)
        .at[flat]
        .set(values, mode="drop", unique_indices=True)
        .reshape(table.shape)
    )


def increment(counts: Array, entry: Array) -> Array:
    """Return counts [N B] flat with one more in entry number `entry` [B] of each tree."""
    return counts.at[of_tree(entry)].add(1.0, mode="promise_in_bounds", unique_indices=True)


def entries(block: Array, size: int) -> Array:
    """Return flat places of the entries of block number `block` [B] in a table of blocks of `size`:
    [size, B].
    """
    return block[None, :] * size + jnp.arange(size, dtype=jnp.int32)[:, None]


def of_tree(at: Array) -> Array:
    """Return flat places in a table that has trees last, from places [..., B] in the table of one
    tree.
    """
    trees = jnp.arange(at.shape[-1], dtype=jnp.int32)
    return at * at.shape[-1] + (trees if at.ndim == 1 else trees[None, :])


def one_hot(index: Array, size: int) -> Array:
    """Return a one-hot array along a new first axis: [size, B] bool."""
    return jnp.arange(size, dtype=jnp.int32)[:, None] == index[None, :]


def entry(table: Array, hot: Array) -> Array:
    """Return the entry of [N, B] where `hot` [N, B] holds: [B]."""
    return jnp.where(hot, table, 0).sum(0)


def choose(values: Array, tolerance: Array, seed: Array) -> Array:
    """Return the index along the first axis of a greatest of `values` [N, B], uniformly among those
    within `tolerance`: [B] int32.
    """
    number = jnp.arange(values.shape[0], dtype=jnp.int32)[:, None]
    lot = jnp.where(
        values >= (values.max(0) - tolerance)[None, :], bits(seed[None, :] + spread(number)), -1
    )
    return jnp.where(lot == lot.max(0)[None, :], number, values.shape[0]).min(0)


def thresholds(row: Array) -> Array:
    """Return thresholds for rows of counts [..., S, B]: an outcome is the first whose threshold
    exceeds a number of 24 random bits. int32.

    A count of 0 repeats the threshold before it, so that it never comes up.
    """
    sums = [row[..., 0, :]]
    for y in range(1, row.shape[-2]):
        sums.append(sums[-1] + row[..., y, :])
    share = jnp.stack(sums, axis=-2) / sums[-1][..., None, :]
    return jnp.ceil(share * jnp.float32(1 << 24)).astype(jnp.int32)


SAMPLES_BITS = 8  # a child's slot and how often it was sampled share one word
TIE_TOLERANCE = 1e-6  # bounds tie when they differ by less than this part of `high - low`


class Capacity(NamedTuple):
    """Sizes of the compiled program, which no budget exceeds."""

    trajectories: int  # in one tree
    samples: int  # of each action in each node
    depth: int


@record
class Limits:
    """Bounds on values, and the budget of one tree."""

    discount: Array  # [] float32
    low: Array  # [] float32, no value lies below
    high: Array  # [] float32, no value lies above
    trajectories: Array  # [] int32
    samples: Array  # [] int32, C, of each action in each node
    depth: Array  # [] int32


@record
class Forest:
    """B trees and where they start."""

    seed: Array  # [B] uint32
    root: Array  # [B] int32, state
    counts: Array  # [S A S B] float32, the belief at the root
    rewards: Array  # [R S A S] float32
    table: Array  # [B] int32, which of the R tables of rewards holds
    limits: Limits  # [B] each


@record
class _ForwardTree:
    """Nodes of B trees.

    A node's slot is its place along the first axis, of M = trajectories x depth; the root has
    slot 0.
    """

    upper: Array  # [M, A, B] float32
    lower: Array  # [M, A, B] float32
    gap: Array  # [M, B] float32, U - L of the node
    # [M, A, S, B] int32, (slot + 1, or 0 before the first visit) << SAMPLES_BITS | times sampled
    children: Array


@record
class _Path:
    """The nodes that one trajectory visits, by depth."""

    slot: Array  # [D, B] int32, -1: created by this trajectory
    action: Array  # [D, B] int32
    y: Array  # [D, B] int32, next state
    times: Array  # [D, B] int32, how often it was sampled
    upper: Array  # [D, A, B] float32
    lower: Array  # [D, A, B] float32


def grow(forest: Forest, capacity: Capacity, n_states: int, n_actions: int) -> tuple[Array, Array]:
    """Return bounds on the value of each action at the roots after all trajectories: (U, L), each
    [A, B] float32.
    """
    trees = forest.seed.shape[0]
    shape = (n_states, n_actions, trees)
    # Nodes of a tree's only trajectory are never visited again: nothing is stored.
    slots = capacity.trajectories * capacity.depth if capacity.trajectories > 1 else 0
    bounds = jnp.zeros((slots, n_actions, trees), jnp.float32)
    tree = _ForwardTree(
        bounds, bounds, bounds.sum(1), jnp.zeros((slots, n_actions, n_states, trees), jnp.int32)
    )
    if not slots:
        path, _ = _trajectory(jnp.int32(0), tree, forest, capacity, shape)
        return path.upper[0], path.lower[0]
    tree = lax.fori_loop(
        0,
        forest.limits.trajectories.max(),
        lambda k, t: _trajectory(k, t, forest, capacity, shape)[1],
        tree,
    )
    return tree.upper[0], tree.lower[0]


def _trajectory(
    k: Array, tree: _ForwardTree, forest: Forest, capacity: Capacity, shape: tuple[int, int, int]
) -> tuple[_Path, _ForwardTree]:
    """Play trajectory number `k` of every tree: down, back up, and into the tree."""
    max_depth = forest.limits.depth.max()
    path, children = _walk_down(k, max_depth, tree, forest, capacity, shape)
    path, gap = _back_up(path, max_depth, forest.limits)
    if not tree.upper.size:
        return path, tree
    first = k * capacity.depth
    tree = _ForwardTree(
        lax.dynamic_update_slice_in_dim(tree.upper, path.upper, first, 0),
        lax.dynamic_update_slice_in_dim(tree.lower, path.lower, first, 0),
        lax.dynamic_update_slice_in_dim(tree.gap, gap, first, 0),
        children,
    )
    depths = jnp.arange(capacity.depth, dtype=jnp.int32)
    deepest = jnp.where((path.slot >= 0).any(1) & (depths < max_depth), depths + 1, 0).max()
    return path, lax.fori_loop(
        0, deepest, lambda d, t: _store_known(k, d, t, path, gap, forest.limits), tree
    )


def _walk_down(
    k: Array,
    max_depth: Array,
    tree: _ForwardTree,
    forest: Forest,
    capacity: Capacity,
    shape: tuple[int, int, int],
) -> tuple[_Path, Array]:
    """Return the path from the root, and the children of all nodes, those of the new ones included
    ([M, A, S, B]).
    """
    n_states, n_actions, trees = shape
    seed = mix(forest.seed + spread(k + 1))
    root_slot = jnp.full((trees,), jnp.minimum(k, 1) - 1)
    blank = jnp.zeros((capacity.depth, trees), jnp.int32)
    bounds = jnp.zeros((capacity.depth, n_actions, trees), jnp.float32)

    def random(d: Array) -> Array:
        # Drawn one step ahead of use: carried numbers are computed once, others anew for each of
        # the S thresholds they are compared with.
        return _draws(
            mix(seed + spread(d)),
            n_actions,
            n_actions + n_states,
            forest.limits.samples,
            capacity.samples,
        )

    def step(d: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        x, slot, counts, draws, path, children = carry
        here = mix(seed + spread(d))
        row = take(counts, of_tree(entries(x, n_actions * n_states))).reshape(
            n_actions, n_states, trees
        )
        sampled = _sample(row, draws, forest.limits.samples)
        upper, lower = _bounds(x, slot, sampled, tree, forest)
        action = choose(upper, TIE_TOLERANCE * _span(forest.limits), here)
        times, widths, slots = _options(slot, action, sampled, children, tree.gap, forest.limits)
        doubt = jnp.where(times > 0, times.astype(jnp.float32) * widths, -1.0)
        y = choose(doubt, jnp.zeros((), jnp.float32), here + spread(n_actions))
        there = one_hot(y, n_states)
        if children.size:
            # The next node of this trajectory, if it is a new one, takes the next slot.
            link = (k * capacity.depth + d + 2) << SAMPLES_BITS
            linked = (
                one_hot(action, n_actions)[:, None]
                & there[None]
                & (d + 1 < forest.limits.depth)[None, None, :]
            )
            children = write(children, sampled + jnp.where(linked, link, 0), k * capacity.depth + d)
        node = _Path(slot, action, y, entry(times, there), upper, lower)
        path = jax.tree.map(lambda whole, now: write(whole, now, d), path, node)
        counts = increment(counts, (x * n_actions + action) * n_states + y)
        return y, entry(slots, there), counts, random(d + 1), path, children

    begin = (
        forest.root,
        root_slot,
        forest.counts,
        random(jnp.int32(0)),
        _Path(blank, blank, blank, blank, bounds, bounds),
        tree.children,
    )
    *_, path, children = lax.fori_loop(0, max_depth, step, begin)
    return path, children


def _draws(seed: Array, n_actions: int, first: int, samples: Array, max_samples: int) -> Array:
    """Return 24 random bits for each sample of each action, [C, A, B] int32; those beyond the
    budget exceed every threshold.
    """
    draw = jnp.arange(max_samples, dtype=jnp.int32)[:, None]
    number = first + draw * n_actions + jnp.arange(n_actions, dtype=jnp.int32)[None, :]
    beyond = (draw[:, :, None] >= samples[None, None, :]).astype(jnp.int32)
    return bits(seed[None, None, :] + spread(number)[:, :, None]) | (beyond << 24)


def _sample(row: Array, draws: Array, samples: Array) -> Array:
    """Draw the number of times that each next state occurs for each action: [A, S, B] int32, from
    counts [A, S, B].
    """
    below = (draws[:, :, None, :] < thresholds(row)[None, :, :-1]).sum(0, dtype=jnp.int32)
    none = jnp.zeros_like(row[:, :1], jnp.int32)
    return jnp.concatenate([below, none + samples[None, None, :]], 1) - jnp.concatenate(
        [none, below], 1
    )


def _bounds(
    x: Array, slot: Array, sampled: Array, tree: _ForwardTree, forest: Forest
) -> tuple[Array, Array]:
    """Return U and L of each action, [A, B] each: those stored, or those of a node whose children
    are not in the tree.
    """
    n_actions, n_states, _ = sampled.shape
    limits = forest.limits
    size = n_actions * n_states
    rewards = take(forest.rewards, entries(forest.table * n_states + x, size)).reshape(
        sampled.shape
    )
    mean = (sampled.astype(jnp.float32) * rewards).sum(1) / limits.samples.astype(jnp.float32)[
        None, :
    ]
    new = (
        mean + (limits.discount * limits.high)[None, :],
        mean + (limits.discount * limits.low)[None, :],
    )
    if not tree.upper.size:
        return new

    def stored() -> tuple[Array, Array]:
        at = of_tree(entries(jnp.maximum(slot, 0), n_actions))
        upper, lower = (
            jnp.where(slot < 0, n, take(t.reshape(-1), at))
            for n, t in zip(new, (tree.upper, tree.lower), strict=True)
        )
        return upper, lower

    return lax.cond((slot >= 0).any(), stored, lambda: new)


def _options(
    slot: Array, action: Array, sampled: Array, children: Array, gaps: Array, limits: Limits
) -> tuple[Array, Array, Array]:
    """Return for each next state after `action` how often it was sampled, U - L of the child and
    its slot or -1, [S, B] each.
    """
    n_actions, n_states, _ = sampled.shape
    times = jnp.where(one_hot(action, n_actions)[:, None], sampled, 0).sum(0)
    new = times, jnp.broadcast_to(_span(limits), times.shape), jnp.full_like(times, -1)
    if not children.size:
        return new

    def stored() -> tuple[Array, Array, Array]:
        words = take(
            children.reshape(-1),
            of_tree(entries(jnp.maximum(slot, 0) * n_actions + action, n_states)),
        )
        child = (words >> SAMPLES_BITS) - 1
        gap = take(gaps.reshape(-1), of_tree(jnp.maximum(child, 0)))
        old = (
            words & ((1 << SAMPLES_BITS) - 1),
            jnp.where(child < 0, _span(limits)[None, :], gap),
            child,
        )
        counted, gap, child = (jnp.where(slot < 0, n, o) for n, o in zip(new, old, strict=True))
        return counted, gap, child

    return lax.cond((slot >= 0).any(), stored, lambda: new)


def _back_up(path: _Path, max_depth: Array, limits: Limits) -> tuple[_Path, Array]:
    """Make Bellman backups from the end of the path to the root; return the path with its new
    bounds, and U - L of its nodes, [D, B].
    """

    def step(i: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        path, gaps, raised, lowered = carry
        d = max_depth - 1 - i
        node = jax.tree.map(lambda v: read(v, d), path)
        taken = one_hot(node.action, node.upper.shape[0])
        weight = (
            limits.discount * node.times.astype(jnp.float32) / limits.samples.astype(jnp.float32)
        )
        upper = node.upper - jnp.where(taken, weight * lowered, 0.0)
        lower = node.lower + jnp.where(taken, weight * raised, 0.0)
        new, within = node.slot < 0, d < limits.depth
        old_upper = jnp.where(new, limits.high, jnp.maximum(limits.low, node.upper.max(0)))
        old_lower = jnp.where(new, limits.low, jnp.maximum(limits.low, node.lower.max(0)))
        now_upper, now_lower = (
            jnp.maximum(limits.low, upper.max(0)),
            jnp.maximum(limits.low, lower.max(0)),
        )
        path = replace(path, upper=write(path.upper, upper, d), lower=write(path.lower, lower, d))
        raised, lowered = (
            jnp.where(within, now_lower - old_lower, 0.0),
            jnp.where(within, old_upper - now_upper, 0.0),
        )
        return path, write(gaps, now_upper - now_lower, d), raised, lowered

    still = jnp.zeros_like(limits.discount)
    path, gaps, _, _ = lax.fori_loop(
        0, max_depth, step, (path, jnp.zeros_like(path.slot, jnp.float32), still, still)
    )
    return path, gaps


def _store_known(
    k: Array, d: Array, tree: _ForwardTree, path: _Path, gaps: Array, limits: Limits
) -> _ForwardTree:
    """Write what changed in the nodes at depth `d` that were in the tree before this trajectory."""
    _, n_actions, n_states, _ = tree.children.shape
    depth = path.slot.shape[0]
    node, gap = jax.tree.map(lambda v: read(v, d), (path, gaps))
    child = read(path.slot, jnp.minimum(d + 1, depth - 1))
    known = (node.slot >= 0) & (d < limits.depth) & (k < limits.trajectories)
    taken = one_hot(node.action, n_actions)
    pair = jnp.maximum(node.slot, 0) * n_actions + node.action
    word = ((k * depth + d + 2) << SAMPLES_BITS) + node.times
    created = known & (child < 0) & (d + 1 < limits.depth)
    return _ForwardTree(
        put_where(tree.upper, pair, known, entry(node.upper, taken)),
        put_where(tree.lower, pair, known, entry(node.lower, taken)),
        put_where(tree.gap, node.slot, known, gap),
        put_where(tree.children, pair * n_states + node.y, created, word),
    )


def _span(limits: Limits) -> Array:
    return limits.high - limits.low
