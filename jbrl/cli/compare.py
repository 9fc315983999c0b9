"""`jbrl compare` and `jbrl archive`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jbrl.cli.tables import Folder, Format, print_table
from jbrl.cli.text import show_warnings

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.stats.two_studies import Comparison

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

    Against the published ones (Castronovo et al. 2016, Figs 9 and 13): a cell is an
    algorithm in an experiment, played with the printed parameters as it is
    described, and as the published program computes it. Two means agree when they
    differ by no more than both half-widths together.

    Against jordan2020 (Jordan et al. 2020): the means of 11 algorithms on 15
    environments with z-scores. DIR may be a score table.

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
    from jbrl.comparison import compare as lay_beside
    from jbrl.report.comparison_page import write_page

    show_warnings()
    found = lay_beside(source, to)
    print_table(_short(found) if format in (Format.table, Format.md) else found.table, format)
    typer.echo(found.note, err=True)
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
    if "z" in table:  # beside the means of Jordan et al. 2020
        return table.round(3)
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
