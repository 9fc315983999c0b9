"""The distributions themselves: equal to the published files, and what their other sizes
look like.
"""

from importlib import resources

import numpy as np
import pytest

from jbrl.problems.json_format import read_json
from jbrl.problems.lookup import problem

SHIPPED = ("GC", "GDL", "Grid", "UGC", "UGDL", "UGrid")


@pytest.mark.parametrize("name", SHIPPED)
def test_code_makes_what_the_published_files_hold(name):
    made, shipped = (
        problem(name),
        read_json(resources.files("jbrl.problems") / "data" / f"{name}.json"),
    )
    assert (made.name, made.short_name) == (shipped.name, shipped.short_name)
    np.testing.assert_array_equal(made.mdps.concentrations, shipped.mdps.concentrations)
    np.testing.assert_array_equal(made.mdps.rewards, shipped.mdps.rewards)
    assert int(made.mdps.initial_state) == int(shipped.mdps.initial_state) == 0


@pytest.mark.parametrize("name", ["GC", "GDL", "Grid"])
def test_uniform_of_a_problem_is_its_uniform_prior(name):
    assert problem(f"uniform({name})").digest == problem(f"U{name}").digest


def test_appendix_differs_in_one_transition():
    printed, shipped = problem("GC-appendix").mdps, problem("GC").mdps
    different = np.argwhere(printed.concentrations != shipped.concentrations)
    np.testing.assert_array_equal(different, [(4, u, 1) for u in range(3)])
    np.testing.assert_array_equal(printed.concentrations[4, 0], [1, 1, 0, 0, 1])
    np.testing.assert_array_equal(printed.rewards, shipped.rewards)


def test_a_shortest_path_of_three_states():
    mdps = problem("ShortestPath(n_states=3,n_actions=1)").mdps
    np.testing.assert_allclose(
        mdps.concentrations[:, 0], [[1 / 3] * 3, [1 / 3] * 3, [0, 0, 1]], rtol=1e-7
    )
    np.testing.assert_array_equal(mdps.rewards[:, 0], [[-1] * 3, [-1] * 3, [0] * 3])
    assert int(mdps.initial_state) == 0


def test_a_longer_chain():
    mdps = problem("GC(n_states=7,n_actions=2)").mdps
    for x in range(7):
        np.testing.assert_array_equal(np.flatnonzero(mdps.concentrations[x, 1]), [0, min(x + 1, 6)])
    assert (mdps.rewards[3, 0, 0], mdps.rewards[3, 0, 6], mdps.rewards[3, 0, 4]) == (2, 10, 0)


def test_longer_loops():
    mdps = problem("GDL(length=6)").mdps
    possible = [np.flatnonzero(row).tolist() for row in mdps.concentrations[:, 0]]
    certain, risky = [[x] for x in range(2, 7)], [[0, x] for x in range(8, 13)]
    assert possible == [[1, 7], *certain, [0], *risky, [0]]
    assert np.argwhere(mdps.rewards[:, 0]).tolist() == [[6, 0], [12, 0]]
    assert (mdps.rewards[6, 1, 0], mdps.rewards[12, 1, 0]) == (1, 2)


def test_a_wider_grid():
    rows, columns = 3, 4
    mdps = problem(f"Grid(rows={rows},columns={columns})").mdps
    left, right, up, down = (mdps.concentrations[:, u] for u in range(4))
    assert np.flatnonzero(right[5]).tolist() == [5, 6]
    assert np.flatnonzero(left[5]).tolist() == [4, 5]
    assert np.flatnonzero(up[5]).tolist() == [1, 5]
    assert np.flatnonzero(down[5]).tolist() == [5, 9]
    assert [np.flatnonzero(off[0]).tolist() for off in (left, up)] == [[0], [0]]
    assert np.flatnonzero(right[10]).tolist() == [0, 10]
    assert np.flatnonzero(down[7]).tolist() == [0, 7]
    assert np.argwhere(mdps.rewards).tolist() == [[7, 3, 0], [10, 1, 0]]
    assert not mdps.concentrations[:11, :, 11].any()


def test_transposing_a_grid_exchanges_its_actions():
    wide, tall = problem("Grid(rows=3,columns=4)").mdps, problem("Grid(rows=4,columns=3)").mdps
    states = np.arange(12).reshape(3, 4).T.reshape(-1)  # tall state -> wide state
    actions = [2, 3, 0, 1]
    np.testing.assert_array_equal(
        tall.concentrations, wide.concentrations[states][:, actions][:, :, states]
    )
    np.testing.assert_array_equal(tall.rewards, wide.rewards[states][:, actions][:, :, states])
