"""The tables of a study file: their fields, what these accept, and how all else is refused."""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.base.parameters import GREATEST_INTEGER
from jbrl.play.protocol import DEFAULT_LIFETIME


def kind(expected: str, accepts: Callable[[Any], bool], alias: str = "") -> dict[str, Any]:
    """Return the metadata of a field of a table.

    Args:
      expected: what it accepts, in words that complete «expected …» in messages.
      alias: another name of it.
    """
    return {"expected": expected, "accepts": accepts, "alias": alias}


def _is_integer(value: Any, low: int = 1, high: int = GREATEST_INTEGER) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != "" and not {"\r", "\n"} & set(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and value != [] and all(map(accepts, value))


_COUNT = f"an integer from 1 to {GREATEST_INTEGER}"
COUNT = kind(_COUNT, _is_integer)
HORIZON = kind(f'{_COUNT}, or "auto"', lambda value: value == "auto" or _is_integer(value))
FLAG = kind("true or false", lambda value: isinstance(value, bool))
EFFORT = kind('"full" or "quick"', lambda value: value in ("full", "quick"))
DISCOUNT = kind(
    "a number from 0 up to, but not including, 1",
    lambda value: _is_number(value) and 0 <= value < 1,
)
EPSILON = kind(
    "a number above 0", lambda value: _is_number(value) and 0 < value <= sys.float_info.max
)
SEEDS = kind(
    "an integer from 0 to 4294967295, or a list of them",
    _is_list_of(lambda value: _is_integer(value, 0, 2**32 - 1)),
)
PROBLEM = (
    'a problem of the catalogue, an environment as "module:Class", or the path of a JSON file '
    "relative to the study"
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The table `[study]`."""

    name: str = field(metadata=kind("a name for the study", _is_name))
    seed: Sequence[int] = field(default=(0,), metadata=SEEDS)
    n_environments: int | None = field(default=None, metadata={**COUNT, "alias": "n_mdps"})
    horizon: Any = field(default=None, metadata=HORIZON)
    episodes: int | None = field(default=None, metadata=COUNT)
    horizon_epsilon: float = field(default=0.01, metadata=EPSILON)
    discount: float = field(default=0.95, metadata=DISCOUNT)
    latency: bool = field(default=False, metadata=FLAG)
    record: bool = field(default=False, metadata=FLAG)
    chunk: int | None = field(default=None, metadata=COUNT)
    compile: Any = field(default=None, metadata=EFFORT)

    def facts(self, *, finite: bool, n_environments: int) -> dict[str, Any]:
        """Return the settings as they are recorded: a single seed as a number, without settings of
        no effect.

        Args:
          finite: some experiment plays lifetimes of T steps in finite MDPs.
          n_environments: where the file does not say.
        """
        found = given(self)
        # the name that stored studies have
        found["n_mdps"] = found.pop("n_environments", n_environments)
        if finite and self.horizon is None:
            found["horizon"] = DEFAULT_LIFETIME.steps
        if not finite:
            del found["discount"]
        if self.horizon != "auto":
            del found["horizon_epsilon"]
        return found | {"seed": self.seed[0] if len(self.seed) == 1 else list(self.seed)}


@dataclass(frozen=True, kw_only=True)
class ExperimentTable:
    """A table `[[experiments]]`."""

    name: str = field(metadata=kind("a name for the experiment", _is_name))
    test: str = field(metadata=kind(f"{PROBLEM} (or problem = …)", _is_name, alias="problem"))
    prior: str | None = field(default=None, metadata=kind(PROBLEM, _is_name))
    horizon: int | None = field(default=None, metadata=COUNT)
    episodes: int | None = field(default=None, metadata=COUNT)
    n_environments: int | None = field(default=None, metadata=COUNT)


@dataclass(frozen=True, kw_only=True)
class AgentTable:
    """A table `[[agents]]`: parameters are what is no other field; a list is an axis of a grid, a
    table a distribution.
    """

    algorithm: str = field(
        metadata=kind('an algorithm of the catalogue, or "module:Class"', _is_name)
    )
    experiments: list[str] | None = field(
        default=None, metadata=kind("a list of names of experiments", _is_list_of(_is_name))
    )
    parameters: dict[str, Any] = field(default_factory=dict)

    def grid(self) -> list[dict[str, Any]]:
        """Return every combination of parameter values, the last parameter varying fastest."""
        axes = {k: v if isinstance(v, list) else [v] for k, v in self.parameters.items()}
        return [
            dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
        ]


@dataclass(frozen=True, kw_only=True)
class Tables:
    """A whole study file."""

    study: Settings
    experiments: list[ExperimentTable]
    agents: list[AgentTable]

    def facts(self) -> dict[str, Any]:
        """Return experiments and agents as they are recorded beside the results."""
        return {
            "experiments": [given(table) for table in self.experiments],
            "agents": [
                {name: value for name, value in given(table).items() if name != "parameters"}
                | table.parameters
                for table in self.agents
            ],
        }


def given(table: Any) -> dict[str, Any]:
    """Return the fields of a table that have a value, by their names."""
    return {name: value for name, value in vars(table).items() if value is not None}


EXPECTED = {"study": "a table [study]"}
EXPECTED |= {name: f"at least one table [[{name}]]" for name in ("experiments", "agents")}


def checked(data: Mapping[str, Any], place: str) -> Tables:
    """Return the tables of a study.

    Args:
      place: name of the study in messages.

    Raises:
      JbrlError: names the first table and field that are not accepted, the value, and what would
        be.
    """

    def every(cls: Any, name: str) -> list[Any]:
        tables, where = _present(data, name, place), f"{place}: [[{name}]]"
        if not isinstance(tables, list) or not tables:
            raise JbrlError(f"{where} = {shown(tables)}: expected {EXPECTED[name]}")
        return [
            _table(cls, table, f"{where} {number}", name) for number, table in enumerate(tables, 1)
        ]

    for name in data:
        if name not in EXPECTED:
            raise JbrlError(f"{place}: unknown table '{name}'{nearest(name, EXPECTED)}")
    settings = _table(Settings, _present(data, "study", place), f"{place}: [study]", "study")
    return Tables(
        study=settings,
        experiments=every(ExperimentTable, "experiments"),
        agents=every(AgentTable, "agents"),
    )


def _present(data: Mapping[str, Any], name: str, place: str) -> Any:
    if name not in data:
        raise JbrlError(f"{place}: expected {EXPECTED[name]}")
    return data[name]


def _table(cls: Any, values: Any, where: str, name: str) -> Any:
    """Return the record of a table as it is written.

    Raises:
      JbrlError: a field is unknown, missing or not accepted, or has two names.
    """
    if not isinstance(values, dict):
        raise JbrlError(f"{where} = {shown(values)}: expected {EXPECTED[name]}")
    fields = {one.name: one for one in dataclasses.fields(cls) if one.metadata}
    aliases = {one.metadata["alias"]: name for name, one in fields.items() if one.metadata["alias"]}
    for pair in (*aliases.items(), ("horizon", "episodes")):
        if all(values.get(name) is not None for name in pair):
            both = " and ".join(f"{name} = {shown(values[name])}" for name in pair)
            raise JbrlError(f"{where}: both {both}: expected one of them")
    names = {aliases.get(name, name): name for name in values}  # as they are written
    found: dict[str, Any] = {}
    for name, one in fields.items():
        if name in names:
            found[name] = _value(one, values[names[name]], f"{where}: {names[name]}")
        elif one.default is dataclasses.MISSING:
            raise JbrlError(f"{where}: '{name}' is missing: expected {one.metadata['expected']}")
    others = {name: values[name] for name in values if aliases.get(name, name) not in fields}
    if cls is AgentTable:
        return cls(**found, parameters=others)
    for name in others:
        raise JbrlError(f"{where}: unknown field '{name}'{nearest(name, (*fields, *aliases))}")
    return cls(**found)


def _value(one: dataclasses.Field[Any], value: Any, where: str) -> Any:
    """Return the value of a field: a seed as a list of one, an integer as float where the field is
    one.

    Raises:
      JbrlError: it is not accepted.
    """
    if value is None and one.default is None:
        return None
    found: Any = [value] if one.name == "seed" and not isinstance(value, list) else value
    if not one.metadata["accepts"](found):
        raise JbrlError(f"{where} = {shown(value)}: expected {one.metadata['expected']}")
    return float(found) if one.type is float else found
