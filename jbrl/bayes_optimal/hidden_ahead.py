"""Upper bounds: look ahead D decisions, then be shown all rows but those of one state.

For counts c wanted is E[W_x(w(c_b)) | c], where W and the worth w of the hidden state b are
functions of the other states' rows. As in `samples`, it is an average over MDPs drawn from the
prior, with the exact weights of the counts of all states but b.
"""

import dataclasses
import math
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

import numpy as np

from jbrl.bayes_optimal import samples
from jbrl.bayes_optimal.hidden import Between, Hidden, Worth, sums
from jbrl.bayes_optimal.look_ahead import LookAhead, Replication
from jbrl.bayes_optimal.plan import BACKED_UP, PRODUCTS
from jbrl.bayes_optimal.samples import CHUNK, Control, Weights, cut_blocks, estimate, variables_of
from jbrl.mdp.counts import Cell, Layers, Total
from jbrl.mdp.model import Model

MOST_SPLITS = 3000  # of the counts of the hidden state after its last outcome
MOST_DIVISIONS = 20 * MOST_SPLITS  # of them, exchangeable rows apart
MOST_TRIALS = 40
MOST_TRANSITIONS = 500  # uncertain ones of a problem
CHOOSING = 128  # MDPs on which the hidden state is chosen
LEAST_MDPS, USUAL_MDPS, MOST_MDPS = CHUNK, 4 * CHUNK, 32 * CHUNK  # of a replication

# Seconds on one core for 1,024 MDPs, with discount 0.95: of a transition of the problem, of an
# outcome of a count. Of the table in docs/bounds.md.
OF_TRANSITION, OF_OUTCOME = 0.025, 1.4e-5


@dataclasses.dataclass(frozen=True, eq=False)
class HiddenAhead:
    """The problem of the upper bound with a hidden state."""

    ahead: LookAhead
    hidden: Hidden

    @property
    def certified(self) -> bool:
        """Return whether its limit needs a range only: the look-ahead never comes to counts after
        which the hidden rows are shown.
        """
        return self.ahead.decisions <= self.hidden.trials

    @property
    def state(self) -> int:
        """Return the hidden state."""
        return self.hidden.counts.block.state

    def seconds(self, n_mdps: int) -> float:
        """Estimate the duration of a replication."""
        ahead, counts, model = self.ahead, self.hidden.counts, self.hidden.model
        outcomes = counts.block.possible.size * sum(
            len(counts.splits(total))
            for n in range(self.hidden.trials + 1)
            for total in sums(n, len(counts.block.successors))
        )
        sweeps = math.log(0.95) / math.log(max(ahead.discount, 0.01))
        once = OF_TRANSITION * sweeps * _transitions(model) + OF_OUTCOME * outcomes
        sizes = [ahead.layers.count(d) for d in range(ahead.decisions + 1)]
        products = 4 * sizes[-1] * n_mdps / PRODUCTS + sum(sizes) / BACKED_UP
        return (n_mdps / CHUNK * once + products) / ahead.threads

    def n_mdps(self, limit: float | None) -> int:
        """Return the number of MDPs with which a replication takes at most `limit` seconds; 0 where
        the fewest take longer.
        """
        if limit is None:
            return USUAL_MDPS
        number = MOST_MDPS
        while number >= LEAST_MDPS and self.seconds(number) > limit:
            number //= 2
        return number if number >= LEAST_MDPS else 0

    def replication(
        self, control: Control, n_mdps: int, seed: np.random.SeedSequence
    ) -> Replication:
        """Return an estimate of the upper bound.

        The expectation of its value is not below the bound.

        Args:
          n_mdps: number of MDPs drawn, a power of 2.
        """
        ahead, layers = self.ahead, self.ahead.layers
        own, shown = seed.spawn(2)
        mdps, values, shown_value = ahead.sample(n_mdps, own, even=not self.certified)
        number, trials = self.hidden.number, self.hidden.trials
        cells = layers.layer(ahead.decisions)
        few = [cell for cell in cells if sum(cell.totals[number]) <= trials]
        many = [cell for cell in cells if sum(cell.totals[number]) > trials]
        leaves = HiddenLeaves(layers, few, control, self.hidden)
        with ThreadPoolExecutor(ahead.threads) as pool:
            firsts = range(0, n_mdps, CHUNK)
            for first, own in zip(firsts, shown.spawn(len(firsts)), strict=True):
                some = [rows[..., first : first + CHUNK] for rows in mdps.log_rows]
                leaves.add(some, 1 / n_mdps, own, pool)
        at_leaves = {cell: value + self._for_ever() for cell, value in leaves.estimates.items()}
        if many:
            at_leaves |= estimate(layers, many, mdps, values, control, ahead.threads)
        value = ahead.solve(at_leaves)
        if not self.certified:
            return Replication(value, shown_value)
        low, high = leaves.extremes
        middle, half = (low + high) / 2, (high - low) / 2
        return Replication(
            value,
            shown_value,
            float(middle.mean()),
            float((middle**2).mean()),
            float((half**2).mean()),
            self._range(control),
        )

    def margin(self, replications: Sequence[Replication], n_mdps: int, confidence: float) -> float:
        """Return how far the bound may lie above the average of independent estimates.

        As `LookAhead.margin`: what an MDP adds lies between the least and the greatest worth that
        it gives to a state and counts of the hidden rows, less the control.
        """
        return self.ahead.margin(replications, n_mdps, confidence)

    def _range(self, control: Control) -> float:
        model, rest = self.ahead.layers.model, 1 / (1 - self.ahead.discount)
        low, high = control.bounds()
        return float(rest * model.reward_range + (high - low).max())

    def _for_ever(self) -> float:
        """Return what to add to a value for ever, so that it is not below that of the decisions
        that are left.
        """
        least, discount = self.ahead.layers.model.least_reward, self.ahead.discount
        return max(0.0, -least) / (1 - discount) * discount**self.ahead.left

    def root(self, n_mdps: int, seed: np.random.SeedSequence) -> float:
        """Return an estimate of the bound without looking ahead."""
        model, (own, shown) = self.hidden.model, seed.spawn(2)
        rows = tuple(map(np.exp, samples.draw(model, n_mdps, own, even=True).log_rows))
        with ThreadPoolExecutor(self.ahead.threads) as pool:
            between, worth = self.hidden.solve(rows, shown, pool)
        worth_first = worth[self.hidden.counts.nothing]
        return float(np.mean([between.at(x, worth_first) for x in model.first_states]))


def hide(ahead: LookAhead, seed: np.random.SeedSequence) -> HiddenAhead | None:
    """Return the bound with the hidden state that makes it lowest without looking ahead, on a
    sample; None where the problem is too large, or no state can be hidden.
    """
    bounds = candidates(ahead)
    if not bounds:
        return None
    return bounds[int(np.argmin([one.root(CHOOSING, seed) for one in bounds]))]


def candidates(ahead: LookAhead) -> list[HiddenAhead]:
    """Return the bounds with each state that may be hidden: those that no symmetry of the states
    moves, and all of whose rows are uncertain.
    """
    layers, model = ahead.layers, ahead.layers.model
    if _transitions(model) > MOST_TRANSITIONS:
        return []
    bounds = []
    for number, block in enumerate(model.blocks):
        moved = any(one.states[block.state] != block.state for one in layers.symmetries)
        trials = _trials(layers, number, ahead.horizon)
        if trials and not moved and not model.certain[block.state]:
            counts = layers.blocks[number]
            hidden = Hidden(model, counts, ahead.discount, number, trials)
            bounds.append(HiddenAhead(ahead, hidden))
    return bounds


def _transitions(model: Model) -> int:
    """Return the number of possible transitions of a problem."""
    certain = sum(map(len, model.certain))
    return certain + sum(int(block.possible.sum()) for block in model.blocks)


def _trials(layers: Layers, number: int, horizon: int) -> int:
    """Return the most outcomes with at most `MOST_SPLITS` counts, 0 if not even one has so few."""
    counts, most = layers.blocks[number], min(MOST_TRIALS, horizon)
    for n in range(1, most + 1):
        if math.comb(n + len(counts.block.successors) - 1, n) > MOST_SPLITS:
            return n - 1
        totals = sums(n, len(counts.block.successors))
        if sum(map(counts.divisions, totals)) > MOST_DIVISIONS:
            return n - 1
        if sum(len(counts.splits(total)) for total in totals) > MOST_SPLITS:
            return n - 1
    return most


class HiddenLeaves:
    """Sums over MDPs of the values at the end of the look-ahead.

    Args:
      cells: those with at most as many outcomes of the hidden state as `hidden` counts.
    """

    def __init__(self, layers: Layers, cells: list[Cell], control: Control, hidden: Hidden) -> None:
        self.layers, self.control, self.hidden = layers, control, hidden
        self.estimates = {cell: control.mean(cell) for cell in cells}
        self._extremes: list[np.ndarray] = []  # of some MDPs each, [2, M]
        cut, axis, end = cut_blocks(layers, cells), hidden.number, len(layers.blocks)
        first, last = slice(0, cut), slice(cut, end)
        self._hidden_first = axis < cut
        self._with, self._without = (first, last) if self._hidden_first else (last, first)
        self._groups: dict[tuple[int, tuple[Total, ...]], list[Cell]] = {}
        for cell in cells:
            key = (cell.state, cell.totals[self._with])
            self._groups.setdefault(key, []).append(cell)

    def add(
        self, log_rows: list[np.ndarray], share: float, seed: np.random.SeedSequence, pool: Executor
    ) -> None:
        """Add the part of some MDPs.

        Args:
          log_rows: by block, [A, K, M].
          share: of one of these MDPs among all.
        """
        rows = tuple(np.exp(block) for block in log_rows)
        between, worth = self.hidden.solve(rows, seed, pool)
        p = variables_of(self.layers.model, rows, len(between.least))
        rest = _Rest(self.control, self.hidden.number, p)
        weights = Weights(self.layers, log_rows)
        add = partial(self._add, weights, between, worth, rest, share)
        found = np.array(list(pool.map(add, self._groups.items())))
        self._extremes.append(np.array([found[:, 0].min(0), found[:, 1].max(0)]))

    @property
    def extremes(self) -> np.ndarray:
        """Return the least and the greatest value of each MDP at any leaf, less the control, [2, M]
        float64.
        """
        return np.concatenate(self._extremes, 1).astype(np.float64)

    def _add(
        self,
        weights: Weights,
        between: Between,
        worth: Worth,
        rest: "_Rest",
        share: float,
        group: tuple[tuple[int, tuple[Total, ...]], list[Cell]],
    ) -> np.ndarray:
        (x, totals), cells = group
        product = np.ones((1, len(between.least)), np.float32)
        for number, total in enumerate(totals, self._with.start):
            if number == self.hidden.number:
                factor = between.at(x, worth[total]) - rest.of(x, total)
                extremes = np.array([factor.min(0), factor.max(0)])
            elif any(total):
                factor = weights.of(number, total)
            else:
                continue
            product = (product[:, None] * factor).reshape(-1, product.shape[1])
        product *= np.float32(share)
        for cell in cells:
            other = weights.product(self._without.start, cell.totals[self._without])
            a, b = (product, other) if self._hidden_first else (other, product)
            self.estimates[cell] += (a @ b.T).reshape(self.estimates[cell].shape)
        return extremes


class _Rest:
    """The mean of the control function given the counts of the hidden block and the rows of the
    others.

    Args:
      p: free transition probabilities of MDPs, [V, M].
    """

    def __init__(self, control: Control, axis: int, p: np.ndarray) -> None:
        self._control, self._axis, self._here = control, axis, control.slices[axis]
        self._others = p.copy()
        self._others[self._here] = 0
        self._of_state: dict[int, tuple[np.ndarray, np.ndarray | None]] = {}

    def of(self, x: int, total: Total) -> np.ndarray:
        """Return it for each split of a total, [n, M] float32."""
        if x not in self._of_state:
            self._of_state[x] = self._parts(x)
        base, slope = self._of_state[x]
        own, means = self._control.own(self._axis, total)
        mean = base + own[x][:, None].astype(np.float32)
        if slope is not None:
            mean += means.astype(np.float32) @ slope
        return mean

    def _parts(self, x: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return what concerns the other blocks alone, [M], and what multiplies the variables of
        the hidden one, [V_b, M]; None: nothing.
        """
        control, p = self._control, self._others
        base = control.constant[x] + control.slopes[x] @ p
        if control.curvatures is None:
            return base.astype(np.float32), None
        times = control.curvatures[x] @ p
        base += (p * times).sum(0)
        return base.astype(np.float32), (2 * times[self._here]).astype(np.float32)
