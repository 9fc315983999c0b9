"""`jbrl subset search`, `jbrl subset predict`, `jbrl subset report`."""

import dataclasses
import json
import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jbrl.base.errors import JbrlError, nearest
from jbrl.base.files import read_toml
from jbrl.cli.options import Format, Natural, Positive, Quiet
from jbrl.cli.output import complain, print_table, progress_bars

if TYPE_CHECKING:
    from jbrl.stats.subset.preparation import Prepared
    from jbrl.stats.subset.problem import Search
    from jbrl.stats.subset.robustness import Choice
    from jbrl.stats.subset.search import Outcome

Duplicates = Literal["error", "first", "last", "mean"]
ATARI5 = "atari5"
Names = Annotated[list[str], typer.Option(metavar="NAMES")]


def _read_preset(context: typer.Context, preset: str | None) -> str | None:
    """Take the options of a file for those that are not given; return the published preset.

    Raises:
      JbrlError: there is no such preset, or the file has something else than options.
    """
    if preset in (None, ATARI5):
        return preset
    path = Path(str(preset))
    if path.suffix != ".toml":
        raise JbrlError(f"--preset '{preset}': expected {ATARI5} or a TOML file")
    table = read_toml(path)
    names = {field.name for field in dataclasses.fields(Options)}
    for name in table:
        if name not in names:
            raise JbrlError(f"{path}: unknown option '{name}'{nearest(name, names)}")
    if table.get("preset", ATARI5) != ATARI5:
        raise JbrlError(f"{path}: preset = {table['preset']!r}: expected {ATARI5!r}")
    context.default_map = table
    return table.get("preset")


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of a search; None: the default of the preset.

    Which subset:
      size: Environments in the subset.
      pool: Choose from these only; repeat, or separate by commas.
      force_in: In every subset.
      force_out: In no subset.
      top: Subsets shown after the best one.
      limit: Refuse to search more subsets than this.
      heuristic: Forward selection with swaps: quick, may miss the best.

    Scores and target:
      preset (atari5|FILE.toml): Settings of a published selection, or of a file with lines such as
        min_rows = 20; other options change them.
      columns (NAME=COLUMN,…): Columns of TABLE that have other names, as
        environment=game,score=return.
      references (FILE): Table with columns environment, low, high: scores in per cent of low to
        high.
      normalise: Normalisation of environments (default: references, if given).
      flip: Accept references with high below low: less is better there.
      transform: Transform; log10: log10(1 + max(0, x)); default: log10 with references, or
        identity.
      target (SUMMARY|COLUMN): median (default), mean, iqm, meanlog, gap, or a column of TABLE.
      transform_first: Summarise transformed scores, not the other way round.
      target_environments: Summarise these only (default: all).
      duplicates: Treatment of several different scores in one cell.

    Which algorithms and environments:
      min_environments: Leave out algorithms with scores in fewer environments.
      min_algorithms: Do not choose environments with scores of fewer algorithms.
      min_target: Leave out algorithms whose summary is not above this.
      until_stable: Repeat both filters until nothing changes.
      rows: Fit on the algorithms complete in the subset, complete in all, or fill holes with means.
      min_rows: Skip subsets with fewer complete algorithms (default: 3 per weight, 20, half of
        all).

    Fit and criterion:
      criterion: Mean squared error that compares subsets.
      folds: Folds of kfold.
      seed: Seed of the folds.
      repeats: Repeat kfold with the following seeds, and average.
      groups (COLUMN): Column of TABLE: algorithms with the same text there are held out together.
      pooled: Mean error of all held-out rows, not mean over folds.
      shortlist: Compare only so many subsets, the best in sample (default: 0, all; 20 in the
        preset).
      intercept: Fit an intercept.
      non_negative: No negative weights.
      chunk: Subsets between two signs of progress.
    """

    size: int = 5
    pool: Names | None = None
    force_in: Names | None = None
    force_out: Names | None = None
    top: Natural = 10
    limit: float = 1e9
    heuristic: bool = False
    preset: Annotated[str | None, typer.Option(is_eager=True, callback=_read_preset)] = None
    columns: str | None = None
    references: Path | None = None
    normalise: Literal["none", "references", "min-max", "z-score"] | None = None
    flip: bool = False
    transform: Literal["identity", "log10", "rank"] | None = None
    target: str | None = None
    transform_first: bool = False
    target_environments: Names | None = None
    duplicates: Duplicates = "error"
    min_environments: int | None = None
    min_algorithms: int | None = None
    min_target: float | None = None
    until_stable: bool = False
    rows: Literal["subset", "common", "impute"] = "subset"
    min_rows: int | None = None
    criterion: Literal["in-sample", "kfold", "loo"] = "kfold"
    folds: int = 10
    seed: int = 1982
    repeats: int = 1
    groups: str | None = None
    pooled: bool = False
    shortlist: Natural | None = None
    intercept: bool = False
    non_negative: bool = False
    chunk: Positive = 2**18


def prepare(path: Path, options: Options) -> "Prepared":
    """Return the table at `path`, a file or the results of a study, prepared as the options say."""
    from jbrl import analysis
    from jbrl.stats.subset import preparation

    columns = mapping_of(options.columns)
    table, references = analysis.subset_table(path, columns, options.references)
    names = {field.name for field in dataclasses.fields(preparation.Preparation)}
    given = {name: value for name, value in vars(options).items() if name in names}
    given["target_environments"] = _names(options.target_environments, table["environment"])
    if options.target is not None and options.target not in preparation.TARGETS:
        given["target"] = analysis.column_of(path, options.target, columns, number=True)
    plain = analysis.preparation_of(path, references)
    settings = dataclasses.replace(
        preparation.ATARI5 if options.preset else plain,
        **{name: value for name, value in given.items() if value is not None},
    )
    return preparation.prepare(table, settings, references, name=str(path))


def search_settings(path: Path, options: Options, prepared: "Prepared") -> "Search":
    """Return the search that the options ask for."""
    from jbrl.analysis import column_of
    from jbrl.stats.subset.fit import Folds
    from jbrl.stats.subset.problem import Search

    groups = None
    if options.groups:
        columns = mapping_of(options.columns)
        group_of = column_of(path, options.groups, columns, number=False)
        groups = tuple(group_of[name] for name in prepared.algorithms)
    names = {field.name for field in dataclasses.fields(Search)}
    given = {name: value for name, value in vars(options).items() if name in names}
    for name in ("pool", "force_in", "force_out"):
        given[name] = _names(given[name], prepared.environments)
    given["folds"] = Folds(options.folds, options.seed, options.repeats, groups, options.pooled)
    if options.shortlist is None and options.preset:
        given["shortlist"] = 20
    return Search(**{name: value for name, value in given.items() if value is not None})


def _names(given: list[str] | None, known: Iterable[str]) -> tuple[str, ...] | None:
    from jbrl.stats.score_table import names_of

    if given is None:
        return None
    whole = set(known)
    if not all(text in whole or all(text.split(",")) for text in given):
        raise JbrlError(
            f"option with names: {','.join(given)!r}: expected names separated by commas, none of "
            "them empty"
        )
    return names_of(given, whole)


def mapping_of(columns: str | None) -> dict[str, str]:
    """Parse `environment=game,score=return` as a mapping."""
    pairs = [text.split("=", 1) for text in columns.split(",")] if columns else []
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise JbrlError(
            f"--columns '{columns}': expected NAME=COLUMN, separated by commas, as "
            "environment=game,score=return"
        )
    return {name.strip(): column.strip() for name, column in pairs}


HELP = "Which few environments predict the summary score over all of them? Search, predict, report."
Table = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help="Scores: a CSV or Parquet file with columns algorithm, environment, score, or the "
        "--out of 'jbrl run'.",
    ),
]


def search(
    table: Table,
    *,
    options: Options,
    save: Path | None = None,
    plan: Path | None = None,
    ask: list[str] | None = None,
    format: Literal["table", "json"] = "table",
    nested: Natural = 10,
    quiet: Quiet = False,
) -> None:
    """Try every subset of the environments and print those that predict the target best.

    The target is a summary of an algorithm's scores over all environments. Each
    subset is fitted by least squares on the algorithms that have a score in all
    of it, and judged by an error: of 10-fold cross-validation, leave-one-out, or
    in sample. The error of the best of many subsets is too small: the first figure
    is that on algorithms left out of the choice as well, a tenth at a time.

    Args:
      save (MODEL.json): Write the best subset's model, for 'jbrl subset predict'.
      plan (PLAN.toml): Several searches that build upon each other; replaces --size and the lists.
      ask (NAMES): A subset whose place among all is wanted; may be repeated.
      format: How to print it.
      nested: Parts of the algorithms left out of search and fit in turn (0: none).
      quiet: No progress bar, no warnings.

    Examples:
      jbrl subset search scores.csv --size 3 --criterion loo
      jbrl subset search scores.csv --references references.csv --preset atari5 --save atari5.json
      jbrl subset search out/suite --size 5 --target mean --format json
    """
    from jbrl.stats.subset import model, study
    from jbrl.stats.subset.search import search as search_subsets

    steps = study.read_plan(plan) if plan else None
    if steps and save:
        raise JbrlError("--save: a plan has several models: expected --plan or --save, not both")
    if steps and ask:
        raise JbrlError("--ask: a plan has several searches: expected --plan or --ask, not both")
    prepared = prepare(table, options)
    settings = search_settings(table, options, prepared)
    choice = None
    with progress_bars(quiet=quiet) as show:
        progress = partial(show, "subsets")
        if steps:
            outcomes = dict(study.run_plan(prepared, steps, settings, progress))
        else:
            asked = tuple(_names([text], prepared.environments) or () for text in ask or [])
            outcomes = {"": search_subsets(prepared, settings, asked=asked, progress=progress)}
    if not steps:
        choice = _validated(outcomes[""], nested, quiet=quiet)
    if format == "json":
        records = [
            ({"name": name} if steps else {}) | study.of_outcome(outcome, choice)
            for name, outcome in outcomes.items()
        ]
        typer.echo(json.dumps({"steps": records} if steps else records[0], indent=1))
    else:
        typer.echo("\n\n".join(_text(name, one, choice) for name, one in outcomes.items()))
    if save:
        best = outcomes[""]
        model.save(model.model_of(best.prepared, best.best, intercept=settings.intercept), save)
    for outcome in () if quiet else outcomes.values():
        for warning in outcome.warnings:
            complain(warning, "warning")


def _validated(outcome: "Outcome", parts: int, *, quiet: bool) -> "Choice | None":
    """Run the nested validation of a search; none where too few algorithms are left for it."""
    from jbrl.stats.subset.robustness import over_algorithms

    if parts < 2:
        return None
    try:
        with progress_bars(quiet=quiet) as show:
            progress = partial(show, "nested validation")
            return over_algorithms(outcome, parts=parts, progress=progress)
    except JbrlError as error:
        if not quiet:
            complain(f"no nested validation: {error}", "note")
        return None


def _text(name: str, outcome: "Outcome", choice: "Choice | None" = None) -> str:
    """Return the best subset, its quality, and those after it."""
    best, settings, counts = outcome.best, outcome.settings, outcome.counts
    width = max(map(len, (*best.subset, "intercept")))
    lines = [f"{name}: {', '.join(best.subset)}" if name else ", ".join(best.subset), ""]
    lines += [
        f"  {e:<{width}}  {c: .6f}" for e, c in zip(best.subset, best.coefficients, strict=True)
    ]
    lines += [f"  {'intercept':<{width}}  {best.intercept: .6f}"] if settings.intercept else []
    measures = {
        "R²": best.r2,
        "cross-validated R²": best.cv_r2,
        "mean squared error": best.mse,
        "cross-validated": best.cv_mse,
        "leave-one-out": best.loo_mse,
        "Kendall's tau, cross-validated": best.cv_kendall,
    }
    if outcome.prepared.target_transform.name == "log10":
        measures["relative error, %"] = best.relative_error
    lines += ["", f"  fitted on {best.n} of {len(outcome.prepared.algorithms)} algorithms"]
    if choice is not None and not math.isnan(choice.honest_r2):
        lines += [
            f"  R² on algorithms left out of the choice: {choice.honest_r2:.3g} (mean squared "
            f"error {choice.honest_mse:.6g}, {choice.honest_n} algorithms, {choice.repeats} parts)",
            "  of the chosen subset, too good because it was chosen:",
        ]
    lines += [
        f"  {label}: {value:.6g}" for label, value in measures.items() if not math.isnan(value)
    ]
    how = (
        "forward selection with swaps, may miss the best"
        if settings.heuristic
        else f"all {counts['total']:,} subsets"
    )
    lines.append(
        f"  {how}: {counts['evaluated']:,} evaluated, {counts['skipped']:,} skipped, "
        f"{counts['singular']:,} singular"
    )
    lines += [f"  place {n + 1:,}: {', '.join(names)}" for names, n in outcome.better.items()]
    if outcome.next:
        ahead = f"best: {best.loss:.6g}, {outcome.margin:.1%} below the runner-up"
        lines += ["", f"  next by {settings.criterion} ({ahead})"]
        lines += [
            f"  {place:>4}  {fit.loss:.6g}  n = {fit.n}  {', '.join(fit.subset)}"
            for place, fit in enumerate(outcome.next, 2)
        ]
    return "\n".join(lines)


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL")],
    scores: Annotated[Path, typer.Argument(metavar="SCORES")],
    *,
    columns: str | None = None,
    duplicates: Duplicates = "error",
    format: Format = "table",
) -> None:
    """Estimate the summary score of algorithms that were run on the model's few environments.

    With the estimate come the typical error, the 95% prediction interval of the
    linear model, and the range that the errors of cross-validation span. A warning
    says where scores lie outside of what the model has seen.

    Args:
      model: What 'jbrl subset search --save' has written.
      scores: Raw scores: columns algorithm, environment, score.
      columns (NAME=COLUMN,…): Columns of SCORES that have other names.
      duplicates: Treatment of several scores in one cell.
      format: How to print it.

    Example:
      jbrl subset predict atari5.json mine.csv
    """
    from jbrl.stats.score_files import read_score_table
    from jbrl.stats.subset import model as models

    table = read_score_table(scores, columns=mapping_of(columns))
    rows = models.predict(models.load(model), table, duplicates=duplicates)
    exact = format in ("json", "csv")
    print_table(
        rows if exact else rows.drop(columns=["transformed", "leverage", "warnings"]), format
    )
    for algorithm, text in zip(rows["algorithm"], rows["warnings"], strict=True):
        if text:
            complain(f"{algorithm}: {text}", "warning")


def report(
    table: Table,
    *,
    options: Options,
    out: Path,
    title: str | None = None,
    bootstrap: Annotated[int, typer.Option(min=100)] = 2000,
    seeds: Positive = 50,
    parts: Annotated[int, typer.Option(min=2)] = 10,
    resamples: Positive = 10,
    quiet: Quiet = False,
) -> None:
    """Write an HTML page about the best subset, and how firmly the data choose it.

    Args:
      out (DIR): Output directory of the page, its tables and the model.
      title (TITLE): Heading of the page (default: the name of the table).
      bootstrap: Resamples of the algorithms, for intervals of the weights.
      seeds: Other fold seeds to choose by.
      parts: Parts of the algorithms left out in turn, each with a search of its own.
      resamples: Resamples of the algorithms, each with a search of its own.
      quiet: No progress bar, no warnings.

    Example:
      jbrl subset report scores.csv --references references.csv --preset atari5 --out out/atari5
    """
    from jbrl.report.subset import write_report
    from jbrl.stats.subset.study import study

    prepared = prepare(table, options)
    settings = search_settings(table, options, prepared)
    with progress_bars(quiet=quiet) as show:
        studied = study(
            prepared,
            settings,
            bootstrap=bootstrap,
            seeds=seeds,
            parts=parts,
            resamples=resamples,
            progress=partial(show, "searches"),
        )
    typer.echo(write_report(studied, title or table.stem, out))
    for warning in () if quiet else studied.outcome.warnings:
        complain(warning, "warning")
