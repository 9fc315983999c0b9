"""Settings of environments: their notation in the name of a problem, and the identity of an
environment.
"""

import dataclasses
import hashlib
import json
import re
import tomllib
from typing import Any

import jax
import numpy as np

from jbrl.base.errors import JbrlError, shown
from jbrl.base.parameters import check_known, check_parameters
from jbrl.base.plugins import is_outside, source_digest
from jbrl.environments.environment import ENVIRONMENTS, Environment

# commas between quotes do not separate
ITEM = re.compile(r"""(?:[^,"']|"(?:\\.|[^"\\])*"|'[^']*'|["'])+""")
CALL = re.compile(r"\s*(?P<name>[^()]*?)\s*(?:\((?P<inside>.*)\)\s*)?", re.DOTALL)


def parts(text: str) -> tuple[str, str]:
    """Split `name(inside)`; a text of another form is a name alone."""
    match = CALL.fullmatch(text)
    return (match["name"], match["inside"] or "") if match else (text, "")


def items(inside: str, where: str) -> dict[str, str]:
    """Split `key=value, key=value`.

    Args:
      where: place to name in messages.

    Raises:
      JbrlError: an item without `=`, or a key that is given twice.
    """
    found: dict[str, str] = {}
    for text in filter(None, map(str.strip, ITEM.findall(inside))):
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise JbrlError(f"{where}: '{shown(text, str)}' is not written parameter=value")
        if key in found:
            raise JbrlError(f"{where}: {key} is given twice")
        found[key] = value
    return found


def read_settings(cls: type[Environment], inside: str, where: str) -> dict[str, Any]:
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
    fields = {f.name: f.default for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name, default in fields.items():
        if default is not None and not isinstance(default, int | float | str):
            raise JbrlError(
                f"{where}: field '{name}': expected a default, a number, true, false or a string: "
                "declare it with parameter(…)"
            )
    public = {f.name: f for f in dataclasses.fields(cls) if f.default is not None}  # type: ignore[arg-type]
    values = {}
    for key, text in items(inside, where).items():
        check_known([key], public, where)
        values[key] = _value(text, f"{where}: {key}")
    return check_parameters(cls, values, where)


def _value(text: str, where: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        # not TOML, an integer of thousands of digits, brackets within brackets
        raise JbrlError(
            f"{where} = {shown(text, str)}: expected a number, true, false or a string in quotes"
        ) from None


def label(name: str, cls: type[Environment], settings: dict[str, Any]) -> str:
    """Return `name(key=value,…)` with the settings that differ from their defaults; `problem` reads
    it back.
    """
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    changed = [
        f"{key}={written(value)}" for key, value in settings.items() if value != defaults[key]
    ]
    return f"{name}({','.join(changed)})" if changed else name


def written(value: Any) -> str:
    """Return the value of a setting as it is written in a name."""
    return json.dumps(value)


def title(name: str) -> str:
    """Return the name of a class in words: `Deep sea` for `DeepSea`, also where a module stands
    before it.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.rpartition(":")[2])
    return words[:1].upper() + re.sub(
        r"\b[A-Z](?=[a-z])", lambda letter: letter[0].lower(), words[1:]
    )


def registered_name(environment: Environment) -> str:
    """Return the name of an environment's class in the register; `module:Class` where it is
    not registered.
    """
    cls = type(environment)
    return next(
        (name for name, entry in ENVIRONMENTS.items() if entry.environment is cls),
        f"{cls.__module__}:{cls.__qualname__}",
    )


def identity(environment: Environment, name: str) -> dict[str, Any]:
    """Return the identity of an environment, as data for JSON: its name, the version of its
    behaviour, all its fields but those that came late (`parameter`) and have their defaults.

    Of a class outside jbrl also the SHA-256 of its source.
    """
    fields = dataclasses.fields(environment)  # type: ignore[arg-type]
    values = {
        f.name: _fingerprint(getattr(environment, f.name))
        for f in fields
        if f.name not in environment.aside and not _as_before(f, getattr(environment, f.name))
    }
    source = source_digest(type(environment)) if is_outside(type(environment)) else ""
    known = {"environment": name, "version": environment.version, "settings": values}
    return known | ({"source": source} if source else {})


def _as_before(field: dataclasses.Field, value: Any) -> bool:
    """Return whether a field came late and has its default."""
    return bool(field.metadata.get("late") and value == field.default)


def _fingerprint(value: Any) -> Any:
    """Return a number, a string or None unchanged; the SHA-256 of anything else that is made of
    arrays.
    """
    if value is None or isinstance(value, int | float | str):
        return value
    content = hashlib.sha256()
    leaves, structure = jax.tree.flatten(value)
    for text in (
        str(structure),
        *(f"{array.dtype.str}{array.shape}" for array in map(np.asarray, leaves)),
    ):
        content.update(text.encode())
    for leaf in leaves:
        content.update(np.ascontiguousarray(leaf).tobytes())
    return content.hexdigest()
