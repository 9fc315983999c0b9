"""`jbrl list`, `jbrl show`, `jbrl cite`: the catalogue."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jbrl.base.errors import JbrlError, nearest

WIDTH = 100  # columns at least where output is no terminal
WIDE = 160  # of tables with one line for each of many problems

if TYPE_CHECKING:  # listing starts without JAX
    from jbrl.environments.environment import Environment
    from jbrl.problems.problem import EnvironmentProblem, Problem


class Kind(StrEnum):
    """Kinds of things that `jbrl list` lists."""

    agents = "agents"
    problems = "problems"
    environments = "environments"


def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="SUITE", help="A suite, for example bsuite: all its problems, one by one."
        ),
    ] = None,
) -> None:
    """List the agents, the problems, or the environments that problems are made of.

    Agents and environments are listed with what can be set, problems (what an
    experiment names) with their observations, actions and lifetime.

    [bold]Examples[/bold]

    \b
    jbrl list agents
    jbrl list problems
    jbrl list problems --suite bsuite
    jbrl list environments
    """
    console = Console()
    if not console.is_terminal and console.width < WIDTH:
        console = Console(width=WIDTH)
    tables: dict[Kind, Callable[[], Sequence[Table | str]]]
    tables = {Kind.agents: _agents, Kind.problems: _problems, Kind.environments: _environments}
    if suite is not None:
        if kind != Kind.problems:
            raise JbrlError(f"--suite {suite}: expected 'jbrl list problems --suite {suite}'")
        wide = console if console.is_terminal else Console(width=WIDE)
        wide.print(_suite(suite))
        return
    for table in tables[kind]():
        console.print(table)


def _agents() -> list[Table]:
    from jbrl.agents.registry import AGENTS

    return [
        _with_parameters(
            "algorithm", {name: (entry.agent, entry.summary) for name, entry in AGENTS.items()}
        )
    ]


def _environments() -> list[Table]:
    from jbrl.environments.environment import ENVIRONMENTS

    return [
        _with_parameters(
            "environment",
            {name: (entry.environment, entry.summary) for name, entry in ENVIRONMENTS.items()},
        )
    ]


def _with_parameters(kind: str, entries: Mapping[str, tuple[type, str]]) -> Table:
    """Return classes by name, each with its parameters, which are fields that have a default, and a
    summary.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column(kind, no_wrap=True)
    table.add_column("parameters (default)")
    table.add_column("what it does" if kind == "algorithm" else "what it is")
    for name, (cls, summary) in sorted(entries.items(), key=lambda item: item[0].casefold()):
        values = [
            f"{field.name} = {_toml(field.default)}: {field.metadata.get('doc', '')}"
            for field in _settable(cls)
        ]
        table.add_row(name, escape("\n".join(values)), escape(summary))
    return table


def _settable(cls: type) -> list[dataclasses.Field]:
    """Return the fields that a study or a name can set; the others are computed from them."""
    return [field for field in dataclasses.fields(cls) if field.default is not None]


def parameter_table(cls: type) -> str:
    """Return the parameters of an agent, an environment or a problem as a table in Markdown."""
    rows = [
        f"| `{field.name}` | `{_toml(field.default)}` | {field.metadata.get('doc', '')} |"
        for field in _settable(cls)
    ]
    return "\n".join(["| Parameter | Default | Meaning |", "| --- | --- | --- |", *rows])


def _toml(value: object) -> str:
    """Return a default as it is written in a study or in the name of a problem."""
    return json.dumps(value) if isinstance(value, bool) or value == "" else str(value)


def _problems() -> list[Table | str]:
    """Return a table for each kind of problem, all with the same widths."""
    from jbrl.environments.environment import ENVIRONMENTS
    from jbrl.problems.lookup import problem
    from jbrl.problems.problem import DERIVED, PROBLEMS, DirichletProblem

    settings = {name: entry.parameters for name, entry in PROBLEMS.items()}
    alone = {
        name: {field.name: field.default for field in _settable(entry.environment)}
        for name, entry in ENVIRONMENTS.items()
    }
    rows = {name: _row_of(name, values) for name, values in (alone | settings).items()}
    finite = [name for name in PROBLEMS if isinstance(problem(name), DirichletProblem)]
    derived = {
        f"{name}(PROBLEM)": [
            "",
            "",
            "",
            " ".join((make.__doc__ or "").strip().split("\n\n")[0].split()),
        ]
        for name, make in DERIVED.items()
    }
    groups = {
        "Finite MDPs, drawn from a Dirichlet distribution": {name: rows[name] for name in finite},
        "Environments with the settings of published experiments": {
            name: rows[name] for name in PROBLEMS if name not in finite
        },
        "Environments with settings of your own ('jbrl list environments' says more)": {
            name: rows[name] for name in alone
        },
        "Made out of another problem": derived,
    }
    everything = rows | derived
    widths = [
        max(map(len, everything)),
        *(max(len(row[k]) for row in everything.values()) for k in range(3)),
    ]
    found: list[Table | str] = []
    for title, group in groups.items():
        found += [f"[bold]{title}[/bold]", _group(group, widths), ""]
    return [*found[:-1], *_suites()]


def _suite(name: str) -> Table:
    """Return all problems of a suite."""
    from jbrl.problems.lookup import SUITES
    from jbrl.problems.problem import PROBLEMS

    assert PROBLEMS  # the register is there once problems are imported
    if name not in SUITES:
        raise JbrlError(f"--suite '{name}': unknown suite{nearest(name, SUITES)}")
    rows = SUITES[name].table()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in rows[0]:
        table.add_column(column, no_wrap=column not in ("settings", "tags"))
    for row in rows:
        table.add_row(*map(escape, row.values()))
    return table


def _suites() -> list[Table | str]:
    """Return the names of each suite that a study accepts."""
    from jbrl.problems.lookup import SUITES

    lines: list[Table | str] = []
    for suite in SUITES.values():
        names = ", ".join(
            f"{suite.name}/{group}"
            for group in suite.groups
            if "/" in group or group in ("all", "testing")
        )
        ids = suite.groups["all"]
        lines += [
            "",
            f"[bold]{escape(suite.summary)} ('jbrl list problems --suite {suite.name}')[/bold]",
            escape(
                f"{suite.name}/EXPERIMENT/INDEX, for example {suite.name}/{ids[0]}; "
                f"in a study also {suite.name}/EXPERIMENT, {names}"
            ),
        ]
    return lines


def _row_of(name: str, settings: Mapping[str, object]) -> list[str]:
    """Return the row of a problem; a word where it cannot be made, for example without an extra."""
    from jbrl.problems.lookup import problem

    try:
        return _row(problem(name), settings)
    except JbrlError as error:
        return ["", "", "", f"not available: {error}"]


def _row(found: "Problem", settings: Mapping[str, object]) -> list[str]:
    """Return a row of the table of problems: observation, actions, lifetime; description and
    settings.
    """
    kind, n = next(iter(dataclasses.asdict(found.lifetime).items()))
    written = ", ".join(f"{name}={_toml(value)}" for name, value in settings.items())
    text = found.description + (f"\nSettings: {written}" if written else "")
    return [str(found.spec.observation), str(found.spec.actions.n), f"{n:,} {kind}", text]


def _group(rows: Mapping[str, Sequence[str]], widths: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title, width in zip(("problem", "observation", "actions", "lifetime"), widths, strict=True):
        table.add_column(title, no_wrap=True, min_width=max(width, len(title)))
    table.add_column("what it is")
    for name, row in rows.items():
        table.add_row(name, *map(escape, row))
    return table


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM", help="A name of 'jbrl list problems', or the path of a JSON file."
        ),
    ],
    json_: Annotated[
        bool,
        typer.Option(
            "--json", help="Print it in the file format, to edit and use as a problem of your own."
        ),
    ] = False,
) -> None:
    """Show a problem: the numbers of finite MDPs, or the settings of an environment.

    [bold]Examples[/bold]

    \b
    jbrl show GC
    jbrl show 'Grid(rows=3,columns=4)'
    jbrl show GC --json > mine.json
    jbrl show 'DeepSea(size=20)'
    """
    from jbrl.problems.json_format import to_json
    from jbrl.problems.lookup import problem
    from jbrl.problems.problem import DirichletProblem, EnvironmentProblem

    found = problem(name, Path.cwd())
    if isinstance(found, EnvironmentProblem):
        if json_:
            raise JbrlError(
                f"'{name}' is an environment, not a distribution over finite MDPs: it has no JSON "
                "form"
            )
        typer.echo("\n".join(_described(found)))
        return
    assert isinstance(found, DirichletProblem)
    if json_:
        typer.echo(to_json(found))
        return
    mdps = found.mdps
    start = int(mdps.initial_state)
    typer.echo(
        f"{found.name} ({found.short_name}): {mdps.n_states} states, {mdps.n_actions} actions"
    )
    typer.echo(found.description)
    typer.echo(f"Starts in {'a state drawn uniformly' if start < 0 else f'state {start}'}.\n")
    typer.echo(_view("Concentrations", np.asarray(mdps.concentrations)))
    typer.echo(_view("Rewards", np.asarray(mdps.rewards)))


def _described(found: "EnvironmentProblem") -> list[str]:
    """Return observations, actions, lifetime and settings of a problem that is made of an
    environment, as lines of text.
    """
    kind, n = next(iter(dataclasses.asdict(found.lifetime).items()))
    lines = [
        f"{found.name} ({found.short_name}): {found.spec}",
        found.description,
        f"Lifetime, unless a study says otherwise: {n:,} {kind}.",
    ]
    environment: Any = found.environment
    while environment is not None:
        settings = [field for field in _settable(type(environment)) if field.name != "environment"]
        name = type(environment).__name__
        wrapped = getattr(environment, "environment", None)
        of = f" of {name}" if environment is not found.environment or wrapped is not None else ""
        lines += ["", f"Settings{of}"] if settings else []
        lines += [_setting(environment, field) for field in settings]
        environment = wrapped
    return lines


def _setting(environment: "Environment", field: dataclasses.Field) -> str:
    value = getattr(environment, field.name)
    value = value if isinstance(value, str) else np.asarray(value).item()
    text = f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return f"  {field.name} = {text}: {field.metadata.get('doc', '')}"


LARGEST_MATRIX = 10  # states


def _view(title: str, values: np.ndarray) -> str:
    """Show [S, A, S] as matrices, or as a list of what is not 0 when matrices would be large and
    mostly zeros.
    """
    if len(values) > LARGEST_MATRIX and np.mean(values != 0) < 0.5:
        return _sparse(title, values)
    return _matrices(title, values)


def _matrices(title: str, values: np.ndarray) -> str:
    """Show one matrix per action; one for all when they are equal."""
    n_states, n_actions, _ = values.shape
    same = bool((values == values[:, :1]).all())
    texts = np.vectorize(lambda v: "." if v == 0 else f"{v:g}")(values)
    width = max(len(str(n_states - 1)), *(len(text) for text in texts.flat))
    lines = [f"{title}. Row: state, column: next state; . is 0."]
    for action in range(1 if same else n_actions):
        lines += [
            "",
            "every action" if same else f"action {action}",
            _line("", range(n_states), width),
        ]
        lines += [_line(state, texts[state, action], width) for state in range(n_states)]
    return "\n".join(lines) + "\n"


def _sparse(title: str, values: np.ndarray) -> str:
    """Return a row per state and a column per action: `next state: value`, without the value where
    it is 1, for all that is not 0.
    """
    lines = [
        (
            f"{title}. Row: state, column: action; in it the next states, each with its value "
            "unless that is 1. All others are 0."
        ),
        "",
    ]
    cells = [
        [
            " ".join(f"{y}" if row[y] == 1 else f"{y}:{row[y]:g}" for y in np.flatnonzero(row))
            for row in rows
        ]
        for rows in values
    ]
    widths = [
        max(len(f"action {action}"), *(len(row[action]) for row in cells))
        for action in range(values.shape[1])
    ]
    heads = [f"action {action}".ljust(width) for action, width in enumerate(widths)]
    shown = [(state, row) for state, row in enumerate(cells) if any(row)]
    lines += [_line("", heads, 0)]
    lines += [
        _line(
            state, (cell.ljust(width) for cell, width in zip(row, widths, strict=True)), 0
        ).rstrip()
        for state, row in shown
    ]
    return "\n".join(lines) + "\n"


def _line(head: object, cells: Iterable[object], width: int) -> str:
    return f"{head!s:>4} | " + ("  " if width == 0 else " ").join(
        f"{cell!s:>{width}}" for cell in cells
    )


def cite(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Algorithms or problems; none: jbrl itself."),
    ] = None,
) -> None:
    """Print BibTeX entries of what an algorithm or a problem comes from.

    [bold]Example[/bold]

    \b
    jbrl cite BEB GC >> references.bib
    """
    from jbrl.cli.bibliography import entries

    typer.echo("\n\n".join(entries(names or [])))
