"""`jbrl compare DIR --to jordan2020`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from jbrl.cli.tables import Format, print_table
from jbrl.cli.text import complain, duration

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.stats.evaluation.ranking import Evaluation
    from jbrl.stats.evaluation.samples import Samples

LONG = 10  # seconds from which on the time of a method is printed beforehand
DIGITS = {"cells": 3, "aggregate": 4, "moves": 4}  # on a terminal


class Table(StrEnum):
    """Tables of the comparison."""

    cells = "cells"
    aggregate = "aggregate"
    moves = "moves"


def compare_with_jordan2020(
    source: Path,
    table: Table | None,
    format: Format,
    resamples: int,
    out: Path | None,
    *,
    html: bool,
) -> None:
    """Print the tables of the comparison, and write them with a page where that is asked for.

    Args:
      table: which to print; None: cells and aggregate (CSV: cells; JSON: both as one object).
      resamples: of the bootstrap; 0: without it.
      out: where to write; default: beside the source.
    """
    from jbrl.comparison import jordan2020_scores
    from jbrl.stats import reproduction

    scores = jordan2020_scores(source)
    cells, samples = reproduction.compare_cells(scores), reproduction.shared_samples(scores)
    writes = html or out is not None
    found: dict[str, pd.DataFrame] = {"cells": cells}
    evaluation = None
    if samples is not None and (writes or table in (None, Table.aggregate)):
        evaluation = _evaluated(samples, resamples)
        found["aggregate"] = reproduction.compare_aggregate(evaluation)
    if table is Table.moves or (writes and samples is not None):
        found["moves"] = reproduction.moves(scores)
    _print(found, table, format)
    typer.echo(reproduction.in_words(cells, samples), err=True)
    if writes:
        for path in _write(found, evaluation, out or _beside(source), html=html):
            typer.echo(path, err=True)


def _evaluated(samples: "Samples", resamples: int) -> "Evaluation":
    from jbrl.cli.progress import Steps
    from jbrl.stats.evaluation.ranking import Options, evaluate
    from jbrl.stats.evaluation.samples import effort

    methods = ("pbp", "pbp-t", *(("bootstrap",) if resamples else ()))
    for cost in effort(*samples.shape, int(samples.totals.sum()), methods, resamples):
        if cost.seconds > LONG:
            complain(f"{cost.method}: about {duration(cost.seconds)}", "note")
    if resamples:
        from jbrl.play.batching import use_all_cores

        use_all_cores()
    with Steps() as steps:
        return evaluate(samples, methods, Options(resamples=resamples or 1), steps.tell)


def _print(found: "dict[str, pd.DataFrame]", table: Table | None, format: Format) -> None:
    if format is Format.json and table is None:
        typer.echo(
            json.dumps({name: json.loads(t.to_json(orient="records")) for name, t in found.items()})
        )
        return
    if table is not None:
        names = [table.value]
    else:
        names = ["cells"] if format is Format.csv else ["cells", "aggregate"]
    shown = [name for name in names if name in found]
    for name in shown:
        if name != shown[0]:
            typer.echo()
        exact = format in (Format.csv, Format.json)
        print_table(found[name] if exact else found[name].round(DIGITS[name]), format)


def _beside(source: Path) -> Path:
    """Return the default place of output: in a directory of results, or beside a file."""
    return source / "jordan2020" if source.is_dir() else source.with_name(f"{source.stem}-jordan")


def _write(
    found: "dict[str, pd.DataFrame]", evaluation: "Evaluation | None", out: Path, *, html: bool
) -> list[Path]:
    """Write the tables as CSV, and the page of the evaluation; return the paths."""
    from jbrl.report.evaluation_page import write_evaluation
    from jbrl.report.files import writing

    with writing(out, "the comparison") as folder:
        for name, rows in found.items():
            rows.to_csv(folder / f"{name}.csv", index=False)
    paths = [out / f"{name}.csv" for name in found]
    if evaluation is not None:
        pages = write_evaluation(evaluation, out / "evaluation", html=html, latex=False)
        paths += [path for path in pages if path.suffix == ".html"]
    return paths
