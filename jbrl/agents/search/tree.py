"""A tree over histories in flat arrays.

A node is a history h, known by a number; node 0 is the root. An *edge* is a node and an action,
number node A + u. A *link* is an edge and the next state it led to, number edge S + y; it leads to
a node or to none yet.

Nothing is cleared from one tree to the next, although `children` has S A entries for each node: the
entry of a link counts only if it names a node that exists and whose parent is this link (the sparse
set of Briggs and Torczon 1993). Statistics of the first node that does not exist yet are kept
at zero.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jbrl.agents.search import draws
from jbrl.agents.search.native import read, read_row, write, write_row
from jbrl.base.pytree import record, static
from jbrl.vectorize import while_active


@record
class SearchTree:
    """Arrays with capacity for M nodes.

    The last entry of `children` and of `parents` is never read.
    """

    children: jax.Array  # [M * A * S + 1] int32: node of each link, if any
    parents: jax.Array  # [M + 1] int32: link that leads to each node, -1 for the root
    # [(M + 1) * 2 * A] float32: of each node, visits and mean return of each action in turn
    statistics: jax.Array
    size: jax.Array  # [] int32, nodes that exist
    n_states: int = static()
    n_actions: int = static()

    @property
    def capacity(self) -> int:
        """M."""
        return int(self.parents.shape[0]) - 1


def empty(capacity: int, n_states: int, n_actions: int) -> SearchTree:
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


def at_node(tree: SearchTree, node: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return visits [A] and mean returns [A] of the edges of a node."""
    row = read_row(tree.statistics, node * (2 * tree.n_actions), 2 * tree.n_actions).reshape(
        tree.n_actions, 2
    )
    return row[:, 0], row[:, 1]


def select(
    visits: jax.Array,
    means: jax.Array,
    exploration: jax.Array,
    log_visits: jax.Array,
    word: jax.Array,
) -> jax.Array:
    """Select by UCT an action of greatest mean + exploration sqrt(log_visits / visits), those never
    tried first: [] int32.

    Ties are broken uniformly by a random `word`. Kocsis and Szepesvari 2006.
    """
    bound = means + exploration * jnp.sqrt(log_visits / jnp.maximum(visits, 1.0))
    return greatest(jnp.where(visits == 0, jnp.inf, bound), word)


def greatest(values: jax.Array, word: jax.Array) -> jax.Array:
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


def child(tree: SearchTree, link: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the node that a link leads to, [] int32, and whether there is one."""
    node = read(tree.children, link)
    return node, (node < tree.size) & (read(tree.parents, node) == link)


def grow(tree: SearchTree, link: jax.Array) -> SearchTree:
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


def transplant(
    tree: SearchTree, parents: jax.Array, statistics: jax.Array, size: jax.Array, link: jax.Array
) -> SearchTree:
    """Return the subtree behind one of the links of another tree of the same capacity; a tree of
    one node if the link leads nowhere.

    Args:
      parents, statistics, size: the other tree's.
      link: one of its links, or -1.
    """
    tree, width, links = plant(tree), 2 * tree.n_actions, tree.n_actions * tree.n_states
    nowhere = jnp.int32(tree.children.shape[0] - 1)

    def more(carry: tuple[Any, ...], consts: tuple[Any, ...]) -> jax.Array:
        return carry[0] < consts[2]

    def move(carry: tuple[Any, ...], consts: tuple[Any, ...]) -> tuple[Any, ...]:
        """Move one node. Nodes keep their order, so parents come before children and a node's new
        number is at most the old one.
        """
        i, last, numbers, tree = carry
        parents, statistics, _, link = consts
        numbers = write(numbers, jnp.maximum(i - 1, 0), last)
        old = jnp.where(more(carry, consts), read(parents, i), -1)
        first = (old == link) & (old >= 0)
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
                    jnp.where(moved, read_row(statistics, i * width, width), 0.0),
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
    _, _, _, tree = while_active(
        more, move, begin, (parents, statistics, size, link), keep="numbers"
    )
    size = jnp.maximum(tree.size, 1)
    return dataclasses.replace(
        tree, statistics=write_row(tree.statistics, size * width, jnp.zeros(width)), size=size
    )
