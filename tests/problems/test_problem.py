"""Names, parameters, the record, the register."""

import dataclasses

import numpy as np
import pytest

from jbrl.environments.lifetime import Episodes, Steps
from jbrl.errors import JbrlError
from jbrl.problems.prior import DirichletPrior
from jbrl.problems.problem import (
    PROBLEMS,
    DirichletProblem,
    distribution,
    problem,
    read_json,
    register_problem,
    to_json,
    write_json,
)

# Distributions over finite MDPs; tests/conformance/test_environments.py is about the others.
FAMILIES = [name for name in PROBLEMS if isinstance(problem(name), DirichletProblem)]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_problem_is_described(name):
    found = problem(name)
    assert found.short_name == name
    assert found.description == PROBLEMS[name].summary
    assert found.cite
    assert found.mdps.concentrations.dtype == found.mdps.rewards.dtype == np.float32
    assert found.mdps.initial_state.dtype == np.int32
    assert not found.mdps.concentrations.flags.writeable


@pytest.mark.parametrize("name", FAMILIES)
def test_every_problem_survives_its_file(name, tmp_path):
    found = problem(name)
    write_json(found, tmp_path / "p.json")
    again = problem("p.json", tmp_path)
    assert again.digest == found.digest
    assert again == found


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
    assert (found.short_name, found.mdps.n_states, found.mdps.n_actions) == (
        short_name,
        n_states,
        n_actions,
    )
    assert problem(short_name).digest == found.digest


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "GX",
            (
                r"unknown problem 'GX'; did you mean 'GC'\? \(known: .*Chain, Chain-10d, .*, GC, "
                r"GC-appendix"
            ),
        ),
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
            r"problem 'DeepSea-stochastic\(size=1\)': size = 1: expected an integer from 2 to 1000",
        ),
        ("GC(n_state=3)", "unknown parameter 'n_state'; did you mean 'n_states'"),
        ("GC(n_states=many)", "n_states = many: expected an integer"),
        ("GC(n_states=2.5)", "expected an integer"),
        ("GC(n_states=1)", "n_states = 1: expected an integer from 2"),
        ("GC(n_actions=0)", "n_actions = 0: expected an integer from 1"),
        ("ShortestPath(n_states=1)", "n_states = 1: expected an integer from 2"),
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


def test_digest_tells_distributions_apart_and_nothing_else():
    digests = [problem(name).digest for name in PROBLEMS]
    assert len(set(digests)) == len(digests)
    gc = problem("GC")
    assert dataclasses.replace(gc, name="other", description="", cite="").digest == gc.digest
    for field in ("concentrations", "rewards", "initial_state"):
        changed = getattr(gc.mdps, field).copy()
        changed.flat[-1] += 1
        assert (
            dataclasses.replace(gc, mdps=dataclasses.replace(gc.mdps, **{field: changed})).digest
            != gc.digest
        )
    negative_zero = dataclasses.replace(
        gc.mdps, rewards=np.where(gc.mdps.rewards == 0, -0.0, gc.mdps.rewards)
    )
    assert dataclasses.replace(gc, mdps=negative_zero).digest == gc.digest


def ones(*shape):
    return np.ones(shape)


@pytest.mark.parametrize(
    ("concentrations", "rewards", "initial_state", "message"),
    [
        (ones(2, 1), ones(2, 1, 2), 0, r"concentrations has shape \(2, 1\): expected \(S, A, S\)"),
        (
            ones(2, 1, 3),
            ones(2, 1, 3),
            0,
            r"concentrations has shape \(2, 1, 3\): expected \(S, A, S\)",
        ),
        (ones(2, 0, 2), ones(2, 0, 2), 0, r"concentrations has shape \(2, 0, 2\)"),
        (ones(2, 1, 2), ones(2, 2, 2), 0, r"rewards has shape \(2, 2, 2\): expected \(2, 1, 2\)"),
        (
            [[[1, -2]], [[1, 1]]],
            ones(2, 1, 2),
            0,
            r"concentrations\[0\]\[0\]\[1\] = -2: expected 0 or a positive number",
        ),
        ([[[1, 1]], [[np.nan, 1]]], ones(2, 1, 2), 0, r"concentrations\[1\]\[0\]\[0\] = nan"),
        ([[[1, 1]], [[1, np.inf]]], ones(2, 1, 2), 0, r"concentrations\[1\]\[0\]\[1\] = inf"),
        ([[[1, 1]], [[1, 1e-40]]], ones(2, 1, 2), 0, r"concentrations\[1\]\[0\]\[1\] = 1e-40"),
        (
            [[[1, 1]], [[0, 0]]],
            ones(2, 1, 2),
            0,
            r"concentrations\[1\]\[0\] is all zeros: expected at least one possible next state",
        ),
        (
            ones(2, 1, 2),
            [[[0, 0]], [[0, np.nan]]],
            0,
            r"rewards\[1\]\[0\]\[1\] = nan: expected a finite number",
        ),
        (ones(2, 1, 2), ones(2, 1, 2), 2, "initial_state = 2: expected a state from 0 to 1, or -1"),
        (ones(2, 1, 2), ones(2, 1, 2), -2, "initial_state = -2"),
    ],
)
def test_unsound_distributions_are_refused(concentrations, rewards, initial_state, message):
    with np.errstate(over="ignore", under="ignore"):
        mdps = distribution(concentrations, rewards, initial_state)
        if "1e-40" in message:
            mdps = dataclasses.replace(mdps, concentrations=np.array(concentrations))
    with pytest.raises(JbrlError, match=f"problem 'mine': {message}"):
        DirichletProblem("Mine", "mine", mdps)


def test_words_are_no_numbers():
    mdps = dataclasses.replace(problem("GC").mdps, rewards=np.full((5, 3, 5), "ten"))
    with pytest.raises(JbrlError, match="rewards holds <U3: expected numbers"):
        DirichletProblem("Mine", "mine", mdps)


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="two problems are called GC"):
        register_problem("GC", title="again")(lambda: None)


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(JbrlError, match="cannot be written"):
        write_json(problem("GC"), tmp_path / "no" / "p.json")


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-7, 123456.79, 16777216.0, 1e20, 0.30000001])
def test_files_keep_every_bit(value, tmp_path):
    mdps = distribution(np.full((1, 1, 1), value), np.full((1, 1, 1), -value), -1)
    (tmp_path / "p.json").write_text(to_json(DirichletProblem("One", "one", mdps)))
    again = read_json(tmp_path / "p.json")
    np.testing.assert_array_equal(again.mdps.concentrations, mdps.concentrations)
    np.testing.assert_array_equal(again.mdps.rewards, mdps.rewards)
    assert int(again.mdps.initial_state) == -1


def test_a_distribution_over_mdps_is_lived_in_by_steps():
    gc = problem("GC")
    assert (gc.lifetime, gc.recorder) == (Steps(250), None)
    prior = gc.prior(Steps(40), 0.5)
    assert isinstance(prior, DirichletPrior)
    assert (prior.lifetime, float(prior.discount), prior.spec) == (Steps(40), 0.5, gc.spec)
    with pytest.raises(
        JbrlError, match=r"^episodes = 3: the MDPs of 'GC' never end: expected horizon$"
    ):
        gc.prior(Episodes(3), 0.5)


def test_what_has_no_concentrations_has_no_file(tmp_path):
    with pytest.raises(
        JbrlError, match=r"^'Chain-10d' has no file: expected a Dirichlet distribution"
    ):
        write_json(problem("Chain-10d"), tmp_path / "p.json")
