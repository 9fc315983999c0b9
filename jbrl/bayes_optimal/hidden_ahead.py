"""Upper bounds: look ahead, then be shown all rows but those of one or two states.

For counts c wanted is E[W_x(w(c_B)) | c], where W and the worth w of the hidden states B are
functions of the other states' rows. As in `samples`, it is an average over MDPs drawn from the
prior, with the exact weights of the counts of all states but B. The look-ahead ends after D
decisions, or when the hidden states have had so many outcomes that their rows are shown.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cached_property, partial

import numpy as np

from jbrl.bayes_optimal import samples
from jbrl.bayes_optimal.hidden import Between, Hidden, Totals, Worth, sums
from jbrl.bayes_optimal.look_ahead import LookAhead, Replication
from jbrl.bayes_optimal.plan import BACKED_UP, PRODUCTS
from jbrl.bayes_optimal.samples import CHUNK, Control, Weights, cut_blocks, variables_of
from jbrl.mdp import backward
from jbrl.mdp.counts import BlockCounts, Cell, Layers, Total
from jbrl.mdp.model import Model

# Counts of the hidden states after their last outcome: of the first runs, and ever.
USUAL_SPLITS, MOST_SPLITS = 10_000, 5 * 2**20
LEAVES = 25  # of the look-ahead that take half as long as such a count
DIVISIONS = 20  # of a count, exchangeable rows apart
MOST_TRIALS = 40
MOST_TRANSITIONS = 500  # uncertain ones of a problem
# bytes of the worths of the MDPs that are solved together: so many, or of each leaf
WORTHS, OF_LEAF = 2**28, 12
CHOOSING = 128  # MDPs on which the hidden states are chosen
SEARCH = 4  # replications: choosing may take as long as so many
# of a replication; as many as leave time for those that are enough, more outcomes are followed
LEAST_MDPS, ENOUGH_MDPS, USUAL_MDPS, MOST_MDPS = CHUNK, 2 * CHUNK, 4 * CHUNK, 32 * CHUNK

# Seconds on one core for 1,024 MDPs, with discount 0.95: of a transition of the problem, of an
# outcome of a count, of an outcome of a row that is shown; of a cell for those solved together.
OF_TRANSITION, OF_OUTCOME, OF_SHOWN, OF_CELL = 0.03, 6e-6, 8e-5, 1e-4


@dataclasses.dataclass(frozen=True, eq=False)
class HiddenAhead:
    """The problem of the upper bound with hidden states: rewards are at least 0, so that a lifetime
    without end is worth no less.

    `LookAhead.margin` is that of its estimates, too: what an MDP adds is a mean of the worths, less
    the control, that it gives to states and counts of the hidden rows.
    """

    ahead: LookAhead
    hidden: Hidden
    shift: float = 0.0  # how much less than when all is shown a state is worth, about

    @property
    def states(self) -> tuple[int, ...]:
        """Return the hidden states, that which is reached first first."""
        return self.hidden.states

    @cached_property
    def layers(self) -> Layers:
        """Return the layers of the look-ahead, which ends where the hidden rows are shown."""
        numbers, trials = self.hidden.numbers, self.hidden.trials

        def shown(cell: Cell) -> bool:
            return sum(sum(cell.totals[number]) for number in numbers) >= trials

        return self.ahead.layers.ending(shown)

    def seconds(self, n_mdps: int) -> float:
        """Estimate the duration of a replication."""
        ahead, hidden, layers = self.ahead, self.hidden, self.ahead.layers
        sweeps = math.log(0.95) / math.log(max(ahead.discount, 0.01))
        splits = _splits(hidden.counts, hidden.trials).sum()
        outcomes = splits * sum(int(c.block.possible.sum()) for c in hidden.counts)
        once = OF_TRANSITION * sweeps * _transitions(hidden.model) + OF_OUTCOME * outcomes
        for rows in itertools.product(*(c.block.possible.sum(1) for c in hidden.counts)):
            once += OF_SHOWN * sum(rows) * math.comb(hidden.trials + sum(rows), sum(rows))
        sizes = [layers.count(d) for d in range(ahead.decisions + 1)]
        products = 2 * sizes[-1] * n_mdps / PRODUCTS + sum(sizes) / BACKED_UP
        cells = OF_CELL * len(layers.layer(ahead.decisions)) * math.ceil(n_mdps / self._chunk)
        return (n_mdps / CHUNK * once + products + cells) / ahead.threads

    def fitting(self, limit: float | None) -> "HiddenAhead":
        """Return the bound with as many outcomes as leave time for `ENOUGH_MDPS`, or, without a
        limit, as take about twice as long as the look-ahead.
        """
        counts, ahead = self.hidden.counts, self.ahead
        if not limit:
            own = ahead.layers.count(ahead.decisions) // LEAVES
            splits = min(MOST_SPLITS, max(USUAL_SPLITS, own))
            return self.following(_trials(counts, ahead.horizon, splits))
        found = self.following(1)
        for trials in range(2, min(MOST_TRIALS, ahead.horizon) + 1):
            more = self.following(trials)
            if not _few(counts, trials, MOST_SPLITS) or more.seconds(ENOUGH_MDPS) > limit:
                break
            found = more
        return found

    def following(self, trials: int) -> "HiddenAhead":
        """Return the bound in which so many outcomes are followed."""
        return dataclasses.replace(self, hidden=dataclasses.replace(self.hidden, trials=trials))

    def replication(
        self, control: Control, n_mdps: int, seed: np.random.SeedSequence
    ) -> Replication:
        """Return an estimate of the upper bound.

        The expectation of its value is not below the bound.

        Args:
          n_mdps: number of MDPs drawn.
        """
        ahead = self.ahead
        own, shown = seed.spawn(2)
        mdps, _, shown_value = ahead.sample(n_mdps, own)
        control = dataclasses.replace(control, constant=control.constant - self.shift)
        leaves = HiddenLeaves(self, control)
        with ThreadPoolExecutor(ahead.threads) as pool:
            firsts = range(0, n_mdps, self._chunk)
            for first, own in zip(firsts, shown.spawn(len(firsts)), strict=True):
                some = [rows[..., first : first + self._chunk] for rows in mdps.log_rows]
                leaves.add(some, 1 / n_mdps, own, pool)
        square = ahead.square(self.layers, leaves.squares)
        value = backward.solve(
            self.layers, ahead.decisions, leaves.estimates, ahead.discount, ahead.threads
        )
        return Replication(value, shown_value, square, control.residual, self._greatest(control))

    @cached_property
    def _chunk(self) -> int:
        """Return how many MDPs are solved together."""
        worths = _splits(self.hidden.counts, self.hidden.trials).sum() * len(self.hidden.counts)
        most = max(WORTHS, OF_LEAF * self.ahead.layers.count(self.ahead.decisions))
        return int(2 ** min(math.log2(CHUNK), max(0, math.log2(most / 4 / worths) // 1)))

    def leaves(self) -> dict[Cell, int]:
        """Return the cells at the end of the look-ahead, and how many decisions earlier than D it
        may come to them.
        """
        decisions, found = self.ahead.decisions, dict[Cell, int]()
        for t in range(decisions + 1):
            for cell in self.layers.layer(t):
                if t == decisions or self.layers.ends(cell):
                    found.setdefault(cell, decisions - t)
        return found

    def _greatest(self, control: Control) -> float:
        model, rest = self.ahead.layers.model, 1 / (1 - self.ahead.discount)
        earliest = self.ahead.discount ** -max(self.leaves().values())
        most = rest * (model.least_reward + model.reward_range) - control.least().min()
        return float(earliest * max(most, 0.0))

    def root(self, n_mdps: int, seed: np.random.SeedSequence) -> float:
        """Return an estimate of the bound without looking ahead."""
        model, (own, shown) = self.hidden.model, seed.spawn(2)
        rows = tuple(map(np.exp, samples.draw(model, n_mdps, own, even=True).log_rows))
        with ThreadPoolExecutor(self.ahead.threads) as pool:
            between, worth = self.hidden.solve(rows, shown, pool)
        first = worth[self.hidden.nothing]
        return float(np.mean([self.hidden.at(x, first, between) for x in model.first_states]))


def hide(
    ahead: LookAhead, seed: np.random.SeedSequence, limit: float | None = None
) -> list[HiddenAhead]:
    """Return the bound with the hidden state that makes it lowest without looking ahead, on a
    sample, and that with two; none where the problem is too large, or no state can be hidden.

    Args:
      limit: seconds that a replication may take, on which the outcomes that are followed depend,
        and how many states are tried.
    """
    bounds = candidates(ahead)
    roots, started = dict[HiddenAhead, float](), time.perf_counter()
    for one in bounds:
        roots[one] = one.following(max(1, one.hidden.trials // 2)).root(CHOOSING, seed)
        if limit is not None and time.perf_counter() - started > SEARCH * limit:
            break
    kinds = [[one for one in roots if len(one.states) == number] for number in (1, 2)]
    best = [min(kind, key=lambda one: roots[one]) for kind in kinds if kind]
    *_, shown = ahead.sample(CHOOSING, seed, even=True)
    return [dataclasses.replace(one, shift=shown - roots[one]).fitting(limit) for one in best]


def restored(ahead: LookAhead, states: Sequence[int], trials: int, shift: float) -> HiddenAhead:
    """Return the bound that `hide` has found before."""
    found = next(one for one in candidates(ahead) if one.states == tuple(states))
    return dataclasses.replace(found.following(trials), shift=shift)


def candidates(ahead: LookAhead) -> list[HiddenAhead]:
    """Return the bounds with each state, and each two, that may be hidden: those that no symmetry
    of the states moves, and all of whose rows are uncertain.
    """
    layers, model = ahead.layers, ahead.layers.model
    if _transitions(model) > MOST_TRANSITIONS:
        return []
    allowed = [
        number
        for number, block in enumerate(model.blocks)
        if not model.certain[block.state]
        and all(one.states[block.state] == block.state for one in layers.symmetries)
    ]
    bounds = []
    for numbers in (*((one,) for one in allowed), *_pairs(model, allowed)):
        counts = tuple(layers.blocks[number] for number in numbers)
        trials = _trials(counts, ahead.horizon, USUAL_SPLITS)
        if trials:
            hidden = Hidden(model, counts, ahead.discount, numbers, trials)
            bounds.append(HiddenAhead(ahead, hidden))
    return bounds


def _pairs(model: Model, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield two blocks of which the states of no others lead to the second one."""
    after = [{row.successor for row in rows} for rows in model.certain]
    for block in model.blocks:
        after[block.state] |= set(map(int, block.successors))
    for pair in itertools.permutations(numbers, 2):
        states = [model.blocks[number].state for number in pair]
        outside = (after[x] for x in range(model.n_states) if x not in states)
        if states[1] in after[states[0]] and not any(states[1] in reached for reached in outside):
            yield pair


def _transitions(model: Model) -> int:
    """Return the number of possible transitions of a problem."""
    certain = sum(map(len, model.certain))
    return certain + sum(int(block.possible.sum()) for block in model.blocks)


def _splits(counts: Sequence[BlockCounts], trials: int) -> np.ndarray:
    """Return the number of counts after 0, 1, …, `trials` outcomes: [trials + 1] int."""
    found = np.eye(1, trials + 1, dtype=int)[0]
    for one in counts:
        n_successors = len(one.block.successors)
        own = [sum(len(one.splits(t)) for t in sums(n, n_successors)) for n in range(trials + 1)]
        found = np.convolve(found, own)[: trials + 1]
    return found


def _trials(counts: Sequence[BlockCounts], horizon: int, most_splits: int) -> int:
    """Return the most outcomes with at most `most_splits` counts, 0 if not even one has so few."""
    trials = range(1, min(MOST_TRIALS, horizon) + 1)
    few = itertools.takewhile(lambda n: _few(counts, n, most_splits), trials)
    return max(few, default=0)


def _few(counts: Sequence[BlockCounts], n: int, most_splits: int) -> bool:
    """Return whether `n` outcomes have at most `most_splits` counts, found in reasonable time."""
    for one in counts:
        n_successors = len(one.block.successors)
        if math.comb(n + n_successors - 1, n) > most_splits:
            return False
        if sum(map(one.divisions, sums(n, n_successors))) > DIVISIONS * most_splits:
            return False
    return bool(_splits(counts, n)[n] <= most_splits)


class HiddenLeaves:
    """Sums over MDPs of the values at the end of the look-ahead.

    Values are less the control, whose mean is added to the estimates.
    """

    def __init__(self, relaxed: HiddenAhead, control: Control) -> None:
        self.layers, self.hidden, self.control = relaxed.layers, relaxed.hidden, control
        layers, hidden, cells = self.layers, self.hidden, relaxed.leaves()
        self.estimates = {cell: control.mean(cell) for cell in cells}
        self.squares = {cell: np.zeros(layers.shape(cell)) for cell in cells}
        self._factors = {  # of squares, in returns after D decisions
            cell: relaxed.ahead.discount ** (-2 * earlier) for cell, earlier in cells.items()
        }
        cut, end = cut_blocks(layers, list(cells), hidden.numbers), len(layers.blocks)
        self._hidden_first = hidden.numbers[0] < cut
        sides = [slice(0, cut), slice(cut, end)]
        self._with, self._without = sides if self._hidden_first else sides[::-1]
        self._groups: dict[tuple[int, tuple[Total, ...]], list[Cell]] = {}
        for cell in cells:
            self._groups.setdefault((cell.state, cell.totals[self._with]), []).append(cell)

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
        rest = _Rest(self.control, self.hidden.numbers, p)
        weights = Weights(self.layers, log_rows)
        add = partial(self._add, weights, between, worth, rest, share)
        list(pool.map(add, self._groups.items()))

    def _add(
        self,
        weights: Weights,
        between: Between,
        worth: Worth,
        rest: "_Rest",
        share: float,
        group: tuple[tuple[int, tuple[Total, ...]], list[Cell]],
    ) -> None:
        (x, totals), cells = group
        first, numbers, n_mdps = self._with.start, self.hidden.numbers, len(between.least)
        own = tuple(totals[number - first] for number in numbers)
        value = self.hidden.at(x, worth[own], between) - rest.of(x, own)
        value = _spread(value, numbers, range(first, self._with.stop))
        factor: np.ndarray = np.full(n_mdps, share, np.float32)
        for axis, total in enumerate(totals):
            if any(total) and first + axis not in numbers:
                own_factor = weights.of(first + axis, total)
                tail = (1,) * (len(totals) - 1 - axis)
                factor = factor * own_factor.reshape(len(own_factor), *tail, n_mdps)
        part = value * factor
        both = np.stack([part, part * value]).reshape(-1, n_mdps)
        for cell in cells:
            other = weights.product(self._without.start, cell.totals[self._without])
            products = both @ other.T if self._hidden_first else other @ both.T
            mean, square = np.split(products, 2, axis=0 if self._hidden_first else 1)
            self.estimates[cell] += mean.reshape(self.estimates[cell].shape)
            square = square.reshape(self.estimates[cell].shape)
            self.squares[cell] += self._factors[cell] * square


def _spread(values: np.ndarray, numbers: Sequence[int], blocks: range) -> np.ndarray:
    """Return values [n, …, M], an axis for each of some blocks, with an axis for each of `blocks`,
    in their order.
    """
    values = values.transpose(*np.argsort(numbers), len(numbers))
    kept = dict(zip(sorted(numbers), values.shape, strict=False))
    return values.reshape(*(kept.get(number, 1) for number in blocks), values.shape[-1])


class _Rest:
    """The mean of the control function given the counts of the hidden blocks and the rows of the
    others.

    Args:
      p: free transition probabilities of MDPs, [V, M].
    """

    def __init__(self, control: Control, numbers: Sequence[int], p: np.ndarray) -> None:
        self._control, self._numbers = control, numbers
        self._others = p.copy()
        for number in numbers:
            self._others[control.slices[number]] = 0
        self._of_state: dict[int, tuple[np.ndarray, np.ndarray | None]] = {}

    def of(self, x: int, totals: Totals) -> np.ndarray:
        """Return it for each split of totals, [n, …, M] float32."""
        if x not in self._of_state:
            self._of_state[x] = self._parts(x)
        mean, times = self._of_state[x]
        before: list[tuple[slice, np.ndarray]] = []  # variables and means of hidden blocks
        curvatures = self._control.curvatures
        for number, total in zip(self._numbers, totals, strict=True):
            here = self._control.slices[number]
            own, means = self._control.own(number, total)
            part = own[x].astype(np.float32)[:, None]
            if times is not None:
                part = part + 2 * means.astype(np.float32) @ times[here]
            mean = mean[..., None, :] + part
            if curvatures is not None:
                for there, others in before:
                    between = others @ curvatures[x][there, here] @ means.T
                    mean += 2 * between[:, :, None].astype(np.float32)
                before.append((here, means))
        return mean

    def _parts(self, x: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return what concerns the other blocks alone, [M], and what multiplies the variables of
        all, [V, M]; None: nothing.
        """
        control, p = self._control, self._others
        base = control.constant[x] + control.slopes[x] @ p
        if control.curvatures is None:
            return base.astype(np.float32), None
        times = control.curvatures[x] @ p
        base += (p * times).sum(0)
        return base.astype(np.float32), times.astype(np.float32)
