"""Upper bounds for problems of moves that may fail: failures are forgotten, the MDP is shown later.

An agent forgets how often its moves failed in a state when it leaves that state. Knowing of fewer
failures never lowers the Bayes-optimal value of such a problem, and being shown the MDP does not
either; docs/bounds.md proves both. The agent then remembers the successes on its way only, and
there are so few ways that all of them are enumerated.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
from scipy.special import betaln

from jbrl.bayes_optimal import clairvoyant
from jbrl.bayes_optimal.model import Model
from jbrl.bayes_optimal.moves import Moves, find_moves
from jbrl.bayes_optimal.tree import Tree, grow

MOST_BACKS = 1  # moves back before the MDP is revealed
MOST_FAILURES = 8  # of each move in a state that are counted; further ones are forgotten at once
CHUNK = 1024  # MDPs, and nodes, at a time
LEAST_MDPS, MOST_MDPS = 2**12, 2**16  # of a replication: fewer make the estimate greater

# Seconds on one core: benchmarks/results/bounds-cpu2.jsonl.
OF_NODE, OF_LEAF = 7e-5, 1.2e-8  # of a leaf for each MDP


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
        tree = self.tree
        once = OF_NODE * len(tree.states) + OF_LEAF * len(tree.leaf_states) * n_mdps
        return once / self.threads

    def n_mdps(self, limit: float | None) -> int:
        """Return the number of MDPs with which a replication takes at most `limit` seconds."""
        found = LEAST_MDPS if limit is not None else MOST_MDPS
        while limit is not None and found < MOST_MDPS and self.seconds(2 * found) <= limit:
            found *= 2
        return found

    def replication(self, n_mdps: int, seed: np.random.SeedSequence) -> tuple[float, float]:
        """Return one estimate of the upper bound and one of the clairvoyant value.

        The expectation of the first is not below the bound.

        Args:
          n_mdps: number of MDPs drawn, a power of 2.
        """
        model = self.moves.model
        mdps = clairvoyant.draw(model, n_mdps, seed)
        values = clairvoyant.values(model, mdps, self.discount, (self.horizon,))[self.horizon]
        leaves = self._leaves(mdps, values)
        return self.solve(leaves), float(values[self.moves.first].mean())

    def _leaves(self, mdps: clairvoyant.SampledMDPs, values: np.ndarray) -> np.ndarray:
        """Estimate E[V(y) | what is remembered] at all leaves, without bias: [L] float64.

        By weights as in `leaves.py`: the likelihood of what is remembered over its probability.
        """
        tree = self.tree
        logs = self.moves.log_probabilities(mdps.log_rows).astype(np.float32)
        share = (values / mdps.n_mdps).astype(np.float32)
        normal = self._log_probability(tree.successes).astype(np.float32)
        parts = [np.flatnonzero(tree.leaf_states == y) for y in range(len(values))]
        found = np.zeros(len(tree.leaf_states))

        def add(part: np.ndarray) -> None:
            counts, rest = tree.successes[part].astype(np.float32), normal[part][:, None]
            y = tree.leaf_states[part[0]]
            for first in range(0, mdps.n_mdps, CHUNK):
                some = slice(first, first + CHUNK)
                found[part] += np.exp(counts @ logs[:, some] - rest) @ share[y, some]

        pieces = [
            part[first : first + CHUNK] for part in parts for first in range(0, len(part), CHUNK)
        ]
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(add, pieces))
        return found

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
            tasks = [
                nodes[first : first + CHUNK]
                for nodes in self._of_one_kind(wave)
                for first in range(0, len(nodes), CHUNK)
            ]
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

    def _solve(self, nodes: np.ndarray, both: np.ndarray) -> np.ndarray:
        """Return the values of nodes in one state: the failures there are counted until a move
        succeeds.
        """
        tree, moves = self.tree, self.moves.of_state[int(self.tree.states[nodes[0]])]
        failed = np.arange(MOST_FAILURES + 1)
        chances, gains = [], []
        for number, move in enumerate(moves):
            a = move.success + tree.own[nodes, number][:, None]
            chances.append(a / (a + move.failure + failed))
            gains.append(move.reward + self.discount * both[tree.children[nodes, number]])
        return _first(np.array(chances), np.array(gains), self.discount)


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
    all_failed = np.indices((f,) * k).reshape(k, -1)
    total = all_failed.sum(0)
    found = []
    for level in range(k * (f - 1), -1, -1):
        here = np.flatnonzero(total == level)
        failed = all_failed[:, here]
        after = [
            here + np.where(failed[number] < f - 1, f ** (k - 1 - number), 0) for number in range(k)
        ]
        found.append((here, failed, after))
    return found


def forgetting(
    model: Model, discount: float, horizon: int, threads: int, limit: float | None
) -> Forgetting | None:
    """Return the relaxation with the most moves back of which a replication takes at most `limit`
    seconds, or None where the problem is not one of moves that may fail, or is too large.
    """
    moves = find_moves(model)
    if moves is None:
        return None
    for backs in range(MOST_BACKS, -1, -1):
        tree = grow(moves, backs)
        if tree is not None:
            found = Forgetting(moves, discount, horizon, tree, backs, threads)
            if limit is None or found.seconds(LEAST_MDPS) <= limit:
                return found
    return None
