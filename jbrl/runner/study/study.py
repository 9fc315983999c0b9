"""A study: a TOML file, checked before anything is compiled, and expanded into units of work."""

import itertools
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from jbrl.agents.agent import cost
from jbrl.agents.complete import build
from jbrl.environments.lifetime import Lifetime, Steps
from jbrl.errors import JbrlError, nearest
from jbrl.mdp.mdp import horizon_for
from jbrl.problems.problem import DirichletProblem, Problem, problem
from jbrl.runner.play.play import lifetime_of
from jbrl.runner.play.protocol import DEFAULT_LIFETIME, Protocol
from jbrl.runner.storage.unit import Unit
from jbrl.runner.study.custom import find_agent

# The description of each field says what it accepts: it completes «expected …» in messages.
_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
_Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
_Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
_Name = Annotated[str, Field(min_length=1, pattern=r"^[^\r\n]*$")]


class Settings(BaseModel):
    """The table `[study]`."""

    model_config = _STRICT

    name: _Name = Field(description="a name for the study")
    seed: Annotated[list[_Seed], BeforeValidator(lambda v: v if isinstance(v, list) else [v])] = Field(
        default=[0], min_length=1, description="an integer from 0 to 4294967295, or a list of them"
    )
    n_environments: _Count = Field(default=500, description="an integer from 1")
    horizon: _Count | Literal["auto"] | None = Field(default=None, description='an integer from 1, or "auto"')
    episodes: _Count | None = Field(default=None, description="an integer from 1")
    horizon_epsilon: float = Field(default=0.01, gt=0, allow_inf_nan=False, description="a number above 0")
    discount: float = Field(default=0.95, ge=0, lt=1, description="a number from 0 up to, but not including, 1")
    latency: bool = Field(default=False, description="true or false")
    record: bool = Field(default=False, description="true or false")
    chunk: _Count | None = Field(default=None, description="an integer from 1")

    def facts(self, *, finite: bool) -> dict[str, Any]:
        """The settings as they are recorded: a single seed as a number, nothing that plays no part.

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


_PROBLEM = 'a problem of the catalogue, an environment as "module:Class", or the path of a JSON file relative to the study'


class ExperimentTable(BaseModel):
    """A table `[[experiments]]`."""

    model_config = _STRICT

    name: _Name = Field(description="a name for the experiment")
    test: _Name = Field(description=f"{_PROBLEM} (or problem = …)")
    prior: _Name | None = Field(default=None, description=_PROBLEM)
    horizon: _Count | None = Field(default=None, description="an integer from 1")
    episodes: _Count | None = Field(default=None, description="an integer from 1")


class AgentTable(BaseModel):
    """A table `[[agents]]`. All other fields are parameters of the algorithm: a list is an axis of a grid, a table a distribution."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    algorithm: _Name = Field(description='an algorithm of the catalogue, or "module:Class"')
    experiments: list[_Name] | None = Field(default=None, min_length=1, description="a list of names of experiments")

    def grid(self) -> list[dict[str, Any]]:
        """Every combination of parameter values, the last parameter varying fastest."""
        axes = {name: value if isinstance(value, list) else [value] for name, value in (self.model_extra or {}).items()}
        return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


class Tables(BaseModel):
    """A whole study file."""

    model_config = _STRICT

    study: Settings = Field(description="a table [study]")
    experiments: list[ExperimentTable] = Field(min_length=1, description="at least one table [[experiments]]")
    agents: list[AgentTable] = Field(min_length=1, description="at least one table [[agents]]")


class Study:
    """A study that has been checked: its tables and its units, in the order of the file.

    Raises:
      JbrlError: anything in it is not accepted.
    """

    def __init__(self, data: dict[str, Any], *, place: str = "study", folder: Path | None = None) -> None:
        self.place = place
        self.folder = (folder or Path.cwd()).resolve()
        self.tables = _checked(_in_one_word(data, place), place)
        self.settings = self.tables.study
        self._check_names()
        protocols = [self._protocols(number, table) for number, table in enumerate(self.tables.experiments, 1)]
        agents = [self._agents(number, table) for number, table in enumerate(self.tables.agents, 1)]
        units = (
            self._unit(experiment, table.algorithm, protocol, agent)
            for experiment, by_seed in zip(self.tables.experiments, protocols, strict=True)
            for table, grid in zip(self.tables.agents, agents, strict=True)
            if table.experiments is None or experiment.name in table.experiments
            for agent in grid
            for protocol in by_seed
        )
        self.units: list[Unit] = list({unit.id: unit for unit in units}.values())

    def facts(self) -> dict[str, Any]:
        """The tables as they are recorded beside the results."""
        finite = any(not unit.protocol.in_blocks for unit in self.units)
        return self.tables.model_dump(exclude_none=True) | {"study": self.settings.facts(finite=finite)}

    def _check_names(self) -> None:
        names = [experiment.name for experiment in self.tables.experiments]
        for number, name in enumerate(names, 1):
            if names.index(name) != number - 1:
                raise JbrlError(f"{self.place}: [[experiments]] {number}: name = '{name}': expected another name, this one is taken")
        for number, table in enumerate(self.tables.agents, 1):
            for name in table.experiments or []:
                if name not in names:
                    where = f"{self.place}: [[agents]] {number} ({table.algorithm})"
                    raise JbrlError(f"{where}: unknown experiment '{name}'{nearest(name, names)}")

    def _protocols(self, number: int, table: ExperimentTable) -> list[Protocol]:
        """The rules of an experiment, one for each seed."""
        where, settings = f"{self.place}: [[experiments]] {number} ({table.name})", self.settings
        test = self._problem(table.test, f"{where}: test")
        prior = test if table.prior is None else self._problem(table.prior, f"{where}: prior")
        try:
            lifetime = self._lifetime(table, test)
            return [Protocol(prior, test, settings.n_environments, seed, lifetime, settings.discount) for seed in settings.seed]
        except JbrlError as error:
            raise JbrlError(f"{where}: {error}") from None

    def _problem(self, name: str, where: str) -> Problem:
        try:
            return problem(name, self.folder)
        except JbrlError as error:
            raise JbrlError(f"{where}: {error}") from None

    def _lifetime(self, table: ExperimentTable, test: Problem) -> Lifetime:
        """That of the experiment, else that of the study, else that of the problem."""
        settings = self.settings
        if table.horizon is not None or table.episodes is not None:
            return lifetime_of(test, table.horizon, table.episodes)
        if settings.horizon == "auto":
            if not isinstance(test, DirichletProblem):
                raise JbrlError(f"horizon = 'auto': expected a number for '{test.short_name}', whose score has no discount")
            return Steps(horizon_for(settings.horizon_epsilon, settings.discount, float(np.max(test.mdps.rewards))))
        return lifetime_of(test, settings.horizon, settings.episodes)

    def _agents(self, number: int, table: AgentTable) -> list[tuple]:
        """(agent, digest of its source, parameters) of each point of an agent's grid."""
        where = f"{self.place}: [[agents]] {number}"
        try:
            cls, source = find_agent(table.algorithm, self.folder)
        except JbrlError as error:
            raise JbrlError(f"{where}: {error}") from None
        where = f"{where} ({table.algorithm})"
        for name, value in (table.model_extra or {}).items():
            if value == []:
                raise JbrlError(f"{where}: {name} = []: expected at least one value")
        found = [build(cls, values, where) for values in table.grid()]
        return [(agent, source, parameters) for agent, parameters in found]

    def _unit(self, experiment: ExperimentTable, algorithm: str, protocol: Protocol, agent: tuple) -> Unit:
        player, source, parameters = agent
        settings = self.settings
        try:
            protocol.check_agent(player, algorithm)
            cost(player, protocol.agent_prior())  # refuses what takes too much memory
            if settings.record and protocol.in_blocks:
                raise JbrlError("record = true: expected false, since trajectories of episodes are not kept")
        except JbrlError as error:
            raise JbrlError(f"{self.place}: [[agents]] {algorithm} in experiment '{experiment.name}': {error}") from None
        return Unit(
            experiment=experiment.name,
            prior=experiment.prior or experiment.test,
            test=experiment.test,
            protocol=protocol,
            algorithm=algorithm,
            agent=player,
            parameters=parameters,
            source=source,
            latency=settings.latency,
            record=settings.record,
            chunk=settings.chunk,
        )


_ALIASES = {"study": ("n_mdps",), "experiments": ("problem",)}  # other words for fields, which `_in_one_word` replaces


def _in_one_word(data: dict[str, Any], place: str) -> dict[str, Any]:
    """The tables with `n_mdps` as `n_environments` and `problem` as `test`, of which a table may have one."""
    found = dict(data)
    if isinstance(data.get("study"), dict):
        found["study"] = _renamed(data["study"], "n_mdps", "n_environments", f"{place}: [study]")
        _check_lifetime(found["study"], f"{place}: [study]")
    if isinstance(data.get("experiments"), list):
        found["experiments"] = [_experiment(table, f"{place}: [[experiments]] {i}") for i, table in enumerate(data["experiments"], 1)]
    return found


def _experiment(table: Any, where: str) -> Any:
    if not isinstance(table, dict):
        return table
    _check_lifetime(table, where)
    return _renamed(table, "problem", "test", where)


def _renamed(table: dict[str, Any], old: str, new: str, where: str) -> dict[str, Any]:
    if old in table and new in table:
        raise JbrlError(f"{where}: both {old} = {table[old]!r} and {new} = {table[new]!r}: expected one of them")
    return {new if name == old else name: value for name, value in table.items()}


def _check_lifetime(table: dict[str, Any], where: str) -> None:
    if table.get("horizon") is not None and table.get("episodes") is not None:
        raise JbrlError(f"{where}: both horizon = {table['horizon']!r} and episodes = {table['episodes']!r}: expected one of them")


def load_study(study: str | Path | dict[str, Any], overrides: Sequence[str] = ()) -> Study:
    """Read and check a study: a TOML file, or the same tables as a dict (paths in it are relative to the working directory).

    Args:
      overrides: fields of `[study]` to replace, each as `study.field=value`, the value written as in TOML.

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


_REPLACES = {"n_environments": ("n_mdps",), "episodes": ("horizon",), "horizon": ("episodes",)}  # fields that another one stands for


def _overridden(data: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    settings = data.get("study")
    changed = dict(settings) if isinstance(settings, dict) else {}
    for text in overrides:
        key, equals, value = text.partition("=")
        table, _, field = key.strip().partition(".")
        if table != "study" or not field or not equals:
            raise JbrlError(f"--set '{text}': expected study.FIELD=VALUE, for example study.n_environments=100")
        field = "n_environments" if field == "n_mdps" else field
        if field not in Settings.model_fields:
            raise JbrlError(f"--set '{text}': unknown field '{field}' of [study]{nearest(field, (*Settings.model_fields, 'n_mdps'))}")
        for other in _REPLACES.get(field, ()):
            changed.pop(other, None)
        changed[field] = _toml_value(value.strip())
    return {**data, "study": changed} if overrides else data


def _toml_value(text: str) -> Any:
    """A value written as in TOML; what is none (a bare word, most likely) is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _checked(data: dict[str, Any], place: str) -> Tables:
    try:
        return Tables.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    raise JbrlError(f"{place}: {_sentence(first, data)}")


def _sentence(error: Any, data: dict[str, Any]) -> str:
    """The first error found by pydantic, in words: table, field, value, what is accepted."""
    table, *inner = error["loc"]
    models: dict[str, type[BaseModel]] = {"study": Settings, "experiments": ExperimentTable, "agents": AgentTable}
    fields = models.get(table, Tables).model_fields
    number = inner[0] if inner and isinstance(inner[0], int) else None
    field = next((part for part in inner if isinstance(part, str)), None)
    where = "[study]" if table == "study" else f"[[{table}]]" + ("" if number is None else f" {number + 1}")
    if field is None:
        if error["type"] == "extra_forbidden":
            return f"unknown table '{table}'{nearest(table, Tables.model_fields)}"
        accepted = Tables.model_fields[table].description
        return f"expected {accepted}" if error["type"] == "missing" else f"{where} = {_short(error['input'])}: expected {accepted}"
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown field '{field}'{nearest(field, (*fields, *_ALIASES.get(table, ())))}"
    accepted = fields[field].description
    if error["type"] == "missing":
        return f"{where}: '{field}' is missing: expected {accepted}"
    holder = _in_one_word(data, "")[table] if number is None else _in_one_word(data, "")[table][number]
    return f"{where}: {field} = {_short(holder[field])}: expected {accepted}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
