"""Exchangeable states: permutations of the states under which prior and rewards stay the same.

They are found, not declared: a permutation s of the states is a symmetry when the rows of state x,
with their successors permuted by s, are the rows of s(x) in some order, and s keeps the first
state.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from jbrl.bayes_optimal.model import Block, Model

MOST_SYMMETRIES = 6  # that are used; any of them may be left out
MOST_STEPS = 400  # of the search


@dataclasses.dataclass(frozen=True, eq=False)
class Symmetry:
    """A permutation of the states, and what it does to blocks."""

    states: tuple[int, ...]  # s(x) of each x
    blocks: tuple[int, ...]  # number of the block that each block becomes
    rows: tuple[tuple[int, ...], ...]  # by block: position that each row gets
    successors: tuple[tuple[int, ...], ...]  # by block: number that each successor gets


def symmetries(model: Model) -> tuple[Symmetry, ...]:
    """Find symmetries of a model, the identity left out."""
    found = []
    for states in _permutations(model):
        if states != tuple(range(model.n_states)):
            found.append(_symmetry(model, states))
        if len(found) == MOST_SYMMETRIES:
            break
    return tuple(found)


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
    found: list[Row] = [((row.successor, 1.0, row.reward),) for row in model.certain[x]]
    number = int(model.block_of[x])
    if number >= 0:
        block = model.blocks[number]
        for weights, gains in zip(block.concentrations, block.rewards, strict=True):
            found.append(
                tuple(
                    (int(block.successors[k]), float(weights[k]), float(gains[k]))
                    for k in np.flatnonzero(weights)
                )
            )
    return sorted(found)


def _image(rows: list[Row], states: tuple[int, ...]) -> list[Row]:
    return sorted(tuple(sorted((states[y], w, r) for y, w, r in row)) for row in rows)


def _kind(model: Model, rows: list[Row], x: int) -> tuple:
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
    found = []
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
        found.append(match)
    return tuple(found)
