"""`jbrl subset search`, `jbrl subset predict`, `jbrl subset report`."""

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli.bar import bar
from jbrl.cli.subset_options import Duplicates, Options, prepared_of, search_of, with_options
from jbrl.cli.tables import Format, print_table
from jbrl.cli.text import complain, show_warnings

if TYPE_CHECKING:
    from jbrl.stats.subset.robustness import Choice
    from jbrl.stats.subset.search import Outcome

Table = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help=(
            "Scores: a CSV or Parquet file with columns algorithm, environment, score, or the "
            "--out of 'jbrl run'."
        ),
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no warnings.")]


class Shape(StrEnum):
    """Ways to print what a search found."""

    table = "table"
    json = "json"


app = typer.Typer(
    help=(
        "Which few environments predict the summary score over all of them? Search, predict, "
        "report."
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command("search")
@with_options
def search_command(
    table: Table,
    options: Options,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.json", help="Write the best subset's model, for 'jbrl subset predict'."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="PLAN.toml",
            help="Several searches that build upon each other; replaces --size and the lists.",
        ),
    ] = None,
    ask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES", help="A subset whose place among all is wanted; may be repeated."
        ),
    ] = None,
    format: Annotated[Shape, typer.Option(help="How to print it.")] = Shape.table,
    nested: Annotated[
        int,
        typer.Option(
            help="Parts of the algorithms left out of search and fit in turn (0: none).", min=0
        ),
    ] = 10,
    quiet: Quiet = False,
) -> None:
    """Try every subset of the environments and print those that predict the target best.

    The target is a summary of an algorithm's scores over all environments. Each
    subset is fitted by least squares on the algorithms that have a score in all
    of it, and judged by an error: of 10-fold cross-validation, leave-one-out, or
    in sample. The error of the best of many subsets is too small: the first figure
    is that on algorithms left out of the choice as well, a tenth at a time.

    [bold]Examples[/bold]

    \b
    jbrl subset search scores.csv --size 3 --criterion loo
    jbrl subset search scores.csv --references references.csv --preset atari5 --save atari5.json
    jbrl subset search out/suite --size 5 --target mean --format json
    """
    from jbrl.cli.subset_options import names_of
    from jbrl.stats.subset.model import model_of
    from jbrl.stats.subset.model import save as save_model
    from jbrl.stats.subset.search import search
    from jbrl.stats.subset.study import of_outcome, read_plan, run_plan

    show_warnings()
    steps = read_plan(plan) if plan else None
    if steps and save:
        raise JbrlError("--save: a plan has several models: expected --plan or --save, not both")
    prepared = prepared_of(table, options)
    settings = search_of(table, options, prepared)
    with bar("subsets", quiet=quiet) as progress:
        if steps:
            outcomes = dict(run_plan(prepared, steps, settings, progress))
        else:
            asked = tuple(names_of([text], prepared.environments) or () for text in ask or [])
            outcomes = {"": search(prepared, settings, asked=asked, progress=progress)}
    choice = None if steps else _validated(outcomes[""], nested, quiet=quiet)
    if save:
        save_model(
            model_of(outcomes[""].prepared, outcomes[""].best, intercept=settings.intercept), save
        )
    if format is Shape.json:
        found = {name: of_outcome(outcome, choice) for name, outcome in outcomes.items()}
        whole: Any = (
            {"steps": [{"name": name, **part} for name, part in found.items()]}
            if steps
            else found[""]
        )
        typer.echo(json.dumps(whole, indent=1))
    else:
        parts = [_text(name, outcome, choice) for name, outcome in outcomes.items()]
        typer.echo("\n\n".join(parts))
    for outcome in () if quiet else outcomes.values():
        for warning in outcome.warnings:
            complain(warning, "warning")


def _validated(found: "Outcome", parts: int, *, quiet: bool) -> "Choice | None":
    """Run the nested validation of a search; none where too few algorithms are left for it."""
    from jbrl.stats.subset.robustness import over_algorithms

    if parts < 2:
        return None
    try:
        with bar("nested validation", quiet=quiet) as progress:
            return over_algorithms(found, parts=parts, progress=progress)
    except JbrlError as error:
        if not quiet:
            complain(f"no nested validation: {error}", "note")
        return None


def _text(name: str, found: "Outcome", choice: "Choice | None" = None) -> str:
    """Return the best subset, its quality, and those after it."""
    best, settings, counts = found.best, found.settings, found.counts
    width = max(map(len, (*best.subset, "intercept")))
    lines = [f"{name}: {', '.join(best.subset)}" if name else ", ".join(best.subset), ""]
    lines += [
        f"  {e:<{width}}  {c: .6f}" for e, c in zip(best.subset, best.coefficients, strict=True)
    ]
    lines += [f"  {'intercept':<{width}}  {best.intercept: .6f}"] if settings.intercept else []
    headline = []
    if choice is not None and not math.isnan(choice.honest_r2):
        headline = [
            (
                f"  R² on algorithms left out of the choice: {choice.honest_r2:.3g} (mean squared "
                f"error {choice.honest_mse:.6g}, {choice.honest_n} algorithms, {choice.repeats} "
                "parts)"
            ),
            "  of the chosen subset, too good because it was chosen:",
        ]
    measures = {
        "R²": best.r2,
        "cross-validated R²": best.cv_r2,
        "mean squared error": best.mse,
        "cross-validated": best.cv_mse,
        "leave-one-out": best.loo_mse,
        "Kendall's tau, cross-validated": best.cv_kendall,
    }
    if found.prepared.target_transform.name == "log10":
        measures["relative error, %"] = best.relative_error
    lines += ["", f"  fitted on {best.n} of {len(found.prepared.algorithms)} algorithms"]
    lines += headline
    lines += [
        f"  {label}: {value:.6g}" for label, value in measures.items() if not math.isnan(value)
    ]
    how = (
        "forward selection with swaps, may miss the best"
        if settings.heuristic
        else f"all {counts['total']:,} subsets"
    )
    lines += [
        (
            f"  {how}: {counts['evaluated']:,} evaluated, {counts['skipped']:,} skipped, "
            f"{counts['singular']:,} singular"
        )
    ]
    lines += [f"  place {count + 1:,}: {', '.join(names)}" for names, count in found.better.items()]
    if found.next:
        lines += [
            "",
            (
                f"  next by {settings.criterion} (best: {best.loss:.6g}, {found.margin:.1%} below "
                "the runner-up)"
            ),
        ]
        lines += [
            f"  {place:>4}  {fit.loss:.6g}  n = {fit.n}  {', '.join(fit.subset)}"
            for place, fit in enumerate(found.next, 2)
        ]
    return "\n".join(lines)


@app.command("predict")
def predict_command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="What 'jbrl subset search --save' has written.")
    ],
    scores: Annotated[
        Path,
        typer.Argument(metavar="SCORES", help="Raw scores: columns algorithm, environment, score."),
    ],
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAME=COLUMN,…", help="Columns of SCORES that have other names."),
    ] = None,
    duplicates: Annotated[
        Duplicates, typer.Option(help="Treatment of several scores in one cell.")
    ] = Duplicates.error,
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.table,
) -> None:
    """Estimate the summary score of algorithms that were run on the model's few environments.

    With the estimate come the typical error, the 95% prediction interval of the
    linear model, and the range that the errors of cross-validation span. A warning
    says where scores lie outside of what the model has seen.

    [bold]Example[/bold]

    \b
    jbrl subset predict atari5.json mine.csv
    """
    from jbrl.cli.subset_tables import mapping_of
    from jbrl.stats.score_files import read_score_table
    from jbrl.stats.subset.model import load, predict

    table = read_score_table(scores, columns=mapping_of(columns))
    found = predict(load(model), table, duplicates=duplicates.value)
    shown = (
        found
        if format in (Format.json, Format.csv)
        else found.drop(columns=["transformed", "leverage", "warnings"])
    )
    print_table(shown, format)
    for algorithm, text in zip(found["algorithm"], found["warnings"], strict=True):
        if text:
            complain(f"{algorithm}: {text}", "warning")


@app.command("report")
@with_options
def report_command(
    table: Table,
    options: Options,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Output directory of the page, its tables and the model."
        ),
    ],
    title: Annotated[
        str | None,
        typer.Option(metavar="TITLE", help="Heading of the page (default: the name of the table)."),
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(help="Resamples of the algorithms, for intervals of the weights.", min=100),
    ] = 2000,
    seeds: Annotated[int, typer.Option(help="Other fold seeds to choose by.", min=1)] = 50,
    parts: Annotated[
        int,
        typer.Option(
            help="Parts of the algorithms left out in turn, each with a search of its own.", min=2
        ),
    ] = 10,
    resamples: Annotated[
        int, typer.Option(help="Resamples of the algorithms, each with a search of its own.", min=1)
    ] = 10,
    quiet: Quiet = False,
) -> None:
    """Write an HTML page about the best subset, and how firmly the data choose it.

    [bold]Example[/bold]

    \b
    jbrl subset report scores.csv --references references.csv --preset atari5 --out out/atari5
    """
    from jbrl.report.subset_page import write_report
    from jbrl.stats.subset.study import study

    show_warnings()
    prepared = prepared_of(table, options)
    settings = search_of(table, options, prepared)
    with bar("searches", quiet=quiet) as progress:
        found = study(
            prepared,
            settings,
            bootstrap=bootstrap,
            seeds=seeds,
            parts=parts,
            resamples=resamples,
            progress=progress,
        )
    typer.echo(write_report(found, title or table.stem, out))
    for warning in () if quiet else found.outcome.warnings:
        complain(warning, "warning")
