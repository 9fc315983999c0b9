"""Upper bounds for problems of moves that may fail: failures are forgotten, the MDP is shown later.

All rows of such a problem either stay or lead to one other state. An agent forgets how often its
moves failed in a state when it leaves that state. Knowing of fewer failures never lowers the
Bayes-optimal value of such a problem, and being shown the MDP does not either:
docs/bounds-proofs.md proves both. The agent then remembers the successes on its way only, and there
are so few ways that all of them are enumerated.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import betaln

from jbrl.bayes_optimal import samples
from jbrl.bayes_optimal.limits import upper_margin_by_moment
from jbrl.bayes_optimal.look_ahead import Replication
from jbrl.mdp.model import Block, Model

MOST_NODES = 100_000
MOST_BACKS = 1  # moves back before the MDP is revealed
MOST_FAILURES = 8  # of each move in a state that are counted; further ones are forgotten at once
MOST_HISTORIES = 60_000  # of failures in a state; fewer are counted of many moves
CHUNK = 1024  # MDPs, and nodes, at a time
NUMBERS = 2**23  # of nodes with their histories at a time
LEAST_MDPS, MOST_MDPS = 2**12, 2**17  # of a replication: fewer make the estimate greater
# Seconds on one core: benchmarks/results/bounds-cpu2.jsonl.
OF_NODE, OF_LEAF = 7e-5, 1.2e-8  # of a node of up to four moves, of a leaf for each MDP


@dataclasses.dataclass(frozen=True)
class Move:
    """An uncertain row with two outcomes: to stay, which pays nothing, or to move."""

    row: int  # its number among the uncertain rows of the problem
    successor: int
    reward: float  # of the move, at least 0
    success: float  # concentration of the move
    failure: float  # concentration of staying
    forward: bool  # whether it leads farther from the first state


@dataclasses.dataclass(frozen=True, eq=False)
class Moves:
    """A problem all of whose uncertain rows are moves, and whose certain rows do nothing."""

    model: Model
    of_state: tuple[tuple[Move, ...], ...]

    @property
    def first(self) -> int:
        """Return the first state."""
        return self.model.first_states[0]

    @property
    def all(self) -> list[Move]:
        """Return all moves, in the order of their rows."""
        return [move for moves in self.of_state for move in moves]

    def log_probabilities(self, log_rows: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the logarithms of the probabilities that the moves succeed, [R, M].

        Args:
          log_rows: those of `SampledMDPs`.
        """
        return np.array(
            [
                row[_outcomes(block, weights)[1]]
                for block, rows in zip(self.model.blocks, log_rows, strict=True)
                for row, weights in zip(rows, block.concentrations, strict=True)
            ]
        )


def find_moves(model: Model) -> Moves | None:
    """Return the moves of a problem, or None where it is not of this kind.

    Expected are one first state, a reward of 0 for staying, rewards of at least 0 for moving, and
    no certain row that leads elsewhere or pays.
    """
    if len(model.first_states) != 1 or not model.blocks:
        return None
    for x, certain in enumerate(model.certain):
        if any(row.successor != x or row.reward != 0 for row in certain):
            return None
    if not all(_is_moves(block) for block in model.blocks):
        return None
    distances = _distances(model)
    of_state: list[tuple[Move, ...]] = [()] * model.n_states
    row = 0
    for block in model.blocks:
        moves = []
        for weights, rewards in zip(block.concentrations, block.rewards, strict=True):
            stay, move = _outcomes(block, weights)
            y = int(block.successors[move])
            forward = distances[y] > distances[block.state]
            moves.append(
                Move(row, y, float(rewards[move]), weights[move], weights[stay], bool(forward))
            )
            row += 1
        of_state[block.state] = tuple(moves)
    return Moves(model, tuple(of_state))


def _is_moves(block: Block) -> bool:
    """Return whether all rows of a block are moves."""
    for possible, rewards in zip(block.possible, block.rewards, strict=True):
        to = block.successors[possible]
        if len(to) != 2 or block.state not in to or (rewards < 0).any():
            return False
        if rewards[block.successors == block.state].any():
            return False
    return True


def _outcomes(block: Block, weights: np.ndarray) -> tuple[int, int]:
    """Return the positions of staying and of moving among the successors of a row."""
    first, second = map(int, np.flatnonzero(weights))
    return (first, second) if block.successors[first] == block.state else (second, first)


def _distances(model: Model) -> np.ndarray:
    """Return the least number of moves without a reward from the first state to each, [S]."""
    distances = np.full(model.n_states, np.inf)
    edges = [
        (block.state, int(y))
        for block in model.blocks
        for possible, rewards in zip(block.possible, block.rewards, strict=True)
        for y in block.successors[possible & (rewards == 0)]
    ]
    distances[model.first_states[0]] = 0
    for _ in range(model.n_states):
        for x, y in edges:
            distances[y] = min(distances[y], distances[x] + 1)
    return distances


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
        remembered: Memory = tuple(sorted(counts.items()))
        if move.reward > 0:
            revealed, left = left != self._backs, self._rewarded
        elif move.forward:
            revealed = False
        else:
            revealed, left = left <= 0, left - 1
        if revealed:
            leaf = (move.successor, remembered)
            return -1 - self._leaves.setdefault(leaf, len(self._leaves))
        return self._nodes.setdefault((move.successor, left, remembered), len(self._nodes))

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
            np.array([state for state, _ in self._leaves], np.int64),
            successes,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Forgetting:
    """The problem of the upper bound.

    Attributes:
      tree: what is remembered, and when the MDP is revealed.
      backs: moves back before it is revealed.
    """

    moves: Moves
    discount: float
    horizon: int
    tree: Tree
    backs: int
    threads: int

    def seconds(self, n_mdps: int) -> float:
        """Estimate the duration of a replication."""
        tree, four = self.tree, 4 * counted(4) ** 4
        moves = map(len, self.moves.of_state)
        costs = np.array([max(1.0, k * counted(k) ** k / four) for k in moves])
        once = OF_NODE * costs[tree.states].sum() + OF_LEAF * len(tree.leaf_states) * n_mdps
        return float(once / self.threads)

    def replication(self, n_mdps: int, seed: np.random.SeedSequence) -> Replication:
        """Return an estimate of the upper bound.

        The expectation of its value is not below the bound.

        Args:
          n_mdps: number of MDPs drawn.
        """
        model = self.moves.model
        mdps = samples.draw(model, n_mdps, seed)
        values = samples.values(model, mdps, self.discount, (self.horizon,))[self.horizon]
        leaves = self._leaves(mdps, values)
        return Replication(self.solve(leaves), float(values[self.moves.first].mean()))

    def margin(self, n_mdps: int, confidence: float) -> float:
        """Return how far the bound may lie above the average of estimates by so many MDPs in all.

        What an MDP adds to the value of a policy is at least 0. Its second moment is at most the
        square of the sum, over leaves, of the roots of second moments (Minkowski): the weights'
        are known, and values are not above the greatest possible ones.
        """
        return upper_margin_by_moment(n_mdps, self._moment, confidence)

    @cached_property
    def _moment(self) -> float:
        tree = self.tree
        a, b = np.array([(move.success, move.failure) for move in self.moves.all]).T
        squared = (betaln(a + 2.0 * tree.successes, b) - betaln(a, b)).sum(1)
        root = np.exp(squared / 2 - self._log_probability(tree.successes))
        most = self.moves.model.extremes(self.discount, self.horizon)[1]
        return self.solve(root * most[tree.leaf_states]) ** 2

    def _leaves(self, mdps: samples.SampledMDPs, values: np.ndarray) -> np.ndarray:
        """Estimate E[V(y) | what is remembered] at all leaves, without bias: [L] float64.

        By weights as in `samples`: the likelihood of what is remembered over its probability.
        """
        tree = self.tree
        logs = self.moves.log_probabilities(mdps.log_rows).astype(np.float32)
        share = (values / mdps.n_mdps).astype(np.float32)
        normal = self._log_probability(tree.successes).astype(np.float32)
        parts = [np.flatnonzero(tree.leaf_states == y) for y in range(len(values))]
        estimates = np.zeros(len(tree.leaf_states))

        def add(part: np.ndarray) -> None:
            counts, rest = tree.successes[part].astype(np.float32), normal[part][:, None]
            y = tree.leaf_states[part[0]]
            for first in range(0, mdps.n_mdps, CHUNK):
                some = slice(first, first + CHUNK)
                estimates[part] += np.exp(counts @ logs[:, some] - rest) @ share[y, some]

        pieces = [
            part[first : first + CHUNK] for part in parts for first in range(0, len(part), CHUNK)
        ]
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(add, pieces))
        return estimates

    def _log_probability(self, successes: np.ndarray) -> np.ndarray:
        """Return the logarithms of the probabilities of sequences of successes, [L]."""
        a, b = np.array([(move.success, move.failure) for move in self.moves.all]).T
        return (betaln(a + successes, b) - betaln(a, b)).sum(1)

    def solve(self, leaves: np.ndarray) -> float:
        """Back values of the leaves up to the root.

        Args:
          leaves: value of each leaf, [L].
        """
        tree = self.tree
        both = np.concatenate([np.empty(len(tree.states)), leaves])  # as `Tree.children` counts
        for wave in reversed(tree.waves):
            tasks = [part for nodes in self._of_one_kind(wave) for part in self._parts(nodes)]
            with ThreadPoolExecutor(self.threads) as pool:
                for nodes, values in zip(
                    tasks, pool.map(lambda nodes: self._solve(nodes, both), tasks), strict=True
                ):
                    both[nodes] = values
        return float(both[0])

    def _of_one_kind(self, wave: range) -> list[np.ndarray]:
        """Return the nodes of a wave by their state."""
        nodes = np.array(wave)
        states = self.tree.states[nodes]
        return [nodes[states == x] for x in np.unique(states)]

    def _parts(self, nodes: np.ndarray) -> list[np.ndarray]:
        """Return parts of nodes in one state whose arrays are small."""
        k = len(self.moves.of_state[int(self.tree.states[nodes[0]])])
        size = min(CHUNK, NUMBERS // counted(k) ** k)
        return [nodes[first : first + size] for first in range(0, len(nodes), size)]

    def _solve(self, nodes: np.ndarray, both: np.ndarray) -> np.ndarray:
        """Return the values of nodes in one state: the failures there are counted until a move
        succeeds.
        """
        tree, moves = self.tree, self.moves.of_state[int(self.tree.states[nodes[0]])]
        if not moves:  # nothing leads away, and staying pays nothing
            return np.zeros(len(nodes))
        failed = np.arange(counted(len(moves)))
        chances, gains = [], []
        for number, move in enumerate(moves):
            a = move.success + tree.own[nodes, number][:, None]
            chances.append(a / (a + move.failure + failed))
            gains.append(move.reward + self.discount * both[tree.children[nodes, number]])
        return _first(np.array(chances), np.array(gains), self.discount)


def counted(k: int) -> int:
    """Return how many numbers of failures, 0 too, differ for each of `k` moves in a state."""
    n = MOST_FAILURES + 1
    while n**k > MOST_HISTORIES:
        n -= 1
    return n


def _first(chances: np.ndarray, gains: np.ndarray, discount: float) -> np.ndarray:
    """Return the value of a state before any failure.

    At the greatest number of failures that is counted, a further one changes nothing, so a move
    is tried until it succeeds, or not at all.

    Args:
      chances: of the success of each move after so many failures, [K, N, F].
      gains: what a success earns, [K, N].

    Returns: [N].
    """
    k, n, f = chances.shape
    chances = chances.transpose(0, 2, 1)
    last = chances[:, -1]
    for_ever = last * gains / (1 - discount * (1 - last))
    values = np.zeros((f**k, n))
    for here, failed, after in _levels(k, f):
        best = np.full((len(here), n), -np.inf)
        for number in range(k):
            chance = chances[number, failed[number]]
            tried = chance * gains[number] + (1 - chance) * discount * values[after[number]]
            ended = failed[number] == f - 1
            tried[ended] = for_ever[number]
            np.maximum(best, tried, out=best)
        values[here] = best
    return values[0]


@lru_cache
def _levels(k: int, f: int) -> list[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
    """Return the numbers of failures of k moves by their sum, the greatest first: their position,
    themselves, and the position after one more failure of each move (the same at the end).
    """
    all_failed = np.arange(f**k) // f ** np.arange(k)[::-1, None] % f
    total = all_failed.sum(0)
    levels = []
    for level in range(k * (f - 1), -1, -1):
        here = np.flatnonzero(total == level)
        failed = all_failed[:, here]
        after = [
            here + np.where(failed[number] < f - 1, f ** (k - 1 - number), 0) for number in range(k)
        ]
        levels.append((here, failed, after))
    return levels


def forgetting(model: Model, discount: float, horizon: int, threads: int) -> Forgetting | None:
    """Return the relaxation with the most moves back, or None where the problem is not one of moves
    that may fail, or is too large.
    """
    moves = find_moves(model)
    if moves is None:
        return None
    for backs in range(MOST_BACKS, -1, -1):
        tree = grow(moves, backs)
        if tree is not None:
            return Forgetting(moves, discount, horizon, tree, backs, threads)
    return None
