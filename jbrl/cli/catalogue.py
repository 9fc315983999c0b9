"""`jbrl list`, `show`, `cite` and `formulas`: what there is to play."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jbrl.base.errors import JbrlError, nearest
from jbrl.base.parameters import accepted_values
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


def list_(
    kind: Literal["agents", "problems", "environments"],
    *,
    suite: str | None = None,
    format: Literal["table", "json"] = "table",
) -> None:
    """List the agents, the problems, or the environments that problems are made of.

    Agents and environments have a line each ('jbrl show NAME' says more), problems
    (what an experiment names) their observations, actions and lifetime.

    Args:
      kind: What to list.
      format: json: agents or environments with the defaults of their parameters.
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
    attribute = "agent" if kind == "agents" else "environment"
    entries: dict[str, tuple[type, str]] = {
        name: (getattr(entry, attribute), entry.summary)
        for name, entry in (AGENTS if kind == "agents" else ENVIRONMENTS).items()
    }
    if format == "json":
        if kind == "problems":
            raise JbrlError("--format json: expected agents or environments")
        typer.echo(_as_json(entries))
    elif suite is not None:
        console.print(_suite(suite))
    elif kind == "problems":
        for part in (*_problems(), *_suites()):
            console.print(part)
    else:
        console.print(_one_line_each(kind[:-1], "what it is", entries))


def _one_line_each(kind: str, summary: str, entries: Mapping[str, tuple[type, str]]) -> Table:
    """Return a table of classes by name, a line for each."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(kind, no_wrap=True, min_width=max(map(len, entries)))
    table.add_column(summary, no_wrap=True, overflow="ellipsis")
    for name in sorted(entries, key=str.casefold):
        table.add_row(name, escape(entries[name][1]))
    return table


def _as_json(entries: Mapping[str, tuple[type, str]]) -> str:
    """Return classes by name, with their parameters, as JSON."""
    rows = [
        {
            "name": name,
            "summary": text,
            "parameters": {field.name: field.default for field in settable(cls)},
        }
        for name, (cls, text) in sorted(entries.items(), key=lambda entry: entry[0].casefold())
    ]
    return json.dumps(rows, indent=1, default=str)


def settable(cls: type) -> list[dataclasses.Field[Any]]:
    """Return the fields that a study or a name can set; the others are computed from them."""
    return [field for field in dataclasses.fields(cls) if field.default is not None]


def toml(value: object) -> str:
    """Return a default as it is written in a study or in the name of a problem."""
    return json.dumps(value) if isinstance(value, bool) or value == "" else str(value)


def _problems() -> Iterator[Table | str]:
    """Yield a title and a table for each kind of problem, all with the same widths."""
    from jbrl.environments.environment import ENVIRONMENTS
    from jbrl.problems.lookup import problem
    from jbrl.problems.problem import DERIVED, PROBLEMS, DirichletProblem

    settings: dict[str, Mapping[str, object]] = {
        name: {field.name: field.default for field in settable(entry.environment)}
        for name, entry in ENVIRONMENTS.items()
    }
    settings |= {name: entry.parameters for name, entry in PROBLEMS.items()}
    rows = {name: _row(name, values) for name, values in settings.items()}
    finite = [name for name in PROBLEMS if isinstance(problem(name), DirichletProblem)]
    derived = {f"{name}(PROBLEM)": make for name, make in DERIVED.items()}
    for name, make in derived.items():
        paragraph = (make.__doc__ or "").strip().split("\n\n")[0]
        rows[name] = ["", "", "", " ".join(paragraph.split())]
    groups = {
        "Finite MDPs, drawn from a Dirichlet distribution": finite,
        "Environments with the settings of published experiments": [
            name for name in PROBLEMS if name not in finite
        ],
        "Environments with settings of your own ('jbrl list environments' says more)": [
            *ENVIRONMENTS
        ],
        "Made out of another problem": [*derived],
    }
    titles = ["problem", "observation", "actions", "lifetime"]
    columns = zip(titles, *([name, *row[:3]] for name, row in rows.items()), strict=True)
    widths = [max(map(len, column)) for column in columns]
    for title, names in groups.items():
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column, width in zip(titles, widths, strict=True):
            table.add_column(column, no_wrap=True, min_width=width)
        table.add_column("what it is")
        for name in names:
            table.add_row(name, *map(escape, rows[name]))
        yield f"[bold]{title}[/bold]"
        yield table
        yield ""


def _row(name: str, settings: Mapping[str, object]) -> list[str]:
    """Return observation, actions, lifetime, description and settings of a problem; a word where it
    cannot be made, for example without an extra.
    """
    from jbrl.problems.lookup import problem

    try:
        described = problem(name)
    except JbrlError as error:
        return ["", "", "", f"not available: {error}"]
    written = ", ".join(f"{name}={toml(value)}" for name, value in settings.items())
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


def _suites() -> Iterator[str]:
    """Yield the names of each suite that a study accepts."""
    from jbrl.problems.lookup import SUITES

    for suite in SUITES.values():
        named = [group for group in suite.groups if "/" in group or group in ("all", "testing")]
        names = ", ".join(f"{suite.name}/{group}" for group in named)
        example = suite.groups["all"][0]
        yield (f"[bold]{escape(suite.summary)} ('jbrl list problems --suite {suite.name}')[/bold]")
        yield escape(
            f"{suite.name}/EXPERIMENT/INDEX, for example {suite.name}/{example}; in a study also "
            f"{suite.name}/EXPERIMENT, {names}"
        )


def show(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    *,
    json_: bool = False,
    features: bool = False,
    discount: float = 0.95,
) -> None:
    """Show an agent, or a problem: the numbers of finite MDPs, or the settings of an environment.

    Args:
      name: A name of 'jbrl list agents' or 'jbrl list problems', or the path of a JSON file.
      json_: Print it in the file format, to edit and use as a problem of your own.
      features: Print what makes the problem unlike others: sparsity, diameter, gaps, what it is
        worth to know the MDP.
      discount: Of the values among the features.

    Examples:
      jbrl show BEB
      jbrl show GC
      jbrl show 'Grid(rows=3,columns=4)'
      jbrl show GC --json > mine.json
      jbrl show GC --features
      jbrl show 'DeepSea(size=20)'
    """
    from jbrl.agents.registry import AGENTS
    from jbrl.problems.json_format import to_json
    from jbrl.problems.lookup import OTHERS, families, problem
    from jbrl.problems.problem import DirichletProblem, EnvironmentProblem

    if features:
        typer.echo("\n".join(_features(name, discount, json_)))
        return
    if name in AGENTS:
        typer.echo("\n".join(_described_agent(name)))
        return
    if re.fullmatch(r"[\w-]+", name) and name not in families():
        known = families() | {*AGENTS}
        raise JbrlError(f"unknown agent or problem '{name}'{nearest(name, known)}{OTHERS}")
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
    for text in (
        f"{shown.name} ({shown.short_name}): {mdps.n_states} states, {mdps.n_actions} actions",
        shown.description,
        f"Starts in {'a state drawn uniformly' if start < 0 else f'state {start}'}.\n",
        _view("Concentrations", np.asarray(mdps.concentrations)),
        _view("Rewards", np.asarray(mdps.rewards)),
    ):
        typer.echo(text)


# what is printed of each feature, with the attribute's name
FEATURES = {
    "n_states": "states",
    "n_actions": "actions",
    "n_successors": "next states that are possible, on average",
    "prior_weight": "transitions that the prior of a state and action is worth",
    "rare_rewards": "share of possible transitions with another reward than the commonest",
    "reward_spread": "standard deviation of their rewards, as a share of the range",
    "diameter": "steps to the state that is farthest, by the quickest way; inf: there is none",
    "gap": "between the two best actions, as a share of the spread of action values",
    "random": "value of acting at random",
    "mean_model": "value of the policy that is optimal in the mean MDP",
    "clairvoyant": "value where the MDP is known",
    "information": "share of the way from random to clairvoyant that the mean model leaves open",
    "information_error": "its standard error, since MDPs are drawn",
}
# of a problem with a kept bracket
LEFT = ("information_low", "information_high")


def _features(name: str, discount: float, json_: bool) -> list[str]:
    """Return the features of a problem, as lines of text or as JSON, with what the Bayes-optimal
    agent leaves open of the way to knowing the MDP where a bracket is kept.
    """
    from jbrl.problems.features import problem_features
    from jbrl.problems.lookup import problem
    from jbrl.problems.problem import DirichletProblem
    from jbrl.stats import brackets

    found = problem_features(name, discount=discount)
    values, meanings = dataclasses.asdict(found), dict(FEATURES)
    told = problem(name)
    assert isinstance(told, DirichletProblem)  # others have no features
    bracket = brackets.find(name, discount, told.lifetime.steps, told.digest)
    if bracket is not None:
        best = found.clairvoyant if math.isnan(bracket.clairvoyant) else bracket.clairvoyant
        for key, end in zip(LEFT, (bracket.upper, bracket.lower), strict=True):
            values[key] = (best - end) / (best - found.random)
            meanings[key] = (
                f"of that way, that the Bayes-optimal value leaves open if it is {end:.4g}"
            )
    if json_:
        finite = {key: v if math.isfinite(v) else None for key, v in values.items()}
        return [json.dumps(finite, indent=1)]
    return [f"{key:17s}{values[key]:9.4g}  {meaning}" for key, meaning in meanings.items()]


def _described_agent(name: str) -> list[str]:
    """Return what an agent does, its parameters, what it needs and its source, as lines of text."""
    from jbrl.agents.registry import AGENTS
    from jbrl.problems.prior import DirichletPrior
    from jbrl.rollout.contract import OfflineSearch

    entry = AGENTS[name]
    title = "Parameters" if settable(entry.agent) else "No parameters"
    lines = [f"{name}: {entry.summary}", "", title]
    for field in settable(entry.agent):
        values = accepted_values(field, None)
        doc = field.metadata.get("doc", "")
        lines.append(f"  {field.name} = {toml(field.default)}: {doc} ({values})")
    requires = entry.agent.requires
    words = {"Discrete": "states by number", "OneHot": "one-hot states", "Box": "numbers"}
    seen = ", ".join(words[kind.__name__] for kind in requires.observations)
    finite = " and a Dirichlet prior" if requires.prior is DirichletPrior else ""
    needs = f"observations that are {seen}{finite}"
    learns = issubclass(entry.agent, OfflineSearch)
    lines += [
        "",
        f"Needs: {needs}{'; searches offline, on the prior' if learns else ''}.",
        "Cost: 'jbrl run STUDY --out DIR --dry-run' estimates it for a study.",
        *(f"Page: docs/agents/{page.name}" for page in _pages(name)),
    ]
    return [*lines, "", *_cited(name)] if entry.cite else lines


def _pages(name: str) -> list[Path]:
    """Return the page about an agent, where a checkout or a source archive has it."""
    pages = (Path(__file__).parents[2] / "docs" / "agents").glob("*.md")
    own = re.compile(rf"^```{{parameters}} {re.escape(name)}( |$)", re.MULTILINE)
    return [page for page in sorted(pages) if own.search(page.read_text("utf-8"))]


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
        settings = [field for field in settable(type(environment)) if field.name != "environment"]
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
    return "\n".join([*(_sparse if large else _matrices)(title, values), ""])


def _matrices(title: str, values: np.ndarray) -> Iterator[str]:
    """Yield the lines of one matrix per action; of one for all when they are equal."""
    n_states, n_actions, _ = values.shape
    same = bool((values == values[:, :1]).all())
    texts = np.vectorize(lambda v: "." if v == 0 else f"{v:g}")(values)
    width = max(len(str(n_states - 1)), *(len(text) for text in texts.flat))
    yield f"{title}. Row: state, column: next state; . is 0."
    for action in range(1 if same else n_actions):
        yield from ("", "every action" if same else f"action {action}")
        for state, cells in [("", map(str, range(n_states))), *enumerate(texts[:, action])]:
            yield f"{state:>4} | {' '.join(cell.rjust(width) for cell in cells)}"


def _sparse(title: str, values: np.ndarray) -> Iterator[str]:
    """Yield a row per state and a column per action: `next state: value`, without the value where
    it is 1, for all that is not 0.
    """
    heads = [f"action {action}" for action in range(values.shape[1])]
    cells = [
        [
            " ".join(f"{y}" if row[y] == 1 else f"{y}:{row[y]:g}" for y in np.flatnonzero(row))
            for row in rows
        ]
        for rows in values
    ]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    yield (
        f"{title}. Row: state, column: action; in it the next states, each with its value unless "
        "that is 1. All others are 0."
    )
    yield ""
    for state, row in [("", heads), *enumerate(cells)]:
        if any(row):
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            yield f"{state:>4} | {'  '.join(padded)}".rstrip()


def cite(names: Annotated[list[str] | None, typer.Argument(metavar="NAME...")] = None) -> None:
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
        cite = OURSELVES
    elif name in AGENTS:
        cite = AGENTS[name].cite
    elif name in PROBLEMS or name in ENVIRONMENTS or "(" in name:
        cite = problem(name).cite
    else:
        known = {*AGENTS, *PROBLEMS, *ENVIRONMENTS, OURSELVES}
        raise JbrlError(f"nothing to cite is called '{name}'{nearest(name, known)}")
    if not cite:
        raise JbrlError(f"'{name}' names no source")
    if cite.lstrip().startswith("@"):
        return [cite.strip()]
    text = (resources.files("jbrl") / "references.bib").read_text(encoding="utf-8")
    entries = re.split(r"^(?=@)", text, flags=re.MULTILINE)
    by_key = {
        m[1]: entry.strip() for entry in entries if (m := re.match(r"@\w+\{([^,\s]+)", entry))
    }
    return [by_key[key.strip()] for key in cite.split(",")]


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
