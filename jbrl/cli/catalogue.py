"""`jbrl list`, `show`, `cite` and `formulas`: what there is to play."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jbrl.base.errors import JbrlError, nearest
from jbrl.cli.output import complain, print_table

if TYPE_CHECKING:  # listing starts without JAX
    from jbrl.environments.environment import Environment
    from jbrl.problems.problem import EnvironmentProblem, Problem

WIDTH = 100  # columns at least where output is no terminal
WIDE = 160  # of tables with one line for each of many problems
LARGEST_MATRIX = 10  # states
OURSELVES = "jbrl"  # key of jbrl's own entry in the bibliography
# Counts of formulas of other sources. F5 and F6 depend on the points that formulas are compared at
# (docs/formulas.md).
OTHER_COUNTS = {
    "F2": "paper and its program: 12",
    "F3": "paper and its program: 43",
    "F4": "paper and its program: 226",
    "F5": "paper: 1210, its program: 1204 to 1217",
    "F6": "paper: 7407, its program: 7324 to 7350",
}


def list_(kind: Literal["agents", "problems", "environments"], *, suite: str | None = None) -> None:
    """List the agents, the problems, or the environments that problems are made of.

    Agents and environments are listed with what can be set, problems (what an
    experiment names) with their observations, actions and lifetime.

    Args:
      kind: What to list.
      suite (SUITE): A suite, for example bsuite: all its problems, one by one.

    Examples:
      jbrl list agents
      jbrl list problems
      jbrl list problems --suite bsuite
      jbrl list environments
    """
    from jbrl.agents.registry import AGENTS
    from jbrl.environments.environment import ENVIRONMENTS

    console = Console()
    width = WIDTH if suite is None else WIDE
    if not console.is_terminal and (suite is not None or console.width < width):
        console = Console(width=width)
    if suite is not None and kind != "problems":
        raise JbrlError(f"--suite {suite}: expected 'jbrl list problems --suite {suite}'")
    if suite is not None:
        console.print(_suite(suite))
    elif kind == "problems":
        for part in _problems():
            console.print(part)
    elif kind == "agents":
        agents = {name: (entry.agent, entry.summary) for name, entry in AGENTS.items()}
        console.print(_with_parameters("algorithm", "what it does", agents))
    else:
        environments = {n: (entry.environment, entry.summary) for n, entry in ENVIRONMENTS.items()}
        console.print(_with_parameters("environment", "what it is", environments))


def _with_parameters(
    kind: str, summary_title: str, entries: Mapping[str, tuple[type, str]]
) -> Table:
    """Return a table of classes by name, each with its parameters and a summary."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column(kind, no_wrap=True)
    table.add_column("parameters (default)")
    table.add_column(summary_title)
    for name, (cls, summary) in sorted(entries.items(), key=lambda item: item[0].casefold()):
        values = [
            f"{field.name} = {_toml(field.default)}: {field.metadata.get('doc', '')}"
            for field in _settable(cls)
        ]
        table.add_row(name, escape("\n".join(values)), escape(summary))
    return table


def _settable(cls: type) -> list[dataclasses.Field[Any]]:
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

    settings: dict[str, Mapping[str, object]] = {
        name: {field.name: field.default for field in _settable(entry.environment)}
        for name, entry in ENVIRONMENTS.items()
    }
    own = list(settings)
    settings |= {name: entry.parameters for name, entry in PROBLEMS.items()}
    rows = {name: _row(name, values) for name, values in settings.items()}
    finite = [name for name in PROBLEMS if isinstance(problem(name), DirichletProblem)]
    published = [name for name in PROBLEMS if name not in finite]
    groups = {
        "Finite MDPs, drawn from a Dirichlet distribution": {name: rows[name] for name in finite},
        "Environments with the settings of published experiments": {
            name: rows[name] for name in published
        },
        "Environments with settings of your own ('jbrl list environments' says more)": {
            name: rows[name] for name in own
        },
        "Made out of another problem": {
            f"{name}(PROBLEM)": ["", "", "", _summary(make)] for name, make in DERIVED.items()
        },
    }
    titles = ["problem", "observation", "actions", "lifetime"]
    lines = [[name, *row] for group in groups.values() for name, row in group.items()]
    widths = [
        max(map(len, column)) for column in zip(titles, *(line[:4] for line in lines), strict=True)
    ]
    parts: list[Table | str] = []
    for title, group in groups.items():
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column, width in zip(titles, widths, strict=True):
            table.add_column(column, no_wrap=True, min_width=width)
        table.add_column("what it is")
        for name, row in group.items():
            table.add_row(name, *map(escape, row))
        parts += [f"[bold]{title}[/bold]", table, ""]
    return [*parts[:-1], *_suites()]


def _summary(described: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((described.__doc__ or "").strip().split("\n\n")[0].split())


def _row(name: str, settings: Mapping[str, object]) -> list[str]:
    """Return observation, actions, lifetime, description and settings of a problem; a word where it
    cannot be made, for example without an extra.
    """
    from jbrl.problems.lookup import problem

    try:
        described = problem(name)
    except JbrlError as error:
        return ["", "", "", f"not available: {error}"]
    written = ", ".join(f"{name}={_toml(value)}" for name, value in settings.items())
    text = described.description + (f"\nSettings: {written}" if written else "")
    spec = described.spec
    return [str(spec.observation), str(spec.actions.n), _lifetime(described), text]


def _lifetime(described: "Problem") -> str:
    kind, n = next(iter(dataclasses.asdict(described.lifetime).items()))
    return f"{n:,} {kind}"


def _suite(name: str) -> Table:
    """Return all problems of a suite."""
    from jbrl.problems.lookup import SUITES

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


def show(name: Annotated[str, typer.Argument(metavar="PROBLEM")], *, json_: bool = False) -> None:
    """Show a problem: the numbers of finite MDPs, or the settings of an environment.

    Args:
      name: A name of 'jbrl list problems', or the path of a JSON file.
      json_: Print it in the file format, to edit and use as a problem of your own.

    Examples:
      jbrl show GC
      jbrl show 'Grid(rows=3,columns=4)'
      jbrl show GC --json > mine.json
      jbrl show 'DeepSea(size=20)'
    """
    from jbrl.problems.json_format import to_json
    from jbrl.problems.lookup import problem
    from jbrl.problems.problem import DirichletProblem, EnvironmentProblem

    shown = problem(name, Path.cwd())
    if isinstance(shown, EnvironmentProblem):
        if json_:
            raise JbrlError(
                f"'{name}' is an environment, not a distribution over finite MDPs: it has no JSON "
                "form"
            )
        typer.echo("\n".join(_described(shown)))
        return
    assert isinstance(shown, DirichletProblem)
    if json_:
        typer.echo(to_json(shown))
        return
    mdps = shown.mdps
    start = int(mdps.initial_state)
    typer.echo(
        f"{shown.name} ({shown.short_name}): {mdps.n_states} states, {mdps.n_actions} actions"
    )
    typer.echo(shown.description)
    typer.echo(f"Starts in {'a state drawn uniformly' if start < 0 else f'state {start}'}.\n")
    typer.echo(_view("Concentrations", np.asarray(mdps.concentrations)))
    typer.echo(_view("Rewards", np.asarray(mdps.rewards)))


def _described(problem: "EnvironmentProblem") -> list[str]:
    """Return observations, actions, lifetime and settings of a problem that is made of an
    environment, as lines of text.
    """
    lines = [
        f"{problem.name} ({problem.short_name}): {problem.spec}",
        problem.description,
        f"Lifetime, unless a study says otherwise: {_lifetime(problem)}.",
    ]
    environment: Any = problem.environment
    while environment is not None:
        settings = [field for field in _settable(type(environment)) if field.name != "environment"]
        wrapped = getattr(environment, "environment", None)
        alone = environment is problem.environment and wrapped is None
        if settings:
            lines += ["", "Settings" if alone else f"Settings of {type(environment).__name__}"]
        lines += [_setting(environment, field) for field in settings]
        environment = wrapped
    return lines


def _setting(environment: "Environment[Any]", field: dataclasses.Field[Any]) -> str:
    value = getattr(environment, field.name)
    value = value if isinstance(value, str) else np.asarray(value).item()
    text = f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return f"  {field.name} = {text}: {field.metadata.get('doc', '')}"


def _view(title: str, values: np.ndarray) -> str:
    """Show [S, A, S] as matrices, or as a list of what is not 0 when matrices would be large and
    mostly zeros.
    """
    large = len(values) > LARGEST_MATRIX and np.mean(values != 0) < 0.5
    return _sparse(title, values) if large else _matrices(title, values)


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
    cells = [
        [
            " ".join(f"{y}" if row[y] == 1 else f"{y}:{row[y]:g}" for y in np.flatnonzero(row))
            for row in rows
        ]
        for rows in values
    ]
    heads = [f"action {action}" for action in range(values.shape[1])]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [
        f"{title}. Row: state, column: action; in it the next states, each with its value unless "
        "that is 1. All others are 0.",
        "",
    ]
    for state, row in [("", heads), *enumerate(cells)]:
        if any(row):
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            line = _line(state, padded, 0)
            lines.append(line if state == "" else line.rstrip())
    return "\n".join(lines) + "\n"


def _line(head: object, cells: Iterable[object], width: int) -> str:
    return f"{head!s:>4} | " + ("  " if width == 0 else " ").join(
        f"{cell!s:>{width}}" for cell in cells
    )


def cite(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...")] = None,
) -> None:
    """Print BibTeX entries of what an algorithm or a problem comes from.

    Args:
      names: Algorithms or problems; none: jbrl itself.

    Example:
      jbrl cite BEB GC >> references.bib
    """
    entries = dict.fromkeys(entry for name in names or [OURSELVES] for entry in _cited(name))
    typer.echo("\n\n".join(entries))


def _cited(name: str) -> list[str]:
    """Return the entries of an algorithm, a problem or jbrl itself.

    Raises:
      JbrlError: an unknown name, or one that cites nothing.
    """
    from jbrl.agents.registry import AGENTS
    from jbrl.environments.environment import ENVIRONMENTS
    from jbrl.problems.lookup import problem
    from jbrl.problems.problem import PROBLEMS

    if name == OURSELVES:
        return [_by_key()[OURSELVES]]
    if name in AGENTS:
        cite = AGENTS[name].cite
    elif name in PROBLEMS or name in ENVIRONMENTS or "(" in name:
        cite = problem(name).cite
    else:
        raise JbrlError(
            "nothing to cite is called "
            f"'{name}'{nearest(name, {*AGENTS, *PROBLEMS, *ENVIRONMENTS, OURSELVES})}"
        )
    if not cite:
        raise JbrlError(f"'{name}' names no source")
    if cite.lstrip().startswith("@"):
        return [cite.strip()]
    return [_by_key()[key.strip()] for key in cite.split(",")]


def _by_key() -> dict[str, str]:
    """Return all entries of references.bib by key."""
    text = (resources.files("jbrl") / "references.bib").read_text(encoding="utf-8")
    parts = re.split(r"^(?=@)", text, flags=re.MULTILINE)
    return {
        match[1]: part.strip() for part in parts if (match := re.match(r"@\w+\{([^,\s]+)", part))
    }


def formulas(
    name: Annotated[str, typer.Argument(metavar="SET")],
    *,
    format: Literal["table", "csv", "latex"] = "table",
    domain: Literal["signed", "values"] = "signed",
) -> None:
    """Print a set of formulas, the strategies that OPPS-DS searches.

    Q0 is the Q-function of the mean of the prior, Q1 that of a model in which
    every action stays where it is, Q2 of one in which every next state is equally
    likely. Each formula stands for all that rank actions alike.

    Args:
      name: F1 … F6: formulas of at most so many variables and operators.
      format: Output format.
      domain: signed: rankings of points of [-100, 100]³, as in the paper. values: of what
        Q-functions can be.

    Examples:
      jbrl formulas F3
      jbrl formulas F6 --format csv > f6.csv
      jbrl formulas F2 --format latex --domain values
    """
    from jbrl.agents.opps.formulas import formula_table

    table = formula_table(name, domain)
    if format == "latex":
        rows = [f"{row.rank} & ${row.latex}$ \\\\" for row in table.itertuples()]
        typer.echo("\n".join([r"\begin{tabular}{rl}", *rows, r"\end{tabular}"]))
        return
    print_table(table if format == "csv" else table.drop(columns="latex"), format)
    if format == "table":
        others = f" ({OTHER_COUNTS[name]})" if domain == "signed" and name in OTHER_COUNTS else ""
        complain(f"{len(table)} formulas{others}", name)
