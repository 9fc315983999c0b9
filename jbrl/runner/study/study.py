"""A study: a TOML file, checked before anything is compiled, and expanded into units of work."""

import itertools
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from jbrl.agents.agent import Agent, cost
from jbrl.agents.complete import build
from jbrl.agents.lookup import check_host_values, find_agent
from jbrl.environments.lifetime import Lifetime, Steps
from jbrl.errors import JbrlError, nearest, shown
from jbrl.mdp.mdp import horizon_for
from jbrl.parameters import GREATEST_INTEGER
from jbrl.problems.lookup import problem
from jbrl.problems.problem import DirichletProblem, Problem, members
from jbrl.runner.play.play import lifetime_of
from jbrl.runner.play.protocol import DEFAULT_LIFETIME, Protocol
from jbrl.runner.storage.unit import Unit

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
    n_environments: _Count = Field(default=500, description=_COUNT)
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

    def facts(self, *, finite: bool) -> dict[str, Any]:
        """Return the settings as they are recorded: a single seed as a number, without settings of
        no effect.

        Args:
          finite: some experiment plays lifetimes of T steps in finite MDPs.
        """
        found = self.model_dump(exclude_none=True)
        found["n_mdps"] = found.pop("n_environments")  # the name that stored studies have
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


def _members(table: ExperimentTable) -> list[ExperimentTable]:
    """Return one table for each problem of a group, such as `bsuite/catch`; the table itself for
    any other name.

    The experiment of `bsuite/catch/3` in the table `NAME` is called `NAME/catch/3`.
    """
    names = members(table.test)
    if names == (table.test,):
        return [table]
    called = [f"{table.name}/{name.partition('/')[2]}" for name in names]
    return [
        table.model_copy(update={"name": new, "test": test})
        for new, test in zip(called, names, strict=True)
    ]


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


class Study:
    """A study that has been checked: its tables and its units, in the order of the file.

    Raises:
      JbrlError: anything in it is not accepted.
    """

    def __init__(
        self, data: dict[str, Any], *, place: str = "study", folder: Path | None = None
    ) -> None:
        self.place = place
        self.folder = (folder or Path.cwd()).resolve()
        self.tables = _checked(_in_one_word(data, place), place)
        self.settings = self.tables.study
        self._traced: set[tuple[str, str]] = set()  # algorithms and priors
        self._check_names()
        numbered = enumerate(self.tables.experiments, 1)
        experiments = [
            (table.name, one, self._protocols(number, one))
            for number, table in numbered
            for one in _members(table)
        ]
        agents = [self._agents(number, table) for number, table in enumerate(self.tables.agents, 1)]
        units = (
            self._unit(experiment, table.algorithm, protocol, agent)
            for name, experiment, by_seed in experiments
            for table, grid in zip(self.tables.agents, agents, strict=True)
            if table.experiments is None or name in table.experiments
            for agent in grid
            for protocol in by_seed
        )
        self.units: list[Unit] = list({unit.id: unit for unit in units}.values())

    def facts(self) -> dict[str, Any]:
        """Return the tables as they are recorded beside the results."""
        finite = any(not unit.protocol.in_blocks for unit in self.units)
        return self.tables.model_dump(exclude_none=True) | {
            "study": self.settings.facts(finite=finite)
        }

    def _check_names(self) -> None:
        names = [experiment.name for experiment in self.tables.experiments]
        for number, name in enumerate(names, 1):
            if names.index(name) != number - 1:
                raise JbrlError(
                    f"{self.place}: [[experiments]] {number}: name = {shown(name)}: expected "
                    "another name, this one is taken"
                )
        for number, table in enumerate(self.tables.agents, 1):
            for name in table.experiments or []:
                if name not in names:
                    where = f"{self.place}: [[agents]] {number} ({table.algorithm})"
                    raise JbrlError(
                        f"{where}: unknown experiment '{shown(name, str)}'{nearest(name, names)}"
                    )

    def _protocols(self, number: int, table: ExperimentTable) -> list[Protocol]:
        """Return the rules of an experiment, one for each seed."""
        where, settings = f"{self.place}: [[experiments]] {number} ({table.name})", self.settings
        test = self._problem(table.test, f"{where}: test")
        prior = test if table.prior is None else self._problem(table.prior, f"{where}: prior")
        try:
            lifetime = self._lifetime(table, test)
            count = table.n_environments or settings.n_environments
            return [
                Protocol(prior, test, count, seed, lifetime, settings.discount)
                for seed in settings.seed
            ]
        except JbrlError as error:
            raise JbrlError(f"{where}: {error}") from None

    def _problem(self, name: str, where: str) -> Problem:
        try:
            return problem(name, self.folder)
        except JbrlError as error:
            raise JbrlError(f"{where}: {error}") from None

    def _lifetime(self, table: ExperimentTable, test: Problem) -> Lifetime:
        """Return the lifetime of the experiment, else of the study, else of the problem."""
        settings = self.settings
        if table.horizon is not None or table.episodes is not None:
            return lifetime_of(test, table.horizon, table.episodes)
        if settings.horizon == "auto":
            if not isinstance(test, DirichletProblem):
                raise JbrlError(
                    f"horizon = 'auto': expected a number for '{test.short_name}', whose score "
                    "has no discount"
                )
            return Steps(
                horizon_for(
                    settings.horizon_epsilon,
                    settings.discount,
                    float(np.abs(test.mdps.rewards).max()),
                )
            )
        return lifetime_of(test, settings.horizon, settings.episodes)

    def _agents(self, number: int, table: AgentTable) -> list[tuple]:
        """Return (agent, parameters, identity of the algorithm) of each point of an agent's
        grid.
        """
        where = f"{self.place}: [[agents]] {number}"
        try:
            algorithm = find_agent(table.algorithm, self.folder)
        except JbrlError as error:
            raise JbrlError(f"{where}: {error}") from None
        where = f"{where} ({table.algorithm})"
        for name, value in (table.model_extra or {}).items():
            if value == []:
                raise JbrlError(f"{where}: {name} = []: expected at least one value")
        return [(*build(algorithm.agent, values, where), algorithm) for values in table.grid()]

    def _check_host_values(self, agent: Agent, name: str, protocol: Protocol) -> None:
        """Trace each algorithm once for each prior, not for each of its parameters and seeds."""
        checked = (name, protocol.prior.digest)
        if checked not in self._traced:
            check_host_values(agent, name, protocol.agent_prior())
            self._traced.add(checked)

    def _unit(
        self, experiment: ExperimentTable, algorithm: str, protocol: Protocol, agent: tuple
    ) -> Unit:
        player, parameters, found = agent
        settings = self.settings
        try:
            protocol.check_agent(player, algorithm)
            self._check_host_values(player, algorithm, protocol)
            cost(player, protocol.agent_prior())  # refuses what takes too much memory
            if settings.record and protocol.in_blocks:
                raise JbrlError(
                    "record = true: expected false, since trajectories of episodes are not kept"
                )
        except JbrlError as error:
            raise JbrlError(
                f"{self.place}: [[agents]] {algorithm} in experiment '{experiment.name}': {error}"
            ) from None
        return Unit(
            experiment=experiment.name,
            prior=experiment.prior or experiment.test,
            test=experiment.test,
            protocol=protocol,
            algorithm=found.name,
            written=None if found.name == algorithm else algorithm,
            agent=player,
            parameters=parameters,
            source=found.source,
            latency=settings.latency,
            record=settings.record,
            chunk=settings.chunk,
        )


# other words for fields, which `_in_one_word` replaces
_ALIASES = {"study": ("n_mdps",), "experiments": ("problem",)}


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


def load_study(study: str | Path | dict[str, Any], overrides: Sequence[str] = ()) -> Study:
    """Read and check a study: a TOML file, or the same tables as a dict (paths in it are relative
    to the working directory).

    Args:
      overrides: fields of `[study]` to replace, each as `study.field=value`, the value written as
        in TOML.

    Raises:
      JbrlError: the file cannot be read, or anything in it is not accepted.
    """
    if isinstance(study, dict):
        return Study(_overridden(study, overrides))
    path = Path(study)
    return Study(_overridden(_read(path), overrides), place=str(path), folder=path.parent)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file in UTF-8"
        raise JbrlError(f"{path}: cannot be read as a study: {reason}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        last = len(text.splitlines())
        reason = str(error).replace("(at end of document)", f"(at end of document, line {last})")
        raise JbrlError(f"{path}: not valid TOML: {reason}") from None
    except ValueError:
        raise JbrlError(
            f"{path}: holds an integer of thousands of digits: expected numbers of fewer digits"
        ) from None
    except RecursionError:
        raise JbrlError(
            f"{path}: nested too deeply: expected tables and lists as jbrl's studies have them"
        ) from None


# fields that another one stands for
_REPLACES = {"n_environments": ("n_mdps",), "episodes": ("horizon",), "horizon": ("episodes",)}


def _overridden(data: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    settings = data.get("study")
    changed = dict(settings) if isinstance(settings, dict) else {}
    for text in overrides:
        key, equals, value = text.partition("=")
        table, _, field = key.strip().partition(".")
        if table != "study" or not field or not equals:
            raise JbrlError(
                f"--set '{shown(text, str)}': expected study.FIELD=VALUE, for example "
                "study.n_environments=100"
            )
        field = "n_environments" if field == "n_mdps" else field
        if field not in Settings.model_fields:
            hint = nearest(field, (*Settings.model_fields, "n_mdps"))
            raise JbrlError(
                f"--set '{shown(text, str)}': unknown field '{shown(field, str)}' of [study]{hint}"
            )
        for other in _REPLACES.get(field, ()):
            changed.pop(other, None)
        changed[field] = _toml_value(value.strip())
    return {**data, "study": changed} if overrides else data


def _toml_value(text: str) -> Any:
    """Read a value written as in TOML; anything else (a bare word, most likely) is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        # an integer of thousands of digits and brackets within brackets, too
        return text


def _checked(data: dict[str, Any], place: str) -> Tables:
    try:
        return Tables.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    except RecursionError:
        raise JbrlError(
            f"{place}: nested too deeply: expected tables and lists as jbrl's studies have them"
        ) from None
    raise JbrlError(f"{place}: {_sentence(first, data)}")


def _sentence(error: Any, data: dict[str, Any]) -> str:
    """Describe the first error found by pydantic: table, field, value, what is accepted."""
    table, *inner = error["loc"]
    models: dict[str, type[BaseModel]] = {
        "study": Settings,
        "experiments": ExperimentTable,
        "agents": AgentTable,
    }
    fields = models.get(table, Tables).model_fields
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
        return (
            f"{where}: unknown field '{field}'{nearest(field, (*fields, *_ALIASES.get(table, ())))}"
        )
    accepted = fields[field].description
    if error["type"] == "missing":
        return f"{where}: '{field}' is missing: expected {accepted}"
    holder = (
        _in_one_word(data, "")[table] if number is None else _in_one_word(data, "")[table][number]
    )
    return f"{where}: {field} = {shown(holder[field])}: expected {accepted}"
