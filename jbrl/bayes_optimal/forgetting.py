"""Upper bounds for problems of moves that may fail: failures are forgotten, the MDP is shown later.

An agent forgets how often its moves failed in a state when it leaves that state. Knowing of fewer
failures never lowers the Bayes-optimal value of such a problem, and being shown the MDP does not
either, also at a price that is nothing for those who do not look: docs/bounds-proofs.md. The agent
then remembers the successes on its way, and a few failures where there is time, so that all that it
may remember is enumerated.
"""

import dataclasses
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from jbrl.bayes_optimal.limits import ONE_SIDED
from jbrl.bayes_optimal.look_ahead import Replication, margin_of
from jbrl.bayes_optimal.moves import AT_ONCE, MISSED, Moves, Shown
from jbrl.bayes_optimal.plan import REPLICATIONS

MOST_NODES = 20_000  # without a limit of time
OF_MEMORY = 16  # bytes, of a node, its leaves and growth, by moves and 2 + remembered failures
MOST_REMEMBERED = 8  # failures
MOST_FAILURES = 16  # of each move in a state that are counted; further ones are forgotten at once
CHUNK = 256  # nodes at a time
OF_GROWTH = 12  # bytes, of each move of the problem in what may be remembered next
LEAST_MDPS, USUAL_MDPS, MOST_MDPS = 2**4, 2**13, 2**15  # of each leaf in a replication
FEW_MDPS, USUAL_SECONDS = 2**9, 120  # where usual ones take longer on one core: fewer
TRIED = 2**6  # MDPs of each leaf by which relaxations are compared: there must be time for them
PILOT = 16  # MDPs of a replication for each one of the sample that means are taken from
# Seconds on one core: benchmarks/results/bounds-cpu2.jsonl.
OF_CHANCE, OF_MOVE = 6e-8, 6.5e-9  # of a move of a node after its failures, or in an MDP of a leaf
TINY = 1e-30
SHARE = 0.4  # of the control, where the agent pays: what lowers the variance most on Grid


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

    def some(self, which: np.ndarray) -> "_Nodes":
        return _Nodes(self.memory[which], self.states[which])

    def distinct(self) -> tuple["_Nodes", np.ndarray]:
        """Return those that differ, and the number of each one among them."""
        states = self.states.astype(np.int16)[:, None].view(np.uint8)
        key = np.hstack([self.memory.reshape(len(states), np.prod(self.memory.shape[1:])), states])
        words = key.view(np.dtype((np.void, key.shape[1])))[:, 0]
        _, first, inverse = np.unique(words, return_index=True, return_inverse=True)
        return self.some(first), inverse


class _Growth:
    """The way from a wave of nodes to the next."""

    def __init__(self, moves: Moves, remembered: int) -> None:
        self._remembered = remembered
        shape = len(moves.of_state), max(map(len, moves.of_state))
        self.row, self._successor, self._n_kept = np.zeros((3, *shape), np.int64)
        self._goes_on = np.zeros(shape, bool)
        for x, own in enumerate(moves.of_state):
            for k, move in enumerate(own):
                self.row[x, k], self._successor[x, k] = move.row, move.successor
                self._goes_on[x, k] = move.forward and move.reward == 0
                # how many numbers of failures are remembered, 0 among them
                self._n_kept[x, k] = 1 + remembered * (move.forward or move.reward > 0)

    def memory(self, nodes: _Nodes) -> int:
        """Return the bytes that `after` takes, about."""
        return int(OF_GROWTH * self._n_kept[nodes.states].sum() * nodes.memory.shape[2])

    def after(self, nodes: _Nodes) -> tuple[_Nodes, _Nodes, np.ndarray]:
        """Return the nodes and the leaves that follow, and for each node their numbers by its
        moves and their failures, [N, K, C]; those of leaves are -1, -2, ….
        """
        n_kept = self._n_kept[nodes.states][..., None]
        parents, k, failed = np.nonzero(np.arange(self._remembered + 1) < n_kept)
        x, memory = nodes.states[parents], nodes.memory[parents]
        rows, each = self.row[x, k], np.arange(len(k))
        memory[each, 0, rows] += 1
        memory[each, 1, rows] += failed.astype(np.uint8)
        shown, reached = ~self._goes_on[x, k], _Nodes(memory, self._successor[x, k])
        (inner, of_inner), (leaves, of_leaves) = (
            reached.some(which).distinct() for which in (~shown, shown)
        )
        numbers = np.empty(len(k), np.int64)
        numbers[~shown], numbers[shown] = of_inner, -1 - of_leaves
        children = np.zeros((*n_kept.shape[:2], self._remembered + 1), np.int64)
        children[parents, k] = numbers[failed == 0][np.cumsum(failed == 0) - 1][:, None]
        children[parents, k, failed] = numbers
        return inner, leaves, children


def grow(
    moves: Moves, remembered: int, most: float = math.inf, memory: float = math.inf
) -> Tree | None:
    """Enumerate what is remembered; None where there are more than `most` nodes, or growing takes
    more than `memory` bytes.

    The MDP is revealed at the first reward, or move that does not lead farther. So many failures of
    a move that succeeds are `remembered`, of those that lead farther or pay.
    """
    growth = _Growth(moves, remembered)
    nothing = np.zeros((1, 2, len(moves.all)), np.uint8)
    wave = _Nodes(nothing, np.array([moves.first]))
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


@dataclasses.dataclass(frozen=True)
class Leaves:
    """Estimates of a sample, [L] each."""

    values: np.ndarray  # estimates of what they are worth, from above
    distances: np.ndarray  # of single MDPs, root mean squares
    ratios: np.ndarray  # of the worth of the MDP that is shown, to the prior's
    paying: np.ndarray  # whether an agent that pays earns less than one that is shown the MDP
    greatest: np.ndarray  # no MDP is worth more


@dataclasses.dataclass(frozen=True, eq=False)
class Forgetting:
    """The problem of the upper bound.

    Attributes:
      shown: the problem once the MDP is revealed.
      tree: what is remembered, and when the MDP is revealed.
      remembered: as of `grow`.
    """

    shown: Shown
    tree: Tree
    remembered: int

    def seconds(self, n_mdps: int) -> float:
        """Estimate the duration of a replication."""
        tree, n_moves = self.tree, np.array([len(moves) for moves in self.shown.moves.of_state])
        chances = n_moves[tree.states].sum() * (MOST_FAILURES + 1)
        drawn = n_mdps + max(LEAST_MDPS, n_mdps // PILOT)
        states, numbers = np.unique(tree.leaf_states, return_counts=True)
        pays = [self.shown.paying.seconds(x) * n for x, n in zip(states, numbers, strict=True)]
        each = OF_MOVE * len(self.shown.moves.all) * len(tree.leaf_states) + sum(pays)
        once = 3 * OF_CHANCE * chances + each * drawn
        return float(once / self.shown.threads)

    @property
    def usual(self) -> int:
        """Return the MDPs of each leaf in a replication where no time is given."""
        n_mdps = USUAL_MDPS
        while n_mdps > FEW_MDPS and self.seconds(n_mdps) * self.shown.threads > USUAL_SECONDS:
            n_mdps //= 2
        return n_mdps

    def expected_end(self, seed: np.random.SeedSequence, seconds: float) -> float:
        """Return the end that a few MDPs let expect, of replications that take so many seconds."""
        n_mdps = self.usual
        if not math.isinf(seconds):
            n_mdps = int(np.clip(TRIED * seconds / self.seconds(TRIED), LEAST_MDPS, MOST_MDPS))
        made = self.replication(TRIED, seed)
        return made.value + self.margin([made] * REPLICATIONS, n_mdps, ONE_SIDED)

    def replication(self, n_mdps: int, seed: np.random.SeedSequence) -> Replication:
        """Return an estimate of the upper bound.

        The expectation of its value is not below the bound.

        Args:
          n_mdps: MDPs drawn for each leaf.
        """
        before, own = seed.spawn(2)
        n_before = max(LEAST_MDPS, n_mdps // PILOT)
        pilot = self.of_leaves(self.draw(n_before, before))
        drawn = self.draw(n_mdps, own)
        found = self.of_leaves(drawn, pilot)
        return Replication(
            self.solve(found.values),
            float(self.shown.worths(drawn[:, 0, 0])[self.shown.moves.first].mean()),
            self.solve(found.distances, paid=False) ** 2,
            self.solve(pilot.distances, paid=False) ** 2 * (1 + 1 / n_before),
            self.solve(found.greatest, paid=False),
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
            np.exp(log)[:, None]
            + random.standard_exponential((n, n_moves, n_mdps)).cumsum(0).swapaxes(0, 1)
            for log, n in ((up, most), (down, lost))
        )
        others = np.concatenate([np.exp(down)[:, None], others], axis=1)
        later = some[:, :, None] / (some[:, :, None] + others[:, None])
        never = np.broadcast_to(first[:, None, None], (n_moves, 1, 1 + lost, n_mdps))
        return np.concatenate([never, later], axis=1).astype(np.float32)

    def of_leaves(self, drawn: np.ndarray, before: Leaves | None = None) -> Leaves:
        """Estimate what all leaves are worth, from above, by MDPs of `draw`.

        The worth of the same state where nothing is remembered, less its known mean, is subtracted,
        or a part of it: the same random numbers make both.

        Args:
          before: what another sample says, on which it depends whether the agent pays, and from
            which distances are taken; default: this one.
        """
        tree, n_mdps = self.tree, drawn.shape[-1]
        control = self.shown.worths(drawn[:, 0, 0]) - self.shown.known[:, None]
        n = len(tree.leaf_states)
        found = Leaves(np.empty(n), np.empty(n), np.empty(n), np.empty(n, bool), np.empty(n))

        def fill(part: np.ndarray) -> None:
            x, memory = int(tree.leaf_states[part[0]]), tree.memory[part].transpose(1, 2, 0)
            chances = drawn[np.arange(len(drawn))[:, None], *memory]  # [R, leaves, MDPs]
            worths = self.shown.worths(chances.reshape(len(drawn), -1))
            worths = worths.reshape(-1, *chances.shape[1:])
            values = worths[x] - control[x]
            if before is None:
                ratios = worths[x].mean(1) / max(self.shown.known[x], TINY)
                which = np.arange(len(part) if self.shown.paying.possible(x) else 0)
            else:
                ratios, which = before.ratios[part], np.flatnonzero(before.paying[part])
            paid, most = self._paid(
                x, chances[:, which], memory[..., which], worths[:, which], ratios[which]
            )
            paid -= SHARE * control[x]
            if before is None:
                lower = paid.mean(1) < values[which].mean(1)
                which, paid, most = which[lower], paid[lower], most[lower]
            values[which] = paid
            found.greatest[part] = self.shown.most[x] + self.shown.known[x]
            found.greatest[part[which]] = most + SHARE * self.shown.known[x]
            means = found.values[part] = np.maximum(0.0, values.mean(1, dtype=float))
            middle = means if before is None else before.values[part]
            found.distances[part] = np.sqrt(((values - middle[:, None]) ** 2).mean(1, dtype=float))
            found.ratios[part] = ratios
            found.paying[part] = np.isin(np.arange(len(part)), which)

        with ThreadPoolExecutor(self.shown.threads) as pool:
            list(pool.map(fill, _alike(tree.leaf_states, max(1, AT_ONCE // n_mdps))))
        return found

    def _paid(
        self,
        x: int,
        chances: np.ndarray,
        memory: np.ndarray,
        worths: np.ndarray,
        ratios: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what MDPs are worth to an agent that pays, [L, M], and what none exceeds, [L].

        Args:
          x: the state of the leaves.
          chances: that moves succeed, [R, L, M].
          memory: of the leaves, [2, R, L].
          worths: of the MDPs that are shown, [S, L, M].
          ratios: as of `Leaves`.
        """
        n_mdps, most = chances.shape[2], self.shown.most[:, None]
        ends = np.minimum(ratios * self.shown.known[:, None], most)
        won = (most - ends).max(0)
        counts = np.array(self.shown.moves.concentrations)[..., None] + memory
        chances, worths = (v.reshape(len(v), -1) for v in (chances, worths))
        counts, ends = (np.repeat(v, n_mdps, axis=-1) for v in (counts, ends))
        plans, paid = self.shown.paying.worths(x, chances, counts, worths, ends)
        return paid.reshape(-1, n_mdps), plans[::n_mdps] + won

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
                tasks = _alike(tree.states, CHUNK, np.array(wave))
                found = pool.map(lambda nodes: self._solve(nodes, both, paid), tasks)
                for nodes, values in zip(tasks, found, strict=True):
                    both[nodes] = values
        return float(both[0])

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


def _alike(states: np.ndarray, size: int, numbers: np.ndarray | None = None) -> list[np.ndarray]:
    """Return numbers, by default all, by their state, so many at a time."""
    numbers = np.arange(len(states)) if numbers is None else numbers
    kinds = [numbers[states[numbers] == x] for x in np.unique(states[numbers])]
    return [some[n : n + size] for some in kinds for n in range(0, len(some), size)]


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
    shown: Shown, remembered: int, most: float = math.inf, memory: float = math.inf
) -> Forgetting | None:
    """Return the relaxation; None as of `grow`."""
    tree = grow(shown.moves, remembered, most, memory)
    return None if tree is None else Forgetting(shown, tree, remembered)


def best_remembered(
    shown: Shown, trial: np.random.SeedSequence, memory: int, seconds: float = math.inf
) -> int | None:
    """Return how many failures to remember, by the ends that a sample of their own lets expect;
    None where no relaxation is small enough.

    Args:
      trial: seed of that sample.
      memory: bytes that the relaxation may take.
      seconds: that a replication may take; default: as long as usual.
    """
    n_moves, most = len(shown.moves.all), float(MOST_NODES)
    if not math.isinf(seconds):
        most = seconds / (OF_MOVE * n_moves * (TRIED + LEAST_MDPS) / shown.threads)
    least, found = math.inf, None
    for remembered in range(MOST_REMEMBERED + 1):
        fitting = memory / (OF_MEMORY * (2 + remembered) * n_moves)
        one = revealing(shown, remembered, min(most, fitting), memory)
        if one is None or one.seconds(TRIED) > seconds:
            break
        end = one.expected_end(trial, seconds)
        if end >= least:
            break
        least, found = end, remembered
    return found
