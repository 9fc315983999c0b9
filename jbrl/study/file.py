"""A study: a TOML file, checked before anything is compiled, and expanded into units of work; and
the parameters that each lifetime of a recorded one has drawn, found again from the seed.
"""

import dataclasses
import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from jbrl.agents.complete import build, played_agent
from jbrl.agents.registry import find_agent
from jbrl.base.errors import JbrlError, as_path, located, nearest, shown
from jbrl.base.files import read_toml
from jbrl.base.schema import ALL
from jbrl.environments.spec import Lifetime, Steps
from jbrl.mdp.mdp import horizon_for
from jbrl.mdp.sampling import stream
from jbrl.play.play import lifetime_of
from jbrl.play.protocol import Protocol
from jbrl.play.unit import Unit, canonical
from jbrl.problems.lookup import listed, members, problem
from jbrl.problems.problem import DirichletProblem, Problem
from jbrl.rollout.contract import DrawsParameters, OfflineSearch, cost
from jbrl.rollout.faults import check_host_values
from jbrl.study.storage.files import under
from jbrl.study.tables import AgentTable, ExperimentTable, Settings, checked, given


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
        dataclasses.replace(table, name=new, test=test)
        for new, test in zip(called, names, strict=True)
    ]


def _listed(table: ExperimentTable) -> list[ExperimentTable]:
    """Return one table for each value of lists in problem and prior, such as `GC(n_states=[3,4])`:
    experiments `NAME/3` and `NAME/4`.
    """
    priors = listed(table.prior) if table.prior else {"": table.prior}
    return [
        dataclasses.replace(table, name="/".join(filter(None, names)), test=test, prior=prior)
        for of_test, test in listed(table.test).items()
        for of_prior, prior in priors.items()
        for names in [(table.name, of_test, of_prior)]
    ]


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
        self.tables = checked(data, place)
        self.settings = self.tables.study
        numbered = [*enumerate(self.tables.experiments, 1)]
        # number and name of a table, and its experiments
        self._experiments = [(n, t.name, one) for n, t in numbered for one in _listed(t)]
        self._check_names()
        experiments = [
            (name, table, one, self._protocols(number, one))
            for number, name, table in self._experiments
            for one in _members(table)
        ]
        # environments of the experiments that leave them to their problem
        self._defaults = {
            table.name: protocols[0].n_environments
            for _, table, one, protocols in experiments
            if one.n_environments is None and self.settings.n_environments is None
        }
        agents = [self._agents(number, table) for number, table in enumerate(self.tables.agents, 1)]
        units = (
            self._unit(experiment, table.algorithm, protocol, agent)
            for name, _, experiment, by_seed in experiments
            for table, grid in zip(self.tables.agents, agents, strict=True)
            if table.experiments is None or name in table.experiments
            for agent in grid
            for protocol in by_seed
        )
        different = {unit.id: unit for unit in units}.values()
        # the same agent, where it is named in two ways
        self.units: list[Unit] = list({canonical(u.row()): u for u in different}.values())

    def facts(self) -> dict[str, Any]:
        """Return the tables as they are recorded beside the results."""
        finite = any(not unit.protocol.in_blocks for unit in self.units)
        n = max(self._defaults.values(), default=500)
        tables = self.tables.facts()
        tables["experiments"] = [given(one) for _, _, one in self._experiments]
        for table in tables["experiments"]:
            if self._defaults.get(table["name"], n) != n:
                table["n_environments"] = self._defaults[table["name"]]
        settings = self.settings.facts(finite=finite, n_environments=n)
        return tables | {"study": settings}

    def _check_names(self) -> None:
        names = [table.name for table in self.tables.experiments]
        taken = {ALL}
        for number, called, one in self._experiments:
            name = called if called in taken else one.name
            if name in taken:
                raise JbrlError(
                    f"{self.place}: [[experiments]] {number}: name = {shown(name)}: expected "
                    "another name, this one is taken"
                )
            taken.add(name)
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
        with located(where):
            lifetime = self._lifetime(table, test)
            count = table.n_environments or settings.n_environments or test.n_environments
            return [
                Protocol(prior, test, count, seed, lifetime, settings.discount)
                for seed in settings.seed
            ]

    def _problem(self, name: str, where: str) -> Problem:
        with located(where):
            return problem(name, self.folder)

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

    def _agents(self, number: int, table: AgentTable) -> list[tuple[Any, ...]]:
        """Return (agent, parameters, identity of the algorithm, names of the parameters that are
        set) of each point of an agent's grid.
        """
        where = f"{self.place}: [[agents]] {number}"
        with located(where):
            algorithm = find_agent(table.algorithm, self.folder)
        where = f"{where} ({table.algorithm})"
        for name, value in table.parameters.items():
            if value == []:
                raise JbrlError(f"{where}: {name} = []: expected at least one value")
        return [
            (*build(algorithm.agent, values, where), algorithm, tuple(values))
            for values in table.grid()
        ]

    def _unit(
        self,
        experiment: ExperimentTable,
        algorithm: str,
        protocol: Protocol,
        agent: tuple[Any, ...],
    ) -> Unit:
        player, parameters, found, named = agent
        settings = self.settings
        with located(f"{self.place}: [[agents]] {algorithm} in experiment '{experiment.name}'"):
            protocol.check_agent(player, algorithm)
            check_host_values(played_agent(player), algorithm, protocol.agent_prior())
            cost(player, protocol.agent_prior())  # refuses what takes too much memory
            if isinstance(player, OfflineSearch):
                player.search_bytes(protocol.agent_prior())  # as well
            if settings.record and protocol.in_blocks:
                raise JbrlError(
                    "record = true: expected false, since trajectories of episodes are not kept"
                )
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
            named=named,
            latency=settings.latency,
            record=settings.record,
            chunk=settings.chunk,
        )


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
    path = as_path("study", study)
    tables = _overridden(read_toml(path, " as a study"), overrides)
    return Study(tables, place=str(path), folder=path.parent)


def recorded_study(manifest: dict[str, Any], place: str) -> Study:
    """Return the study that a manifest records, with the units that it has.

    Paths in it are relative to the working directory.

    Raises:
      JbrlError: something that it names is not found here.
    """
    known = {field.name for field in dataclasses.fields(ExperimentTable)}
    experiments = [
        {name: value for name, value in table.items() if name in known}
        for table in manifest["experiments"]
    ]
    tables = {"study": manifest["study"], "experiments": experiments, "agents": manifest["agents"]}
    return Study(tables, place=place)


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
        known = [known.name for known in dataclasses.fields(Settings)]
        if field not in known:
            hint = nearest(field, (*known, "n_mdps"))
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


UNIT = ("experiment", "algorithm", "parameters", "seed")  # columns that name a unit
DRAWN = "drawn_"  # before the name of a parameter, in the metrics of a unit


def trials(
    manifest: dict[str, Any],
    returns: pd.DataFrame,
    metrics: Callable[[str], dict[str, np.ndarray]],
    place: str,
) -> pd.DataFrame:
    """Return the scores of algorithms that draw their parameters, with what each lifetime has
    drawn.

    Args:
      manifest: of the study (`Store.manifest`).
      returns: its score table, columns `UNIT`, unit and score.
      metrics: the metrics of a unit by its id, [n] by name. Where some are called `drawn_NAME`,
        they are what was drawn; elsewhere it is found again from the seed.
      place: to name in messages.

    Returns:
      Rows of `returns`, and one column for each parameter that is drawn, NaN where an algorithm has
      none of that name; `parameter_NAME` where `returns` has a column of that name.

    Raises:
      JbrlError: no algorithm draws a parameter, or one is not known here.
    """
    for table in manifest["agents"]:
        find_agent(table["algorithm"], Path.cwd())  # which registers those of other modules
    parts = []
    for unit in manifest["units"]:
        same = [unit[name] == returns[name] for name in UNIT]
        rows = returns[np.logical_and.reduce(same)]
        drawn = _drawn(unit, rows["unit"].to_numpy(), metrics, place) if len(rows) else {}
        if drawn:
            named = {f"parameter_{k}" if k in returns else k: v for k, v in drawn.items()}
            parts.append(rows.assign(**named))
    if not parts:
        raise JbrlError(
            f"{place}: no scores of an algorithm that draws its parameters: expected one such as "
            "epsilon = { uniform = [0, 1] }"
        )
    return pd.concat(parts, ignore_index=True)


def _drawn(
    unit: dict[str, Any],
    numbers: np.ndarray,
    metrics: Callable[[str], dict[str, np.ndarray]],
    place: str,
) -> dict[str, np.ndarray]:
    kept = {name: v[numbers] for name, v in under(DRAWN, metrics(unit["id"])).items()}
    decoded = unit | {"parameters": json.loads(unit["parameters"])}
    return kept or draws(decoded, numbers, place)


def draws(unit: dict[str, Any], numbers: np.ndarray, place: str) -> dict[str, np.ndarray]:
    """Draw the parameters of lifetimes anew, which depend on the seed and their number alone.

    Args:
      unit: a row of a manifest: `algorithm`, `parameters` (decoded), `test`, `seed`.
      numbers: [n] int, of lifetimes.
      place: to name in messages.

    Returns:
      [n] each, by parameter: numbers or Booleans as they were drawn; empty for an algorithm that
      draws none.

    Raises:
      JbrlError: the algorithm or the problem is not known here.
    """
    found = find_agent(unit["algorithm"], Path.cwd()).agent
    agent, _ = build(found, unit["parameters"], f"{place}: {unit['algorithm']}")
    if not isinstance(agent, DrawsParameters):
        return {}
    key = problem(unit["test"], Path.cwd()).key(unit["seed"])

    def values(number: Array) -> dict[str, Array]:
        return agent.values(stream(key, number, "parameters"))

    drawn = jax.jit(jax.vmap(values))(jnp.asarray(numbers, jnp.int32))
    return {name: np.asarray(column) for name, column in drawn.items()}
