"""Files of problems: what is read, and how unsound ones are refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.mdp.dirichlet import distribution
from jbrl.problems.json_format import read_json, to_json, write_json
from jbrl.problems.lookup import problem
from jbrl.problems.problem import PROBLEMS, DirichletProblem

SOUND = {"name": "Mine", "n_states": 2, "n_actions": 1, "initial_state": 1}
SOUND |= {"transition_weights": [[[1, 0.5]], [[0, 3]]], "rewards": [[[0, -1]], [[0, 2.5]]]}


def read(folder, data):
    path = folder / "mine.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return read_json(path)


def test_a_file_of_the_required_fields_is_enough(tmp_path):
    found = read(tmp_path, SOUND)
    assert (found.name, found.short_name, found.description, found.cite) == ("Mine", "mine", "", "")
    np.testing.assert_array_equal(found.mdps.concentrations, SOUND["transition_weights"])
    np.testing.assert_array_equal(found.mdps.rewards, SOUND["rewards"])
    assert int(found.mdps.initial_state) == 1


@pytest.mark.parametrize("field", SOUND)
def test_a_missing_field_is_named(field, tmp_path):
    data = {key: value for key, value in SOUND.items() if key != field}
    with pytest.raises(JbrlError, match=rf"mine\.json: the field '{field}' is missing"):
        read(tmp_path, data)


def test_a_field_that_is_there_twice_is_named(tmp_path):
    text = json.dumps(SOUND).removesuffix("}") + ', "rewards": 5}'
    with pytest.raises(JbrlError, match=r"mine\.json: the field 'rewards' is there twice"):
        read(tmp_path, text)


UNSOUND = [
    ("name", 3, "name = 3: expected a string"),
    ("n_states", 0, "n_states = 0: expected an integer from 1"),
    ("n_states", "two", 'n_states = "two": expected an integer from 1'),
    ("n_states", 3, "weights has 2 entries: expected a list of 3, one for each state"),
    ("n_actions", 2, "weights[0] has 1 entries: expected a list of 2, one for each action"),
    ("n_actions", True, "n_actions = true: expected an integer from 1"),
    ("initial_state", 2, "initial_state = 2: expected a state from 0 to 1, or -1"),
    ("initial_state", -2, "initial_state = -2: expected an integer from -1"),
    ("initial_state", 0.5, "initial_state = 0.5: expected an integer from -1"),
    ("reward_type", "gaussian", 'reward_type = "gaussian": expected "constant"'),
    ("rewards", [[[0, 1]]], "rewards has 1 entries: expected a list of 2, one for each state"),
    ("rewards", [[[0, 1]], [[np.nan, 1]]], "rewards[1][0][0] = nan: expected a finite number"),
    ("rewards", [[[0, 1]], [[None, 1]]], "rewards[1][0][0] = null: expected a number"),
]
UNSOUND += [
    ("transition_weights", weights, f"transition_weights{message}")
    for weights, message in (
        ([[[1, 1]], [[1]]], "[1][0] has 1 entries: expected a list of 2, one for each next state"),
        ([[1, 1], [1, 1]], "[0] has 2 entries: expected a list of 1"),
        ([[1], [1]], "[0][0] = 1: expected a list of 2, one for each next state"),
        (7, " = 7: expected a list of 2, one for each state"),
        ([[[1, "1"]], [[0, 1]]], '[0][0][1] = "1": expected a number'),
        ([[[1, True]], [[0, 1]]], "[0][0][1] = true: expected a number"),
        ([[[1, -1]], [[0, 1]]], "[0][0][1] = -1: expected 0 or a positive number"),
        ([[[1, np.nan]], [[0, 1]]], "[0][0][1] = nan: expected 0 or"),
        ([[[1, np.inf]], [[0, 1]]], "[0][0][1] = inf: expected 0 or"),
        ([[[1, 10**400]], [[0, 1]]], "[0][0][1] = 1000"),
        ([[[1, 1]], [[0, 0]]], "[1][0] is all zeros"),
        ([[[1.0001e30, 1]], [[0, 1]]], "[0][0][0] = 1.0001e+30: expected"),
        ([[[9.999e-31, 1]], [[0, 1]]], "[0][0][0] = 9.999e-31: expected"),
        ([[[1e300, 1]], [[0, 1]]], "[0][0][0] = 1e+300: expected"),
    )
]


@pytest.mark.parametrize(("field", "value", "message"), UNSOUND, ids=range(len(UNSOUND)))
def test_unsound_fields_are_refused(field, value, message, tmp_path):
    with pytest.raises(JbrlError, match=rf"mine\.json: .*{re.escape(message)}"):
        read(tmp_path, {**SOUND, field: value})


@pytest.mark.parametrize("value", [1e30, 1e-30])
def test_the_limits_that_messages_name_are_accepted(value, tmp_path):
    found = read(
        tmp_path,
        {
            **SOUND,
            "transition_weights": [[[value, 1]], [[0, value]]],
            "rewards": [[[0, 1e30]], [[-1e30, 1]]],
        },
    )
    assert found.mdps.concentrations[0, 0, 0] == np.float32(value) and found.mdps.rewards[
        1, 0, 0
    ] == np.float32(-1e30)
    assert json_again(found, tmp_path).digest == found.digest


def json_again(problem, folder):
    write_json(problem, folder / "again.json")
    return read_json(folder / "again.json")


DIGITS = json.dumps(SOUND).replace('"n_states": 2', '"n_states": 2' + "0" * 5000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "x",\n "n_states": 2,,\n}', "not valid JSON: line 2, column 16"),
        ("", "not valid JSON: line 1, column 1"),
        ("[1, 2]", "expected a JSON object with the fields name, n_states"),
        ("[" * 200_000, "not valid JSON: nested too deeply"),
        (DIGITS, "not valid JSON: an integer of thousands of digits"),
        (json.dumps({**SOUND, "reward": 1}), "unknown field 'reward'; did you mean 'rewards'"),
    ],
    ids=range(6),
)
def test_what_is_not_a_json_object_of_known_fields_is_refused(text, message, tmp_path):
    with pytest.raises(JbrlError, match=rf"mine\.json: {message}"):
        read(tmp_path, text)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(JbrlError, match="cannot be read: it is a folder: expected a file"):
        read_json(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(JbrlError, match="cannot be read: not a text file in UTF-8"):
        read_json(tmp_path / "binary.json")


def test_the_example_of_the_documentation_is_sound(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "problems" / "json.md"
    found = read(
        tmp_path, re.search("```json\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[1]
    )
    assert (found.name, found.mdps.n_states, found.mdps.n_actions) == ("Two rooms", 2, 2)


@pytest.mark.parametrize(
    "name", [name for name in PROBLEMS if isinstance(problem(name), DirichletProblem)]
)
def test_every_problem_survives_its_file(name, tmp_path):
    found = problem(name)
    write_json(found, tmp_path / "p.json")
    again = problem("p.json", tmp_path)
    assert again.digest == found.digest
    assert again == found


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


def test_what_has_no_concentrations_has_no_file(tmp_path):
    with pytest.raises(
        JbrlError, match=r"^'Chain-10d' has no file: expected a Dirichlet distribution"
    ):
        write_json(problem("Chain-10d"), tmp_path / "p.json")
