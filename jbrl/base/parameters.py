"""Parameters: fields of agents and environments with a default, a meaning and the values that they
accept.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from jbrl.base.errors import JbrlError, located, nearest, shown

GREATEST_INTEGER = 2**31 - 1  # that int32 holds
GREATEST_NUMBER = 3.4e38  # that float32 holds
# above 0 that float32 holds with all its digits; devices take smaller ones for 0
SMALLEST_NUMBER = 1.2e-38


def parameter(
    default: Any,
    doc: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    static: bool = False,
    late: bool = False,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], object] | None = None,
) -> Any:
    """Declare a parameter of an agent or an environment: its default, what it means and the values
    it may take.

    The type is that of `default`: float, int, bool or str. Strings and `static` values belong to
    the compiled program.

    Args:
      late: for an environment: results were stored before the parameter was there. Its default is
        what it was then, and is not part of the environment's identity.
      check: raises `JbrlError`, with what is accepted, for a value of the right type that is not.
    """
    rules = {"doc": doc, "low": low, "high": high, "open_low": open_low, "choices": choices}
    rules |= {"static": static or isinstance(default, str), "late": late, "check": check}
    return dataclasses.field(default=default, metadata=rules)


def check_parameters(cls: type, values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return all parameters of an agent or an environment, defaults filled in, each of its declared
    type.

    Numbers are checked as they are used, in float32 and int32: one that float32 rounds to infinity,
    or to an end that is excluded, is refused.

    Args:
      where: place to name in messages, for example `study.toml: agents[2]`.

    Raises:
      JbrlError: an unknown parameter, a value of the wrong type or out of range.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}
    check_known(values, fields, where)
    return {
        name: _checked(field, values.get(name, field.default), f"{where}: {name}")
        for name, field in fields.items()
    }


def check_known(
    names: Iterable[str], fields: Mapping[str, dataclasses.Field[Any]], where: str
) -> None:
    """Refuse a parameter that is not among `fields`.

    Raises:
      JbrlError: names the parameter whose letter in the literature it is (`K` for `simulations`),
        or the nearest one.
    """
    for name in names:
        if name not in fields:
            # as in "K, simulations for each decision"
            meanings = [(str(f.metadata.get("doc", "")), f.name) for f in fields.values()]
            meant = [field for doc, field in meanings if re.match(rf"{re.escape(name)}[,:] ", doc)]
            hint = nearest(name, fields) if fields else ": it takes no parameters"
            if meant:
                hint = f"; did you mean '{meant[-1]}'? (known: {', '.join(sorted(fields))})"
            raise JbrlError(f"{where}: unknown parameter '{shown(name, str)}'{hint}")


def kind_of(field: dataclasses.Field[Any]) -> type:
    """Return the type of a parameter: that of its default, of a number of NumPy Python's."""
    default = field.default
    return type(default.item() if isinstance(default, np.generic) else default)


def _checked(field: dataclasses.Field[Any], given: Any, where: str) -> Any:
    kind, rules, value = kind_of(field), field.metadata, given
    if kind is float and type(value) is int:
        value = (
            float(value) if abs(value) <= GREATEST_NUMBER else math.inf if value > 0 else -math.inf
        )
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    accepted = type(value) is kind and (not rules.get("choices") or value in rules["choices"])
    if not accepted or (kind in (int, float) and not _in_range(field, value)):
        as_float = kind is float and type(value) is float and math.isfinite(value)
        refused = shown(value if as_float else given)
        raise JbrlError(f"{where} = {refused}: expected {accepted_values(field, given)}")
    if rules.get("check"):
        with located(where):
            rules["check"](value)
    return value


def _range(field: dataclasses.Field[Any]) -> tuple[float, float]:
    """Return the ends of what a number may be: those declared, within those of float32 or int32."""
    low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
    if kind_of(field) is float:
        return max(low, -GREATEST_NUMBER), min(high, GREATEST_NUMBER)
    return max(low, -GREATEST_INTEGER - 1), min(high, GREATEST_INTEGER)


def _in_range(field: dataclasses.Field[Any], value: float) -> bool:
    """Return whether a number lies in its range, as written and as float32 has it. NaN does not."""
    low, high = _range(field)
    if not low <= value <= high or not field.metadata.get("open_low"):
        return low <= value <= high
    return value >= SMALLEST_NUMBER if low == 0 else bool(np.float32(value) > np.float32(low))


def accepted_values(field: dataclasses.Field[Any], given: Any) -> str:
    """Return what a parameter accepts, in words. Limits of float32 or int32 are named where `given`
    is beyond them.
    """
    rules, kind = field.metadata, kind_of(field)
    if rules.get("choices"):
        return "one of " + ", ".join(repr(c) for c in rules["choices"])
    noun = {float: "a number", int: "an integer", bool: "true or false", str: "a string"}[kind]
    if kind not in (float, int):
        return noun
    number = given if isinstance(given, int | float) else 0
    low, high = _range(field)
    if rules.get("open_low") and low < number <= high:
        smallest = f", from {SMALLEST_NUMBER}" if low == 0 else ""
        return f"{noun} above {_end(low)} in float32{smallest}"
    text = noun
    if rules.get("low", -math.inf) > -math.inf or number < low:
        text += f" {'above' if rules.get('open_low') else 'from'} {_end(low)}"
    if rules.get("high", math.inf) < math.inf or number > high:
        text += f" up to {_end(high)}"
    return text


def _end(value: float) -> str:
    """Write an end of a range in full, so that it is accepted itself."""
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(value)


def separated(text: str) -> list[str]:
    """Split a text at commas that stand outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def raise_capacity(agent: Any, name: str, needed: int) -> None:
    """Raise a capacity of a frozen agent to what is needed; one that suffices stays.

    For `__post_init__` alone. Capacities are static sizes: agents whose parameters are close share
    one compiled program.

    Args:
      name: the field that holds the capacity.
    """
    object.__setattr__(agent, name, max(getattr(agent, name), needed))


def check_capacity(agent: Any, *names: str) -> None:
    """Refuse an agent whose budget JAX traces, so that it has raised no capacity for it.

    Args:
      names: the fields that hold capacities; 0: none.

    Raises:
      JbrlError: names those that are 0.
    """
    missing = [name for name in names if not getattr(agent, name)]
    if missing:
        raise JbrlError(
            f"{type(agent).__name__}: its budget is traced by JAX: expected a capacity for its "
            f"greatest value: {', '.join(missing)}"
        )


def round_up(number: int) -> int:
    """Return the least power of two that is not below `number`, 1 at least."""
    return 1 << max(0, number - 1).bit_length()


UNITS_OF_TIME = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "": 1.0,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def parse_seconds(name: str, given: object) -> float:
    """Return the seconds of a duration, for example `60 s`, `1ms`, `10 min` or `0.5`.

    Raises:
      JbrlError: it is no duration above 0.
    """
    number = r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)"
    found = re.fullmatch(rf"\s*{number}\s*([a-zµμ]*)\s*", str(given).lower())
    seconds = 0.0
    if found and found[2] in UNITS_OF_TIME and not isinstance(given, bool):
        seconds = float(found[1]) * UNITS_OF_TIME[found[2]]
    if not 0 < seconds < math.inf:
        raise JbrlError(
            f"{name} = {shown(given)}: expected a duration above 0, in seconds or with a unit (ns, "
            "us, ms, s, min, h, d), for example '1 ms' or '10min'"
        )
    return seconds
