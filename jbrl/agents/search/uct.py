"""UCT on the belief: many simulations of a Bayes-adaptive MDP from one state.

A simulation walks down the tree, choosing actions by upper confidence bounds and drawing next
states from the posterior (`draws`); beyond the tree it follows the rollout policy; then the
discounted return of each edge passed enters its mean. An edge visited for the first time ends the
tree part; from its second visit on, the next states it leads to become nodes. All ends after
`depth` steps, the rest counting as nothing.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from jbrl.agents.search import draws
from jbrl.agents.search.draws import Draw, Urns
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.vectorize import native, while_active
from jbrl.vectorize.native import read, read_row, write, write_row


@record
class SearchTree:
    """Arrays with capacity for M nodes.

    The last entry of `children` and of `parents` is never read.
    """

    children: Array  # [M * A * S + 1] int32: node of each link, if any
    parents: Array  # [M + 1] int32: link that leads to each node, -1 for the root
    # [(M + 1) * 2 * A] float32: of each node, visits and mean return of each action in turn
    statistics: Array
    size: Array  # [] int32, nodes that exist
    n_states: int = static()
    n_actions: int = static()

    @property
    def capacity(self) -> int:
        """M."""
        return int(self.parents.shape[0]) - 1


def empty_tree(capacity: int, n_states: int, n_actions: int) -> SearchTree:
    """Return arrays with capacity for a tree; `plant` it before use."""
    children = jnp.zeros(capacity * n_actions * n_states + 1, jnp.int32)
    statistics = jnp.zeros((capacity + 1) * 2 * n_actions)
    return SearchTree(
        children,
        jnp.full(capacity + 1, -1, jnp.int32),
        statistics,
        jnp.int32(0),
        n_states,
        n_actions,
    )


def plant(tree: SearchTree) -> SearchTree:
    """Return a tree of one node without visits."""
    parents = write(tree.parents, jnp.int32(0), jnp.int32(-1))
    statistics = write_row(tree.statistics, jnp.int32(0), jnp.zeros(4 * tree.n_actions))
    return dataclasses.replace(tree, parents=parents, statistics=statistics, size=jnp.int32(1))


def at_node(tree: SearchTree, node: Array) -> tuple[Array, Array]:
    """Return visits [A] and mean returns [A] of the edges of a node."""
    row = read_row(tree.statistics, node * (2 * tree.n_actions), 2 * tree.n_actions).reshape(
        tree.n_actions, 2
    )
    return row[:, 0], row[:, 1]


def select(
    visits: Array, means: Array, exploration: Array, log_visits: Array, word: Array
) -> Array:
    """Select by UCT an action of greatest mean + exploration sqrt(log_visits / visits), those never
    tried first: [] int32.

    Ties are broken uniformly by a random `word`. Kocsis and Szepesvari 2006.
    """
    bound = means + exploration * jnp.sqrt(log_visits / jnp.maximum(visits, 1.0))
    return greatest(jnp.where(visits == 0, jnp.inf, bound), word)


def greatest(values: Array, word: Array) -> Array:
    """Return an index of the greatest of `values` [A], ties being broken uniformly by a random
    `word`: [] int32.

    Each index draws a random number, and the greatest pair (value, number) wins: one pass, where
    `sampling.choose_maximiser` takes four.
    """
    indices = jnp.arange(values.shape[0], dtype=jnp.int32)

    def better(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        wins = (one[0] > other[0]) | ((one[0] == other[0]) & (one[1] >= other[1]))
        return tuple(jnp.where(wins, a, b) for a, b in zip(one, other, strict=True))

    lots = draws.lots(word, values.shape[0])
    return lax.reduce(
        (values, lots, indices), (jnp.float32(-jnp.inf), jnp.uint32(0), jnp.int32(0)), better, (0,)
    )[2]


def child(tree: SearchTree, link: Array) -> tuple[Array, Array]:
    """Return the node that a link leads to, [] int32, and whether there is one."""
    node = read(tree.children, link)
    return node, (node < tree.size) & (read(tree.parents, node) == link)


def grow(tree: SearchTree, link: Array) -> SearchTree:
    """Return `tree` with a new node, without visits, at the end of `link`, which must lead to none;
    -1: unchanged.
    """
    wanted = link >= 0
    nowhere = jnp.int32(tree.children.shape[0] - 1)
    children = write(tree.children, jnp.where(wanted, link, nowhere), tree.size)
    parents = write(tree.parents, jnp.where(wanted, tree.size, tree.capacity), link)
    size = tree.size + wanted.astype(jnp.int32)
    statistics = write_row(
        tree.statistics, size * (2 * tree.n_actions), jnp.zeros(2 * tree.n_actions)
    )
    return dataclasses.replace(
        tree, children=children, parents=parents, statistics=statistics, size=size
    )


@record
class Kept:
    """Remainder of the tree of an earlier decision, and the link followed since, -1 if none."""

    parents: Array  # [M + 1] int32, as in `SearchTree`
    statistics: Array  # [(M + 1) * 2 * A] float32
    size: Array  # [] int32
    link: Array  # [] int32


def transplant(tree: SearchTree, kept: Kept) -> SearchTree:
    """Return the subtree behind the link of another tree of the same capacity; a tree of one node
    if there is no link, or it leads nowhere.
    """
    tree, width, links = plant(tree), 2 * tree.n_actions, tree.n_actions * tree.n_states
    nowhere = jnp.int32(tree.children.shape[0] - 1)

    def more(carry: tuple[Any, ...], kept: Kept) -> Array:
        return carry[0] < kept.size

    def move(carry: tuple[Any, ...], kept: Kept) -> tuple[Any, ...]:
        """Move one node. Nodes keep their order, so parents come before children and a node's new
        number is at most the old one.
        """
        i, last, numbers, tree = carry
        numbers = write(numbers, jnp.maximum(i - 1, 0), last)
        old = jnp.where(more(carry, kept), read(kept.parents, i), -1)
        first = (old == kept.link) & (old >= 0)
        parent = read(numbers, jnp.maximum(old, 0) // links)
        moved = first | ((old >= 0) & (parent >= 0))
        new = jnp.where(first | ~moved, -1, parent * links + old % links)
        return (
            i + 1,
            jnp.where(moved, tree.size, -1),
            numbers,
            dataclasses.replace(
                tree,
                children=write(tree.children, jnp.where(new >= 0, new, nowhere), tree.size),
                parents=write(tree.parents, jnp.where(moved, tree.size, tree.capacity), new),
                statistics=write_row(
                    tree.statistics,
                    tree.size * width,
                    jnp.where(moved, read_row(kept.statistics, i * width, width), 0.0),
                ),
                size=tree.size + moved.astype(jnp.int32),
            ),
        )

    begin = (
        jnp.int32(0),
        jnp.int32(-1),
        jnp.zeros_like(tree.parents),
        dataclasses.replace(tree, size=jnp.int32(0)),
    )
    _, _, _, tree = while_active(more, move, begin, kept, keep="numbers")
    size = jnp.maximum(tree.size, 1)
    return dataclasses.replace(
        tree, statistics=write_row(tree.statistics, size * width, jnp.zeros(width)), size=size
    )


MEMORY = 4 << 30  # bytes of one device that searches in lockstep may take


def nothing_kept(capacity: int, n_actions: int) -> Kept:
    """Return an empty `Kept`, as before the first decision, for a tree with capacity for that many
    nodes.
    """
    nodes = capacity + 1
    return Kept(
        jnp.full(nodes, -1, jnp.int32),
        jnp.zeros(nodes * 2 * n_actions),
        jnp.int32(0),
        jnp.int32(-1),
    )


@record
class SearchTask:
    """One decision."""

    stream: Array  # [2] uint32, of random words (`draws.stream`)
    x: Array  # [] int32, state
    # [S * A * S] float32, cumulative posterior concentrations of each row, zeros repeating the
    # entry before
    cdf: Array
    rewards: Array  # [S * A * S] float32
    greedy: Array  # [S * A] int32, as in `bamcp.RolloutPolicy`
    n_greedy: Array  # [S] int32
    simulations: Array  # [] int32, K
    depth: Array  # [] int32, at most `max_depth`
    exploration: Array  # [] float32, c
    discount: Array  # [] float32
    kept: Kept | None  # None: start anew
    n_actions: int = static()
    capacity: int = static()  # nodes
    max_depth: int = static()  # steps

    @property
    def n_states(self) -> int:
        return int(self.n_greedy.shape[-1])


@record
class Root:
    """The outcome of a search."""

    visits: Array  # [A] float32
    means: Array  # [A] float32, mean return of each action, 0 if never tried
    kept: Kept | None


@record
class Memory:
    """Arrays that simulations write to."""

    tree: SearchTree
    urns: Urns
    edges: Array  # [max_depth + 1] int32, edges passed; the last entry is never read
    rewards: Array  # [max_depth + 1] float32, reward of each edge passed
    # [M + 1] float32, log(n + 1); None when there may be more visits than that
    logs: Array | None


@record
class Walk:
    """State of the tree part of a simulation."""

    inside: Array  # [] bool, whether it goes on
    d: Array  # [] int32, steps taken
    x: Array  # [] int32
    node: Array  # [] int32
    link: Array  # [] int32, link to grow a node at, or -1
    last: Draw
    urns: Urns
    edges: Array
    rewards: Array


@record
class Rollout:
    """State of the part of a simulation beyond the tree."""

    d: Array  # [] int32
    x: Array  # [] int32
    weight: Array  # [] float32, discount^(steps beyond the tree)
    value: Array  # [] float32, discounted return so far
    last: Draw
    urns: Urns


def search(task: SearchTask) -> Root:
    """Search from one state.

    Mapped, each search runs on its own, one after the other on a CPU, in lockstep on other devices;
    either way as if it were alone.
    """
    return _search_one(task)


def in_lockstep(tasks: SearchTask) -> Root:
    """Run all searches, stacked, which take each step together, as many at a time as fit in
    memory.
    """
    each = bytes_needed(tasks.n_states, tasks.n_actions, tasks.capacity, tasks.max_depth)
    return native.in_groups(tasks, run, blank, MEMORY // each)


def bytes_needed(n_states: int, n_actions: int, capacity: int, max_depth: int) -> int:
    """Return the memory that one search takes."""
    rows = n_states * n_actions
    return 4 * (capacity * (rows + 2 * n_actions + 1) + rows * (max_depth + 1) + 2 * max_depth)


def blank(task: SearchTask) -> Memory:
    """Return memory for a task of that size."""
    rows = task.n_states * task.n_actions
    empty = empty_tree(task.capacity, task.n_states, task.n_actions)
    return Memory(
        empty,
        draws.empty_urns(rows, task.max_depth),
        jnp.zeros(task.max_depth + 1, jnp.int32),
        jnp.zeros(task.max_depth + 1),
        log_visits(task.capacity) if task.kept is None else None,
    )


def log_visits(capacity: int) -> Array:
    """Return log(n + 1) for n up to the visits of a node of a new tree: [capacity + 1] float32."""
    return jnp.log(1 + jnp.arange(capacity + 1, dtype=jnp.float32))


def run(task: SearchTask, memory: Memory) -> tuple[Root, Memory]:
    """Run one search, in memory that earlier ones may have used."""
    kept = task.kept
    begun = plant(memory.tree) if kept is None else transplant(memory.tree, kept)
    urns = dataclasses.replace(memory.urns, counts=jnp.zeros_like(memory.urns.counts))
    memory = dataclasses.replace(memory, tree=begun, urns=urns)

    def more(carry: tuple[Any, ...], task: SearchTask) -> Array:
        return carry[0] < task.simulations

    def simulate(carry: tuple[Any, ...], task: SearchTask) -> tuple[Any, ...]:
        k, memory = carry
        live = more(carry, task)
        return k + live.astype(jnp.int32), _simulate(k, memory, task, live)

    _, memory = while_active(more, simulate, (jnp.int32(0), memory), task, keep="numbers")
    visits, means = at_node(memory.tree, jnp.int32(0))
    return Root(visits, means, kept and _keep(memory.tree)), memory


def _keep(grown: SearchTree) -> Kept:
    """Return all of a tree, without the remains of others in its memory."""
    exists = jnp.arange(grown.capacity + 1, dtype=jnp.int32) < grown.size
    statistics = jnp.where(exists[:, None], grown.statistics.reshape(grown.capacity + 1, -1), 0.0)
    return Kept(
        jnp.where(exists, grown.parents, -1), statistics.reshape(-1), grown.size, jnp.int32(-1)
    )


def _simulate(k: Array, memory: Memory, task: SearchTask, live: Array) -> Memory:
    """Run simulation number `k`; do nothing unless `live`."""
    start = k * task.depth
    zero, last = jnp.int32(0), draws.begin_draws(memory.urns, start)
    walk = Walk(
        live, zero, task.x, zero, jnp.int32(-1), last, memory.urns, memory.edges, memory.rewards
    )
    walk = while_active(_inside, _descend, walk, (task, memory.tree, memory.logs), keep="numbers")
    out = Rollout(
        jnp.where(live, walk.d, task.depth),
        walk.x,
        jnp.float32(1),
        jnp.float32(0),
        walk.last,
        walk.urns,
    )
    out = while_active(_unfinished, _roll, out, task, keep="numbers")
    grown = grow(memory.tree, walk.link)
    back = (walk.d - 1, out.value, grown.statistics)
    _, _, statistics = while_active(
        _not_at_root, _back_up, back, (walk.edges, walk.rewards, task), keep="numbers"
    )
    return Memory(
        dataclasses.replace(grown, statistics=statistics),
        out.urns,
        walk.edges,
        walk.rewards,
        memory.logs,
    )


def _random(task: SearchTask, last: Draw, d: Array, which: int) -> Array:
    """Return the random word number `which` (0 or 1) of step `d`."""
    counter = (last.start + d).astype(jnp.uint32) * 2 + which
    return draws.word(task.stream, counter)


def _draw_next(
    task: SearchTask, urns: Urns, last: Draw, d: Array, row: Array
) -> tuple[Draw, Array]:
    """Return the next state of step `d`, as `draws.draw_next`, and its reward."""
    uniform = sampling.words_to_uniforms(_random(task, last, d, 1))
    drawn = draws.draw_next(urns, last, task.cdf, row, uniform, task.n_states)
    return drawn, read(task.rewards, row * task.n_states + drawn.y)


def _inside(walk: Walk, _: tuple[Any, ...]) -> Array:
    return walk.inside


def _descend(walk: Walk, consts: tuple[Any, ...]) -> Walk:
    """Take one step in the tree."""
    task, grown, logs = consts
    live, d = walk.inside, walk.d
    urns = draws.put_down(walk.urns, walk.last)
    visits, means = at_node(grown, walk.node)
    total = visits.sum()
    log_total = jnp.log(total + 1) if logs is None else read(logs, total.astype(jnp.int32))
    u = select(visits, means, task.exploration, log_total, _random(task, walk.last, d, 0))
    row = walk.x * task.n_actions + u
    edge = walk.node * task.n_actions + u
    last, reward = _draw_next(task, urns, walk.last, d, row)
    link = edge * task.n_states + last.y
    node, exists = child(grown, link)
    deeper = d + 1 < task.depth
    tried = read(grown.statistics, 2 * edge) > 0
    new = ~exists & tried & (grown.size < grown.capacity) & deeper
    here = jnp.where(live, d, task.max_depth)
    return Walk(
        (exists | new) & deeper,
        d + 1,
        last.y,
        jnp.where(exists, node, grown.size),
        jnp.where(new, link, walk.link),
        last,
        urns,
        write(walk.edges, here, edge),
        write(walk.rewards, here, reward),
    )


def rollout_action(greedy: Array, n_greedy: Array, x: Array, word: Array, n_actions: int) -> Array:
    """Return an action in state `x` by one random word, [] int32, from `RolloutPolicy.greedy` as [S
    * A] and `RolloutPolicy.n_greedy`.
    """
    uniform = sampling.words_to_uniforms(word << 1)
    anything = (uniform * n_actions).astype(jnp.int32)
    place = (uniform * read(n_greedy, x).astype(jnp.float32)).astype(jnp.int32)
    return jnp.where(word >> 31 == 0, anything, read(greedy, x * n_actions + place))


def _unfinished(out: Rollout, task: SearchTask) -> Array:
    return out.d < task.depth


def _roll(out: Rollout, task: SearchTask) -> Rollout:
    """Take one step beyond the tree."""
    urns = draws.put_down(out.urns, out.last)
    u = rollout_action(
        task.greedy, task.n_greedy, out.x, _random(task, out.last, out.d, 0), task.n_actions
    )
    row = out.x * task.n_actions + u
    last, reward = _draw_next(task, urns, out.last, out.d, row)
    return Rollout(
        out.d + 1, last.y, out.weight * task.discount, out.value + out.weight * reward, last, urns
    )


def _not_at_root(back: tuple[Any, ...], _: tuple[Any, ...]) -> Array:
    return back[0] >= 0


def _back_up(back: tuple[Any, ...], consts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Count the return in the mean of one edge passed."""
    d, value, statistics = back
    edges, rewards, task = consts
    place = 2 * read(edges, d)
    value = read(rewards, d) + task.discount * value
    visits, mean = read_row(statistics, place, 2)
    new = jnp.stack([visits + 1, mean + (value - mean) / (visits + 1)])
    return (
        d - 1,
        value,
        write_row(
            statistics, place, jnp.where(_not_at_root(back, consts), new, jnp.stack([visits, mean]))
        ),
    )


_search_one = native.for_each(run, blank, in_lockstep)
