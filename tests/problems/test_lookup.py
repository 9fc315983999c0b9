"""Names with parameters, names that are refused, paths."""

import pytest

from jbrl.base.errors import JbrlError
from jbrl.problems.json_format import read_json, write_json
from jbrl.problems.lookup import problem


@pytest.mark.parametrize(
    ("name", "short_name", "n_states", "n_actions"),
    [
        ("GC(n_states=8)", "GC(n_states=8)", 8, 3),
        (" GC ( n_actions = 1 , n_states = 5 ) ", "GC(n_actions=1)", 5, 1),
        ("GC()", "GC", 5, 3),
        ("GDL(length=1)", "GDL(length=1)", 3, 2),
        ("Grid(rows=4,columns=6)", "Grid(rows=4,columns=6)", 24, 4),
        ("uniform(GC)", "uniform(GC)", 5, 3),
        ("uniform(Grid(rows=2, columns=3))", "uniform(Grid(rows=2,columns=3))", 6, 4),
        ("UGrid(rows=2,columns=3)", "UGrid(rows=2,columns=3)", 6, 4),
    ],
)
def test_names_with_parameters(name, short_name, n_states, n_actions):
    found = problem(name)
    assert (found.short_name, found.mdps.n_states) == (short_name, n_states)
    assert found.mdps.n_actions == n_actions
    assert problem(short_name).digest == found.digest


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("GX", r"unknown problem 'GX'; did you mean 'GC'\? \(known: .*Chain, Chain-10d, .*, GC, "),
        ("deepsea", "unknown problem 'deepsea'; did you mean 'DeepSea'"),
        ("Gridwrold-5s", "did you mean 'Gridworld-5s'"),
        ("gdl", r"did you mean 'GDL'\?"),
        ("unifrom(GC)", r"unknown problem 'unifrom\(GC\)'; did you mean 'uniform'"),
        ("", "unknown problem ''"),
        ("GC(n_states=5", "unknown problem"),
        ("GC)(", "unknown problem"),
        ("GC(5)", r"'5' is not written parameter=value: expected GC\(n_states=5, n_actions=3\)"),
        ("GC(n_states=4,n_states=5)", "n_states is given twice"),
        ("Chain-10d(n_states=5)", "unknown parameter 'n_states': it takes no parameters"),
        (
            "DeepSea-stochastic(size=1)",
            r"\(size=1\)': size = 1: expected an integer from 2 to 1000",
        ),
        ("GC(n_state=3)", "unknown parameter 'n_state'; did you mean 'n_states'"),
        ("GC(n_states=many)", "n_states = many: expected an integer"),
        ("GC(n_states=2.5)", "expected an integer"),
        ("GC(n_states=1)", "n_states = 1: expected an integer from 2"),
        ("GC(n_actions=0)", "n_actions = 0: expected an integer from 1"),
        ("ShortestPath(n_states=1)", "n_states = 1: expected an integer from 2"),
        ("BernoulliBandit(arms=1)", "arms = 1: expected an integer from 2"),
        ("BernoulliBandit(losses=0)", "losses = 0: expected an integer from 1"),
        ("ShortestPath(n_actions=0)", "n_actions = 0: expected an integer from 1"),
        ("GC(n_states=999999999)", "too large"),
        ("GDL(length=0)", "length = 0: expected an integer from 1"),
        ("Grid(rows=1,columns=2)", "rows = 1, columns = 2: expected a cell between start and goal"),
        ("Grid(rows=-3,columns=20)", "rows = -3"),
        ("uniform", "expected the name of a problem in parentheses"),
        ("uniform()", "expected the name of a problem in parentheses"),
        ("uniform(GX)", "unknown problem 'GX'"),
        ("nowhere.json", "nowhere.json: cannot be read: No such file or directory"),
    ],
)
def test_bad_names_are_refused(name, message, tmp_path):
    with pytest.raises(JbrlError, match=message):
        problem(name, tmp_path)


def test_paths_are_relative_to_the_base(tmp_path, monkeypatch):
    write_json(problem("GDL"), tmp_path / "mine.JSON")
    assert problem("mine.JSON", tmp_path).digest == problem("GDL").digest
    assert problem("uniform(mine.JSON)", tmp_path).digest == problem("UGDL").digest
    assert problem(str(tmp_path / "mine.JSON")).digest == problem("GDL").digest
    monkeypatch.chdir(tmp_path)
    assert read_json("mine.JSON").digest == problem("GDL").digest
