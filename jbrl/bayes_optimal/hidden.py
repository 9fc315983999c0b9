"""The worth of a state to an agent that is shown all rows but those of this state.

The rows of the *hidden* state are learned from its outcomes. Between two visits the agent lives in
a known MDP; so what it earns depends on the counts of the hidden state alone. After some outcomes
the hidden rows are shown too.

Let b be the hidden state, and w what its next visit is worth. W_y(w) is the greatest expected
return from the state y on, rewards before the visit and then w, discounted. Each policy earns a
rising affine function of w. W_y is the greatest of them: it rises and is convex.
"""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

import numpy as np
from scipy.special import betaincinv

from jbrl.mdp.counts import BlockCounts, Total
from jbrl.mdp.model import Model, sweep

CORRECTIONS = 12  # of a bracket of a fixed point

Rule = Callable[[np.ndarray], np.ndarray]
Worth = dict[Total, np.ndarray]  # of the hidden state, by total: [n, M] float32
GRID = 65  # values w at which W is computed
PRECISION = 1e-6  # of W, as a part of the greatest difference of returns
MOST_SWEEPS = 2000


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
        returns = self._returns(model.least_reward + model.reward_range, lambda _: exits)
        flat = (model.n_states, -1)
        self._level = returns.reshape(flat).astype(np.float32)
        self._rise = np.diff(returns, axis=2, append=returns[:, :, -1:]).reshape(flat)
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
        values = self._rise[y].take(below)
        values *= place
        values += self._level[y].take(below)
        return values

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
        n_mdps = self._rows[0].shape[-1]
        shape = rule(np.zeros((self._model.n_states, n_mdps))).shape
        rows = tuple(block.reshape(*block.shape, *(1,) * (len(shape) - 1)) for block in self._rows)
        value = np.full((self._model.n_states, *shape), reward / (1 - self._discount))
        limit = PRECISION * self._model.reward_range / (1 - self._discount)
        for _ in range(MOST_SWEEPS):
            new = sweep(self._model, rows, self._discount, value, without=self._number)
            new[self.state] = rule(value)
            change = np.abs(new - value).max()
            value = new
            if change <= limit:
                break
        return value


@dataclasses.dataclass(frozen=True, eq=False)
class Hidden:
    """The worth of a hidden state by its counts."""

    model: Model
    counts: BlockCounts
    discount: float
    number: int  # of the hidden block
    trials: int  # outcomes after which its rows are shown

    def solve(
        self, rows: tuple[np.ndarray, ...], seed: np.random.SeedSequence, pool: Executor
    ) -> tuple[Between, Worth]:
        """Return W and the worth of the hidden state for each count of up to `trials` outcomes.

        The expectation of the worth, over what is drawn by `seed`, is not below the true one.

        Args:
          rows: transition probabilities by block, [A, K, M].
        """
        between = Between(self.model, rows, self.discount, self.number)
        after = self._shown(between, seed)
        worths = dict(after)
        for n in reversed(range(self.trials)):
            reached = {
                (total, k): np.float32(self.discount) * between.at(int(y), worth)
                for total, worth in after.items()
                for k, y in enumerate(self.counts.block.successors)
                if total[k]
            }
            totals = sums(n, len(self.counts.block.successors))
            after = dict(
                zip(totals, pool.map(partial(self._back_up, reached), totals), strict=True)
            )
            worths.update(after)
        return between, worths

    def _back_up(self, reached: dict[tuple[Total, int], np.ndarray], total: Total) -> np.ndarray:
        """Return the worth of a total's counts from the values that one more outcome leads to."""
        block, predictive = self.counts.block, self.counts.splits(total).predictive
        best: np.ndarray | None = None
        for row in range(len(block.actions)):
            gain = (predictive[row] * block.rewards[row][:, None]).sum(0)[:, None]
            q: np.ndarray | None = None
            for k in map(int, np.flatnonzero(block.possible[row])):
                part = reached[self.counts.add(total, k), k][self.counts.after(total, row, k)]
                part *= predictive[row, k][:, None].astype(np.float32)
                q = part if q is None else np.add(q, part, out=q)
            assert q is not None
            q += gain.astype(np.float32)
            best = q if best is None else np.maximum(best, q, out=best)
        assert best is not None
        return best

    def _shown(self, between: Between, seed: np.random.SeedSequence) -> Worth:
        """Return estimates of the worth when the rows are shown, after all trials.

        With all rows known, the worth is the greatest of those of each row, taken for ever. A draw
        of all rows from the posterior, another one for each MDP, has no bias.
        """
        block = self.counts.block
        totals = sums(self.trials, len(block.successors))
        counts = np.concatenate([self.counts.splits(total).counts for total in totals])
        free = block.possible.sum(1) - 1
        numbers = np.random.default_rng(seed).random((int(free.sum()), len(between.least)))
        best = np.full((len(counts), len(between.least)), -np.inf, np.float32)
        for a, uniforms in enumerate(np.split(numbers, np.cumsum(free)[:-1])):
            rows, places = np.unique(counts[:, a], axis=0, return_inverse=True)
            worth = self._for_ever(between, a, rows, uniforms)
            np.maximum(best, worth[places.reshape(-1)], out=best)
        ends = np.cumsum([len(self.counts.splits(total)) for total in totals])
        return dict(zip(totals, np.split(best, ends[:-1]), strict=True))

    def _for_ever(
        self, between: Between, a: int, counts: np.ndarray, uniforms: np.ndarray
    ) -> np.ndarray:
        """Return the worth of the state if row `a`, drawn from its posterior after each count, is
        known and always taken: [n, M] float32, from above. `uniforms` are [K - 1, M].

        It is the fixed point of a convex function that is less steep than the identity: a chord
        between points on both sides of it meets the identity above it; a chord of two points above
        it, drawn on, meets it below.
        """
        block = self.counts.block
        some = np.flatnonzero(block.possible[a])
        weights = block.concentrations[a, some] + counts[:, some]
        shape = (len(counts), len(between.least))
        theta = np.array([_row(row, uniforms) for row in weights])  # [n, K, M]
        gain = np.tensordot(theta, block.rewards[a, some], (1, 0)).astype(np.float32)
        theta = (self.discount * theta).astype(np.float32)

        def step(w: np.ndarray) -> np.ndarray:
            values = gain.copy()
            for i, k in enumerate(some):
                values += theta[:, i] * between.at(int(block.successors[k]), w)
            return values

        low, high = np.broadcast_to(between.least, shape), np.broadcast_to(between.most, shape)
        after_low, after_high = step(low), step(high)
        for _ in range(CORRECTIONS):
            nearer = np.clip(_meeting(low, after_low, high, after_high), low, high)
            after_nearer = step(nearer)
            new_low = np.clip(_meeting(nearer, after_nearer, high, after_high), low, nearer)
            high, after_high = nearer, after_nearer
            if float((high - new_low).max()) < 1e-3 * float(np.ptp(between.most)) + 1e-4:
                break
            low, after_low = new_low, step(new_low)
        return high


def _meeting(a: np.ndarray, after_a: np.ndarray, b: np.ndarray, after_b: np.ndarray) -> np.ndarray:
    """Return where the line through two points meets the identity; `b` if both lie on it."""
    gap_a, gap_b = after_a - a, after_b - b
    difference = gap_a - gap_b
    share = np.divide(gap_a, difference, out=np.ones_like(gap_a), where=difference > 1e-6)
    return a + share * (b - a)


def _row(weights: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return Dirichlet draws, [K, M], of uniform numbers [K - 1, M], by stick-breaking."""
    left, parts = np.ones(uniforms.shape[1]), []
    for k, numbers in enumerate(uniforms):
        share = left * betaincinv(weights[k], weights[k + 1 :].sum(), numbers)
        left = left - share
        parts.append(share)
    return np.stack([*parts, left])


def sums(n: int, parts: int) -> list[Total]:
    """Return all ways to write `n` as an ordered sum of `parts` numbers from 0."""
    if parts == 1:
        return [(n,)]
    return [(first, *rest) for first in range(n + 1) for rest in sums(n - first, parts - 1)]
