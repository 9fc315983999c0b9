"""The tables of a study file: their fields, what these accept, and how all else is refused."""

import itertools
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.base.parameters import GREATEST_INTEGER
from jbrl.play.protocol import DEFAULT_LIFETIME

# The description of each field says what it accepts: it completes «expected …» in messages.
_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
_Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
_Count = Annotated[int, Field(ge=1, le=GREATEST_INTEGER)]
_COUNT = f"an integer from 1 to {GREATEST_INTEGER}"
_Name = Annotated[str, Field(min_length=1, pattern=r"^[^\r\n]*$")]


class Settings(BaseModel):
    """The table `[study]`."""

    model_config = _STRICT

    name: _Name = Field(description="a name for the study")
    seed: Annotated[list[_Seed], BeforeValidator(lambda v: v if isinstance(v, list) else [v])] = (
        Field(
            default=[0],
            min_length=1,
            description="an integer from 0 to 4294967295, or a list of them",
        )
    )
    n_environments: _Count | None = Field(default=None, description=_COUNT)
    horizon: _Count | Literal["auto"] | None = Field(
        default=None, description=f'{_COUNT}, or "auto"'
    )
    episodes: _Count | None = Field(default=None, description=_COUNT)
    horizon_epsilon: float = Field(
        default=0.01, gt=0, allow_inf_nan=False, description="a number above 0"
    )
    discount: float = Field(
        default=0.95, ge=0, lt=1, description="a number from 0 up to, but not including, 1"
    )
    latency: bool = Field(default=False, description="true or false")
    record: bool = Field(default=False, description="true or false")
    chunk: _Count | None = Field(default=None, description=_COUNT)
    compile: Literal["full", "quick"] | None = Field(default=None, description='"full" or "quick"')

    def facts(self, *, finite: bool, n_environments: int) -> dict[str, Any]:
        """Return the settings as they are recorded: a single seed as a number, without settings of
        no effect.

        Args:
          finite: some experiment plays lifetimes of T steps in finite MDPs.
          n_environments: where the file does not say.
        """
        found = self.model_dump(exclude_none=True)
        # the name that stored studies have
        found["n_mdps"] = found.pop("n_environments", n_environments)
        if finite and self.horizon is None:
            found["horizon"] = DEFAULT_LIFETIME.steps
        if not finite:
            del found["discount"]
        if self.horizon != "auto":
            del found["horizon_epsilon"]
        return found | ({"seed": self.seed[0]} if len(self.seed) == 1 else {})


_PROBLEM = (
    'a problem of the catalogue, an environment as "module:Class", or the path of a JSON file '
    "relative to the study"
)


class ExperimentTable(BaseModel):
    """A table `[[experiments]]`."""

    model_config = _STRICT

    name: _Name = Field(description="a name for the experiment")
    test: _Name = Field(description=f"{_PROBLEM} (or problem = …)")
    prior: _Name | None = Field(default=None, description=_PROBLEM)
    horizon: _Count | None = Field(default=None, description=_COUNT)
    episodes: _Count | None = Field(default=None, description=_COUNT)
    n_environments: _Count | None = Field(default=None, description=_COUNT)


class AgentTable(BaseModel):
    """A table `[[agents]]`.

    All other fields are parameters of the algorithm: a list is an axis of a grid, a table a
    distribution.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    algorithm: _Name = Field(description='an algorithm of the catalogue, or "module:Class"')
    experiments: list[_Name] | None = Field(
        default=None, min_length=1, description="a list of names of experiments"
    )

    def grid(self) -> list[dict[str, Any]]:
        """Return every combination of parameter values, the last parameter varying fastest."""
        axes = {
            name: value if isinstance(value, list) else [value]
            for name, value in (self.model_extra or {}).items()
        }
        return [
            dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
        ]


class Tables(BaseModel):
    """A whole study file."""

    model_config = _STRICT

    study: Settings = Field(description="a table [study]")
    experiments: list[ExperimentTable] = Field(
        min_length=1, description="at least one table [[experiments]]"
    )
    agents: list[AgentTable] = Field(min_length=1, description="at least one table [[agents]]")


def checked(data: dict[str, Any], place: str) -> Tables:
    """Return the tables of a study.

    Args:
      place: name of the study in messages.

    Raises:
      JbrlError: names the first table and field that are not accepted, the value, and what would
        be.
    """
    renamed = _in_one_word(data, place)
    try:
        return Tables.model_validate(renamed)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    except RecursionError:
        raise JbrlError(
            f"{place}: nested too deeply: expected tables and lists as jbrl's studies have them"
        ) from None
    raise JbrlError(f"{place}: {_sentence(first, data)}")


# other words for fields, which `_in_one_word` replaces
_ALIASES = {"study": {"n_mdps": "n_environments"}, "experiments": {"problem": "test"}}


def _in_one_word(data: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the tables with `n_mdps` as `n_environments` and `problem` as `test`, of which a table
    may have only one name.
    """
    found = dict(data)
    if isinstance(data.get("study"), dict):
        found["study"] = _renamed(data["study"], "n_mdps", "n_environments", f"{place}: [study]")
        _check_lifetime(found["study"], f"{place}: [study]")
    if isinstance(data.get("experiments"), list):
        found["experiments"] = [
            _experiment(table, f"{place}: [[experiments]] {i}")
            for i, table in enumerate(data["experiments"], 1)
        ]
    return found


def _experiment(table: Any, where: str) -> Any:
    if not isinstance(table, dict):
        return table
    _check_lifetime(table, where)
    return _renamed(table, "problem", "test", where)


def _renamed(table: dict[str, Any], old: str, new: str, where: str) -> dict[str, Any]:
    if old in table and new in table:
        raise JbrlError(
            f"{where}: both {old} = {shown(table[old])} and {new} = {shown(table[new])}: expected "
            "one of them"
        )
    return {new if name == old else name: value for name, value in table.items()}


def _check_lifetime(table: dict[str, Any], where: str) -> None:
    if table.get("horizon") is not None and table.get("episodes") is not None:
        given = " and ".join(f"{name} = {shown(table[name])}" for name in ("horizon", "episodes"))
        raise JbrlError(f"{where}: both {given}: expected one of them")


def _sentence(error: Any, data: dict[str, Any]) -> str:
    """Describe the first error found by pydantic: table, field, value, what is accepted.

    Args:
      data: the tables as they were given, with the names that fields have there.
    """
    table, *inner = error["loc"]
    models: dict[str, type[BaseModel]] = {
        "study": Settings,
        "experiments": ExperimentTable,
        "agents": AgentTable,
    }
    fields = models.get(table, Tables).model_fields
    aliases = _ALIASES.get(table, {})
    number = inner[0] if inner and isinstance(inner[0], int) else None
    field = next((part for part in inner if isinstance(part, str)), None)
    where = (
        "[study]"
        if table == "study"
        else f"[[{table}]]" + ("" if number is None else f" {number + 1}")
    )
    if field is None:
        if error["type"] == "extra_forbidden":
            return f"unknown table '{table}'{nearest(table, Tables.model_fields)}"
        accepted = Tables.model_fields[table].description
        return (
            f"expected {accepted}"
            if error["type"] == "missing"
            else f"{where} = {shown(error['input'])}: expected {accepted}"
        )
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown field '{field}'{nearest(field, (*fields, *aliases))}"
    accepted = fields[field].description
    if error["type"] == "missing":
        return f"{where}: '{field}' is missing: expected {accepted}"
    holder = data[table] if number is None else data[table][number]
    given = field if field in holder else {new: old for old, new in aliases.items()}[field]
    return f"{where}: {given} = {shown(holder[given])}: expected {accepted}"
