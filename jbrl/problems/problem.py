"""What a problem is, the register of all problems, and how a name becomes one.

A problem is a distribution over MDPs with a name. Everything here runs on the host and holds NumPy arrays, so that looking at problems
starts no accelerator.
"""

import dataclasses
import hashlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jbrl.errors import JbrlError, nearest
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems import json_format
from jbrl.problems.checks import check_mdps

CALL = re.compile(r"\s*(?P<name>[^()]*?)\s*(?:\((?P<inside>.*)\)\s*)?", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A distribution over MDPs, with a name.

    Raises:
      JbrlError: the distribution is not sound, as said in `checks.check_mdps`.
    """

    name: str
    short_name: str  # what the catalogue calls it, parameters that differ from their defaults included
    mdps: DirichletMDPs = dataclasses.field(compare=False)  # of NumPy arrays
    description: str = ""
    cite: str = ""  # keys in references.bib, or a BibTeX entry
    digest: str = dataclasses.field(init=False)  # SHA-256 of the distribution alone, in hexadecimal

    def __post_init__(self) -> None:
        object.__setattr__(self, "mdps", check_mdps(self.mdps, f"problem '{self.short_name}'"))
        object.__setattr__(self, "digest", _digest(self.mdps))


def _digest(mdps: DirichletMDPs) -> str:
    content = hashlib.sha256()
    for array in map(np.asarray, (mdps.concentrations, mdps.rewards, mdps.initial_state)):
        content.update(f"{array.dtype.str}{array.shape}".encode())
        content.update((array + array.dtype.type(0)).tobytes())  # -0.0 becomes 0.0
    return content.hexdigest()


@dataclasses.dataclass(frozen=True)
class ProblemEntry:
    """One line of the register."""

    name: str
    title: str
    make: Callable[..., DirichletMDPs]
    cite: str

    @property
    def summary(self) -> str:
        """First line of the maker's docstring."""
        return (self.make.__doc__ or "").strip().splitlines()[0]

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters and their defaults: all are integers."""
        return {p.name: p.default for p in inspect.signature(self.make).parameters.values()}


PROBLEMS: dict[str, ProblemEntry] = {}
DERIVED: dict[str, Callable[[Problem], Problem]] = {}  # problems made out of another one, written name(other)


def register_problem(name: str, *, title: str, cite: str = "") -> Callable[[Callable[..., DirichletMDPs]], Callable[..., DirichletMDPs]]:
    """Decorator: list a function of integer parameters, all with defaults, that returns a distribution over MDPs."""

    def register(make: Callable[..., DirichletMDPs]) -> Callable[..., DirichletMDPs]:
        if name in PROBLEMS:
            raise ValueError(f"two problems are called {name}")
        PROBLEMS[name] = ProblemEntry(name, title, make, cite)
        return make

    return register


def register_derived(name: str) -> Callable[[Callable[[Problem], Problem]], Callable[[Problem], Problem]]:
    """Decorator: list a function that makes a problem out of another one."""

    def register(make: Callable[[Problem], Problem]) -> Callable[[Problem], Problem]:
        DERIVED[name] = make
        return make

    return register


def distribution(concentrations: Any, rewards: Any, initial_state: int = 0) -> DirichletMDPs:
    """A distribution over MDPs out of two arrays [S, A, S] of any kind."""
    return DirichletMDPs(np.asarray(concentrations, np.float32), np.asarray(rewards, np.float32), np.asarray(initial_state, np.int32))


def problem(name: str | Path, base: Path | None = None) -> Problem:
    """The problem of that name.

    Args:
      name: one of the catalogue (`GC`), with parameters (`GC(n_states=8)`), made out of another one (`uniform(GC)`), or the path of a
        JSON file, ending in `.json`.
      base: folder that paths are relative to; default: the working directory.

    Raises:
      JbrlError: no such problem, or its file is not sound.
    """
    text = str(name)
    if text.casefold().endswith(".json"):
        return read_json((base or Path.cwd()) / text)
    match = CALL.fullmatch(text)
    family, inside = (match["name"], match["inside"]) if match else (text, None)
    if family in DERIVED:
        if not (inside or "").strip():
            raise JbrlError(f"problem '{text}': expected the name of a problem in parentheses, for example '{family}(GC)'")
        return DERIVED[family](problem((inside or "").strip(), base))
    if family not in PROBLEMS:
        raise JbrlError(f"unknown problem '{text}'{nearest(family, [*PROBLEMS, *DERIVED])}; the path of a problem's file ends in .json")
    return _make(PROBLEMS[family], inside or "")


def _make(entry: ProblemEntry, inside: str) -> Problem:
    defaults = entry.parameters
    values = dict(_argument(entry, text) for text in inside.split(",") if text.strip())
    told = ",".join(f"{key}={value}" for key, value in values.items() if value != defaults[key])
    short_name = f"{entry.name}({told})" if told else entry.name
    try:
        mdps = entry.make(**values)
    except JbrlError as error:
        raise JbrlError(f"problem '{short_name}': {error}") from None
    except (MemoryError, ValueError):  # NumPy cannot make arrays of that size
        raise JbrlError(f"problem '{short_name}': too large for the memory of this machine") from None
    return Problem(entry.title, short_name, mdps, entry.summary, entry.cite)


def _argument(entry: ProblemEntry, text: str) -> tuple[str, int]:
    key, equals, value = (part.strip() for part in text.partition("="))
    parameters = entry.parameters
    accepted = f"expected {entry.name}({', '.join(f'{k}={v}' for k, v in parameters.items())})" if parameters else "it takes no parameters"
    if not equals:
        raise JbrlError(f"problem '{entry.name}': '{text.strip()}' is not written parameter=value: {accepted}")
    if key not in parameters:
        raise JbrlError(f"problem '{entry.name}': unknown parameter '{key}'{nearest(key, parameters) if parameters else ': ' + accepted}")
    if not re.fullmatch(r"[+-]?\d{1,9}", value):
        raise JbrlError(f"problem '{entry.name}': {key} = {value}: expected an integer")
    return key, int(value)


def read_json(path: str | Path) -> Problem:
    """The problem in a JSON file, described in `json_format`.

    Raises:
      JbrlError: it cannot be read or is not sound; the message names the file and the field.
    """
    return Problem(**json_format.read(Path(path)))


def to_json(problem: Problem) -> str:
    """The text of the JSON file of a problem: reading it gives the same distribution, bit for bit."""
    fields = {"name": problem.name, "short_name": problem.short_name, "description": problem.description, "cite": problem.cite}
    return json_format.write({key: value for key, value in fields.items() if value}, problem.mdps)


def write_json(problem: Problem, path: str | Path) -> None:
    """Write a problem to a JSON file.

    Raises:
      JbrlError: the file cannot be written.
    """
    try:
        Path(path).write_text(to_json(problem), encoding="utf-8")
    except OSError as error:
        raise JbrlError(f"{path}: cannot be written: {error.strerror}") from None
