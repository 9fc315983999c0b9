"""Parameters: fields of agents and environments with a default, a meaning and the values that they accept."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from jbrl.errors import JbrlError, nearest


def parameter(
    default: Any,
    doc: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    static: bool = False,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], None] | None = None,
) -> Any:
    """Declare a parameter of an agent or an environment: its default, what it means and the values it may take.

    The type is that of `default`: float, int, bool or str. Strings and `static` values belong to the compiled program.

    Args:
      check: raises `JbrlError`, with what is accepted, for a value of the right type that is not.
    """
    fixed = static or isinstance(default, str)
    rules = {"doc": doc, "low": low, "high": high, "open_low": open_low, "static": fixed, "choices": choices, "check": check}
    return dataclasses.field(default=default, metadata=rules)


def check_parameters(cls: type, values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return all parameters of an agent or an environment, defaults filled in, each of its declared type.

    Args:
      where: place to name in messages, for example `study.toml: agents[2]`.

    Raises:
      JbrlError: an unknown parameter, a value of the wrong type or out of range.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for name in values:
        if name not in fields:
            raise JbrlError(f"{where}: unknown parameter '{name}'{nearest(name, fields)}")
    return {name: _checked(field, values.get(name, field.default), f"{where}: {name}") for name, field in fields.items()}


def _checked(field: dataclasses.Field, value: Any, where: str) -> Any:
    kind, rules = type(field.default), field.metadata
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not kind:
        raise JbrlError(f"{where} = {value!r}: expected {_accepted(field)}")
    if rules.get("choices") and value not in rules["choices"]:
        raise JbrlError(f"{where} = {value!r}: expected {_accepted(field)}")
    if kind in (int, float):
        number: Any = value
        low, high = rules.get("low", -math.inf), rules.get("high", math.inf)
        below = number <= low if rules.get("open_low") else number < low
        if not math.isfinite(number) or below or number > high:
            raise JbrlError(f"{where} = {value!r}: expected {_accepted(field)}")
    if rules.get("check"):
        try:
            rules["check"](value)
        except JbrlError as error:
            raise JbrlError(f"{where}: {error}") from None
    return value


def _accepted(field: dataclasses.Field) -> str:
    """What a parameter accepts, in words."""
    rules = field.metadata
    if rules.get("choices"):
        return "one of " + ", ".join(repr(c) for c in rules["choices"])
    noun = {float: "a number", int: "an integer", bool: "true or false", str: "a string"}[type(field.default)]
    low, high = rules.get("low", -math.inf), rules.get("high", math.inf)
    above = f" {'above' if rules.get('open_low') else 'from'} {low:g}" if low > -math.inf else ""
    below = f" up to {high:g}" if high < math.inf else ""
    return noun + above + below
