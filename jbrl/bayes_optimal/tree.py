"""Successes that an agent remembers in a problem of moves, until the MDP is revealed."""

import dataclasses

import numpy as np

from jbrl.bayes_optimal.moves import Move, Moves

MOST_NODES = 100_000

Memory = tuple[tuple[int, int], ...]  # (row, successes) in rising order


@dataclasses.dataclass(frozen=True, eq=False)
class Tree:
    """Nodes: a state just reached and what is remembered. Leaves: those where the MDP is revealed.

    `N` nodes, the root first, `L` leaves, `R` moves of the problem, at most `K` in a state.
    """

    states: np.ndarray  # of nodes, [N]
    own: np.ndarray  # remembered successes of the moves of their state, [N, K]
    children: np.ndarray  # node after the success of each move, or N + leaf, [N, K]
    waves: tuple[range, ...]  # nodes after 0, 1, … moves; children are in later waves
    leaf_states: np.ndarray  # [L]
    successes: np.ndarray  # remembered at leaves, [L, R]


def grow(moves: Moves, backs: int) -> Tree | None:
    """Enumerate what is remembered; None where there are more than `MOST_NODES` nodes.

    The MDP is revealed after `backs` + 1 moves back, after the first reward if there was a move
    back before it, and otherwise after the second reward or the first move back between the two.
    """
    growth = _Growth(moves, backs)
    return growth.tree() if growth.complete() else None


class _Growth:
    """A tree that is built wave by wave."""

    def __init__(self, moves: Moves, backs: int) -> None:
        self._moves, self._backs = moves, backs
        self._rewarded = -1  # instead of the number of moves back that are left
        self._nodes: dict[tuple[int, int, Memory], int] = {(moves.first, backs, ()): 0}
        self._leaves: dict[tuple[int, Memory], int] = {}
        self._children: list[list[int]] = []  # a leaf is -1 - its number
        self._waves: list[range] = []

    def complete(self) -> bool:
        """Build the tree; return whether it is small enough."""
        wave = range(1)
        while wave and wave.stop <= MOST_NODES:
            self._waves.append(wave)
            for state, left, memory in list(self._nodes)[wave.start :]:
                self._children.append(
                    [self._after(move, left, memory) for move in self._moves.of_state[state]]
                )
            wave = range(wave.stop, len(self._nodes))
        return not wave

    def _after(self, move: Move, left: int, memory: Memory) -> int:
        """Return the child after the success of a move."""
        counts = dict(memory)
        counts[move.row] = counts.get(move.row, 0) + 1
        found: Memory = tuple(sorted(counts.items()))
        if move.reward > 0:
            revealed, left = left != self._backs, self._rewarded
        elif move.forward:
            revealed = False
        else:
            revealed, left = left <= 0, left - 1
        if revealed:
            leaf = (move.successor, found)
            return -1 - self._leaves.setdefault(leaf, len(self._leaves))
        return self._nodes.setdefault((move.successor, left, found), len(self._nodes))

    def tree(self) -> Tree:
        """Return the tree that is complete."""
        n, most = len(self._nodes), max(map(len, self._moves.of_state))
        own, children = np.zeros((2, n, most), np.int64)
        for node, (state, _, memory) in enumerate(self._nodes):
            counts = dict(memory)
            for number, move in enumerate(self._moves.of_state[state]):
                own[node, number] = counts.get(move.row, 0)
                children[node, number] = self._children[node][number]
        successes = np.zeros((len(self._leaves), len(self._moves.all)), np.uint8)
        for leaf, (_, memory) in enumerate(self._leaves):
            for row, count in memory:
                successes[leaf, row] = count
        return Tree(
            np.array([state for state, _, _ in self._nodes]),
            own,
            np.where(children < 0, n - 1 - children, children),
            tuple(self._waves),
            np.array([state for state, _ in self._leaves]),
            successes,
        )
