"""`jbrl evaluate` and `jbrl compare`."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli.options import Format, Quiet
from jbrl.cli.output import complain, duration, print_table, progress_bars
from jbrl.stats.evaluation import EvaluateOptions

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.stats.evaluation.ranking import Evaluation
    from jbrl.stats.evaluation.samples import Samples
    from jbrl.stats.two_studies import Comparison

LONG = 10  # seconds from which on a method's time is printed beforehand
ENOUGH = 10  # scores in each cell, with which intervals by resampling are about as wide as they say


def evaluate(
    tables: Annotated[list[Path], typer.Argument(metavar="TABLE")],
    *,
    options: EvaluateOptions,
    metrics: bool = False,
    table: Literal["aggregate", "environments", "weights", "metrics"] = "aggregate",
    format: Format = "table",
    html: bool = False,
    latex: bool = False,
    out: Path | None = None,
    quiet: Quiet = False,
) -> None:
    """Evaluate a table of scores: which algorithm performs well, and how sure is that?

    A score table has one row per trial, with the columns algorithm, environment,
    score. Scores of different environments are made comparable by ranking
    algorithms against each other, and weighed by a game against an adversary
    (Jordan et al. 2020). Intervals by pbp hold all together; pbp-t and bootstrap
    are narrower and have no guarantee. Before that, a table says what resampling
    does: IQM, mean, and how often a score exceeds one of the first algorithm.

    Args:
      tables: Score tables (CSV, Parquet; long or wide), arrays (JSON, npz), or directories of
        results.
      metrics: Add mean, median, IQM, optimality gap, profiles, probability of improvement.
      table: Table to print, unless as JSON.
      format: Output format; JSON has all tables.
      html: Write a page with all tables and figures.
      latex: Write the tables for a paper.
      out (DIR): Output directory (default: beside the first TABLE).
      quiet: Print no notes about time and about open ranks.

    Examples:
      jbrl evaluate scores.csv
      jbrl evaluate scores.parquet --method all --html --latex --out evaluation
      jbrl evaluate out/quick --format json
      jbrl evaluate my.csv --algorithm-column agent --environment-column task --score-column return
    """
    from jbrl import analysis

    samples = analysis.samples_from(tables, options)
    first = format == "table" and table == "aggregate"
    flat = samples.bounds[:, 0] == samples.bounds[:, 1]
    if first and flat.any():
        first = False
        if not quiet:
            name = samples.environments[int(flat.argmax())]
            text = f"no overview: all scores of environment '{name}' are the same"
            complain(f"{text}: give --bounds, or leave it out with --environments", "note")
    try:
        costs = analysis.costs(samples, options)
    except JbrlError:
        if first:  # which needs no bounds
            _print_overview(samples, options)
        raise
    long = [cost for cost in costs if cost.seconds > LONG]
    if long and first:
        _print_overview(samples, options)
    for cost in () if quiet else long:
        memory = f"{cost.bytes / 1e9:.1f} GB at most"
        complain(f"{cost.method}: about {duration(cost.seconds)}, {memory}", "note")
    if "bootstrap" in options.methods or metrics:
        from jbrl.play.batching import use_all_cores

        use_all_cores()
    with progress_bars() as show:
        evaluation = analysis.evaluate(samples, options, show)
        wanted = metrics or table == "metrics"
        extras = analysis.metrics(samples, options, show) if wanted else {}
    if format == "json":
        known = {name: rows.astype(object) for name, rows in extras.items()}
        more = {n: rows.where(rows.notna(), None).to_dict("records") for n, rows in known.items()}
        typer.echo(json.dumps(evaluation.record() | more, indent=1))
    else:
        if first:
            if not long:
                _print_overview(samples, options)
            _print_heading(options)
        print_table(extras["metrics"] if table == "metrics" else getattr(evaluation, table), format)
    if html or latex:
        from jbrl.report.evaluation import write_evaluation

        out = out or beside(tables[0], "evaluation")
        for path in write_evaluation(evaluation, out, extras=extras, html=html, latex=latex):
            if path.suffix in (".html", ".tex"):
                typer.echo(path, err=True)
    for sentence in () if quiet else _open_ranks(evaluation, options.seed):
        complain(sentence, "note")


def _print_overview(samples: "Samples", options: EvaluateOptions) -> None:
    """Print what resampling says about each algorithm."""
    import pandas as pd

    from jbrl.stats.evaluation.metrics import overview

    level = f"{100 * (1 - options.delta):g}%"
    known = overview(samples, delta=options.delta, seed=options.seed)
    rows: dict[str, list[str]] = {"algorithm": known["algorithm"].to_list()}
    for name in ("iqm", "mean"):
        ends = zip(known[name], known[f"{name}_lower"], known[f"{name}_upper"], strict=True)
        rows[name] = [
            f"{value:.3f}" + ("" if math.isnan(low) else f" ({low:.3f} to {high:.3f})")
            for value, low, high in ends
        ]
    rows[f"above {known['algorithm'][0]}"] = [
        "" if math.isnan(share) else f"{100 * share:.0f}%" for share in known["above_first"]
    ]
    typer.echo(
        f"Scores from 0 to 1 between the bounds of their environment; each interval {level} by "
        f"itself, by resampling{_doubt(samples)}:"
    )
    print_table(pd.DataFrame(rows), "table")


def _doubt(samples: "Samples") -> str:
    """Return what is wrong with resampling few scores."""
    fewest = int(samples.totals.min())
    if fewest >= ENOUGH:
        return ""
    if fewest > 1:
        return f" (too narrow: {fewest} scores in a cell are few)"
    return " (none where a cell has one score)"


def _print_heading(options: EvaluateOptions) -> None:
    level = f"{100 * (1 - options.delta):g}%"
    together = f"; all intervals of pbp {level} together" if "pbp" in options.methods else ""
    typer.echo(f"\nScores of the game of all environments{together}:")


def _open_ranks(evaluation: "Evaluation", seed: int) -> list[str]:
    """Return the explanation where bounds separate no algorithms."""
    rows = evaluation.aggregate[evaluation.aggregate["method"] == "pbp"].set_index("algorithm")
    if rows.empty:
        return []
    from jbrl.stats.evaluation.ranking import separation

    samples = evaluation.samples
    lower, upper = rows.loc[list(samples.algorithms), ["lower", "upper"]].to_numpy().T
    separated = separation(samples, lower, upper, evaluation.settings["delta"], seed)
    return separated.sentences() if separated else []


def beside(path: Path, name: str) -> Path:
    """Return the default place of output: in a directory of results, or beside a file."""
    return path / name if path.is_dir() else path.with_name(f"{path.name.split('.')[0]}-{name}")


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
      source: Results of a study, an archive of them, or its returns.parquet.
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
    from jbrl.stats.published.castronovo2016 import ABSENT
    from jbrl.stats.table import parameters_text

    table = comparison.table
    if "z" in table:  # beside the means of Jordan et al. 2020
        return table.round(3)
    if comparison.candidates is not None:
        table = table[table["verdict"] != ABSENT]  # the note counts them
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
