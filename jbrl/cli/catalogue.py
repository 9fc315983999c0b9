"""`jbrl list`, `jbrl show`, `jbrl cite`: what there is."""

import dataclasses
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jbrl.errors import JbrlError

if TYPE_CHECKING:  # listing starts without JAX
    from jbrl.problems.problem import Problem


class Kind(StrEnum):
    """What `jbrl list` can list."""

    agents = "agents"
    problems = "problems"


def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List the agents with their parameters, or the problems: distributions over MDPs.

    [bold]Examples[/bold]

    \b
    jbrl list agents
    jbrl list problems
    """
    table = _agents() if kind is Kind.agents else _problems()
    Console().print(table)


def _agents() -> Table:
    from jbrl.agents.agent import AGENTS

    table = Table("algorithm", "parameters (default)", "what it does", box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for name, entry in sorted(AGENTS.items(), key=lambda item: item[0].casefold()):
        fields = dataclasses.fields(entry.agent)  # type: ignore[arg-type]
        values = [f"{field.name} = {field.default}: {field.metadata['doc']}" for field in fields]
        table.add_row(name, escape("\n".join(values)), escape(entry.summary))
    return table


def _problems() -> Table:
    from jbrl.environments.environment import ENVIRONMENTS
    from jbrl.problems.problem import DERIVED, PROBLEMS, problem

    table = Table("problem", "observation", "actions", "lifetime", "what it is", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    settings = {name: entry.parameters for name, entry in PROBLEMS.items()}
    settings |= {
        name: {f.name: f.default for f in dataclasses.fields(entry.environment)}  # type: ignore[arg-type]
        for name, entry in ENVIRONMENTS.items()
        if name not in PROBLEMS
    }
    for name, values in settings.items():
        found = problem(name)
        shown = f"({', '.join(f'{key}={value}' for key, value in values.items() if value is not None)})" if values else ""
        lifetime = " ".join(f"{value} {key}" for key, value in dataclasses.asdict(found.lifetime).items() if key != "max_steps")
        spec = found.spec
        table.add_row(escape(name + shown), str(spec.observation), str(spec.actions.n), lifetime, escape(found.description))
    for name, make in DERIVED.items():
        table.add_row(f"{name}(PROBLEM)", "", "", escape((make.__doc__ or "").strip().splitlines()[0]))
    return table


def show(
    name: Annotated[str, typer.Argument(metavar="PROBLEM", help="A name of 'jbrl list problems', or the path of a JSON file.")],
    json_: Annotated[bool, typer.Option("--json", help="Print it in the file format, to edit and use as a problem of your own.")] = False,
) -> None:
    """Show a distribution over MDPs: the concentrations of each action and the rewards.

    [bold]Examples[/bold]

    \b
    jbrl show GC
    jbrl show 'Grid(rows=3,columns=4)'
    jbrl show GC --json > mine.json
    """
    from jbrl.problems.problem import DirichletProblem, problem, to_json

    found = problem(name, Path.cwd())
    if not isinstance(found, DirichletProblem):
        if json_:
            raise JbrlError(f"'{name}' is an environment, not a distribution over finite MDPs: it has no JSON form")
        _show_environment(found)
        return
    if json_:
        typer.echo(to_json(found))
        return
    mdps = found.mdps
    start = int(mdps.initial_state)
    typer.echo(f"{found.name} ({found.short_name}): {mdps.n_states} states, {mdps.n_actions} actions")
    typer.echo(found.description)
    typer.echo(f"Starts in {'a state drawn uniformly' if start < 0 else f'state {start}'}.\n")
    typer.echo(_view("Concentrations", np.asarray(mdps.concentrations)))
    typer.echo(_view("Rewards", np.asarray(mdps.rewards)))


def _show_environment(found: "Problem") -> None:
    """Observations, actions, lifetime and settings of a problem that is no distribution over finite MDPs."""
    typer.echo(f"{found.name} ({found.short_name}): {found.spec}")
    typer.echo(found.description)
    for name, value in dataclasses.asdict(found.lifetime).items():
        typer.echo(f"{name}: {value}")
    for field in dataclasses.fields(found.environment):  # type: ignore[attr-defined]
        value = np.asarray(getattr(found.environment, field.name))  # type: ignore[attr-defined]
        shown = value.item() if value.ndim == 0 else f"array of shape {value.shape}"
        typer.echo(f"{field.name}: {shown}  ({field.metadata.get('doc', '')})")


LARGEST_MATRIX = 10  # states


def _view(title: str, values: np.ndarray) -> str:
    """[S, A, S] as matrices, or as a list of what is not 0 when matrices would be large and mostly zeros."""
    if len(values) > LARGEST_MATRIX and np.mean(values != 0) < 0.5:
        return _sparse(title, values)
    return _matrices(title, values)


def _matrices(title: str, values: np.ndarray) -> str:
    """One matrix per action; one for all when they are equal."""
    n_states, n_actions, _ = values.shape
    same = bool((values == values[:, :1]).all())
    texts = np.vectorize(lambda v: "." if v == 0 else f"{v:g}")(values)
    width = max(len(str(n_states - 1)), *(len(text) for text in texts.flat))
    lines = [f"{title}. Row: state, column: next state; . is 0."]
    for action in range(1 if same else n_actions):
        lines += ["", "every action" if same else f"action {action}", _line("", range(n_states), width)]
        lines += [_line(state, texts[state, action], width) for state in range(n_states)]
    return "\n".join(lines) + "\n"


def _sparse(title: str, values: np.ndarray) -> str:
    """A row per state and a column per action: `next state: value`, the value left out where it is 1, for all that is not 0."""
    lines = [f"{title}. Row: state, column: action; in it the next states, each with its value unless that is 1. All others are 0.", ""]
    cells = [[" ".join(f"{y}" if row[y] == 1 else f"{y}:{row[y]:g}" for y in np.flatnonzero(row)) for row in rows] for rows in values]
    widths = [max(len(f"action {action}"), *(len(row[action]) for row in cells)) for action in range(values.shape[1])]
    heads = [f"action {action}".ljust(width) for action, width in enumerate(widths)]
    shown = [(state, row) for state, row in enumerate(cells) if any(row)]
    lines += [_line("", heads, 0)]
    lines += [_line(state, (cell.ljust(width) for cell, width in zip(row, widths, strict=True)), 0).rstrip() for state, row in shown]
    return "\n".join(lines) + "\n"


def _line(head: object, cells: Iterable[object], width: int) -> str:
    return f"{head!s:>4} | " + ("  " if width == 0 else " ").join(f"{cell!s:>{width}}" for cell in cells)


def cite(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Algorithms or problems; none: jbrl itself.")] = None,
) -> None:
    """Print BibTeX entries of what an algorithm or a problem comes from.

    [bold]Example[/bold]

    \b
    jbrl cite BEB GC >> references.bib
    """
    from jbrl.cli.bibliography import entries

    typer.echo("\n\n".join(entries(names or [])))
