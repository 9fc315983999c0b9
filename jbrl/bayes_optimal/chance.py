"""Chance in returns, which estimates leave out."""

from collections.abc import Mapping, Sequence

import numpy as np

from jbrl.mdp.dirichlet import DirichletMDPs

AT_ONCE = 1024  # lifetimes


class Chance:
    """The part of a return that is chance: what transitions add to what was to be expected of them.

    For any function v of the state, the reward and the discounted v of the next state, less their
    mean given the history, have the mean 0 given the history, whatever the agent does. Their sum is
    taken from a return: this leaves its mean as it is, and most of its variance out (a control
    variate; the martingale of Henderson and Glynn 2002). Here v is the optimal value of the mean
    MDP with the decisions that are left of `horizon`.
    """

    def __init__(self, mdps: DirichletMDPs, discount: float, horizon: int) -> None:
        self._prior = np.asarray(mdps.concentrations, np.float64)
        self._rewards = np.asarray(mdps.rewards, np.float64)
        self._discount = discount
        mean = self._prior / self._prior.sum(-1, keepdims=True)
        gains = (mean * self._rewards).sum(-1)
        value = np.zeros(mdps.n_states)
        values = [value]
        for _ in range(horizon):
            value = (gains + discount * (mean * value).sum(-1)).max(1)  # no product of BLAS
            values.append(value)
        self.values = np.array(values[::-1])  # v after so many decisions, [T + 1, S]

    def least(self, first_states: Sequence[int]) -> float:
        """Return a number that no return is below from which its chance is taken.

        It is v of the first state and, discounted, the differences of what is to be expected of
        each transition and v of the state; an expectation is not below the worst outcome.
        """
        possible = self._prior > 0
        least = np.zeros(len(self._prior))
        for now, after in zip(self.values[-2::-1], self.values[:0:-1], strict=True):
            worth = np.where(possible, self._rewards + self._discount * after, np.inf).min(-1)
            rest = np.where(possible, self._discount * least, np.inf).min(-1)
            least = (worth - now[:, None] + rest).min(1)
        return float((self.values[0] + least)[list(first_states)].min())

    def of(self, trajectories: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the part of each discounted return that is chance, [N] float64.

        Args:
          trajectories: `states`, [N, T + 1] int, and `actions`, [N, T] int.
        """
        states, actions = trajectories["states"], trajectories["actions"]
        parts = [slice(first, first + AT_ONCE) for first in range(0, len(states), AT_ONCE)]
        return np.concatenate([self._of(states[part], actions[part]) for part in parts])

    def _of(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        lanes = np.arange(len(states))
        counts = np.zeros((len(states), *self._prior.shape))
        chance, factor = np.zeros(len(states)), 1.0
        for t, after in enumerate(self.values[1:]):
            x, u, y = states[:, t], actions[:, t], states[:, t + 1]
            row = self._prior[x, u] + counts[lanes, x, u]
            worth = self._rewards[x, u] + self._discount * after
            expected = (row * worth).sum(1) / row.sum(1)
            chance += factor * (worth[lanes, y] - expected)
            counts[lanes, x, u, y] += 1
            factor *= self._discount
        return chance
