"""Problems of moves that may fail: what an agent earns that is shown the MDP, and one that pays for
what that tells it.

All rows of such a problem either stay or lead to one other state.
"""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.special import expit

from jbrl.bayes_optimal.limits import upper_margin
from jbrl.mdp.model import Block, Model
from jbrl.vectorize import native

OF_SAMPLE = 60  # bytes, of each move in an MDP of the prior
AT_ONCE, LANES = 2**15, 2**9  # MDPs in memory; those of one call of a program
CONTROL = 8  # samples of `AT_ONCE` MDPs that limit the means of the control
MISSED = 1e-3  # probability that one of these limits is too low
PRECISION, MOST_SWEEPS = 1e-4, 100  # of worths on average, as a part of the greatest one
PAIR, MOST_COUNTED = 2, 5  # moves of a state whose failures are counted, and how many
LEAST = -1e30  # below all worths
OF_POINT = 4e-9  # seconds of one core, of an MDP after some failures in a state
MOST_DISCOUNT = 0.99  # at which an agent pays: in single precision, differences lose digits


@dataclasses.dataclass(frozen=True)
class Move:
    """An uncertain row with two outcomes: to stay, which pays nothing, or to move."""

    row: int  # its number among the uncertain rows of the problem
    successor: int
    reward: float  # of the move, at least 0
    success: float  # concentration of the move
    failure: float  # concentration of staying
    forward: bool  # whether it leads farther from the first state


@dataclasses.dataclass(frozen=True, eq=False)
class Moves:
    """A problem all of whose uncertain rows are moves, and whose certain rows do nothing."""

    model: Model
    of_state: tuple[tuple[Move, ...], ...]

    @property
    def first(self) -> int:
        """Return the first state."""
        return self.model.first_states[0]

    @property
    def all(self) -> list[Move]:
        """Return all moves, in the order of their rows."""
        return [move for moves in self.of_state for move in moves]

    @cached_property
    def concentrations(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the concentrations of success and of failure of all moves, [R] each."""
        successes, failures = np.array([(move.success, move.failure) for move in self.all]).T
        return successes, failures

    @cached_property
    def distances(self) -> np.ndarray:
        """Return the least number of moves without a reward from the first state to each, [S]."""
        return _distances(self.model)

    @cached_property
    def order(self) -> list[int]:
        """Return the states with moves, those farthest from the first one first."""
        return [int(x) for x in np.argsort(-self.distances, kind="stable") if self.of_state[x]]


def find_moves(model: Model) -> Moves | None:
    """Return the moves of a problem, or None where it is not of this kind.

    Expected are one first state, a reward of 0 for staying, rewards of at least 0 for moving, and
    no certain row that leads elsewhere or pays.
    """
    if len(model.first_states) != 1 or not model.blocks:
        return None
    for x, certain in enumerate(model.certain):
        if any(row.successor != x or row.reward != 0 for row in certain):
            return None
    if not all(_is_moves(block) for block in model.blocks):
        return None
    distances = _distances(model)
    of_state: list[tuple[Move, ...]] = [()] * model.n_states
    row = 0
    for block in model.blocks:
        moves = []
        for weights, rewards in zip(block.concentrations, block.rewards, strict=True):
            stay, move = _outcomes(block, weights)
            y = int(block.successors[move])
            forward = distances[y] > distances[block.state]
            moves.append(
                Move(row, y, float(rewards[move]), weights[move], weights[stay], bool(forward))
            )
            row += 1
        of_state[block.state] = tuple(moves)
    return Moves(model, tuple(of_state))


def _is_moves(block: Block) -> bool:
    """Return whether all rows of a block are moves."""
    for possible, rewards in zip(block.possible, block.rewards, strict=True):
        to = block.successors[possible]
        if len(to) != 2 or block.state not in to or (rewards < 0).any():
            return False
        if rewards[block.successors == block.state].any():
            return False
    return True


def _outcomes(block: Block, weights: np.ndarray) -> tuple[int, int]:
    """Return the positions of staying and of moving among the successors of a row."""
    first, second = map(int, np.flatnonzero(weights))
    return (first, second) if block.successors[first] == block.state else (second, first)


def _distances(model: Model) -> np.ndarray:
    """Return the least number of moves without a reward from the first state to each, [S]."""
    distances = np.full(model.n_states, np.inf)
    edges = [
        (block.state, int(y))
        for block in model.blocks
        for possible, rewards in zip(block.possible, block.rewards, strict=True)
        for y in block.successors[possible & (rewards == 0)]
    ]
    distances[model.first_states[0]] = 0
    for _ in range(model.n_states):
        for x, y in edges:
            distances[y] = min(distances[y], distances[x] + 1)
    return distances


@dataclasses.dataclass(frozen=True, eq=False)
class Shown:
    """The worth of MDPs of the prior to an agent that is shown them.

    Attributes:
      seed: words of the seed of the sample that `known` is of.
    """

    moves: Moves
    discount: float
    horizon: int
    threads: int
    seed: tuple[int, ...]

    @property
    def memory(self) -> int:
        """Return the bytes that samples of the prior take, about."""
        return OF_SAMPLE * AT_ONCE * len(self.moves.all) * self.threads

    @cached_property
    def most(self) -> np.ndarray:
        return self.moves.model.extremes(self.discount, self.horizon)[1]

    @cached_property
    def paying(self) -> "Paying":
        """The problem of an agent that pays for what it is shown."""
        return Paying(self.moves, self.discount)

    @cached_property
    def known(self) -> np.ndarray:
        """Upper limits of the mean worths, [S] float64; with probability `MISSED` at most, one of
        them is too low.
        """
        first, *seeds = np.random.SeedSequence(self.seed).spawn(1 + CONTROL)
        pilot = self.worths(self.draw(AT_ONCE, first)[0])
        centre, variance = pilot.mean(1, dtype=float), pilot.var(1, dtype=float)

        def moments(seed: np.random.SeedSequence) -> tuple[np.ndarray, np.ndarray]:
            worths = self.worths(self.draw(AT_ONCE, seed)[0]).astype(np.float64)
            return worths.mean(1), ((worths - centre[:, None]) ** 2).mean(1)

        with ThreadPoolExecutor(self.threads) as pool:
            means, squares = np.mean(list(pool.map(moments, seeds)), axis=0)
        sure = 1 - MISSED / len(self.moves.of_state)
        facts = zip(squares, variance * (1 + 1 / AT_ONCE), self.most, strict=True)
        return means + [upper_margin(CONTROL * AT_ONCE, *some, sure) for some in facts]

    def draw(self, n_mdps: int, seed: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw the probabilities that moves succeed, and the logarithms of the gamma variables that
        they are made of, which small concentrations do not underflow: [R, M] each.
        """
        random = np.random.default_rng(seed)
        shape = len(self.moves.all), n_mdps
        up, down = (
            np.log(random.standard_gamma(a + 1, shape)) - random.standard_exponential(shape) / a
            for a in (own[:, None] for own in self.moves.concentrations)
        )
        return expit(up - down), up, down

    def worths(self, chances: np.ndarray) -> np.ndarray:
        """Return numbers that are not below the optimal values of MDPs, from above: [S, M] float32.

        A move is tried until it succeeds, or not at all; the lifetime may have no end. There are as
        many sweeps for all MDPs, so that those of one do not depend on others.

        Args:
          chances: of the success of each move, [R, M].
        """
        n = chances.shape[1]
        whole = np.pad(chances, ((0, 0), (0, -n % LANES)), "edge")
        parts = [
            self._sweep(whole[:, at : at + LANES], self._times)[0] for at in range(0, n, LANES)
        ]
        return np.concatenate(parts, axis=1)[:, :n]

    @cached_property
    def _times(self) -> np.int32:
        """Sweeps after which the first state's value falls no more, on average of `LANES` MDPs."""
        chances = self.draw(LANES, np.random.SeedSequence(self.seed))[0].astype(np.float32)
        for times in range(1, MOST_SWEEPS):
            if self._sweep(chances, np.int32(times))[1] <= PRECISION * self.most.max():
                return np.int32(times)
        return np.int32(MOST_SWEEPS)

    @cached_property
    def _sweep(self) -> Callable[[np.ndarray, np.int32], tuple[Array, Array]]:
        idle = [not moves for moves in self.moves.of_state]
        return sweeps(self.moves, np.where(idle, 0, self.most), self.discount)


def sweeps(
    moves: Moves, most: np.ndarray, discount: float
) -> Callable[[np.ndarray, np.int32], tuple[Array, Array]]:
    """Return a program that goes from state to state a number of times, for `LANES` MDPs.

    It takes chances, [R, LANES], and that number, and returns the values, [S, LANES] float32, and
    by how much that of the first state has fallen at last, on average.

    Args:
      most: values that none exceeds, [S].
    """
    each = [(x, move) for x in moves.order for move in moves.of_state[x]]
    states, rows, successors = (
        np.array(numbers, np.int32) * LANES
        for numbers in zip(*((x, move.row, move.successor) for x, move in each), strict=True)
    )
    rewards = np.array([move.reward for _, move in each], np.float32)
    last = np.append(states[1:] != states[:-1], True)
    g, lost = _rates(discount)

    def worths(chances: Array, times: Array) -> tuple[Array, Array]:
        # A move is tried until it succeeds; 1 - g (1 - p) would have no digits for g near 1.
        until = (chances / (lost + g * chances)).reshape(-1)
        first = jnp.int32(moves.first * LANES)

        def move(k: Array, carry: Any) -> Any:
            values, best, place, value = carry
            values = native.write_row(values, place, value)
            after = native.read_row(values, native.read(jnp.asarray(successors), k), LANES)
            chance = native.read_row(until, native.read(jnp.asarray(rows), k), LANES)
            best = jnp.maximum(best, chance * (native.read(jnp.asarray(rewards), k) + g * after))
            place, ends = native.read(jnp.asarray(states), k), native.read(jnp.asarray(last), k)
            old = native.read_row(values, place, LANES)
            value = jnp.where(ends, jnp.minimum(old, best), old)
            return values, jnp.where(ends, np.float32(0), best), place, value

        def sweep(_: Array, carry: Any) -> Any:
            values, _ = carry
            before = native.read_row(values, first, LANES)
            inner = values, jnp.zeros(LANES, jnp.float32), first, before
            values, _, place, value = lax.fori_loop(0, len(each), move, inner)
            values = native.write_row(values, place, value)
            return values, (before - native.read_row(values, first, LANES)).mean()

        start = jnp.repeat(jnp.asarray(most, jnp.float32), LANES), jnp.float32(0)
        values, fallen = lax.fori_loop(0, times, sweep, start)
        return values.reshape(-1, LANES), fallen

    return jax.jit(native.native(worths))


def _rates(discount: float) -> tuple[np.float32, np.float32]:
    """Return the discount, not rounded downward, since worths would be too low, and 1 less it."""
    g = np.float32(discount)
    return np.nextafter(g, np.float32(1)) if g < discount else g, np.float32(1 - discount)


# Stages: no move has led back so far; the first one has just done so; or it was followed by others.
AHEAD, BACK, AGAIN = range(3)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A stage in a state.

    Moves are given as (move, number of the cell after its success, whether it may have succeeded
    before): None stands for the end of what is paid. Failures of `counted` moves are counted.
    """

    counted: tuple[tuple[Move, int | None, bool], ...]
    others: tuple[tuple[Move, int | None, bool], ...]

    @property
    def points(self) -> int:
        """Return how many numbers of failures there are."""
        return (MOST_COUNTED + 1) ** len(self.counted)


@dataclasses.dataclass(frozen=True, eq=False)
class Paying:
    """An agent that is shown the MDP and pays for what that tells it (Brown, Smith and Sun 2010).

    For a try it pays (s - p) D, where s is 1 for a success and else 0, p is not below the
    probability of a success given what it should know, and D, at least 0, is how much more a
    success is worth than a failure, by the values v of a plan. Who does not use what is shown pays
    nothing on average, or less. It pays until a reward, or the second move that does not lead
    farther: see docs/bounds-proofs.md.
    """

    moves: Moves
    discount: float

    def worths(
        self,
        start: int,
        chances: np.ndarray,
        counts: np.ndarray,
        shown: np.ndarray,
        ends: np.ndarray,
    ) -> np.ndarray:
        """Return v, and what MDPs are worth, [2, M] float32: on average over what is known of them,
        not less than the Bayes-optimal value. No MDP is worth more than v and the most by which
        what is shown exceeds what it is taken to be, if anything.

        Args:
          start: the state, just reached.
          chances: of the success of each move, [R, M].
          counts: concentrations of success and failure that are known, [2, R, M].
          shown: values where nothing more is paid, [S, M].
          ends: what these are taken to be in v, numbers that do not depend on the MDP, [S, M].
        """
        n = chances.shape[1]
        if n == 0:
            return np.zeros((2, 0), np.float32)
        given = [
            np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, -n % LANES)], "edge").astype(np.float32)
            for v in (chances, *counts, shown, ends)
        ]
        order = np.zeros(len(self._cells), np.int32)
        needed = self._needed[start]
        order[: len(needed)] = needed
        parts = [
            self._program(order, np.int32(len(needed)), *(v[:, at : at + LANES] for v in given))
            for at in range(0, n, LANES)
        ]
        return np.concatenate(parts, axis=1)[:, :n]

    def possible(self, start: int) -> bool:
        """Return whether there is something to pay for."""
        return self.discount <= MOST_DISCOUNT and start in self._needed

    def seconds(self, start: int) -> float:
        """Estimate the duration for an MDP."""
        if not self.possible(start):
            return 0.0
        return OF_POINT * sum(self._cells[i].points for i in self._needed[start])

    @cached_property
    def _numbers(self) -> dict[tuple[int, int], int]:
        """Return the numbers of cells, after those that follow them, by stage and state."""
        cells = [(stage, x) for stage in (AGAIN, BACK, AHEAD) for x in self.moves.order]
        return {cell: number for number, cell in enumerate(cells)}

    @cached_property
    def _cells(self) -> list[Cell]:
        cells = []
        for stage, x in self._numbers:
            own = [
                (move, self._after(stage, x, move), self._was_made(stage, move))
                for move in self.moves.of_state[x]
            ]
            counted = [one for one in own if one[0].forward or one[0].reward > 0][:PAIR]
            cells.append(Cell(tuple(counted), tuple(one for one in own if one not in counted)))
        return cells

    def _was_made(self, stage: int, move: Move) -> bool:
        """Return whether a move may have succeeded since the start: one that leads farther only
        where another has led back to its state, others where one has led back.
        """
        return move.reward == 0 and (stage == BACK or (stage == AGAIN and not move.forward))

    def _after(self, stage: int, x: int, move: Move) -> int | None:
        """Return the cell after the success of a move, or None where no more is paid."""
        y, distances = move.successor, self.moves.distances
        if move.reward > 0:
            return None
        if move.forward:
            return self._numbers.get((AHEAD if stage == AHEAD else AGAIN, y))
        if stage == AHEAD and distances[y] >= distances[x] - 1:
            return self._numbers.get((BACK if distances[y] < distances[x] else AGAIN, y))
        return None

    @cached_property
    def _needed(self) -> dict[int, list[int]]:
        """Return the cells that those of a state ahead rest on, itself the last one."""
        needed: list[set[int]] = []
        for number, cell in enumerate(self._cells):
            after = [to for _, to, _ in (*cell.counted, *cell.others) if to is not None]
            needed.append(set().union({number}, *(needed[to] for to in after)))
        return {x: sorted(needed[n]) for (stage, x), n in self._numbers.items() if stage == AHEAD}

    @cached_property
    def _program(self) -> Callable[..., Array]:
        return visits(self._cells, len(self.moves.of_state), self.discount)


@dataclasses.dataclass(frozen=True, eq=False)
class _Cells:
    """Cells as arrays; those of moves have all moves of all cells in turn."""

    begin: Array  # the first move of each cell
    middle: Array  # the first one whose failures are not counted
    end: Array
    points: Array
    row: Array  # of each move, times LANES
    after: Array  # where the results of what follows are, times LANES
    reward: Array
    made: Array  # 1 if it may have succeeded before, which is then taken to be known
    stride: Array  # from a number of failures to the next, among the points of its cell


def _arrays(cells: Sequence[Cell], n_states: int) -> _Cells:
    """Return cells as arrays; results of the ends, by state, come before those of cells."""
    own = [(*cell.counted, *cell.others) for cell in cells]
    flat = [one for moves in own for one in moves]
    end = np.cumsum([len(moves) for moves in own])
    begin = np.append(0, end[:-1])
    after = [move.successor if to is None else n_states + to for move, to, _ in flat]
    stride = [(MOST_COUNTED + 1) ** n for moves in own for n in range(len(moves))]
    row = [move.row * LANES for move, _, _ in flat]
    return _Cells(
        begin=jnp.asarray(begin, jnp.int32),
        middle=jnp.asarray(begin + [len(cell.counted) for cell in cells], jnp.int32),
        end=jnp.asarray(end, jnp.int32),
        points=jnp.asarray([cell.points for cell in cells], jnp.int32),
        row=jnp.asarray(row, jnp.int32),
        after=jnp.asarray(after, jnp.int32) * LANES,
        reward=jnp.asarray([move.reward for move, _, _ in flat], jnp.float32),
        made=jnp.asarray([made for _, _, made in flat], jnp.float32),
        stride=jnp.asarray(stride, jnp.int32),
    )


def _row(array: Array, at: Array) -> Array:
    return native.read_row(array, at, LANES)


@dataclasses.dataclass(frozen=True, eq=False)
class _Visit:
    """All that a cell rests on; results of cells are one after the other."""

    cells: _Cells
    discount: np.float32
    lost: np.float32  # 1 - discount
    chances: Array
    until: Array  # 1 / (1 - discount (1 - chance))
    up: Array
    down: Array
    plans: Array
    worths: Array

    def success(self, k: Array, failed: Array | float) -> tuple[Array, Array]:
        """Return p of move k, and what a success is worth by plan."""
        cells = self.cells
        at = native.read(cells.row, k)
        a = _row(self.up, at) + native.read(cells.made, k)
        plan = _row(self.plans, native.read(cells.after, k))
        after = native.read(cells.reward, k) + self.discount * plan
        return a / (a + _row(self.down, at) + failed), after

    def planned(self, k: Array, failed: Array | float, again: Array | None) -> Array:
        """Return what move k is worth by plan: once and then `again`, or until it succeeds."""
        p, after = self.success(k, failed)
        if again is None:
            return p * after / (self.lost + self.discount * p)
        return p * after + (1 - p) * self.discount * again

    def paid(self, k: Array, failed: Array | float, otherwise: Array) -> Array:
        """Return what a try of move k earns by success on average, less what is paid for it; a
        failure is worth `otherwise` by plan.
        """
        p, after = self.success(k, failed)
        cells = self.cells
        chance = _row(self.chances, native.read(cells.row, k))
        worth = _row(self.worths, native.read(cells.after, k))
        earned = chance * (native.read(cells.reward, k) + self.discount * worth)
        return earned - (chance - p) * jnp.maximum(after - self.discount * otherwise, 0)

    def tried(self, k: Array, gain: Array, again: Array | None) -> Array:
        """Return what move k is worth: once and then `again`, or until it succeeds."""
        at = native.read(self.cells.row, k)
        if again is None:
            return gain * _row(self.until, at)
        return gain + (1 - _row(self.chances, at)) * self.discount * again

    def counted(self, k: Array, here: Array) -> tuple[Array, Array, Array]:
        """Return how often move k has failed, whether that is all that is counted, and where the
        results after another failure are.
        """
        stride = native.read(self.cells.stride, k)
        failed = (here // stride) % (MOST_COUNTED + 1)
        ends = failed == MOST_COUNTED
        return failed.astype(jnp.float32), ends, (here + jnp.where(ends, 0, stride)) * LANES


def _best(begin: Array, end: Array, value: Callable[[Array], Array], least: Array) -> Array:
    """Return the greatest value of some moves."""
    return lax.fori_loop(begin, end, lambda k, best: jnp.maximum(best, value(k)), least)


def _visit(visit: _Visit, cell: Array, memory: Any) -> tuple[Array, Array, Any]:
    """Return v and the worth of a cell.

    Args:
      memory: results after other failures; what is in there does not matter.
    """
    cells, zeros = visit.cells, jnp.zeros(LANES, jnp.float32)
    begin, middle, end = (native.read(v, cell) for v in (cells.begin, cells.middle, cells.end))
    points = native.read(cells.points, cell)
    floor = _best(middle, end, lambda k: visit.planned(k, 0.0, None), zeros)

    def point(j: Array, carry: Any) -> Any:
        plans, worths, at, plan, worth = carry
        plans, worths = native.write_row(plans, at, plan), native.write_row(worths, at, worth)
        here = points - 1 - j

        def planned(k: Array) -> Array:
            failed, ends, next_ = visit.counted(k, here)
            once = visit.planned(k, failed, _row(plans, next_))
            return jnp.where(ends, visit.planned(k, failed, None), once)

        plan = _best(begin, middle, planned, floor)

        def tried(k: Array) -> Array:
            failed, ends, next_ = visit.counted(k, here)
            gain = visit.paid(k, failed, jnp.where(ends, plan, _row(plans, next_)))
            once = visit.tried(k, gain, _row(worths, next_))
            return jnp.where(ends, visit.tried(k, gain, None), once)

        worth = _best(begin, middle, tried, zeros + LEAST)

        def tried_other(k: Array) -> Array:
            return visit.tried(k, visit.paid(k, 0.0, plan), None)

        return plans, worths, here * LANES, plan, _best(middle, end, tried_other, worth)

    spare = jnp.int32(memory[0].shape[0] - LANES)
    *memory, _, plan, worth = lax.fori_loop(0, points, point, (*memory, spare, zeros, zeros))
    return plan, worth, tuple(memory)


def visits(cells: Sequence[Cell], n_states: int, discount: float) -> Callable[..., Array]:
    """Return a program that goes through cells and returns v and the worths of the last one,
    [2, LANES].

    It takes numbers of cells, how many of them count, and what `Paying.worths` does, `LANES` MDPs.
    """
    arrays = _arrays(cells, n_states)
    g, lost = _rates(discount)

    def run(
        order: Array, count: Array, chances: Array, up: Array, down: Array, shown: Array, ends: Any
    ) -> Array:
        chances, up, down, shown, ends = (v.reshape(-1) for v in (chances, up, down, shown, ends))
        until, zeros = 1 / (lost + g * chances), jnp.zeros(LANES, jnp.float32)
        more = jnp.zeros((len(cells) + 1) * LANES, jnp.float32)
        blank = jnp.zeros((max(cell.points for cell in cells) + 1) * LANES, jnp.float32)

        def step(i: Array, carry: Any) -> Any:
            plans, worths, at, plan, worth, memory = carry
            plans, worths = native.write_row(plans, at, plan), native.write_row(worths, at, worth)
            cell = native.read(order, i)
            visit = _Visit(arrays, g, lost, chances, until, up, down, plans, worths)
            plan, worth, memory = _visit(visit, cell, memory)
            return plans, worths, (n_states + cell) * LANES, plan, worth, memory

        spare = jnp.int32((n_states + len(cells)) * LANES)
        begun = jnp.concatenate([ends, more]), jnp.concatenate([shown, more]), spare
        *_, plan, worth, _ = lax.fori_loop(0, count, step, (*begun, zeros, zeros, (blank, blank)))
        return jnp.stack([plan, worth])

    return jax.jit(native.native(run))
