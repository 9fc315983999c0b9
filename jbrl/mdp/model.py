"""A Dirichlet distribution over MDPs, sorted for backward induction over counts.

A row (state, action) with a single possible successor is *certain*: there is nothing to learn of
it. The other rows are *uncertain*, and the uncertain rows of one state form its *block*.

Symmetries are found, not declared: a permutation s of the states is one when the rows of state x,
with their successors permuted by s, are the rows of s(x) in some order, and s keeps the first
state.
"""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from jbrl.mdp.dirichlet import DirichletMDPs

MOST_SYMMETRIES = 6  # that are used; any of them may be left out
MOST_STEPS = 400  # of the search


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """The uncertain rows of one state.

    `A` rows, `K` possible successors of any of them, in rising order.
    """

    state: int
    actions: tuple[int, ...]  # the actions of its rows, [A]
    successors: np.ndarray  # [K] int, states that some row may lead to
    concentrations: np.ndarray  # [A, K] float64, 0 where a row does not lead there
    rewards: np.ndarray  # [A, K] float64
    groups: tuple[tuple[int, ...], ...]  # rows that are exchangeable, by position

    @cached_property
    def possible(self) -> np.ndarray:
        """Return which transitions are possible, [A, K] bool."""
        return self.concentrations > 0


@dataclasses.dataclass(frozen=True)
class CertainRow:
    """A row with one possible successor."""

    successor: int
    reward: float
    action: int


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A distribution over MDPs, its blocks and its certain rows.

    Two uncertain rows of a state with equal concentrations and equal rewards are exchangeable:
    swapping their counts changes no value. Of certain rows of a state with the same successor the
    one of greatest reward is kept.
    """

    mdps: DirichletMDPs
    blocks: tuple[Block, ...]
    certain: tuple[tuple[CertainRow, ...], ...]  # by state

    @property
    def n_states(self) -> int:
        return self.mdps.n_states

    @property
    def first_states(self) -> tuple[int, ...]:
        """Return the states in which a lifetime may begin, equally likely."""
        first = int(self.mdps.initial_state)
        return tuple(range(self.n_states)) if first < 0 else (first,)

    @cached_property
    def block_of(self) -> np.ndarray:
        """Return the number of the block of each state, -1 where it has none: [S] int."""
        numbers = np.full(self.n_states, -1)
        for number, block in enumerate(self.blocks):
            numbers[block.state] = number
        return numbers

    @property
    def least_reward(self) -> float:
        """Return the smallest reward of a possible transition."""
        return float(self._rewards.min())

    @property
    def reward_range(self) -> float:
        """Return the difference of the greatest and the smallest reward of a transition."""
        return float(np.ptp(self._rewards))

    @cached_property
    def reward_size(self) -> float:
        """Return the greatest absolute reward of a possible transition."""
        return float(np.abs(self._rewards).max())

    @property
    def _rewards(self) -> np.ndarray:
        return np.asarray(self.mdps.rewards)[np.asarray(self.mdps.concentrations) > 0]

    def extremes(self, discount: float, decisions: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the greatest value of each state that no MDP of the distribution
        undercuts or exceeds, [S] each: actions are optimal, outcomes the worst or the best ones.
        """
        least = most = np.zeros(self.n_states)
        for _ in range(decisions):
            low, high = [], []
            for x, certain in enumerate(self.certain):
                rows = [(row.reward, row.successor) for row in certain]
                lows = [reward + discount * least[y] for reward, y in rows]
                highs = [reward + discount * most[y] for reward, y in rows]
                if self.block_of[x] >= 0:
                    block = self.blocks[self.block_of[x]]
                    after = block.rewards + discount * least[block.successors]
                    lows += list(np.where(block.possible, after, np.inf).min(1))
                    after = block.rewards + discount * most[block.successors]
                    highs.append(np.where(block.possible, after, -np.inf).max())
                low.append(max(lows))
                high.append(max(highs))
            least, most = np.array(low), np.array(high)
        return least, most

    @cached_property
    def rarest(self) -> float:
        """Return the smallest probability, on average over MDPs, of an outcome of a row; 1 where
        all rows are certain.
        """
        means = [
            (block.concentrations / block.concentrations.sum(1, keepdims=True))[block.possible]
            for block in self.blocks
        ]
        return float(np.concatenate([*means, [1.0]]).min())

    @property
    def n_uncertain(self) -> int:
        """Return the number of uncertain rows."""
        return sum(len(block.actions) for block in self.blocks)

    @property
    def n_free(self) -> int:
        """Return the number of free transition probabilities: one for each possible successor of an
        uncertain row but its last one.
        """
        return sum(int(block.possible.sum()) for block in self.blocks) - self.n_uncertain


def sweep(
    model: Model,
    rows: Sequence[np.ndarray],
    discount: float,
    value: np.ndarray,
    without: Collection[int] = (),
) -> np.ndarray:
    """Return the values of all states after one sweep of value iteration in many MDPs.

    Args:
      rows: transition probabilities by block, [A, K, …].
      value: [S, …], of the MDPs that the last axes of `rows` stand for.
      without: numbers of blocks that are left out, whose rows are not read.

    Returns: an array of the shape of `value`.
    """
    new = np.full_like(value, -np.inf)
    for x, certain in enumerate(model.certain):
        for row in certain:
            # an array also where it is one number, since all rows are certain
            so_far = new[x, ...]
            np.maximum(so_far, row.reward + discount * value[row.successor], out=so_far)
    for number, block in enumerate(model.blocks):
        if number in without:
            continue
        after = discount * value[block.successors]
        for probabilities, gains in zip(rows[number], block.rewards, strict=True):
            total = probabilities[0] * (gains[0] + after[0])
            for k in range(1, len(gains)):
                total += probabilities[k] * (gains[k] + after[k])
            np.maximum(new[block.state], total, out=new[block.state])
    return new


def make_model(mdps: DirichletMDPs) -> Model:
    """Sort the rows of a distribution over MDPs into blocks and certain rows."""
    concentrations = np.asarray(mdps.concentrations, np.float64)
    rewards = np.asarray(mdps.rewards, np.float64)
    blocks, certain = [], []
    for x in range(mdps.n_states):
        support = concentrations[x] > 0
        uncertain = np.flatnonzero(support.sum(1) > 1)
        certain.append(_certain_rows(support, rewards[x]))
        if len(uncertain):
            blocks.append(_block(x, uncertain, concentrations[x], rewards[x]))
    return Model(mdps, tuple(blocks), tuple(certain))


def _certain_rows(support: np.ndarray, rewards: np.ndarray) -> tuple[CertainRow, ...]:
    best: dict[int, CertainRow] = {}
    for u in np.flatnonzero(support.sum(1) == 1):
        y = int(support[u].argmax())
        row = CertainRow(y, float(rewards[u, y]), int(u))
        if y not in best or row.reward > best[y].reward:
            best[y] = row
    return tuple(best[y] for y in sorted(best))


def _block(x: int, actions: np.ndarray, concentrations: np.ndarray, rewards: np.ndarray) -> Block:
    successors = np.flatnonzero((concentrations[actions] > 0).any(0))
    weights = concentrations[np.ix_(actions, successors)]
    # Rewards of impossible transitions distinguish nothing.
    gains = np.where(weights > 0, rewards[np.ix_(actions, successors)], 0.0)
    groups: dict[bytes, list[int]] = {}
    for position in range(len(actions)):
        groups.setdefault(weights[position].tobytes() + gains[position].tobytes(), []).append(
            position
        )
    return Block(
        x,
        tuple(map(int, actions)),
        successors,
        weights,
        gains,
        tuple(tuple(group) for group in groups.values()),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Symmetry:
    """A permutation of the states, and what it does to blocks."""

    states: tuple[int, ...]  # s(x) of each x
    blocks: tuple[int, ...]  # number of the block that each block becomes
    rows: tuple[tuple[int, ...], ...]  # by block: position that each row gets
    successors: tuple[tuple[int, ...], ...]  # by block: number that each successor gets


def symmetries(model: Model) -> tuple[Symmetry, ...]:
    """Find symmetries of a model, the identity left out."""
    kept = []
    for states in _permutations(model):
        if states != tuple(range(model.n_states)):
            kept.append(_symmetry(model, states))
        if len(kept) == MOST_SYMMETRIES:
            break
    return tuple(kept)


def _permutations(model: Model) -> Iterator[tuple[int, ...]]:
    """Yield permutations of the states under which the rows stay the same."""
    rows = [_rows(model, x) for x in range(model.n_states)]
    kinds = [_kind(model, rows[x], x) for x in range(model.n_states)]
    steps = 0
    # Depth first: the images of states 0, 1, …, k - 1 are chosen.
    stack: list[tuple[int, ...]] = [()]
    while stack and steps < MOST_STEPS:
        chosen = stack.pop()
        steps += 1
        x = len(chosen)
        if x == model.n_states:
            if all(_image(rows[i], chosen) == rows[chosen[i]] for i in range(x)):
                yield chosen
            continue
        stack.extend(
            (*chosen, y)
            for y in reversed(range(model.n_states))
            if kinds[y] == kinds[x] and y not in chosen and _agree(rows, chosen, x, y)
        )


Row = tuple[tuple[int, float, float], ...]  # successor, concentration, reward


def _rows(model: Model, x: int) -> list[Row]:
    """Return the rows of a state, sorted; the concentration of certain rows does not matter."""
    rows: list[Row] = [((row.successor, 1.0, row.reward),) for row in model.certain[x]]
    number = int(model.block_of[x])
    if number >= 0:
        block = model.blocks[number]
        for weights, gains in zip(block.concentrations, block.rewards, strict=True):
            rows.append(
                tuple(
                    (int(block.successors[k]), float(weights[k]), float(gains[k]))
                    for k in np.flatnonzero(weights)
                )
            )
    return sorted(rows)


def _image(rows: list[Row], states: tuple[int, ...]) -> list[Row]:
    return sorted(tuple(sorted((states[y], w, r) for y, w, r in row)) for row in rows)


def _kind(model: Model, rows: list[Row], x: int) -> tuple[bool, tuple[Any, ...]]:
    """Return what a symmetry does not change of a state."""
    shapes = sorted(tuple(sorted((y == x, w, r) for y, w, r in row)) for row in rows)
    return (int(model.mdps.initial_state) == x, tuple(shapes))


def _agree(rows: list[list[Row]], chosen: tuple[int, ...], x: int, y: int) -> bool:
    """Return whether transitions between x and the states chosen before are those between
    their images.
    """
    known = {**dict(enumerate(chosen)), x: y}
    images = set(known.values())

    def inside(row: Row, kept: set[int]) -> Row:
        return tuple(sorted(entry for entry in row if entry[0] in kept))

    for one in known:
        here = sorted(
            tuple(sorted((known[z], w, r) for z, w, r in inside(row, set(known))))
            for row in rows[one]
        )
        if here != sorted(inside(row, images) for row in rows[known[one]]):
            return False
    return True


def _symmetry(model: Model, states: tuple[int, ...]) -> Symmetry:
    blocks, rows, successors = [], [], []
    for block in model.blocks:
        number = int(model.block_of[states[block.state]])
        target = model.blocks[number]
        places = {int(y): k for k, y in enumerate(target.successors)}
        order = tuple(places[states[int(y)]] for y in block.successors)
        blocks.append(number)
        successors.append(order)
        rows.append(_match(block, target, order))
    return Symmetry(states, tuple(blocks), tuple(rows), tuple(successors))


def _match(block: Block, target: Block, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return which row of the target each row of a block becomes."""
    left = list(range(len(target.actions)))
    matches = []
    for weights, gains in zip(block.concentrations, block.rewards, strict=True):
        moved = np.empty((2, len(order)))
        moved[:, list(order)] = weights, gains
        match = next(
            row
            for row in left
            if np.array_equal(target.concentrations[row], moved[0])
            and np.array_equal(target.rewards[row], moved[1])
        )
        left.remove(match)
        matches.append(match)
    return tuple(matches)
