"""The grid: find the way to the opposite corner when moves may fail."""

import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems.problem import distribution, register_problem

MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))  # left, right, up, down as (rows, columns)


@register_problem("Grid", title="Grid distribution", cite="castronovo2016,dearden1998")
def grid(rows: int = 5, columns: int = 5) -> DirichletMDPs:
    """Grid: left, right, up, down, each of which may fail; reaching the far corner pays 10 and
    returns to the start.

    State = columns * row + column. Nothing leads to the last state: a move that would enter it
    leads to the start. Castronovo et al. 2016, section 5.2.3, after the maze of Dearden et al.
    1998; the order of actions is that of the published program.
    """
    if rows < 1 or columns < 1 or rows + columns < 4:
        raise JbrlError(
            f"rows = {rows}, columns = {columns}: expected a cell between start and goal, as in 1 "
            "x 3 or 2 x 2"
        )
    n_states = rows * columns
    concentrations = np.zeros((n_states, len(MOVES), n_states))
    rewards = np.zeros_like(concentrations)
    for x in range(n_states):
        for u, (down, right) in enumerate(MOVES):
            row, column = x // columns + down, x % columns + right
            concentrations[x, u, x] = 1
            if not (0 <= row < rows and 0 <= column < columns):
                continue
            y = row * columns + column
            if y == n_states - 1:
                y, rewards[x, u, 0] = 0, 10
            concentrations[x, u, y] = 1
    return distribution(concentrations, rewards)
