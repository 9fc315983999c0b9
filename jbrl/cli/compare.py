"""`jbrl compare` and `jbrl archive`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli.jordan import Table, compare_with_jordan2020
from jbrl.cli.tables import Folder, Format, print_table
from jbrl.cli.text import show_warnings

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.stats.agreement import Comparison

SHORT = {  # columns of the tables on a terminal
    "published": (
        "case",
        "experiment",
        "algorithm",
        "printed",
        "published",
        "ours",
        "difference",
        "combined",
        "apart",
        "verdict",
    ),
    "study": (
        "experiment",
        "algorithm",
        "parameters",
        "ours",
        "theirs",
        "difference",
        "interval",
        "test",
        "p_value",
        "verdict",
    ),
}


def compare(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Results of a study, an archive of them, or a file of returns."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="published|jordan2020|DIR2", help="A published comparison, or another study."
        ),
    ] = "published",
    table: Annotated[
        Table | None,
        typer.Option(help="To jordan2020: which table to print (default: cells and aggregate)."),
    ] = None,
    resamples: Annotated[
        int, typer.Option(help="To jordan2020: resamples of the bootstrap; 0: without it.", min=0)
    ] = 10_000,
    format: Annotated[
        Format, typer.Option(help="Output format; CSV and JSON have all columns.")
    ] = Format.table,
    html: Annotated[
        bool,
        typer.Option(
            "--html", help="Write a page as well, compare.html, and the table as compare.csv."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR3", help="Output directory of the page (default: DIR/report)."
        ),
    ] = None,
) -> None:
    """Compare scores with the published ones, or with those of another study.

    Against the published ones (Castronovo et al. 2016, Figs 9 and 13, and the
    winners from left to right in Figs 8 and 12): a cell is an algorithm in an
    experiment, played with the printed parameters as it is described, and as the
    published program computes it. Two means agree when they differ by no more than
    both half-widths together; how many are within 1.96 combined standard errors, and
    how many would be by chance, is printed too.

    Against jordan2020 (Jordan et al. 2020): the means of 11 algorithms on 15
    environments with z-scores, and the aggregate scores; --table moves has the
    ranking with other deltas, fewer trials, and without each environment. DIR may
    be a score table.

    Against another study: agents with the same parameters in the same experiment, by a paired test
    where the MDPs or environments are the same (by the digest of their distribution, its seed and
    number), else by that of Welch. Experiments of episodes can only be compared with another study.

    [bold]Examples[/bold]

    \b
    jbrl compare out/paper --to published --html
    jbrl compare out/new --to out/old --format csv > compare.csv
    jbrl compare returns.parquet
    jbrl compare out/jordan --to jordan2020
    """
    from jbrl.comparison import JORDAN2020
    from jbrl.comparison import compare as lay_beside
    from jbrl.report.comparison_page import write_page

    show_warnings()
    if to == JORDAN2020:
        compare_with_jordan2020(source, table, format, resamples, out, html=html)
        return
    if table is not None:
        raise JbrlError(f"--table {table.value}: expected --to jordan2020 beside it")
    found = lay_beside(source, to)
    print_table(_short(found) if format in (Format.table, Format.md) else found.table, format)
    for text in (found.note, *_winners(found)):
        typer.echo(text, err=True)
    if html or out:
        typer.echo(
            write_page(found, out or (source if source.is_dir() else source.parent) / "report"),
            err=True,
        )


def archive(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", metavar="DIR2", help="Output directory.")],
    decimals: Annotated[
        int | None,
        typer.Option(min=0, help="Digits after the point of each return (default: all)."),
    ] = None,
) -> None:
    """Write the scores of a study as three small files, to be kept or handed on.

    study.json, units.parquet and returns.parquet: what jbrl scores, returns,
    report and compare read like the directory itself. Trajectories stay behind.

    [bold]Example[/bold]

    \b
    jbrl archive out/paper --out kept/paper --decimals 3
    """
    from jbrl.results import Results

    show_warnings()
    for path in Results(folder).archive(out, decimals=decimals):
        typer.echo(path)


def _short(found: "Comparison") -> "pd.DataFrame":
    """Return the columns that fit a terminal, means with their intervals."""
    from jbrl.report.text import decimals_for, parameters_text, score_text

    table = found.table
    if found.candidates is not None:
        columns = {"ours": ("mean", "ci95"), "published": ("published", "published_ci95")}
        texts = {
            c: [score_text(m, h, 2) for m, h in zip(table[a], table[b], strict=True)]
            for c, (a, b) in columns.items()
        }
        return table.assign(**texts).round({"difference": 3, "combined": 3, "apart": 1})[
            list(SHORT["published"])
        ]
    ours, theirs = [], []
    for row in table.to_dict("records"):
        decimals = decimals_for([row["ci95"], row["other_ci95"]])
        ours.append(score_text(row["mean"], row["ci95"], decimals))
        theirs.append(score_text(row["other_mean"], row["other_ci95"], decimals))
    settings = [parameters_text(p) for p in table["parameters"]]
    return table.assign(ours=ours, theirs=theirs, parameters=settings).round(
        {"difference": 4, "interval": 4}
    )[list(SHORT["study"])]


def _winners(found: "Comparison") -> list[str]:
    """Return the winners from left to right, as lines of text."""
    if found.winners is None:
        return []
    lines = [
        "",
        "who wins as the bound on online time is loosened, offline time less than OPPS-DS needs:",
    ]
    for (case, experiment), lists in found.winners.groupby(["case", "experiment"], sort=False):
        lines.append(f"{experiment}, {case} prior")
        lines += [
            f"  {source + ':':13} {winners}"
            for source, winners in zip(lists["source"], lists["winners"], strict=True)
        ]
    return lines
