"""`jbrl scores`, `jbrl returns`, `jbrl report`."""

import json
import math
import textwrap
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbrl.cli.notes import nan_notes
from jbrl.cli.text import complain, show_warnings

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.report.forms import Form
    from jbrl.results import Results

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of results, the --out of 'jbrl run'.")
]


ParameterColumns = Annotated[
    bool,
    typer.Option(
        "--parameter-columns",
        help="One column for each parameter, instead of the column parameters.",
    ),
]
GAP = "  "  # between columns
NARROWEST = 12  # of a column whose text continues on the next line


class Format(StrEnum):
    """Ways to print a table."""

    table = "table"
    csv = "csv"
    json = "json"
    md = "md"


def scores(
    folder: Folder,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.table,
    parameter_columns: ParameterColumns = False,
) -> None:
    """Print one row per unit: mean score, its 95% interval, and the times.

    A score is the discounted return on an MDP; in other environments, it is the
    mean return per episode of a lifetime. Times are wall seconds: offline in all;
    online per decision, amortised over the MDPs or environments played at once;
    latency per decision with a single one; compile for the unit that had to
    compile. Status is done, failed or missing.

    share_low and share_high, where a bracket of the Bayes-optimal value is kept:
    the least and the greatest part of it that the mean can be; empty for agents
    that are shown the MDP.

    [bold]Examples[/bold]

    \b
    jbrl scores out/quick
    jbrl scores out/quick --format csv > scores.csv
    jbrl scores out/quick --parameter-columns --format csv > wide.csv
    """
    from jbrl.results import Results
    from jbrl.stats.brackets import of_experiments, with_digests, with_shares
    from jbrl.stats.labels import oracles_of

    show_warnings()
    results = Results(folder)
    table = _with_rules(results) if format in (Format.table, Format.md) else results.scores
    brackets = of_experiments(with_digests(results.manifest, results.units))
    table = with_shares(table, brackets, oracles_of(results.manifest))
    print_table(_in_columns(table) if parameter_columns else table, format)
    for unit in results.units.query("status == 'failed'").itertuples():
        complain(
            f"{unit.experiment}/{unit.algorithm} {unit.parameters} seed {unit.seed}: {unit.reason}",
            "failed",
        )
    for text in nan_notes(results):
        complain(text, "note")


def _in_columns(table: "pd.DataFrame") -> "pd.DataFrame":
    from jbrl.stats.table import parameter_columns

    return parameter_columns(table)


def _with_rules(results: "Results") -> "pd.DataFrame":
    """Return the scores with their criterion and the length of lifetimes, where some are no
    discounted returns; without priors that carry no information.
    """
    from jbrl.report.terms import MDPS, Rules, rules_of

    table, known = results.scores, rules_of(results.manifest)
    if all(rules.terms is MDPS for rules in known.values()):
        return table
    rules = [known.get(name, Rules()) for name in table["experiment"]]
    for place, column in enumerate(("criterion", "lifetime"), table.columns.get_loc("n")):
        table = table.assign(**{column: [getattr(one, column) for one in rules]})
        table.insert(place, column, table.pop(column))
    return table.drop(columns="prior") if (table["prior"] == table["test"]).all() else table


def returns(
    folder: Folder,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.csv,
    parameter_columns: ParameterColumns = False,
) -> None:
    """Print the score table: one row per MDP or environment of each finished unit.

    With the same seed, the same number in column unit is the same environment for
    every agent of an experiment.

    [bold]Example[/bold]

    \b
    jbrl returns out/quick --format csv > returns.csv
    """
    from jbrl.results import Results

    show_warnings()
    table = Results(folder).returns
    print_table(_in_columns(table) if parameter_columns else table, format)


def strategies(
    folder: Folder,
    top: Annotated[
        int,
        typer.Option(
            min=1,
            help="Strategies of each search, the most pulled first; of each training, stretches "
            "in order, evenly spaced up to the last.",
        ),
    ] = 5,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.table,
) -> None:
    """Print what agents that search offline have tried, and how often.

    One search serves all experiments with the same prior. Consumed and simulated
    are trajectories of the whole search: made use of, and played. A training has a
    row for each stretch of it, up to 50.

    [bold]Examples[/bold]

    \b
    jbrl strategies out/quick
    jbrl strategies out/quick --top 10000 --format csv > strategies.csv
    """
    from jbrl.results import Results
    from jbrl.stats.table import few

    show_warnings()
    found = Results(folder).strategies
    if found.empty:
        complain(f"{folder}: no agent of this study has searched", "note")
    print_table(few(found, top), format)


def report(
    folder: Folder,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR2", help="Output directory (default: DIR/report)."),
    ] = None,
    html: Annotated[
        bool,
        typer.Option(
            "--html",
            help="One page, with tables as CSV and Markdown beside it: what is written by default.",
        ),
    ] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="LaTeX source with figures as PDF, in DIR2/latex.")
    ] = False,
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="One Markdown page with figures as SVG, in DIR2/markdown."),
    ] = False,
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


def print_table(table: "pd.DataFrame", format: Format, width: int | None = None) -> None:
    """Print a table to standard output.

    Args:
      width: columns of the terminal that an aligned table may take; longer texts continue on the
        next line. Default: no limit.
    """
    if format is Format.csv:
        typer.echo(table.to_csv(index=False, lineterminator="\n"), nl=False)
    elif format is Format.json:
        rows = [
            {name: _plain(value) for name, value in row.items()} for row in table.to_dict("records")
        ]
        typer.echo(json.dumps(rows, indent=1))
    elif format is Format.md:
        typer.echo("\n".join(_markdown(table)))
    else:
        typer.echo("\n".join(_aligned(table, width)))


def _plain(value: Any) -> Any:
    """Return `value` for JSON, which has no NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _markdown(table: "pd.DataFrame") -> list[str]:
    rows = [
        [_number(value).replace("|", "\\|") for value in row]
        for row in table.itertuples(index=False)
    ]
    return [
        f"| {' | '.join(row)} |"
        for row in [list(table.columns), ["---"] * len(table.columns), *rows]
    ]


def _number(value: Any) -> str:
    """Return six significant digits; nothing for what is not known."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return "" if value is None else str(value)


def _aligned(table: "pd.DataFrame", limit: int | None = None) -> list[str]:
    """Return the lines of a table: numbers to the right, times with their unit, columns as wide as
    they need for any width of the terminal, or folded to `limit`.
    """
    from pandas.api.types import is_numeric_dtype

    texts = [_texts(name, table[name]) for name in table.columns]
    widths = [max(map(len, column)) for column in texts]
    left = [
        not (str(name).endswith("_seconds") or is_numeric_dtype(table[name]))
        for name in table.columns
    ]
    if limit is not None:
        widths = _narrowed(widths, left, limit)
    lines = []
    for row in zip(*texts, strict=True):
        cells = [textwrap.wrap(t, w) or [""] for t, w in zip(row, widths, strict=True)]
        for k in range(max(map(len, cells))):
            parts = [
                text.ljust(w) if is_left else text.rjust(w)
                for cell, w, is_left in zip(cells, widths, left, strict=True)
                for text in [cell[k] if k < len(cell) else ""]
            ]
            lines.append(GAP.join(parts).rstrip())
    return lines


def _texts(name: str, values: "pd.Series") -> list[str]:
    """Return the name of a column and its values, as they are printed."""
    from jbrl.report.text import ABSENT, seconds_text

    texts = [
        seconds_text(v)
        if str(name).endswith("_seconds")
        else f"{v:.4g}"
        if isinstance(v, float)
        else str(v)
        for v in values
    ]
    return [str(name), *(ABSENT if text in ("nan", "None") else text for text in texts)]


def _narrowed(widths: list[int], left: list[bool], limit: int) -> list[int]:
    """Return widths of columns, the widest columns of text narrowed until a line takes `limit`."""
    widths = list(widths)
    text = [k for k, is_left in enumerate(left) if is_left]
    while sum(widths) + len(GAP) * (len(widths) - 1) > limit and text:
        widest = max(text, key=lambda k: widths[k])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths
