"""`jbrl compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jbrl.cli.options import Format
from jbrl.cli.output import print_table

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.stats.two_studies import Comparison

# columns that fit a terminal
TO_PUBLISHED = ["case", "experiment", "algorithm", "printed", "published", "ours", "difference"]
TO_PUBLISHED += ["combined", "apart", "verdict"]
TO_STUDY = ["experiment", "algorithm", "parameters", "ours", "theirs", "difference", "interval"]
TO_STUDY += ["test", "p_value", "verdict"]


def compare(
    source: Annotated[Path, typer.Argument(metavar="DIR")],
    *,
    to: str = "published",
    format: Format = "table",
    html: bool = False,
    out: Path | None = None,
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

    Args:
      source: Results of a study, an archive of them, or a file of returns.
      to (published|jordan2020|DIR2): A published comparison, or another study.
      format: Output format; CSV and JSON have all columns.
      html: Write a page as well, compare.html, and the table as compare.csv.
      out (DIR3): Output directory of the page (default: DIR/report).

    Examples:
      jbrl compare out/paper --to published --html
      jbrl compare out/new --to out/old --format csv > compare.csv
      jbrl compare returns.parquet
      jbrl compare out/jordan --to jordan2020
    """
    from jbrl.comparison import compare as comparison_of
    from jbrl.report.comparison import write_page

    comparison = comparison_of(source, to)
    readable = format in ("table", "md")
    print_table(_short(comparison) if readable else comparison.table, format)
    typer.echo(comparison.note, err=True)
    if html or out:
        folder = out or (source if source.is_dir() else source.parent) / "report"
        typer.echo(write_page(comparison, folder), err=True)


def _short(comparison: "Comparison") -> "pd.DataFrame":
    """Return the columns that fit a terminal, means with their intervals."""
    from jbrl.report.text import decimals_for, score_text
    from jbrl.stats.labels import parameters_text

    table = comparison.table
    if "z" in table:  # beside the means of Jordan et al. 2020
        return table.round(3)
    if comparison.candidates is not None:
        columns = {"ours": ("mean", "ci95"), "published": ("published", "published_ci95")}
        texts = {
            c: [score_text(m, h, 2) for m, h in zip(table[a], table[b], strict=True)]
            for c, (a, b) in columns.items()
        }
        digits = {"difference": 3, "combined": 3, "apart": 1}
        return table.assign(**texts).round(digits)[TO_PUBLISHED]
    ours, theirs = [], []
    for row in table.to_dict("records"):
        decimals = decimals_for([row["ci95"], row["other_ci95"]])
        ours.append(score_text(row["mean"], row["ci95"], decimals))
        theirs.append(score_text(row["other_mean"], row["other_ci95"], decimals))
    table = table.assign(
        ours=ours, theirs=theirs, parameters=table["parameters"].map(parameters_text)
    )
    return table.round({"difference": 4, "interval": 4})[TO_STUDY]
