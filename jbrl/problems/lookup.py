"""Problems by name: those of the register and of suites, environments, and files.

A name is `name`, `name(parameter=value, …)` or `name(problem, parameter=value, …)`; values of an
environment's settings are written as in TOML. In a study a list of values, `GC(n_states=[3,4])`,
names a problem for each.
"""

import dataclasses
import inspect
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jbrl.base.errors import JbrlError, expect, nearest, shown
from jbrl.base.parameters import check_known, check_parameters
from jbrl.base.plugins import explained, find_class, summary
from jbrl.environments.environment import ENVIRONMENTS, Environment
from jbrl.problems.json_format import read_json
from jbrl.problems.problem import (
    DERIVED,
    PROBLEMS,
    DirichletProblem,
    EnvironmentProblem,
    Problem,
    ProblemEntry,
    Setting,
    identity,
)
from jbrl.problems.recorder import EpisodeMean

# commas between quotes do not separate
ITEM = re.compile(r"""(?:[^,"']|"(?:\\.|[^"\\])*"|'[^']*'|["'])+""")
CALL = re.compile(r"\s*(?P<name>[^()]*?)\s*(?:\((?P<inside>.*)\)\s*)?", re.DOTALL)
AXIS = re.compile(r"=\s*\[([^\[\]]*)\]")
NEXT = re.compile(r"\s*\w+\s*=")
DEEPEST = 8  # problems made out of others that are made out of others
NESTED = re.compile(rf"(?:[^()]*\(){{{DEEPEST + 2}}}")


@dataclasses.dataclass(frozen=True)
class Suite:
    """Problems that are made when they are named, `<suite>/<id>`, and names for groups of them."""

    name: str
    summary: str
    make: Callable[[str, str], Problem]  # of an id and what stands in parentheses behind it
    groups: dict[str, tuple[str, ...]]  # ids by the name of a group
    table: Callable[[], list[dict[str, str]]]  # of all ids, a row each, with the same columns

    def members(self, text: str) -> tuple[str, ...]:
        """Return the names of the problems that a name behind `<suite>/` stands for."""
        name, inside = _parts(text)
        written = f"({inside})" if inside else ""
        return tuple(f"{self.name}/{id}{written}" for id in self.groups.get(name, (name,)))


SUITES: dict[str, Suite] = {}
OTHERS = (
    "; the path of a problem's file ends in .json, an environment of your own is 'module:Class'"
)


def register_suite(suite: Suite) -> None:
    """List a suite under its name."""
    if suite.name in SUITES:
        raise ValueError(f"two suites are called {suite.name}")
    SUITES[suite.name] = suite


def members(name: str) -> tuple[str, ...]:
    """Return the names of the problems that a name stands for: itself, unless it is a group of
    a suite.
    """
    suite, slash, rest = name.strip().partition("/")
    return SUITES[suite].members(rest) if slash and suite in SUITES else (name,)


def listed(name: str) -> dict[str, str]:
    """Return the names that a name with lists of values stands for, by these values: "3" and "4"
    of `GC(n_states=[3,4])`; "" for a name without a list.
    """
    axis = AXIS.search(name)
    if not axis:
        return {"": name}
    values = [*filter(None, map(str.strip, ITEM.findall(axis[1])))] or [""]
    return {
        "/".join(filter(None, (value.strip("\"'"), rest))): whole
        for value in values
        for rest, whole in listed(f"{name[: axis.start()]}={value}{name[axis.end() :]}").items()
    }


def problem(name: str | Path, base: Path | None = None) -> Problem:
    """Return the problem of that name.

    Args:
      name: one of the catalogue (`GC`), with parameters (`GC(n_states=8)`), made out of another one
        (`uniform(GC)`), an environment of the register or `module:Class`, with or without settings
        (`DeepSea(size=20)`), one of a suite (`bsuite/catch/0`), or the path of a JSON file, ending
        in `.json`.
      base: folder that paths are relative to, and that modules are looked for in; default: the
        working directory.

    Raises:
      JbrlError: no such problem, or its file is not sound.

    >>> jbrl.problem("GC(n_states=8)").mdps.concentrations.shape
    (8, 3, 8)
    """
    expect("problem", name, str | Path, 'a problem, or the name of one, for example "GC"')
    text, base = str(name), base or Path.cwd()
    if text.casefold().endswith(".json"):
        return read_json(base / text)
    if NESTED.match(text):
        raise JbrlError(
            f"problem '{shown(text, str)}': expected at most {DEEPEST} problems within each "
            "other, as in uniform(GC)"
        )
    family, inside = _parts(text)
    if ":" in family:
        cls, source = find_class(family, base, Environment, "environment")
        return _of_environment(family, cls, inside, source=source)
    suite, slash, rest = family.partition("/")
    if slash and suite in SUITES:
        return SUITES[suite].make(rest, inside)
    if family in DERIVED:
        return _derived(family, inside, base)
    if family in PROBLEMS:
        return _of_entry(PROBLEMS[family], inside)
    if family in ENVIRONMENTS:
        entry = ENVIRONMENTS[family]
        return _of_environment(family, entry.environment, inside, cite=entry.cite)
    raise JbrlError(f"unknown problem '{shown(text, str)}'{nearest(family, families())}{OTHERS}")


def families() -> set[str]:
    """Return all names that problems have without parameters, those of suites left out."""
    return {*PROBLEMS, *ENVIRONMENTS, *DERIVED}


def _derived(family: str, inside: str, base: Path) -> Problem:
    """Return the problem that a registered function makes of another one."""
    of, written = _first(inside)
    if not of:
        raise JbrlError(
            f"problem '{family}({shown(inside, str)})': expected the name of a problem in "
            f"parentheses, for example '{family}(GC)'"
        )
    make = DERIVED[family]
    names = [*inspect.signature(make).parameters.values()][1:]
    values = _arguments(family, {one.name: one.default for one in names}, written)
    for one in names:
        if one.default is None and one.name in values:
            values[one.name] = problem(values[one.name], base)
    return make(problem(of, base), **values)


def _first(inside: str) -> tuple[str, str]:
    """Split `problem, parameter=value, …` behind the problem."""
    depth = 0
    for place, letter in enumerate(f",{inside}"):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0 and NEXT.match(inside, place):
            return inside[: max(place - 1, 0)].strip(), inside[place:]
    return inside.strip(), ""


def _of_entry(entry: ProblemEntry, inside: str) -> Problem:
    values = _arguments(entry.name, entry.parameters, inside)
    short_name = label(entry.name, values, entry.parameters)
    try:
        made = entry.make(**values)
    except JbrlError as error:
        raise JbrlError(f"problem '{short_name}': {error}") from None
    except (MemoryError, ValueError):  # NumPy cannot make arrays of that size
        raise JbrlError(
            f"problem '{short_name}': too large for the memory of this machine"
        ) from None
    about: Any = {"description": entry.summary, "cite": entry.cite}
    if isinstance(made, Setting):
        known = identity(made.environment)
        return EnvironmentProblem(entry.title, short_name, *made, known, **about)
    return DirichletProblem(entry.title, short_name, made, **about)


def _of_environment(
    name: str,
    cls: type[Environment[Any]],
    inside: str,
    *,
    source: str | None = None,
    cite: str = "",
) -> EnvironmentProblem:
    """Return the problem made of one environment alone.

    Args:
      inside: its settings, as `read_settings` reads them.
      source: SHA-256 of the file that an environment outside the package comes from.
    """
    values = read_settings(cls, inside, f"environment '{name}'")
    short_name = label(name, values, defaults_of(cls))
    try:
        environment = cls(**values)
    except JbrlError as error:
        raise JbrlError(f"environment '{short_name}': {error}") from None
    except Exception as error:
        raise JbrlError(f"environment '{short_name}': {explained(error)}") from error
    return EnvironmentProblem(
        _title(name),
        short_name,
        environment,
        cls.lifetime,
        cls.recorder or EpisodeMean(),
        identity=identity(environment, name) | ({"source": source} if source else {}),
        figures=cls.figures,
        description=summary(cls) or name,
        cite=cite,
    )


def _parts(text: str) -> tuple[str, str]:
    """Split `name(inside)`; a text of another form is a name alone."""
    match = CALL.fullmatch(text)
    return (match["name"], match["inside"] or "") if match else (text, "")


def _items(inside: str, where: str) -> dict[str, str]:
    """Split `key=value, key=value`.

    Raises:
      JbrlError: an item without `=`, or a key that is given twice.
    """
    values: dict[str, str] = {}
    for text in filter(None, map(str.strip, ITEM.findall(inside))):
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise JbrlError(f"{where}: '{shown(text, str)}' is not written parameter=value")
        if key in values:
            raise JbrlError(f"{where}: {key} is given twice")
        values[key] = value
    return values


def _arguments(name: str, parameters: Mapping[str, Any], inside: str) -> dict[str, Any]:
    """Return the parameters of a registered function that are written in a name.

    Args:
      parameters: with their defaults; None for another problem, whose name is a text.
    """
    where = f"problem '{name}'"
    accepted = (
        f"expected {name}({', '.join(f'{k}={json.dumps(v)}' for k, v in parameters.items())})"
        if parameters
        else "it takes no parameters"
    )
    try:
        values = _items(inside, where)
    except JbrlError as error:
        raise JbrlError(f"{error}: {accepted}") from None
    for key in values:
        if key not in parameters:
            hint = nearest(key, parameters) if parameters else f": {accepted}"
            raise JbrlError(f"{where}: unknown parameter '{shown(key, str)}'{hint}")
    return {key: _argument(key, text, parameters[key], where) for key, text in values.items()}


def _argument(key: str, text: str, default: object, where: str) -> int | float | str:
    """Return a parameter as it is written: a number, or a text in quotes, as the default is."""
    if isinstance(default, int) and re.fullmatch(r"[+-]?\d{1,9}", text):
        return int(text)
    if isinstance(default, float) and re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value):
            return value
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    if quoted and not isinstance(default, int | float):
        return text[1:-1]
    kinds = {int: "an integer of at most nine digits", float: "a number"}
    expected = kinds.get(type(default), "a text in quotes")
    raise JbrlError(f"{where}: {key} = {shown(text, str)}: expected {expected}")


def read_settings(cls: type[Environment[Any]], inside: str, where: str) -> dict[str, Any]:
    """Return all fields of an environment class as `key=value, …` sets them, values written as in
    TOML, defaults filled in.

    Raises:
      JbrlError: a class that is no record, or has a field without a default; an unknown setting, or
        a value that it does not accept.
    """
    if "__dataclass_fields__" not in vars(cls):
        raise JbrlError(
            f'{where} is not registered: write @register_environment("{cls.__name__}") above the '
            "class"
        )
    fields: Any = dataclasses.fields(cls)  # type: ignore[arg-type]
    for field in fields:
        if field.default is not None and not isinstance(field.default, int | float | str):
            raise JbrlError(
                f"{where}: field '{field.name}': expected a default, a number, true, false or a "
                "string: declare it with parameter(…)"
            )
    public = {f.name: f for f in fields if f.default is not None}
    values = {}
    for key, text in _items(inside, where).items():
        check_known([key], public, where)
        try:
            values[key] = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            # not TOML, an integer of thousands of digits, brackets within brackets
            raise JbrlError(
                f"{where}: {key} = {shown(text, str)}: expected a number, true, false or a string "
                "in quotes"
            ) from None
    return check_parameters(cls, values, where)


def label(name: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return `name(key=value,…)` with the values that differ from their defaults; `problem` reads
    it back.
    """
    changed = [f"{k}={json.dumps(value)}" for k, value in values.items() if value != defaults[k]]
    return f"{name}({','.join(changed)})" if changed else name


def problem_of(environment: Environment, base: Path) -> Problem:
    """Return the problem of an environment, which is found by its class and settings.

    Raises:
      JbrlError: these do not tell all that it is, as where a field was given to it that
        `__post_init__` computes otherwise.
    """
    cls = type(environment)
    own = f"{cls.__module__}:{cls.__qualname__}"
    name = next((name for name, e in ENVIRONMENTS.items() if e.environment is cls), own)
    defaults: dict[str, Any] = defaults_of(cls) if dataclasses.is_dataclass(cls) else {}
    values = {}
    for key, default in defaults.items():
        if default is dataclasses.MISSING:
            raise _unlike(name, key)
        if default is not None:
            value = np.asarray(getattr(environment, key))
            # the shortest number that is this one: a setting of 0.1 is written so
            values[key] = float(str(value)) if value.dtype == np.float32 else value.item()
    found = problem(label(name, values, defaults), base)
    made = getattr(found, "environment", None)
    for key in (key for key, default in defaults.items() if default is None):
        given, computed = (jax.tree.leaves(getattr(one, key)) for one in (environment, made))
        if len(given) != len(computed) or not all(map(np.array_equal, given, computed)):
            raise _unlike(name, key)
    return found


def _unlike(name: str, key: str) -> JbrlError:
    return JbrlError(
        f"environment '{name}': field '{key}' does not follow from its settings: expected an "
        "environment that does, or jbrl.simulate, which plays any"
    )


def defaults_of(cls: type[Environment[Any]]) -> dict[str, Any]:
    """Return the defaults of all fields of an environment class."""
    return {f.name: f.default for f in dataclasses.fields(cls)}  # type: ignore[arg-type]


def _title(name: str) -> str:
    """Return the name of a class in words: `Deep sea` for `DeepSea`, also where a module stands
    before it.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.rpartition(":")[2])
    return words[:1].upper() + re.sub(
        r"\b[A-Z](?=[a-z])", lambda letter: letter[0].lower(), words[1:]
    )
