"""The planner and the agents that live by it once more, in plain NumPy and float64: everything from
scratch after each transition.
"""

import numpy as np

from benchmarks.twins.agents import Learner, greedy, optimal_values


def sweep(transitions, rewards, q, discount):
    """Return T Q, by loops: [S, A] from transitions [S, A, S], rewards [S, A] and action values [S,
    A].
    """
    new = np.zeros(rewards.shape)
    for x, row in enumerate(transitions):
        for u, probabilities in enumerate(row):
            new[x, u] = rewards[x, u] + discount * sum(
                p * max(q[y]) for y, p in enumerate(probabilities)
            )
    return new


def value_iteration(transitions, rewards, discount, tolerance, initial=None):
    """Return action values, residual of the last sweep, number of sweeps."""
    q, residual, sweeps = np.zeros(rewards.shape) if initial is None else initial, np.inf, 0
    while residual > tolerance:
        new = rewards + discount * transitions @ q.max(1)
        q, residual, sweeps = new, abs(new - q).max(), sweeps + 1
    return q, residual, sweeps


def policy_iteration(transitions, rewards, discount):
    """Return Q* [S, A] of transitions [S, A, S] and expected rewards [S, A]."""
    states = np.arange(len(rewards))
    policy = np.zeros(len(rewards), int)
    while True:
        values = np.linalg.solve(
            np.eye(len(rewards)) - discount * transitions[states, policy], rewards[states, policy]
        )
        q = rewards + discount * transitions @ values
        better = q.max(1) > values + 1e-11 * abs(values).max()
        if not better.any():
            return q
        policy = np.where(better, q.argmax(1), policy)


class EpsilonGreedy(Learner):
    def __init__(self, prior, epsilon):
        super().__init__(prior)
        self.epsilon = epsilon

    def act(self, x, uniforms):
        coin, uniform = uniforms
        return int(uniform * self.q.shape[1]) if coin < self.epsilon else greedy(self.q, x, uniform)


class BEB(Learner):
    def __init__(self, prior, beta, bonus="pair"):
        self.beta, self.bonus = beta, bonus
        super().__init__(prior)

    def solve(self):
        totals = self.counts.sum(-1, keepdims=True)
        if self.bonus == "pair":
            bonus = self.beta / (1 + totals)
        else:
            bonus = np.divide(
                self.beta, self.counts, out=np.zeros_like(self.counts), where=self.counts > 0
            )
        self.q = optimal_values(self.counts / totals, self.rewards + bonus)

    def act(self, x, uniforms):
        return greedy(self.q, x, uniforms[0])
