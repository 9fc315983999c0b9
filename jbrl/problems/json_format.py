"""Problems as JSON files.

    {
      "name": "My chain",              required
      "short_name": "mine",            default: the file's name without .json
      "description": "…", "cite": "…", default: nothing
      "n_states": 2, "n_actions": 1,   required
      "initial_state": 0,              required; -1: drawn uniformly for each trajectory
      "reward_type": "constant",       default, and the only one
      "transition_weights": [[[1, 1]], [[1, 0]]],    required, Dirichlet concentrations as
                                                     [state][action][next state]
      "rewards": [[[0, 1]], [[0, 0]]]                required, nested likewise
    }

Other fields are refused.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jbrl.base.errors import JbrlError, shown
from jbrl.base.files import naming, read_object, write_whole
from jbrl.base.parameters import GREATEST_INTEGER
from jbrl.mdp.dirichlet import DirichletMDPs, check_mdps
from jbrl.problems.problem import DirichletProblem

TEXTS = ("name", "short_name", "description", "cite")
REQUIRED = ("name", "n_states", "n_actions", "initial_state", "transition_weights", "rewards")
OPTIONAL = (*TEXTS[1:], "reward_type")
LEVELS = ("state", "action", "next state")


def read_json(path: str | Path) -> DirichletProblem:
    """Read the problem in a JSON file.

    Raises:
      JbrlError: it cannot be read, is not JSON, lacks a field or has one too many, or a field is
        not sound. The message names the file and the field.
    """
    path = Path(path)
    data = read_object(path, REQUIRED, OPTIONAL)
    texts = {"short_name": path.stem} | {
        field: _text(data[field], f"{path}: {field}") for field in TEXTS if field in data
    }
    if data.get("reward_type", "constant") != "constant":
        raise JbrlError(
            f'{path}: reward_type = {_short(data["reward_type"])}: expected "constant", the only '
            "type there is"
        )
    n_states = _integer(data["n_states"], 1, f"{path}: n_states")
    n_actions = _integer(data["n_actions"], 1, f"{path}: n_actions")
    shape = (n_states, n_actions, n_states)
    weights = _array(data["transition_weights"], shape, f"{path}: transition_weights")
    rewards = _array(data["rewards"], shape, f"{path}: rewards")
    initial_state: Any = np.asarray(_integer(data["initial_state"], -1, f"{path}: initial_state"))
    mdps = check_mdps(
        DirichletMDPs(weights, rewards, initial_state), str(path), "transition_weights"
    )
    return DirichletProblem(**texts, mdps=mdps)


def to_json(problem: DirichletProblem) -> str:
    """Return the text of the JSON file of a problem, a line for each row of numbers: reading it
    gives the same distribution, bit for bit.

    Raises:
      JbrlError: the problem is not a distribution over finite MDPs.
    """
    if not isinstance(problem, DirichletProblem):
        raise JbrlError(
            f"'{problem.short_name}' has no file: expected a Dirichlet distribution over finite "
            "MDPs, for example GC"
        )
    mdps, texts = problem.mdps, {field: getattr(problem, field) for field in TEXTS}
    fields = {
        **{field: text for field, text in texts.items() if text},
        "n_states": mdps.n_states,
        "n_actions": mdps.n_actions,
        "initial_state": int(mdps.initial_state),
        "reward_type": "constant",
    }
    lines = [
        f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in fields.items()
    ]
    lines += [
        f'  "transition_weights": {_nested(mdps.concentrations)}',
        f'  "rewards": {_nested(mdps.rewards)}',
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_json(problem: DirichletProblem, path: str | Path) -> None:
    """Write a problem to a JSON file.

    Raises:
      JbrlError: the problem is not a distribution over finite MDPs, or the file cannot be written.
    """
    with naming(path, "written"):
        write_whole(Path(path), to_json(problem).encode())


def _nested(array: Any) -> str:
    states = [
        ",\n".join(f"      [{', '.join(_number(v) for v in row)}]" for row in rows)
        for rows in np.asarray(array)
    ]
    return "[\n" + ",\n".join(f"    [\n{rows}\n    ]" for rows in states) + "\n  ]"


def _number(value: np.float32) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e6 else str(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise JbrlError(f"{where} = {_short(value)}: expected a string")
    return value


def _integer(value: Any, low: int, where: str) -> int:
    if type(value) is not int or not low <= value <= GREATEST_INTEGER:
        raise JbrlError(
            f"{where} = {_short(value)}: expected an integer from {low} to {GREATEST_INTEGER}"
        )
    return value


def _array(value: Any, shape: tuple[int, ...], where: str) -> Any:
    _check_nested(value, shape, where)
    return np.array(value, np.float64)


def _check_nested(value: Any, shape: tuple[int, ...], where: str) -> None:
    """Raise unless `value` is lists of numbers nested as `shape`."""
    if not shape:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise JbrlError(f"{where} = {_short(value)}: expected a number")
        if isinstance(value, int) and abs(value) > 10**300:
            raise JbrlError(f"{where} = {_short(value)}: expected a smaller number")
        return
    what = f"a list of {shape[0]}, one for each {LEVELS[-len(shape)]}"
    if not isinstance(value, list):
        raise JbrlError(f"{where} = {_short(value)}: expected {what}")
    if len(value) != shape[0]:
        raise JbrlError(f"{where} has {len(value)} entries: expected {what}")
    for i, entry in enumerate(value):
        _check_nested(entry, shape[1:], f"{where}[{i}]")


def _short(value: Any) -> str:
    return shown(value, json.dumps)
