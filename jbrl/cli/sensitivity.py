"""`jbrl sensitivity`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jbrl.base.errors import JbrlError, nearest
from jbrl.cli.tables import Folder, Format, print_table
from jbrl.cli.text import show_warnings

if TYPE_CHECKING:
    import pandas as pd


class Which(StrEnum):
    """Tables about parameters."""

    shares = "shares"
    curves = "curves"


def sensitivity(
    folder: Folder,
    table: Annotated[
        Which,
        typer.Option(
            help="shares: of the variance that each parameter explains; curves: the mean score of "
            "each group of trials."
        ),
    ] = Which.shares,
    experiment: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this experiment; may be repeated."),
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this algorithm; may be repeated."),
    ] = None,
    groups: Annotated[
        int, typer.Option(min=2, help="Groups of trials by a parameter, at most.")
    ] = 10,
    permutations: Annotated[
        int, typer.Option(min=1, help="Permutations in the test of each parameter.")
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the permutations.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR2", help="Write a page with a figure of each algorithm."),
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.table,
) -> None:
    """Print how the score depends on each parameter that an algorithm draws.

    A parameter is drawn where a study gives a distribution, such as
    learning_rate = { log_uniform = [1e-4, 1e-2] }. Trials with like values of it are
    a group; all other parameters of a group keep their distributions. share is the
    part of the variance of the score that the groups explain, with a 95% interval.

    [bold]Examples[/bold]

    \b
    jbrl sensitivity out/complete
    jbrl sensitivity out/complete --algorithm BEB --table curves --format csv
    jbrl sensitivity out/complete --out out/sensitivity
    """
    from jbrl.stats import sensitivity as statistics

    show_warnings()
    trials, drawn = _trials(folder, experiment or [], algorithm or [])
    curves = statistics.curves(trials, drawn, groups)
    shares = statistics.shares(trials, drawn, groups, permutations=permutations, seed=seed)
    shown = shares if table is Which.shares else curves
    print_table(_readable(shown) if format in (Format.table, Format.md) else shown, format)
    if out is not None:
        from jbrl.report.sensitivity_page import write_page

        typer.echo(write_page(curves, shares, out))


def _trials(
    folder: Path, experiments: list[str], algorithms: list[str]
) -> tuple["pd.DataFrame", list[str]]:
    """Return the trials asked for, and the names of the parameters drawn."""
    from jbrl.results import Results

    results = Results(folder)
    found = results.trials
    for column, names in (("experiment", experiments), ("algorithm", algorithms)):
        known = list(found[column].unique())
        for name in names:
            if name not in known:
                raise JbrlError(
                    f"--{column}: '{name}' draws no parameters here{nearest(name, known)}"
                    if column == "algorithm"
                    else f"--{column}: unknown experiment '{name}'{nearest(name, known)}"
                )
        if names:
            found = found[found[column].isin(names)]
    return found, [name for name in found.columns if name not in results.returns.columns]


def _readable(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return the table without parameters in full, which distinguish settings of one algorithm, and
    without the numbers of failures where there are none.
    """
    settings = table.groupby("algorithm")["parameters"].nunique()
    needless = [] if (settings > 1).any() else ["parameters"]
    return table.drop(columns=needless if table["failed"].any() else [*needless, "failed"])
