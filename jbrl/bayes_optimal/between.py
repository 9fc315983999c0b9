"""Returns of an agent from one visit of a state to the next, in MDPs whose other rows are known.

Let b be the state, and w what its next visit is worth. W_y(w) is the greatest expected return from
the state y on, rewards before the visit and then w, discounted. Each policy earns a rising affine
function of w. W_y is the greatest of them: it rises and is convex.
"""

from collections.abc import Callable

import numpy as np

from jbrl.bayes_optimal.model import Model

GRID = 65  # values w at which W is computed
PRECISION = 1e-6  # of W, as a part of the greatest difference of returns
MOST_SWEEPS = 2000

Rule = Callable[[np.ndarray], np.ndarray]


class Between:
    """W_y(w) of M MDPs, not below the true one but for rounding: computed from above at the points
    of a grid of w, and on a straight line between them, below which a convex function lies.

    Args:
      rows: transition probabilities by block, [A, K, M]; those of the hidden block are not read.
      hidden: number of the hidden block, whose state has no certain rows.
    """

    def __init__(
        self, model: Model, rows: tuple[np.ndarray, ...], discount: float, hidden: int
    ) -> None:
        self._model, self._rows, self._discount = model, rows, discount
        self._number, self.state = hidden, model.blocks[hidden].state
        most = self._returns(model.least_reward + model.reward_range, self._outcome(np.max))
        least = self._returns(model.least_reward, self._outcome(np.min))
        self.least = least[self.state].astype(np.float32)  # [M]: that b can be worth
        self.most = most[self.state].astype(np.float32)  # [M]
        exits = np.linspace(self.least, self.most, GRID, axis=-1, dtype=np.float64)  # [M, G]
        found = self._returns(model.least_reward + model.reward_range, lambda _: exits)
        flat = (model.n_states, -1)
        self._level = found.reshape(flat).astype(np.float32)
        self._rise = np.diff(found, axis=2, append=found[:, :, -1:]).reshape(flat)
        self._rise = self._rise.astype(np.float32)
        self._scale = ((GRID - 1) / np.maximum(self.most - self.least, 1e-6)).astype(np.float32)
        self._first = np.arange(len(self.least), dtype=np.int32) * GRID

    def at(self, y: int, w: np.ndarray) -> np.ndarray:
        """Return W_y(w) for w of [..., M] float32, of the same shape."""
        if y == self.state:
            return w
        place = (w - self.least) * self._scale
        np.clip(place, 0, GRID - 1, out=place)
        below = place.astype(np.int32)
        place -= below
        below += self._first
        found = self._rise[y].take(below)
        found *= place
        found += self._level[y].take(below)
        return found

    def _outcome(self, choose: Callable[..., np.ndarray]) -> Rule:
        """Return the value of the hidden state if its outcomes are the best or the worst ones."""
        block = self._model.blocks[self._number]

        def rule(value: np.ndarray) -> np.ndarray:
            after = block.rewards[:, :, None] + self._discount * value[block.successors]
            return choose(after[block.possible], axis=0)

        return rule

    def _returns(self, reward: float, rule: Rule) -> np.ndarray:
        """Return the greatest expected returns, [S, M] or [S, M, G], by value iteration from those
        of a constant reward on, where `rule` gives the value of the hidden state.
        """
        start = reward / (1 - self._discount)
        value = np.full((self._model.n_states, *self._shape(rule)), start)
        limit = PRECISION * self._model.reward_range / (1 - self._discount)
        for _ in range(MOST_SWEEPS):
            new = self._sweep(value)
            new[self.state] = rule(value)
            change = np.abs(new - value).max()
            value = new
            if change <= limit:
                break
        return value

    def _shape(self, rule: Rule) -> tuple[int, ...]:
        n_mdps = self._rows[0].shape[-1]
        return rule(np.zeros((self._model.n_states, n_mdps))).shape

    def _sweep(self, value: np.ndarray) -> np.ndarray:
        model, tail = self._model, (1,) * (value.ndim - 2)
        new = np.full_like(value, -np.inf)
        for x, certain in enumerate(model.certain):
            for row in certain:
                np.maximum(new[x], row.reward + self._discount * value[row.successor], out=new[x])
        for number, block in enumerate(model.blocks):
            if number == self._number:
                continue
            after = self._discount * value[block.successors]
            for row, gains in zip(self._rows[number], block.rewards, strict=True):
                total = np.zeros(value.shape[1:])
                for k in range(len(gains)):
                    total += row[k].reshape(-1, *tail) * (gains[k] + after[k])
                np.maximum(new[block.state], total, out=new[block.state])
        return new
