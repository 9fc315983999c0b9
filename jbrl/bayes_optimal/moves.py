"""Upper bounds for problems of moves that may fail: failures are forgotten, the MDP is shown later.

All rows of such a problem either stay or lead to one other state. An agent forgets how often its
moves failed in a state when it leaves that state. Knowing of fewer failures never lowers the
Bayes-optimal value of such a problem, and being shown the MDP does not either:
docs/bounds-proofs.md proves both. The agent then remembers the successes on its way, and a few
failures where there is time, so that all that it may remember is enumerated.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.special import expit

from jbrl.bayes_optimal.limits import upper_margin
from jbrl.bayes_optimal.look_ahead import Replication, margin_of
from jbrl.mdp.model import Block, Model
from jbrl.vectorize import native

MOST_NODES = 20_000  # without a limit of time
LEAVES = 2  # for each node, about
OF_MEMORY = 32  # bytes that a node takes for each move of the problem, its leaves and growth too
MOST_EVENTS, MOST_REMEMBERED = 8, 3  # that are tried: events, and failures that are remembered
MOST_FAILURES = 16  # of each move in a state that are counted; further ones are forgotten at once
CHUNK = 256  # nodes at a time
OF_GROWTH = 12  # bytes, of each move of the problem in what may be remembered next
OF_SAMPLE = 60  # bytes, of each move in an MDP of the prior
AT_ONCE, LANES = 2**15, 2**9  # MDPs in memory; those of one call of the program
CONTROL = 8  # samples of `AT_ONCE` MDPs that limit the means of the control
MISSED = 1e-3  # probability that one of these limits is too low
LEAST_MDPS, USUAL_MDPS, MOST_MDPS = 2**4, 2**13, 2**15  # of each leaf in a replication
TRIED = 2**4  # MDPs of each leaf by which kinds of relaxations are compared
USEFUL = 2**6  # those of a replication that there is time for in a kind that is tried
PILOT = 16  # MDPs of a replication for each one of the sample that means are taken from
PRECISION, MOST_SWEEPS = 1e-4, 100  # of worths on average, as a part of the greatest one
# Seconds on one core: benchmarks/results/bounds-cpu2.jsonl.
OF_CHANCE, OF_MOVE = 6e-8, 6.5e-9  # of a move of a node after its failures, or in an MDP of a leaf


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
    def order(self) -> list[int]:
        """Return the states with moves, those farthest from the first one first."""
        distances = _distances(self.model)
        return [int(x) for x in np.argsort(-distances, kind="stable") if self.of_state[x]]


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


@dataclasses.dataclass(frozen=True, eq=False)
class Tree:
    """Nodes: a state just reached and what is remembered. Leaves: those where the MDP is revealed.

    `N` nodes, the root first, `L` leaves, `R` moves of the problem, at most `K` in a state.
    """

    states: np.ndarray  # of nodes, [N]
    own: np.ndarray  # remembered successes and failures of the moves of their state, [2, N, K]
    # node after the success of each move, or N + leaf, by the failures that are remembered of it,
    # [N, K, C]
    children: np.ndarray
    waves: tuple[range, ...]  # nodes after 0, 1, … moves; children are in later waves
    leaf_states: np.ndarray  # [L]
    memory: np.ndarray  # successes and failures of all moves at leaves, [L, 2, R]


@dataclasses.dataclass(frozen=True, eq=False)
class _Nodes:
    """Nodes, or leaves, after as many moves."""

    memory: np.ndarray  # successes and failures of all moves, [N, 2, R] uint8
    states: np.ndarray  # [N]
    left: np.ndarray  # events that do not reveal the MDP, [N]

    def some(self, which: np.ndarray) -> "_Nodes":
        return _Nodes(self.memory[which], self.states[which], self.left[which])

    def distinct(self) -> tuple["_Nodes", np.ndarray]:
        """Return those that differ, and the number of each one among them."""
        numbers = np.stack([self.states, self.left], axis=1).astype(np.int16).view(np.uint8)
        key = np.hstack(
            [self.memory.reshape(len(numbers), np.prod(self.memory.shape[1:])), numbers]
        )
        words = key.view(np.dtype((np.void, key.shape[1])))[:, 0]
        _, first, inverse = np.unique(words, return_index=True, return_inverse=True)
        return self.some(first), inverse


class _Growth:
    """The way from a wave of nodes to the next."""

    def __init__(self, moves: Moves, events: int, remembered: int) -> None:
        self._events, self._remembered = events, remembered
        shape = len(moves.of_state), max(map(len, moves.of_state))
        self.row, self._successor = np.zeros((2, *shape), np.int64)
        self._there, self._pays, self._is_event = np.zeros((3, *shape), bool)
        for x, own in enumerate(moves.of_state):
            for k, move in enumerate(own):
                self.row[x, k], self._successor[x, k] = move.row, move.successor
                self._there[x, k], self._pays[x, k] = True, move.reward > 0
                self._is_event[x, k] = move.reward > 0 or not move.forward

    def memory(self, nodes: _Nodes) -> int:
        """Return the bytes that `after` takes, about."""
        early = nodes.left == self._events - 1
        n_next = self._there[nodes.states].sum(1) @ (1 + self._remembered * early)
        return int(OF_GROWTH * n_next * nodes.memory.shape[2])

    def after(self, nodes: _Nodes) -> tuple[_Nodes, _Nodes, np.ndarray]:
        """Return the nodes and the leaves that follow, and for each node their numbers by its
        moves and their failures, [N, K, C]; those of leaves are -1, -2, ….
        """
        there = self._there[nodes.states][..., None]
        early = (nodes.left == self._events - 1)[:, None, None]
        failed = np.arange(self._remembered + 1)
        parents, k, failed = np.nonzero(there & (early | (failed == 0)))
        x, left, memory = nodes.states[parents], nodes.left[parents], nodes.memory[parents]
        rows, each = self.row[x, k], np.arange(len(k))
        memory[each, 0, rows] += 1
        memory[each, 1, rows] += failed.astype(np.uint8)
        spared = self._pays[x, k] & (left == self._events - 1)  # the first one, if a reward
        shown = self._is_event[x, k] & (left <= 0) & ~spared
        left = np.where(shown, 0, left - self._is_event[x, k])
        reached = _Nodes(memory, self._successor[x, k], left)
        (inner, of_inner), (leaves, of_leaves) = (
            reached.some(which).distinct() for which in (~shown, shown)
        )
        numbers = np.empty(len(k), np.int64)
        numbers[~shown], numbers[shown] = of_inner, -1 - of_leaves
        children = np.zeros((*there.shape[:2], self._remembered + 1), np.int64)
        children[parents, k] = numbers[failed == 0][np.cumsum(failed == 0) - 1][:, None]
        children[parents, k, failed] = numbers
        return inner, leaves, children


def grow(
    moves: Moves, events: int, remembered: int, most: float = math.inf, memory: float = math.inf
) -> Tree | None:
    """Enumerate what is remembered; None where there are more than `most` nodes, or growing takes
    more than `memory` bytes.

    Events are rewards and moves back. The MDP is revealed at the event of number `events`, or,
    where that is the first one and a reward, at the next. Before the first one, so many failures of
    a move that succeeds are `remembered` each time.
    """
    growth = _Growth(moves, events, remembered)
    nothing = np.zeros((1, 2, len(moves.all)), np.uint8)
    wave = _Nodes(nothing, np.array([moves.first]), np.array([events - 1]))
    waves, leaves, children, n, n_leaves = [], [], [], 0, 0
    while len(wave.states):
        if growth.memory(wave) > memory:
            return None
        after, shown, numbers = growth.after(wave)
        waves.append(wave)
        leaves.append(shown)
        n += len(wave.states)
        children.append(np.where(numbers < 0, numbers - n_leaves, numbers + n))
        n_leaves += len(shown.states)
        if n + len(after.states) > most:
            return None
        wave = after
    states, every = np.concatenate([w.states for w in waves]), np.concatenate(children)
    known = np.concatenate([w.memory for w in waves])
    ends = np.cumsum([len(w.states) for w in waves]).tolist()
    return Tree(
        states,
        known[np.arange(n)[:, None], :, growth.row[states]].transpose(2, 0, 1).astype(np.int64),
        np.where(every < 0, n - 1 - every, every),
        tuple(map(range, [0, *ends], ends)),
        np.concatenate([w.states for w in leaves]),
        np.concatenate([w.memory for w in leaves]),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Forgetting:
    """The problem of the upper bound.

    Attributes:
      shown: the problem once the MDP is revealed.
      tree: what is remembered, and when the MDP is revealed.
      events, remembered: as of `grow`.
    """

    shown: Shown
    tree: Tree
    events: int
    remembered: int

    def seconds(self, n_mdps: int) -> float:
        """Estimate the duration of a replication."""
        tree, n_moves = self.tree, np.array([len(moves) for moves in self.shown.moves.of_state])
        chances = n_moves[tree.states].sum() * (MOST_FAILURES + 1)
        drawn = n_mdps + max(LEAST_MDPS, n_mdps // PILOT)
        each = OF_MOVE * len(self.shown.moves.all) * len(tree.leaf_states)
        once = 3 * OF_CHANCE * chances + each * drawn
        return float(once / self.shown.threads)

    def replication(self, n_mdps: int, seed: np.random.SeedSequence) -> Replication:
        """Return an estimate of the upper bound.

        The expectation of its value is not below the bound.

        Args:
          n_mdps: MDPs drawn for each leaf.
        """
        before, own = seed.spawn(2)
        n_before = max(LEAST_MDPS, n_mdps // PILOT)
        centre, deviation = self.of_leaves(self.draw(n_before, before))
        drawn = self.draw(n_mdps, own)
        value, distance = self.of_leaves(drawn, centre)
        return Replication(
            self.solve(value),
            float(self.shown.worths(drawn[:, 0, 0])[self.shown.moves.first].mean()),
            self.solve(distance, paid=False) ** 2,
            self.solve(deviation, paid=False) ** 2 * (1 + 1 / n_before),
            self._greatest,
        )

    def margin(self, replications: Sequence[Replication], n_mdps: int, confidence: float) -> float:
        """Return how far the bound may lie above the average of independent estimates, whatever the
        distribution of the MDPs' values.

        What the MDPs of one number add to the value of a policy is a sum over leaves, with weights.
        Less what another sample lets expect, its root mean square is at most the same sum of those
        of leaves (Minkowski). The limits of the control are too low in `MISSED` of all cases, which
        are taken from those in which the margin may be too small.
        """
        return margin_of(replications, n_mdps, confidence + MISSED)

    @cached_property
    def _greatest(self) -> float:
        return self.solve((self.shown.most + self.shown.known)[self.tree.leaf_states], paid=False)

    def draw(self, n_mdps: int, seed: np.random.SeedSequence) -> np.ndarray:
        """Draw the probabilities that moves succeed, given that they have succeeded 0, 1, … times,
        and failed 0, 1, … times if they have ever succeeded: [R, T + 1, F + 1, M] float32.

        A success or failure more is an exponential variable more. The same random numbers serve all
        leaves, so that their errors have the same sign, mostly, and disturb comparisons of actions
        less.
        """
        random = np.random.default_rng(seed)
        first, up, down = self.shown.draw(n_mdps, random)
        n_moves, (most, lost) = len(first), self.tree.memory.max((0, 2), initial=0)
        some, others = (
            np.exp(log)[:, None] + random.standard_exponential((n_moves, n, n_mdps)).cumsum(1)
            for log, n in ((up, most), (down, lost))
        )
        others = np.concatenate([np.exp(down)[:, None], others], axis=1)
        later = some[:, :, None] / (some[:, :, None] + others[:, None])
        never = np.broadcast_to(first[:, None, None], (n_moves, 1, 1 + lost, n_mdps))
        return np.concatenate([never, later], axis=1).astype(np.float32)

    def of_leaves(
        self, drawn: np.ndarray, centre: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate E[V(y) | what is remembered] at all leaves, from above, by MDPs of `draw`.

        The worth of y where nothing is remembered, less its known mean, is subtracted: the same
        random numbers make both.

        Args:
          centre: numbers of leaves, [L]; default: the estimates.

        Returns: the estimates, and the root mean squares of the differences to `centre`: [L] each.
        """
        tree, n_moves, n_mdps = self.tree, len(drawn), drawn.shape[-1]
        moves, n_leaves = np.arange(n_moves)[:, None], max(1, AT_ONCE // n_mdps)
        control = self.shown.worths(drawn[:, 0, 0]) - self.shown.known[:, None]
        estimates, distances = np.empty((2, len(tree.leaf_states)))

        def fill(first: int) -> None:
            part = slice(first, first + n_leaves)
            states, (successes, failures) = (
                tree.leaf_states[part],
                tree.memory[part].transpose(1, 2, 0),
            )
            found = np.empty((len(states), n_mdps))
            for start in range(0, n_mdps, AT_ONCE):
                some = slice(start, start + AT_ONCE)
                chances = drawn[..., some][moves, successes, failures]  # [R, leaves, MDPs]
                values = self.shown.worths(chances.reshape(n_moves, -1))
                values = values.reshape(-1, *chances.shape[1:])
                found[:, some] = values[states, np.arange(len(states))] - control[states, some]
            means = estimates[part] = np.maximum(0.0, found.mean(1))
            middle = means if centre is None else centre[part]
            distances[part] = np.sqrt(((found - middle[:, None]) ** 2).mean(1))

        with ThreadPoolExecutor(self.shown.threads) as pool:
            list(pool.map(fill, range(0, len(estimates), n_leaves)))
        return estimates, distances

    def solve(self, leaves: np.ndarray, *, paid: bool = True) -> float:
        """Back values of the leaves up to the root.

        Args:
          leaves: value of each leaf, [L].
          paid: count the rewards before the leaves, too.
        """
        tree = self.tree
        both = np.concatenate([np.empty(len(tree.states)), leaves])  # as `Tree.children` counts
        with ThreadPoolExecutor(self.shown.threads) as pool:
            for wave in reversed(tree.waves):
                tasks = self._parts(np.array(wave))
                found = pool.map(lambda nodes: self._solve(nodes, both, paid), tasks)
                for nodes, values in zip(tasks, found, strict=True):
                    both[nodes] = values
        return float(both[0])

    def _parts(self, nodes: np.ndarray) -> list[np.ndarray]:
        """Return nodes by their state, some at a time."""
        states = self.tree.states[nodes]
        kinds = [nodes[states == x] for x in np.unique(states)]
        return [some[n : n + CHUNK] for some in kinds for n in range(0, len(some), CHUNK)]

    def _solve(self, nodes: np.ndarray, both: np.ndarray, paid: bool) -> np.ndarray:
        """Return the values of nodes in one state: the failures there are counted until a move
        succeeds.
        """
        tree, moves = self.tree, self.shown.moves.of_state[int(self.tree.states[nodes[0]])]
        if not moves:  # nothing leads away, and staying pays nothing
            return np.zeros(len(nodes))
        failed = np.arange(MOST_FAILURES + 1)
        known = np.minimum(failed, tree.children.shape[2] - 1)
        chances, gains = [], []
        for number, move in enumerate(moves):
            successes, failures = tree.own[:, nodes, number, None]
            a, b = move.success + successes, move.failure + failures
            chances.append(a / (a + b + failed))
            after = move.reward * paid + self.shown.discount * both[tree.children[nodes, number]]
            gains.append(np.maximum.accumulate(after[:, ::-1], axis=1)[:, ::-1][:, known])
        return _first(np.array(chances), np.array(gains), self.shown.discount)


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
    g, lost = np.float32(discount), np.float32(1 - discount)
    if g < discount:  # worths would be too low
        g = np.nextafter(g, np.float32(1))

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


def _first(chances: np.ndarray, gains: np.ndarray, discount: float) -> np.ndarray:
    """Return the value of a state before any failure.

    Of two tries that follow one another, the first one has the greater p G / (1 - g (1 - p)), as an
    exchange shows; failures lower it. So these numbers say in which order moves are tried. At the
    greatest number of failures that is counted, a move is tried until it succeeds, which is worth
    just this.

    Args:
      chances: p of each move after so many failures, falling, [K, N, F].
      gains: G, what a success earns then, at least 0, not rising, [K, N, F].

    Returns: [N].
    """
    k, n, f = chances.shape
    worths = chances * gains / (1 - discount * (1 - chances))
    worths, chances = (v.transpose(1, 0, 2).reshape(n, k * f) for v in (worths, chances))
    order = np.argsort(-worths, axis=1, kind="stable")
    worths, chances = (np.take_along_axis(v, order, axis=1) for v in (worths, chances))
    last = order % f == f - 1
    goes_on = discount * (1 - chances)
    reached = np.cumprod(np.hstack([np.ones((n, 1)), (goes_on * ~last)[:, :-1]]), axis=1)
    return (reached * np.where(last, worths, worths * (1 - goes_on))).sum(1)


def revealing(
    shown: Shown, events: int, remembered: int, most: float = math.inf, memory: float = math.inf
) -> Forgetting | None:
    """Return the relaxation of a kind; None as of `grow`."""
    tree = grow(shown.moves, events, remembered, most, memory)
    return None if tree is None else Forgetting(shown, tree, events, remembered)


def best_kind(
    shown: Shown, trial: np.random.SeedSequence, memory: int, seconds: float = math.inf
) -> tuple[int, int] | None:
    """Return the kind, (events, remembered), of the relaxation with the least value on a sample of
    its own; None where none is small enough.

    Args:
      trial: seed of that sample.
      memory: bytes that the relaxation may take.
      seconds: that a replication may take; default: as long as usual.
    """
    n_moves, most = len(shown.moves.all), float(MOST_NODES)
    if not math.isinf(seconds):
        most = seconds / (LEAVES * OF_MOVE * n_moves * (USEFUL + LEAST_MDPS) / shown.threads)
    most = min(most, memory / (OF_MEMORY * n_moves))

    def falling(remembered: int) -> Iterator[tuple[float, tuple[int, int]]]:
        """Yield values and kinds of more and more events, as long as the values fall."""
        before = math.inf
        for events in range(1, MOST_EVENTS + 1):
            one = revealing(shown, events, remembered, most, memory)
            if one is None or one.seconds(USEFUL) > seconds:
                return
            value = one.solve(one.of_leaves(one.draw(TRIED, trial))[0])
            if value >= before:
                return
            yield value, (events, remembered)
            before = value

    least, found = math.inf, None
    for remembered in range(MOST_REMEMBERED + 1):
        value, kind = min(falling(remembered), default=(math.inf, None))
        if value >= least:
            break
        least, found = value, kind
    return found
