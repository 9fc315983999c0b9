"""Mean returns agree with those published, at N = 500 and T = 250, on all six pairs of prior and test distribution.

A cell disagrees when it is more than 3 combined standard errors off: by chance once in 370 times, so that one of the 32 would be in 8 %
of all seeds. The seed is fixed.
"""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.beb import BEB
from jbrl.mdp import lanes
from jbrl.pytree import record
from jbrl.runner.experiment import play

SCRIPT = Path(__file__).parents[1] / "experiments" / "published.py"
# The published program gives ties to the action of lowest number. With the uniform prior most actions of Grid tie for long, and the first
# actions lead away from the goal: see `test_the_cell_that_differs_is_explained_by_ties`.
EXPLAINED = ("inaccurate", "Grid", "BEB")


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("published", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compare()


def test_all_cells_are_there(table):
    paper, program = (table[table.source == source] for source in ("paper", "C++"))
    assert len(paper) == 18
    assert len(program) == 14
    assert set(paper.experiment) == {"GC", "GDL", "Grid"}


def test_means_agree_with_the_published_ones(table):
    others = table[[row not in (EXPLAINED,) for row in zip(table.case, table.experiment, table.agent, strict=True)]]
    assert len(others) == len(table) - 1
    far = others[others["standard errors apart"].abs() > 3]
    assert far.empty, far.to_string()


@record
class LowestIndex(BEB):
    """BEB whose ties go to the action of lowest number."""

    def act(self, key, state, x):
        q = lanes.get_row(state.plan.q, x)
        return jnp.argmax(q >= q.max() - state.plan.tolerance).astype(jnp.int32), state


def test_the_cell_that_differs_is_explained_by_ties(table):
    (cell,) = (row for row in table.itertuples(index=False) if tuple(row[1:4]) == EXPLAINED)
    published, half_width = cell[7], cell[8]
    played = play(LowestIndex(beta=0.0), prior="UGrid", test="Grid")
    error = np.hypot(played.returns.std(ddof=1) / np.sqrt(500), half_width / 1.96)
    assert abs(played.returns.mean() - published) < 3 * error
    assert abs(cell.jbrl - published) > 3 * error, "then there is nothing to explain"
