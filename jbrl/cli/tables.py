"""`jbrl scores`, `jbrl returns`, `jbrl report`."""

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbrl.cli.text import complain, show_warnings

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.report.forms import Form
    from jbrl.results import Results

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of results, the --out of 'jbrl run'.")]


class Format(StrEnum):
    """Ways to print a table."""

    table = "table"
    csv = "csv"
    json = "json"
    md = "md"


def scores(folder: Folder, format: Annotated[Format, typer.Option(help="How to print them.")] = Format.table) -> None:
    """Print one row per unit: mean score, its 95% interval, and the times.

    A score is the discounted return on an MDP; in other environments, it is the
    mean return per episode of a lifetime. Times are wall seconds: offline in all;
    online per decision, amortised over the MDPs or environments played at once;
    latency per decision with a single one; compile for the unit that had to
    compile. Status is done, failed or missing.

    [bold]Examples[/bold]

    \b
    jbrl scores out/quick
    jbrl scores out/quick --format csv > scores.csv
    """
    from jbrl.results import Results

    show_warnings()
    results = Results(folder)
    print_table(_with_rules(results) if format in (Format.table, Format.md) else results.scores, format)
    for unit in results.units.query("status == 'failed'").itertuples():
        complain(f"{unit.experiment}/{unit.algorithm} {unit.parameters} seed {unit.seed}: {unit.reason}", "failed")


def _with_rules(results: "Results") -> "pd.DataFrame":
    """The scores with what they are and how long lifetimes are, where some are no discounted returns; without priors that say nothing."""
    from jbrl.report.terms import MDPS, Rules, rules_of

    table, known = results.scores, rules_of(results.manifest)
    if all(rules.terms is MDPS for rules in known.values()):
        return table
    rules = [known.get(name, Rules()) for name in table["experiment"]]
    for place, column in enumerate(("criterion", "lifetime"), table.columns.get_loc("n")):
        table = table.assign(**{column: [getattr(one, column) for one in rules]})
        table.insert(place, column, table.pop(column))
    return table.drop(columns="prior") if (table["prior"] == table["test"]).all() else table


def returns(folder: Folder, format: Annotated[Format, typer.Option(help="How to print them.")] = Format.csv) -> None:
    """Print the score table: one row per MDP or environment of each finished unit.

    With the same seed, the same number in column unit is the same environment for
    every agent of an experiment.

    [bold]Example[/bold]

    \b
    jbrl returns out/quick --format csv > returns.csv
    """
    from jbrl.results import Results

    show_warnings()
    print_table(Results(folder).returns, format)


def strategies(
    folder: Folder,
    top: Annotated[int, typer.Option(min=1, help="Strategies of each search, the most pulled first.")] = 5,
    format: Annotated[Format, typer.Option(help="How to print them.")] = Format.table,
) -> None:
    """Print what agents that search offline have tried, and how often.

    One search serves all experiments with the same prior. Consumed and simulated
    are trajectories of the whole search: made use of, and played.

    [bold]Examples[/bold]

    \b
    jbrl strategies out/quick
    jbrl strategies out/quick --top 10000 --format csv > strategies.csv
    """
    from jbrl.results import Results

    show_warnings()
    found = Results(folder).strategies
    if found.empty:
        complain(f"{folder}: no agent of this study has searched", "note")
    print_table(found.groupby(["prior", "algorithm", "parameters", "seed"], sort=False).head(top), format)


def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR2", help="Where to write it (default: DIR/report).")] = None,
    html: Annotated[
        bool, typer.Option("--html", help="One page, with tables as CSV and Markdown beside it: what is written by default.")
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="LaTeX source with figures as PDF, in DIR2/latex.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="One Markdown page with figures as SVG, in DIR2/markdown.")] = False,
) -> None:
    """Write the report of a study, in one form or several, and print the path of each.

    [bold]Examples[/bold]

    \b
    jbrl report out/quick
    jbrl report out/quick --html --latex
    """
    from jbrl.results import Results

    show_warnings()
    results = Results(folder)
    wanted: dict[Form, bool] = {"html": html, "latex": latex, "markdown": markdown}
    for form in wanted:
        if wanted[form] or (form == "html" and not any(wanted.values())):
            typer.echo(results.report(out, form))


def print_table(table: "pd.DataFrame", format: Format) -> None:
    """Print a table to standard output."""
    if format is Format.csv:
        typer.echo(table.to_csv(index=False, lineterminator="\n"), nl=False)
    elif format is Format.json:
        rows = [{name: _plain(value) for name, value in row.items()} for row in table.to_dict("records")]
        typer.echo(json.dumps(rows, indent=1))
    elif format is Format.md:
        typer.echo("\n".join(_markdown(table)))
    else:
        typer.echo("\n".join(_aligned(table)))


def _plain(value: Any) -> Any:
    """`value` for JSON, which has no NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _markdown(table: "pd.DataFrame") -> list[str]:
    rows = [[_number(value).replace("|", "\\|") for value in row] for row in table.itertuples(index=False)]
    return [f"| {' | '.join(row)} |" for row in [list(table.columns), ["---"] * len(table.columns), *rows]]


def _number(value: Any) -> str:
    """Six significant digits; nothing for what is not known."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return "" if value is None else str(value)


def _aligned(table: "pd.DataFrame") -> list[str]:
    """Columns as wide as they need, however narrow the terminal: numbers to the right, times with their unit."""
    from pandas.api.types import is_numeric_dtype

    from jbrl.report.text import ABSENT, seconds_text

    columns = []
    for name in table.columns:
        texts = [seconds_text(v) if name.endswith("_seconds") else f"{v:.4g}" if isinstance(v, float) else str(v) for v in table[name]]
        texts = [ABSENT if text in ("nan", "None") else text for text in texts]
        width = max(map(len, [name, *texts]))
        left = not (name.endswith("_seconds") or is_numeric_dtype(table[name]))
        columns.append([text.ljust(width) if left else text.rjust(width) for text in [name, *texts]])
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
