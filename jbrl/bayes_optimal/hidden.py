"""The worth of hidden states to an agent that is shown all rows but those of these states.

The rows of one or two *hidden* states are learned from their outcomes. Until a hidden state is
reached the agent lives in a known MDP; so what it earns depends on the counts of the hidden states
alone. After some outcomes the hidden rows are shown too.

From states that are not hidden the same hidden state is always reached first, the *entrance*. Let w
be what its next visit is worth. W_y(w) is the greatest expected return from such a state y on,
rewards before the visit and then w, discounted. Each policy earns a rising affine function of w.
W_y is the greatest of them: it rises and is convex.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial

import numpy as np

from jbrl.bayes_optimal.samples import beta_quantiles
from jbrl.mdp.counts import BlockCounts, Total
from jbrl.mdp.model import Model, sweep

CORRECTIONS = 12  # of a bracket of a fixed point

Totals = tuple[Total, ...]  # of the hidden states, the entrance first
Rule = Callable[[np.ndarray], list[np.ndarray]]  # values of the hidden states from all values
# of each hidden state, by totals: [n, …, M] float32, an axis for the splits of each hidden state
Worth = dict[Totals, list[np.ndarray]]
# the total after an outcome, the next state, the place of each split there, its probability
_Outcome = tuple[Total, int, np.ndarray, np.ndarray]
GRID = 65  # values w at which W is computed
PRECISION = 1e-6  # of W, as a part of the greatest difference of returns
MOST_SWEEPS = 2000


class Between:
    """W_y(w) of M MDPs, not below the true one but for rounding: computed from above at the points
    of a grid of w, and on a straight line between them, below which a convex function lies.

    Args:
      rows: transition probabilities by block, [A, K, M]; those of hidden blocks are not read.
      hidden: numbers of the hidden blocks, the entrance first; their states have no certain rows.
    """

    def __init__(
        self, model: Model, rows: tuple[np.ndarray, ...], discount: float, hidden: Sequence[int]
    ) -> None:
        self._model, self._rows, self._discount = model, rows, discount
        self._hidden = [model.blocks[number] for number in hidden]
        self._numbers, self.state = hidden, self._hidden[0].state
        most = self._returns(model.least_reward + model.reward_range, self._outcome(np.max))
        least = self._returns(model.least_reward, self._outcome(np.min))
        self.least = least[self.state].astype(np.float32)  # [M]: that the entrance can be worth
        self.most = most[self.state].astype(np.float32)  # [M]
        exits = np.linspace(self.least, self.most, GRID, axis=-1, dtype=np.float64)  # [M, G]
        returns = self._returns(model.least_reward + model.reward_range, self._exit(exits))
        flat = (model.n_states, -1)
        self._level = returns.reshape(flat).astype(np.float32)
        self._rise = np.diff(returns, axis=2, append=returns[:, :, -1:]).reshape(flat)
        self._rise = self._rise.astype(np.float32)
        self.small = max(1e-6 * min(1.0, model.reward_range), 1e-30)  # a difference that is none
        width = np.maximum(self.most - self.least, np.float32(self.small))
        self._scale = ((GRID - 1) / width).astype(np.float32)
        self._first = np.arange(len(self.least), dtype=np.int32) * GRID

    def at(self, y: int, w: np.ndarray) -> np.ndarray:
        """Return W_y(w) for w of [..., M] float32, of the same shape; y is no hidden state but the
        entrance.
        """
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
        """Return the values of hidden states if their outcomes are the best or the worst ones."""

        def rule(value: np.ndarray) -> list[np.ndarray]:
            return [
                choose(
                    (block.rewards[:, :, None] + self._discount * value[block.successors])[
                        block.possible
                    ],
                    axis=0,
                )
                for block in self._hidden
            ]

        return rule

    def _exit(self, exits: np.ndarray) -> Rule:
        """Return the values of hidden states of which the entrance is worth `exits`, and others,
        which are not reached before, anything.
        """
        return lambda value: [exits, *(value[block.state] for block in self._hidden[1:])]

    def _returns(self, reward: float, rule: Rule) -> np.ndarray:
        """Return the greatest expected returns, [S, M] or [S, M, G], by value iteration from those
        of a constant reward on, where `rule` gives the values of hidden states.
        """
        n_mdps = self._rows[0].shape[-1]
        shape = rule(np.zeros((self._model.n_states, n_mdps)))[0].shape
        rows = tuple(block.reshape(*block.shape, *(1,) * (len(shape) - 1)) for block in self._rows)
        value = np.full((self._model.n_states, *shape), reward / (1 - self._discount))
        limit = PRECISION * self._model.reward_range / (1 - self._discount)
        for _ in range(MOST_SWEEPS):
            new = sweep(self._model, rows, self._discount, value, without=self._numbers)
            for block, own in zip(self._hidden, rule(value), strict=True):
                new[block.state] = own
            change = np.abs(new - value).max()
            value = new
            if change <= limit:
                break
        return value


@dataclasses.dataclass(frozen=True, eq=False)
class Hidden:
    """The worth of hidden states by their counts."""

    model: Model
    counts: tuple[BlockCounts, ...]  # of the hidden blocks, the entrance first; one or two
    discount: float
    numbers: tuple[int, ...]  # of the hidden blocks
    trials: int  # outcomes of all of them together after which their rows are shown
    _found: dict[tuple[int, Total], list[tuple[np.ndarray, list[_Outcome]]]] = dataclasses.field(
        default_factory=dict, repr=False
    )

    @cached_property
    def states(self) -> tuple[int, ...]:
        return tuple(counts.block.state for counts in self.counts)

    @property
    def nothing(self) -> Totals:
        """Return the totals before the first outcome."""
        return tuple(counts.nothing for counts in self.counts)

    def totals(self, n: int) -> list[Totals]:
        """Return all totals of `n` outcomes."""
        successors = [len(counts.block.successors) for counts in self.counts]
        shares = sums(n, len(successors))
        each = [[sums(*one) for one in zip(share, successors, strict=True)] for share in shares]
        return [totals for one in each for totals in itertools.product(*one)]

    def shape(self, totals: Totals) -> tuple[int, ...]:
        """Return the number of splits of each hidden state."""
        return tuple(len(c.splits(total)) for c, total in zip(self.counts, totals, strict=True))

    def at(self, y: int, worths: list[np.ndarray], between: Between) -> np.ndarray:
        """Return the greatest expected return from a state on, of the shape of `worths`."""
        if y in self.states:
            return worths[self.states.index(y)]
        return between.at(y, worths[0])

    def solve(
        self, rows: tuple[np.ndarray, ...], seed: np.random.SeedSequence, pool: Executor
    ) -> tuple[Between, Worth]:
        """Return W and the worth of the hidden states for all counts of up to `trials` outcomes.

        The expectation of the worth, over what is drawn by `seed`, is not below the true one.

        Args:
          rows: transition probabilities by block, [A, K, M].
        """
        between = Between(self.model, rows, self.discount, self.numbers)
        worths = self._shown(between, seed, pool)
        for n in reversed(range(self.trials)):
            totals = self.totals(n)
            back_up = partial(self._back_up, worths, between)
            worths.update(zip(totals, pool.map(back_up, totals), strict=True))
        return between, worths

    def _back_up(self, worth: Worth, between: Between, totals: Totals) -> list[np.ndarray]:
        """Return the worths of the counts of totals from the values that one more outcome leads
        to.
        """
        worths, discount = [], np.float32(self.discount)
        for axis, total in enumerate(totals):
            best: np.ndarray | None = None
            reached: dict[Total, np.ndarray] = {}  # by the rows of the state
            for gain, outcomes in self._rows(axis, total):
                q: np.ndarray | None = None
                for more, y, places, p in outcomes:
                    if more not in reached:
                        after = worth[(*totals[:axis], more, *totals[axis + 1 :])]
                        reached[more] = discount * self.at(y, after, between)
                    part = reached[more].take(places, axis=axis)
                    part *= p
                    q = part if q is None else np.add(q, part, out=q)
                assert q is not None
                q += gain
                best = q if best is None else np.maximum(best, q, out=best)
            assert best is not None
            worths.append(best)
        return worths

    def _rows(self, axis: int, total: Total) -> list[tuple[np.ndarray, list[_Outcome]]]:
        """Return the rows of a hidden state after a total: expected reward and outcomes of each.

        Arrays have an axis for its splits, in the place that they have in worths.
        """
        if (axis, total) not in self._found:
            counts = self.counts[axis]
            block, predictive = counts.block, counts.splits(total).predictive.astype(np.float32)
            tail = (-1, *(1,) * (len(self.counts) - axis))
            rewards = block.rewards.astype(np.float32)
            rows = []
            for row, possible in enumerate(block.possible):
                outcomes = [
                    (
                        counts.add(total, k),
                        int(block.successors[k]),
                        counts.after(total, row, k),
                        predictive[row, k].reshape(tail),
                    )
                    for k in map(int, np.flatnonzero(possible))
                ]
                gain = (predictive[row] * rewards[row][:, None]).sum(0).reshape(tail)
                rows.append((gain, outcomes))
            self._found[axis, total] = rows
        return self._found[axis, total]

    def _shown(self, between: Between, seed: np.random.SeedSequence, pool: Executor) -> Worth:
        """Return estimates of the worths when the rows are shown, after all trials.

        With all rows known, the worth is the greatest of those of each choice of a row in each
        hidden state, taken for ever. A draw of all rows from the posterior, another one for each
        MDP, has no bias.
        """
        all_totals, n_mdps = self.totals(self.trials), len(between.least)
        best = {
            totals: [np.full((*self.shape(totals), n_mdps), -np.inf, np.float32) for _ in totals]
            for totals in all_totals
        }
        generator = np.random.default_rng(seed)
        seen = [
            _Seen(counts, sorted({totals[axis] for totals in all_totals}), generator, n_mdps)
            for axis, counts in enumerate(self.counts)
        ]
        for rows in itertools.product(*(range(len(c.block.actions)) for c in self.counts)):
            sizes = [one.outcomes[row] for one, row in zip(seen, rows, strict=True)]
            together = np.nonzero(functools.reduce(np.add, np.ix_(*sizes)) <= self.trials)
            numbers = np.zeros(tuple(map(len, sizes)), np.int64)
            numbers[together] = np.arange(len(together[0]))
            theta = [one.theta[row][at] for one, row, at in zip(seen, rows, together, strict=True)]
            worths = self._for_ever(between, rows, theta)
            places = [one.places[row] for one, row in zip(seen, rows, strict=True)]
            list(pool.map(partial(_keep, places, numbers, worths), best.items()))
        return best

    def _for_ever(
        self, between: Between, rows: tuple[int, ...], theta: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Return the worths of the hidden states if these rows of them are known and always taken:
        [n, M] float32 each, from above.

        That of the entrance is the fixed point of a convex function that is less steep than the
        identity: a chord between points on both sides of it meets the identity above it; a chord of
        two points above it, drawn on, meets it below.

        Args:
          theta: probabilities of the possible successors of each row, [n, K, M].
        """
        steps = [
            _Row(counts, row, own, self.discount)
            for counts, row, own in zip(self.counts, rows, theta, strict=True)
        ]

        def step(w: np.ndarray) -> list[np.ndarray]:
            """Return the worths of the hidden states if the next visit of the entrance is worth
            w.
            """
            worths, exits = [w] * len(steps), dict[int, np.ndarray]()

            def at(y: int) -> np.ndarray:
                if y in self.states:
                    return worths[self.states.index(y)]
                if y not in exits:
                    exits[y] = between.at(y, w)
                return exits[y]

            for axis in reversed(range(len(steps))):
                worths[axis] = steps[axis].value(at)
            return worths

        shape = steps[0].gain.shape
        low, high = np.broadcast_to(between.least, shape), np.broadcast_to(between.most, shape)
        after_low, after_high = step(low)[0], step(high)[0]
        enough = 1e-3 * float(np.ptp(between.most)) + 100 * between.small
        for _ in range(CORRECTIONS):
            nearer = _meeting(low, after_low, high, after_high, between.small)
            nearer = np.clip(nearer, low, high)
            after_nearer = step(nearer)[0]
            new_low = _meeting(nearer, after_nearer, high, after_high, between.small)
            new_low = np.clip(new_low, low, nearer)
            high, after_high = nearer, after_nearer
            if float((high - new_low).max()) < enough:
                break
            low, after_low = new_low, step(new_low)[0]
        return [high, *step(high)[1:]]


def _keep(
    places: list[dict[Total, np.ndarray]],
    numbers: np.ndarray,
    worths: list[np.ndarray],
    best: tuple[Totals, list[np.ndarray]],
) -> None:
    """Keep the worths of some rows where they are the greatest so far."""
    chosen = numbers[np.ix_(*(own[total] for own, total in zip(places, best[0], strict=True)))]
    for greatest, worth in zip(best[1], worths, strict=True):
        np.maximum(greatest, worth[chosen], out=greatest)


class _Seen:
    """Outcomes of the rows of a hidden state after some totals, and a draw of each row from its
    posterior for each MDP.

    Args:
      totals: after which its rows are shown.
    """

    def __init__(
        self, counts: BlockCounts, totals: list[Total], generator: np.random.Generator, n_mdps: int
    ) -> None:
        block, self.outcomes, self.theta = counts.block, list[np.ndarray](), list[np.ndarray]()
        self.places = list[dict[Total, np.ndarray]]()  # of splits, among what a row has shown
        ends = np.cumsum([len(counts.splits(total)) for total in totals])[:-1]
        every = np.concatenate([counts.splits(total).counts for total in totals])
        for row, possible in enumerate(block.possible):
            some = np.flatnonzero(possible)
            uniforms = generator.random((len(some) - 1, n_mdps))
            own, places = np.unique(every[:, row], axis=0, return_inverse=True)
            parts = np.split(places.reshape(-1), ends)
            self.places.append(dict(zip(totals, parts, strict=True)))
            weights = block.concentrations[row, some] + own[:, some]
            self.theta.append(np.array([_draw(one, uniforms) for one in weights], np.float32))
            self.outcomes.append(own.sum(1))


class _Row:
    """A row that is known, of n posteriors and M MDPs.

    Args:
      theta: probabilities of its possible successors, [n, K, M].
    """

    def __init__(self, counts: BlockCounts, row: int, theta: np.ndarray, discount: float) -> None:
        block = counts.block
        some = np.flatnonzero(block.possible[row])
        self._own, self._successors = block.state, [int(y) for y in block.successors[some]]
        rewards = block.rewards[row, some].astype(np.float32)
        self.gain = np.tensordot(theta, rewards, (1, 0))  # [n, M]
        self._theta = np.float32(discount) * theta

    def value(self, at: Callable[[int], np.ndarray]) -> np.ndarray:
        """Return what the state is worth, [n, M], if it is left for what `at` says: the returns to
        itself are solved for.
        """
        total, stays = self.gain.copy(), np.zeros(1, np.float32)
        for k, y in enumerate(self._successors):
            if y == self._own:
                stays = self._theta[:, k]
            else:
                total += self._theta[:, k] * at(y)
        return np.divide(total, 1 - stays, out=total)


def _meeting(
    a: np.ndarray, after_a: np.ndarray, b: np.ndarray, after_b: np.ndarray, small: float
) -> np.ndarray:
    """Return where the line through two points meets the identity; `b` if both lie on it."""
    gap_a, gap_b = after_a - a, after_b - b
    difference = gap_a - gap_b
    share = np.divide(gap_a, difference, out=np.ones_like(gap_a), where=difference > small)
    return a + share * (b - a)


def _draw(weights: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return Dirichlet draws, [K, M], of uniform numbers [K - 1, M], by stick-breaking."""
    left, parts = np.ones(uniforms.shape[1]), []
    for k, numbers in enumerate(uniforms):
        share = left * beta_quantiles(weights[k], weights[k + 1 :].sum(), numbers)
        left = left - share
        parts.append(share)
    return np.stack([*parts, left])


def sums(n: int, parts: int) -> list[Total]:
    """Return all ways to write `n` as an ordered sum of `parts` numbers from 0."""
    if parts == 1:
        return [(n,)]
    return [(first, *rest) for first in range(n + 1) for rest in sums(n - first, parts - 1)]
