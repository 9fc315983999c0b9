"""Agents once more, in plain NumPy and float64, one MDP and one step at a time: slow, and written
to be read.

Each follows a recorded trajectory and is asked at every step what it would do, given the same
uniform numbers.
"""

import numpy as np

DISCOUNT = 0.95
# action values that differ by less than this part of the greatest count as equal, as in
# jbrl.mdp.planning
TIES = 2e-6


def optimal_values(transitions, rewards):
    """Return Q* [S, A] of an MDP given by transitions and rewards [S, A, S]: policy iteration."""
    expected = (transitions * rewards).sum(-1)
    n_states = len(expected)
    policy = np.zeros(n_states, int)
    while True:
        followed, gained = (
            transitions[np.arange(n_states), policy],
            expected[np.arange(n_states), policy],
        )
        values = np.linalg.solve(np.eye(n_states) - DISCOUNT * followed, gained)
        q = expected + DISCOUNT * transitions @ values
        better = q.max(1) > values + 1e-10 * np.abs(values).max()
        if not better.any():
            return q
        policy = np.where(better, q.argmax(1), policy)


def greedy(q, x, uniform):
    """Return one of the best actions, the interval [0, 1) being shared out among them in order."""
    best = np.flatnonzero(q[x] >= q[x].max() - TIES * np.abs(q).max())
    return best[int(uniform * len(best))]


class Random:
    def __init__(self, prior):
        self.n_actions = prior.n_actions

    def act(self, x, uniforms):
        return int(uniforms[0] * self.n_actions)

    def observe(self, x, u, y):
        pass


class Optimal(Random):
    def __init__(self, transitions, rewards):
        self.q = optimal_values(transitions, rewards)

    def act(self, x, uniforms):
        return greedy(self.q, x, uniforms[0])


class Learner:
    """The posterior and the optimal values of its mean."""

    def __init__(self, prior):
        self.counts, self.rewards = (
            np.array(prior.concentrations, float),
            np.array(prior.rewards, float),
        )
        self.solve()

    def solve(self):
        self.q = optimal_values(self.counts / self.counts.sum(-1, keepdims=True), self.rewards)

    def observe(self, x, u, y):
        self.counts[x, u, y] += 1
        self.solve()


class SoftMax(Learner):
    def __init__(self, prior, tau):
        super().__init__(prior)
        self.tau = tau

    def act(self, x, uniforms):
        weights = np.exp((self.q[x] - self.q[x].max()) / self.tau)
        return int((np.cumsum(weights) / weights.sum() <= uniforms[0]).sum())


class VDBE(Learner):
    def __init__(self, prior, sigma, delta, epsilon0):
        super().__init__(prior)
        self.sigma, self.delta = sigma, delta or 1 / prior.n_actions
        self.epsilons = np.full(prior.n_states, epsilon0)

    def act(self, x, uniforms):
        if uniforms[0] < self.epsilons[x]:
            return int(uniforms[1] * self.q.shape[1])
        return greedy(self.q, x, uniforms[1])

    def observe(self, x, u, y):
        before = self.q[x, u]
        super().observe(x, u, y)
        e = np.exp(-abs(self.q[x, u] - before) / self.sigma)
        self.epsilons[x] = self.delta * (1 - e) / (1 + e) + (1 - self.delta) * self.epsilons[x]
