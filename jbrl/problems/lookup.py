"""Problems by name: those of the register and of suites, environments, and files."""

import re
from pathlib import Path

from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.base.plugins import explained, find_class
from jbrl.environments.environment import ENVIRONMENTS, Environment
from jbrl.problems import settings
from jbrl.problems.json_format import read_json
from jbrl.problems.problem import (
    DERIVED,
    PROBLEMS,
    SUITES,
    DirichletProblem,
    EnvironmentProblem,
    Problem,
    ProblemEntry,
    Setting,
)

DEEPEST = 8  # problems made out of others that are made out of others
NESTED = re.compile(rf"(?:[^()]*\(){{{DEEPEST + 2}}}")


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
    """
    text = str(name)
    if text.casefold().endswith(".json"):
        return read_json((base or Path.cwd()) / text)
    if NESTED.match(text):
        raise JbrlError(
            f"problem '{shown(text, str)}': expected at most {DEEPEST} problems within each "
            "other, as in uniform(GC)"
        )
    family, inside = settings.parts(text)
    if ":" in family:
        found, source = find_class(family, base or Path.cwd(), Environment, "environment")
        return _of_environment(family, found, inside, source=source)
    suite, slash, rest = family.partition("/")
    if slash and suite in SUITES:
        return SUITES[suite].make(rest, inside)
    if family in DERIVED:
        if not inside.strip():
            raise JbrlError(
                f"problem '{text}': expected the name of a problem in parentheses, for example "
                f"'{family}(GC)'"
            )
        return DERIVED[family](problem(inside.strip(), base))
    if family in ENVIRONMENTS and family not in PROBLEMS:
        entry = ENVIRONMENTS[family]
        return _of_environment(family, entry.environment, inside, cite=entry.cite)
    if family not in PROBLEMS:
        known = nearest(family, {*PROBLEMS, *ENVIRONMENTS, *DERIVED})
        forms = (
            "the path of a problem's file ends in .json, an environment of your own is "
            "'module:Class'"
        )
        raise JbrlError(f"unknown problem '{shown(text, str)}'{known}; {forms}")
    return _make(PROBLEMS[family], inside)


def _make(entry: ProblemEntry, inside: str) -> Problem:
    defaults = entry.parameters
    values = _arguments(entry, inside)
    changed = ",".join(f"{key}={value}" for key, value in values.items() if value != defaults[key])
    short_name = f"{entry.name}({changed})" if changed else entry.name
    try:
        made = entry.make(**values)
    except JbrlError as error:
        raise JbrlError(f"problem '{short_name}': {error}") from None
    except (MemoryError, ValueError):  # NumPy cannot make arrays of that size
        raise JbrlError(
            f"problem '{short_name}': too large for the memory of this machine"
        ) from None
    if isinstance(made, Setting):
        identity = settings.identity(made.environment, settings.registered_name(made.environment))
        return EnvironmentProblem(
            entry.title, short_name, *made, identity, description=entry.summary, cite=entry.cite
        )
    return DirichletProblem(
        entry.title, short_name, made, description=entry.summary, cite=entry.cite
    )


def _of_environment(
    name: str, cls: type[Environment], inside: str, *, source: str | None = None, cite: str = ""
) -> EnvironmentProblem:
    """Return the problem made of one environment alone.

    Args:
      inside: its settings, as `settings.read_settings` reads them.
      source: SHA-256 of the file that an environment outside the package comes from.
    """
    values = settings.read_settings(cls, inside, f"environment '{name}'")
    short_name = settings.label(name, cls, values)
    try:
        environment = cls(**values)
    except JbrlError as error:
        raise JbrlError(f"environment '{short_name}': {error}") from None
    except Exception as error:
        raise JbrlError(f"environment '{short_name}': {explained(error)}") from error
    identity = settings.identity(environment, name) | ({"source": source} if source else {})
    description = " ".join((cls.__doc__ or name).strip().split("\n\n")[0].split())
    return EnvironmentProblem(
        settings.title(name),
        short_name,
        environment,
        cls.lifetime,
        identity=identity,
        description=description,
        cite=cite,
    )


def _arguments(entry: ProblemEntry, inside: str) -> dict[str, int]:
    """Return the parameters of a registered function that are written in a name."""
    where, parameters = f"problem '{entry.name}'", entry.parameters
    accepted = (
        f"expected {entry.name}({', '.join(f'{k}={v}' for k, v in parameters.items())})"
        if parameters
        else "it takes no parameters"
    )
    try:
        values = settings.items(inside, where)
    except JbrlError as error:
        raise JbrlError(f"{error}: {accepted}") from None
    for key, value in values.items():
        if key not in parameters:
            raise JbrlError(
                f"{where}: unknown parameter "
                f"'{shown(key, str)}'{nearest(key, parameters) if parameters else ': ' + accepted}"
            )
        if not re.fullmatch(r"[+-]?\d{1,9}", value):
            raise JbrlError(f"{where}: {key} = {shown(value, str)}: expected an integer")
    return {key: int(value) for key, value in values.items()}
