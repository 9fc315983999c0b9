"""Problems of moves that may fail: find those whose rows either stay or lead to one other state."""

import dataclasses

import numpy as np

from jbrl.bayes_optimal.model import Block, Model


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

    def log_probabilities(self, log_rows: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the logarithms of the probabilities that the moves succeed, [R, M].

        Args:
          log_rows: those of `SampledMDPs`.
        """
        return np.array(
            [
                row[_outcomes(block, weights)[1]]
                for block, rows in zip(self.model.blocks, log_rows, strict=True)
                for row, weights in zip(rows, block.concentrations, strict=True)
            ]
        )


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
    found: list[tuple[Move, ...]] = [()] * model.n_states
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
        found[block.state] = tuple(moves)
    return Moves(model, tuple(found))


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
