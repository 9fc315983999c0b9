"""The merged MDP and the agents that live by it once more, in NumPy and float64: plain loops, value
iteration, the words of jbrl.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.twins.agents import DISCOUNT, TIES
from benchmarks.twins.bamcp import stream, word
from jbrl.agents.search.merged import BLOCK


def uniform(key, round, which, j):
    return (int(word(key, (round * 3 * BLOCK + which * BLOCK + j) % 2**32) >> 9) + 0.5) * 2.0**-23


def log_gamma_variates(shapes, key):
    """Return logarithms of gamma variates, block by block; a block goes on until each of its
    entries has one.
    """
    from scipy.special import erfinv

    logs, round = np.full(len(shapes), -np.inf), 0
    for start in range(0, len(shapes), BLOCK):
        missing = [j for j in range(start, min(start + BLOCK, len(shapes))) if shapes[j] > 0]
        first = True
        while missing or first:
            first, left = False, []
            for j in missing:
                a, accept = shapes[j], uniform(key, round, 1, j - start)
                if a == 1:
                    logs[j] = np.log(-np.log(accept))
                    continue
                d = (a + 1 if a < 1 else a) - 1 / 3
                normal = np.sqrt(2) * erfinv(2 * uniform(key, round, 0, j - start) - 1)
                v = (1 + normal / np.sqrt(9 * d)) ** 3
                if v > 0 and np.log(accept) < normal**2 / 2 + d - d * v + d * np.log(v):
                    logs[j] = np.log(d * v) + (
                        np.log(uniform(key, round, 2, j - start)) / a if a < 1 else 0
                    )
                else:
                    left.append(j)
            missing, round = left, round + 1
    return logs


def sampled_rows(counts, samples, words):
    """Return K(x, u) rows for each pair, drawn in order: {(x, u): [K, S]} from counts [S, A, S] and
    samples [S, A].
    """
    n_states, n_actions, _ = counts.shape
    pairs = [
        (x, u) for x in range(n_states) for u in range(n_actions) for _ in range(samples[x, u])
    ]
    logs = log_gamma_variates(
        np.concatenate([counts[pair] for pair in pairs]), stream(words)
    ).reshape(-1, n_states)
    weights = np.exp(logs - logs.max(1, keepdims=True))
    found: dict = {pair: [] for pair in pairs}
    for pair, row in zip(pairs, weights / weights.sum(1, keepdims=True), strict=True):
        found[pair].append(row)
    return found


def merged_values(rows, rewards, discount=DISCOUNT):
    """Return Q [S, A] by value iteration over all merged actions."""
    q, tables = np.zeros(rewards.shape[:2]), {pair: np.array(found) for pair, found in rows.items()}
    for _ in range(2000):
        values, new = q.max(1), np.zeros_like(q)
        for pair, table in tables.items():
            new[pair] = (table @ (rewards[pair] + discount * values)).max()
        if abs(new - q).max() <= 1e-12 * abs(new).max():
            break
        q = new
    return q


class BestOfSampledSet:
    """Tests all pairs at every step, and keeps everything dense."""

    def __init__(self, prior):
        self.counts, self.rewards = (
            np.array(prior.concentrations, float),
            np.array(prior.rewards, float),
        )
        self.prior, self.solved = self.counts.copy(), 0
        self.last: Any = None  # the counts that were solved

    def act(self, x, words, uniform):
        if self.last is None or self.outdated():
            self.solve(words)
        best = np.flatnonzero(self.q[x] >= self.q[x].max() - TIES * abs(self.q.max(1)).max())
        return best[int(uniform * len(best))]

    def solve(self, words):
        self.q = merged_values(sampled_rows(self.counts, self.samples(), words), self.rewards)
        self.last, self.solved = self.counts.copy(), self.solved + 1

    def observe(self, x, u, y):
        self.counts[x, u, y] += 1

    def samples(self):
        raise NotImplementedError

    def outdated(self):
        raise NotImplementedError


class SBOSS(BestOfSampledSet):
    """Compares in exact arithmetic; parameters are the decimal numbers that they are written as."""

    def __init__(self, prior, epsilon, delta, cap=1024):
        super().__init__(prior)
        self.epsilon, self.delta, self.cap = Fraction(str(epsilon)), delta, cap

    @staticmethod
    def variances(counts):
        n0 = counts.sum(-1, keepdims=True)
        return counts * (n0 - counts) / (n0**2 * (n0 + 1))

    def samples(self):
        def wanted(row):
            return math.ceil(max(exact_variances(row)) / self.epsilon)

        return np.clip(np.apply_along_axis(wanted, -1, self.counts), 1, self.cap)

    def outdated(self):
        return any(
            movement(self.last[pair], self.counts[pair]) > Decimal(str(self.delta))
            for pair in np.ndindex(self.counts.shape[:2])
            if (self.last[pair] != self.counts[pair]).any()
        )


def exact_variances(counts):
    """Return the posterior variances of a row [S], as fractions."""
    counts = [Fraction(c) for c in counts.tolist()]
    n0 = sum(counts)
    return [c * (n0 - c) / (n0**2 * (n0 + 1)) for c in counts]


def movement(before, now):
    """Return how far a row [S] has moved, in standard deviations, to 40 digits; a probability
    without variance adds nothing.
    """
    last, mean = (
        [Fraction(c) / Fraction(row.sum()) for c in row.tolist()] for row in (before, now)
    )
    with localcontext(prec=50) as context:
        squares = [
            (m - m0) ** 2 / v
            for m, m0, v in zip(mean, last, exact_variances(before), strict=True)
            if v
        ]
        roots = (context.divide(s.numerator, s.denominator).sqrt() for s in squares)
        return round(sum(roots, Decimal(0)), 40)


class BOSS(BestOfSampledSet):
    def __init__(self, prior, sampled, known):
        super().__init__(prior)
        self.sampled, self.known, self.counted = sampled, known, set()

    def samples(self):
        return np.where((self.counts > 0).sum(-1) == 1, 1, self.sampled)

    def outdated(self):
        tried = (self.counts - self.prior).sum(-1)
        new = {tuple(pair) for pair in np.argwhere(tried >= self.known)} - self.counted
        self.counted |= new
        return bool(new)
