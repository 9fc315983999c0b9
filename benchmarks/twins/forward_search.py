"""Forward search sparse sampling, slow and plain: one tree at a time, by recursion, in float64.

The random numbers are those of `jbrl.agents.search.forward_tree`: hashes of (tree,
trajectory, depth, draw).
"""

import numpy as np

WORD = 2**32
TIE_TOLERANCE = 1e-6


def hashed(word: int) -> int:
    word = (word ^ (word >> 16)) * 0x7FEB352D % WORD
    word = (word ^ (word >> 15)) * 0x846CA68B % WORD
    return word ^ (word >> 16)


def spread(number: int) -> int:
    return number * 0x9E3779B9


def bits(word: int) -> int:
    return hashed(word % WORD) >> 8


def outcome(counts, number):
    """Return the first next state whose share of the counts, summed from the first, exceeds a
    24-bit number.
    """
    shares = np.cumsum(counts) / np.sum(counts)
    return int(np.argmax(np.ceil(shares * 2**24) > number))


def choose(values, tolerance, seed):
    """Choose a greatest value, ties broken at random."""
    best = [i for i, v in enumerate(values) if v >= max(values) - tolerance]
    return max(best, key=lambda i: bits(seed + spread(i)))


class Node:
    def __init__(self, search, x, counts, seed):
        n_actions = counts.shape[1]
        self.search, self.x, self.children = search, x, {}
        first = n_actions + counts.shape[0]
        self.times = np.zeros(counts.shape[1:], int)
        for u in range(n_actions):
            for i in range(search.samples):
                self.times[
                    u, outcome(counts[x, u], bits(seed + spread(first + i * n_actions + u)))
                ] += 1

    def bounds(self):
        """Return (U, L) of each action, from those of the children as they are now: [A, 2]."""
        s = self.search
        new = (s.high, s.low)
        totals = np.zeros((len(self.times), 2))
        for u, y in zip(*np.nonzero(self.times), strict=True):
            ends = self.children[u, y].value() if (u, y) in self.children else new
            totals[u] += self.times[u, y] * (s.rewards[self.x, u, y] + s.discount * np.array(ends))
        return totals / s.samples

    def value(self):
        return tuple(np.maximum(self.search.low, self.bounds().max(0)))


class Search:
    def __init__(self, rewards, discount, low, high, trajectories, samples, depth):
        self.rewards, self.discount, self.low, self.high = rewards, discount, low, high
        self.trajectories, self.samples, self.depth = trajectories, samples, depth

    def grow(self, seed, x, counts):
        """Return the tree of belief `counts` in state `x` after all trajectories."""
        root = None
        for k in range(self.trajectories):
            history, of_trajectory = counts.copy(), hashed((seed + spread(k + 1)) % WORD)
            root = self._descend(root, x, history, of_trajectory, 0)
        return root

    def _descend(self, node, x, counts, seed, d):
        if d == self.depth:
            return None
        here = hashed((seed + spread(d)) % WORD)
        node = node or Node(self, x, counts, here)
        span = self.high - self.low
        u = choose(node.bounds()[:, 0], TIE_TOLERANCE * span, here)
        widths = [
            node.children[u, y].value() if (u, y) in node.children else (self.high, self.low)
            for y in range(len(node.times[u]))
        ]
        doubt = np.where(node.times[u] > 0, node.times[u] * [a - b for a, b in widths], -1)
        y = choose(doubt, 1e-9 * span, here + spread(len(node.times)))
        counts[x, u, y] += 1
        child = self._descend(node.children.get((u, y)), y, counts, seed, d + 1)
        if child:
            node.children[u, y] = child
        return node

    def tree_seed(self, words, number):
        return hashed(int(words[0]) ^ hashed((int(words[1]) + spread(number)) % WORD))

    def single(self, words, x, counts):
        return self.grow(self.tree_seed(words, 0), x, counts).bounds()[:, 0]

    def resampled(self, words, x, counts):
        n_actions = counts.shape[1]
        q = np.zeros(n_actions)
        for sample in range(self.samples):
            for u in range(n_actions):
                seed = self.tree_seed(words, sample * n_actions + u)
                y = outcome(counts[x, u], bits(seed))
                known = counts.copy()
                known[x, u, y] += 1
                q[u] += (
                    self.rewards[x, u, y] + self.discount * self.grow(seed, y, known).value()[0]
                ) / self.samples
        return q
