"""A Dirichlet distribution over MDPs, sorted for backward induction over counts.

A row (state, action) with a single possible successor is *certain*: there is nothing to learn of
it. The other rows are *uncertain*, and the uncertain rows of one state form its *block*.
"""

import dataclasses
from functools import cached_property

import numpy as np

from jbrl.mdp.dirichlet import DirichletMDPs


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

    @property
    def _rewards(self) -> np.ndarray:
        return np.asarray(self.mdps.rewards)[np.asarray(self.mdps.concentrations) > 0]

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
    best: dict[int, float] = {}
    for row, gain in zip(support, rewards, strict=True):
        if row.sum() == 1:
            y = int(row.argmax())
            best[y] = max(best.get(y, -np.inf), float(gain[y]))
    return tuple(CertainRow(y, gain) for y, gain in sorted(best.items()))


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
