"""The look-ahead: backward induction over (state, counts) for D decisions.

With values at its end that are greater than the true ones it gives an upper bound: `LookAhead`
takes what an agent earns that is then shown the MDP. Its greedy choices, with any values at the
end, are a policy (`Table`), which is judged by what it earns.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from jbrl.bayes_optimal import samples
from jbrl.bayes_optimal.counts import Cell, Layers
from jbrl.bayes_optimal.limits import upper_margin
from jbrl.bayes_optimal.model import sweep
from jbrl.bayes_optimal.samples import Control, estimate, fit_control

PART = 2**16  # (state, counts) at a time: their arrays stay in a core's cache

Values = dict[Cell, np.ndarray]  # by cell, float64 of its shape
Slices = tuple[slice, slice, slice]
PRECISION = 1e-2  # of values of mean MDPs, as a part of the greatest one
MOST_SWEEPS = 1000
PILOT = 8192  # MDPs that the control function is fitted to


def solve(layers: Layers, decisions: int, leaves: Values, discount: float, threads: int) -> float:
    """Return the greatest expected discounted return from the first state on.

    Args:
      decisions: D, how far to look ahead.
      leaves: value of each (state, counts) after D decisions; emptied, to free its memory.
    """
    after = leaves
    with ThreadPoolExecutor(threads) as pool:
        for t in reversed(range(decisions)):
            cells = layers.layer(t)
            values = list(pool.map(partial(back_up, layers, after, discount), cells))
            after.clear()
            after = dict(zip(cells, values, strict=True))
    return float(np.mean([layers.values(after, cell).item() for cell in layers.first]))


def back_up(layers: Layers, after: Values, discount: float, cell: Cell) -> np.ndarray:
    """Return the values of a cell, of its shape, from those one decision later."""
    shape = layers.shape(cell)
    folded = _folded(layers, cell)
    best = np.empty(folded)
    rows = _Rows(layers, after, discount, cell)
    for part in _parts(folded):
        here = best[part]
        for number, q in enumerate(rows.values(part)):
            if number:
                np.maximum(here, q, out=here)
            else:
                here[:] = q
    return best.reshape(shape)


def back_up_and_choose(
    layers: Layers, after: Values, discount: float, cell: Cell
) -> tuple[np.ndarray, np.ndarray]:
    """Return values as `back_up`, and the number of the greedy row, int16: certain rows first."""
    shape = layers.shape(cell)
    folded = _folded(layers, cell)
    best, choice = np.full(folded, -np.inf), np.zeros(folded, np.int16)
    rows = _Rows(layers, after, discount, cell)
    for part in _parts(folded):
        for number, q in enumerate(rows.values(part)):
            choice[part][q > best[part]] = number
            np.maximum(best[part], q, out=best[part])
    return best.reshape(shape), choice.reshape(shape)


def _folded(layers: Layers, cell: Cell) -> tuple[int, int, int]:
    """Return the shape of a cell with three axes, the block of its state in the middle."""
    shape, number = layers.shape(cell), int(layers.model.block_of[cell.state])
    if number < 0:
        return 1, 1, math.prod(shape)
    return math.prod(shape[:number]), shape[number], math.prod(shape[number + 1 :])


def _parts(folded: tuple[int, int, int]) -> Iterator[Slices]:
    """Yield slices of three axes, of at most `PART` entries."""
    behind = min(folded[2], PART)
    middle = max(1, min(folded[1], PART // behind))
    before = max(1, min(folded[0], PART // (behind * middle)))
    for i in range(0, folded[0], before):
        for j in range(0, folded[1], middle):
            for k in range(0, folded[2], behind):
                yield slice(i, i + before), slice(j, j + middle), slice(k, k + behind)


class _Rows:
    """The rows of the state of a cell, and the values after them."""

    def __init__(self, layers: Layers, after: Values, discount: float, cell: Cell) -> None:
        folded = _folded(layers, cell)
        self._discount = discount
        self._certain = [
            (row.reward, layers.values(after, Cell(row.successor, cell.totals)).reshape(folded))
            for row in layers.model.certain[cell.state]
        ]
        number = int(layers.model.block_of[cell.state])
        self._uncertain = []
        if number < 0:
            return
        counts, total = layers.blocks[number], cell.totals[number]
        block, predictive = counts.block, counts.splits(total).predictive
        following = [
            layers.values(after, layers.successor(cell, k)).reshape(folded[0], -1, folded[2])
            for k in range(len(block.successors))
        ]
        for row in range(len(block.actions)):
            some = [int(k) for k in np.flatnonzero(block.possible[row])]
            gain = (predictive[row] * block.rewards[row][:, None]).sum(0)[:, None]
            self._uncertain.append(
                (
                    gain,
                    [
                        (
                            following[k],
                            counts.after(total, row, k),
                            discount * predictive[row, k][:, None],
                        )
                        for k in some
                    ],
                )
            )

    def values(self, part: Slices) -> Iterator[np.ndarray]:
        """Yield the values of each row in a part of the cell; the next overwrites the last."""
        for reward, after in self._certain:
            yield reward + self._discount * after[part]
        before, middle, behind = part
        for gain, outcomes in self._uncertain:
            q: np.ndarray | None = None
            for following, places, weight in outcomes:
                reached = following[before, places[middle], behind]
                reached *= weight[middle]
                q = reached if q is None else np.add(q, reached, out=q)
            assert q is not None
            q += gain[middle]
            yield q


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """The greedy choice in each (state, counts) of the first D decisions.

    A choice is the number of a certain row of the state, or the number of its certain rows plus the
    position of an uncertain one.
    """

    layers: Layers
    choices: tuple[dict[Cell, np.ndarray], ...]  # by layer, of the shape of each cell, int8

    @property
    def decisions(self) -> int:
        return len(self.choices)


def make_table(
    layers: Layers, decisions: int, leaves: dict[Cell, np.ndarray], discount: float, threads: int
) -> Table:
    """Return the greedy choices in a look-ahead of D decisions with these values after them."""
    after, choices = leaves, []
    with ThreadPoolExecutor(threads) as pool:
        for t in reversed(range(decisions)):
            cells = layers.layer(t)
            results = list(pool.map(partial(back_up_and_choose, layers, after, discount), cells))
            choices.append({cell: choice for cell, (_, choice) in zip(cells, results, strict=True)})
            after = {cell: value for cell, (value, _) in zip(cells, results, strict=True)}
    return Table(layers, tuple(reversed(choices)))


def mean_values(
    layers: Layers, cells: list[Cell], discount: float, left: int, threads: int
) -> dict[Cell, np.ndarray]:
    """Return the optimal values of the posterior-mean MDPs, of the shape of each cell."""
    with ThreadPoolExecutor(threads) as pool:
        values = pool.map(partial(_mean_value, layers, discount, left), cells)
        return dict(zip(cells, values, strict=True))


def _mean_value(layers: Layers, discount: float, left: int, cell: Cell) -> np.ndarray:
    model, shape = layers.model, layers.shape(cell)
    rows = []
    for axis, (block, total) in enumerate(zip(layers.blocks, cell.totals, strict=True)):
        predictive = block.splits(total).predictive  # [A, K, n]
        tail = [1] * axis + [-1] + [1] * (len(shape) - axis - 1)
        rows.append(predictive.reshape(*predictive.shape[:2], *tail))
    value = np.zeros((model.n_states, *shape))
    for _ in range(min(left, MOST_SWEEPS)):
        new = sweep(model, tuple(rows), discount, value)
        change = new - value
        least, most = change.min(), change.max()
        value = new
        if most - least <= PRECISION * (1 - discount) * np.abs(value).max():
            # The same change at each further sweep: MacQueen 1966.
            value += discount / (1 - discount) * (most + least) / 2
            break
    return value[cell.state]


@dataclasses.dataclass(frozen=True)
class Replication:
    """An estimate of an upper bound."""

    value: float
    clairvoyant: float  # an estimate of the value that an agent earns which is shown the MDP
    # means over MDPs of the middle of the values in all states, less the control, of its square,
    # and of the square of half the difference of the greatest and the smallest
    middle: float = 0.0
    squares: float = 0.0
    halves: float = 0.0
    value_range: float = 0.0  # difference of the greatest and the smallest that are possible


@dataclasses.dataclass(frozen=True, eq=False)
class LookAhead:
    """The problem of the upper bound."""

    layers: Layers
    discount: float
    horizon: int
    decisions: int  # D
    threads: int

    @property
    def left(self) -> int:
        """Return the number of decisions after the look-ahead."""
        return self.horizon - self.decisions

    @property
    def exact(self) -> bool:
        """Return whether the look-ahead reaches the horizon: then nothing is sampled."""
        return self.left == 0

    def control(self, seed: np.random.SeedSequence) -> Control:
        """Fit the control function, to a sample of its own."""
        model = self.layers.model
        mdps = samples.draw(model, PILOT, seed, even=True)
        values = samples.values(model, mdps, self.discount, (self.left,))
        return fit_control(self.layers, mdps, values[self.left])

    def replication(
        self, control: Control, n_mdps: int, seed: np.random.SeedSequence
    ) -> Replication:
        """Return an estimate of the upper bound.

        The expectation of its value is not below the bound.

        Args:
          n_mdps: number of MDPs drawn.
        """
        mdps, values, shown = self.sample(n_mdps, seed)
        cells = self.layers.layer(self.decisions)
        leaves = estimate(self.layers, cells, mdps, values, control, self.threads)
        rest = values - control.of_mdps(samples.variables(self.layers.model, mdps))
        middle, half = (rest.max(0) + rest.min(0)) / 2, (rest.max(0) - rest.min(0)) / 2
        low, high = control.bounds()
        least, most = self.layers.model.extremes(self.discount, self.left)
        return Replication(
            self.solve(leaves),
            shown,
            float(middle.mean()),
            float((middle**2).mean()),
            float((half**2).mean()),
            float((most - low).max() - (least - high).min()),
        )

    def margin(self, replications: Sequence[Replication], n_mdps: int, confidence: float) -> float:
        """Return how far the bound may lie above the average of independent estimates, whatever the
        distribution of the MDPs' values.

        For a policy of the look-ahead the average over MDPs estimates what it earns, and the
        greatest of these averages is not below that of the best policy. What an MDP adds to it is
        a mean of its values, less the control, in the states that the policy may have reached: it
        lies between the least and the greatest of them, `middle` - `half` and `middle` + `half`.
        """
        kept = np.array([(one.middle, one.squares, one.halves) for one in replications]).mean(0)
        n = n_mdps * len(replications)
        spread = math.sqrt(max(0.0, kept[1] - kept[0] ** 2)) + math.sqrt(kept[2])
        deviation = spread * math.sqrt(n / (n - 1))
        rest = math.prod([self.discount] * self.decisions)
        return rest * upper_margin(n, deviation, replications[0].value_range, confidence)

    def sample(
        self, n_mdps: int, seed: np.random.SeedSequence, *, even: bool = False
    ) -> tuple[samples.SampledMDPs, np.ndarray, float]:
        """Draw MDPs; return them, their optimal values with the decisions that are left after the
        look-ahead, and the mean clairvoyant value.
        """
        model = self.layers.model
        mdps = samples.draw(model, n_mdps, seed, even=even)
        steps = tuple({self.left, self.horizon})
        values = samples.values(model, mdps, self.discount, steps)
        shown = float(values[self.horizon][list(model.first_states)].mean())
        return mdps, values[self.left], shown

    def extremes(self) -> tuple[float, float]:
        """Return the values of the best policies for D decisions if all later outcomes are the
        worst, and the best, for an agent that knows how to take them; no agent's value is
        greater than the second one, and both are the Bayes-optimal value where D is the horizon.
        """
        cells = self.layers.layer(self.decisions)
        least, most = [
            self.solve({cell: np.full(self.layers.shape(cell), rest[cell.state]) for cell in cells})
            for rest in self.layers.model.extremes(self.discount, self.left)
        ]
        return least, most

    def solve(self, leaves: dict[Cell, np.ndarray]) -> float:
        return solve(self.layers, self.decisions, leaves, self.discount, self.threads)
