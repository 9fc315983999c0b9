"""The common options of `jbrl subset search` and `jbrl subset report`, and their meaning."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbrl.base.errors import JbrlError

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.stats.subset.preparation import Preparation, Prepared
    from jbrl.stats.subset.problem import Search

WHICH, SCORES, FILTERS, FITS = (
    "Which subset",
    "Scores and target",
    "Which algorithms and environments",
    "Fit and criterion",
)


class Normalise(StrEnum):
    """Normalisations that make environments comparable."""

    none = "none"
    references = "references"
    min_max = "min-max"
    z_score = "z-score"


class Transform(StrEnum):
    """Transforms of normalised scores."""

    identity = "identity"
    log10 = "log10"
    rank = "rank"


class Criterion(StrEnum):
    """Criteria that compare subsets."""

    in_sample = "in-sample"
    kfold = "kfold"
    loo = "loo"


class Rows(StrEnum):
    """Algorithms that a subset is fitted on."""

    subset = "subset"
    common = "common"
    impute = "impute"


class Duplicates(StrEnum):
    """Treatments of several different scores of one algorithm in one environment."""

    error = "error"
    first = "first"
    last = "last"
    mean = "mean"


class Preset(StrEnum):
    """Settings of a published selection."""

    atari5 = "atari5"


def _option(help: str, panel: str, *names: str, metavar: str | None = None, **kind: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, **kind)


@dataclasses.dataclass(frozen=True)
class Options:
    """One field for each option; None: the default of the preset."""

    size: Annotated[int, _option("Environments in the subset.", WHICH)] = 5
    pool: Annotated[
        list[str] | None,
        _option("Choose from these only; repeat, or separate by commas.", WHICH, metavar="NAMES"),
    ] = None
    force_in: Annotated[
        list[str] | None, _option("In every subset.", WHICH, "--force-in", metavar="NAMES")
    ] = None
    force_out: Annotated[
        list[str] | None, _option("In no subset.", WHICH, "--force-out", metavar="NAMES")
    ] = None
    top: Annotated[int, _option("Subsets shown after the best one.", WHICH, min=0)] = 10
    limit: Annotated[float, _option("Refuse to search more subsets than this.", WHICH)] = 1e9
    heuristic: Annotated[
        bool,
        _option("Forward selection with swaps: quick, may miss the best.", WHICH, "--heuristic"),
    ] = False
    preset: Annotated[
        Preset | None,
        _option("Settings of a published selection; other options change them.", SCORES),
    ] = None
    columns: Annotated[
        str | None,
        _option(
            "Columns of TABLE that have other names, as environment=game,score=return.",
            SCORES,
            metavar="NAME=COLUMN,…",
        ),
    ] = None
    references: Annotated[
        Path | None,
        _option(
            "Table with columns environment, low, high: scores in per cent of low to high.",
            SCORES,
            metavar="FILE",
        ),
    ] = None
    normalise: Annotated[
        Normalise | None,
        _option("Normalisation of environments (default: references, if given).", SCORES),
    ] = None
    flip: Annotated[
        bool,
        _option("Accept references with high below low: less is better there.", SCORES, "--flip"),
    ] = False
    transform: Annotated[
        Transform | None,
        _option(
            "Transform; log10: log10(1 + max(0, x)); default: log10 with references, or identity.",
            SCORES,
        ),
    ] = None
    target: Annotated[
        str | None,
        _option(
            "median (default), mean, iqm, meanlog, gap, or a column of TABLE.",
            SCORES,
            metavar="SUMMARY|COLUMN",
        ),
    ] = None
    transform_first: Annotated[
        bool,
        _option(
            "Summarise transformed scores, not the other way round.", SCORES, "--transform-first"
        ),
    ] = False
    target_environments: Annotated[
        list[str] | None,
        _option(
            "Summarise these only (default: all).", SCORES, "--target-environments", metavar="NAMES"
        ),
    ] = None
    duplicates: Annotated[
        Duplicates, _option("Treatment of several different scores in one cell.", SCORES)
    ] = Duplicates.error
    min_environments: Annotated[
        int | None,
        _option(
            "Leave out algorithms with scores in fewer environments.", FILTERS, "--min-environments"
        ),
    ] = None
    min_algorithms: Annotated[
        int | None,
        _option(
            "Do not choose environments with scores of fewer algorithms.",
            FILTERS,
            "--min-algorithms",
        ),
    ] = None
    min_target: Annotated[
        float | None,
        _option("Leave out algorithms whose summary is not above this.", FILTERS, "--min-target"),
    ] = None
    until_stable: Annotated[
        bool, _option("Repeat both filters until nothing changes.", FILTERS, "--until-stable")
    ] = False
    rows: Annotated[
        Rows,
        _option(
            "Fit on the algorithms complete in the subset, complete in all, or fill holes with "
            "means.",
            FILTERS,
        ),
    ] = Rows.subset
    min_rows: Annotated[
        int | None,
        _option(
            "Skip subsets with fewer complete algorithms (default: 3 per weight, 20, half of all).",
            FILTERS,
            "--min-rows",
        ),
    ] = None
    criterion: Annotated[Criterion, _option("Mean squared error that compares subsets.", FITS)] = (
        Criterion.kfold
    )
    folds: Annotated[int, _option("Folds of kfold.", FITS)] = 10
    seed: Annotated[int, _option("Seed of the folds.", FITS)] = 1982
    repeats: Annotated[
        int, _option("Repeat kfold with the following seeds, and average.", FITS)
    ] = 1
    groups: Annotated[
        str | None,
        _option(
            "Column of TABLE: algorithms with the same text there are held out together.",
            FITS,
            metavar="COLUMN",
        ),
    ] = None
    pooled: Annotated[
        bool, _option("Mean error of all held-out rows, not mean over folds.", FITS, "--pooled")
    ] = False
    shortlist: Annotated[
        int | None,
        _option(
            "Compare only so many subsets, the best in sample (default: 0, all; 20 in the preset).",
            FITS,
            min=0,
        ),
    ] = None
    intercept: Annotated[bool, _option("Fit an intercept.", FITS, "--intercept")] = False
    non_negative: Annotated[bool, _option("No negative weights.", FITS, "--non-negative")] = False
    chunk: Annotated[int, _option("Subsets between two signs of progress.", FITS, min=1)] = 2**18


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with a parameter `options: Options` as one that has each of the options."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]
    shared = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type
        )
        for f in dataclasses.fields(Options)
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = {f.name: given.pop(f.name) for f in dataclasses.fields(Options)}
        command(**given, options=Options(**chosen))

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def prepared_of(path: Path, options: Options) -> "Prepared":
    """Return the table at `path`, a file or the results of a study, prepared as the options say."""
    from jbrl.cli.subset_tables import read_scores, references_of_results
    from jbrl.stats.score_files import read_companion
    from jbrl.stats.subset.preparation import prepare

    table = read_scores(path, options.columns)
    references = None
    if options.references:
        references = read_companion(options.references, ["environment"], ["low", "high"])
    elif path.is_dir():
        references = references_of_results(path)
        table = (
            table[table["environment"].isin(references["environment"])]
            if references is not None
            else table
        )
    preparation = _preparation(path, options, table, references is not None)
    return prepare(table, preparation, references, name=str(path))


def _preparation(
    path: Path, options: Options, table: "pd.DataFrame", has_references: bool
) -> "Preparation":
    from jbrl.cli.subset_tables import read_column
    from jbrl.stats.subset.preparation import ATARI5, TARGETS, Preparation

    log10 = has_references and not path.is_dir()
    plain = Preparation(
        "references" if has_references else "none", "log10" if log10 else "identity"
    )
    base = ATARI5 if options.preset else plain
    target = options.target
    given = {
        "normalise": options.normalise and options.normalise.value,
        "transform": options.transform and options.transform.value,
        "target": target
        if target is None or target in TARGETS
        else read_column(path, target, options.columns, number=True),
        "target_environments": names_of(options.target_environments, table["environment"]),
        "min_environments": options.min_environments,
        "min_algorithms": options.min_algorithms,
        "min_target": options.min_target,
    }
    flags: dict[str, Any] = {
        "transform_first": options.transform_first,
        "until_stable": options.until_stable,
        "flip": options.flip,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(base, **{**changes, **flags}, duplicates=options.duplicates.value)


def search_of(path: Path, options: Options, prepared: "Prepared") -> "Search":
    """Return the search that the options ask for."""
    from jbrl.cli.subset_tables import read_column
    from jbrl.stats.subset.fit import Folds
    from jbrl.stats.subset.problem import Search

    groups = None
    if options.groups:
        group_of = read_column(path, options.groups, options.columns, number=False)
        groups = tuple(group_of[name] for name in prepared.algorithms)
    lists = {
        name: names_of(getattr(options, name), prepared.environments)
        for name in ("pool", "force_in", "force_out")
    }
    return Search(
        size=options.size,
        criterion=options.criterion.value,
        folds=Folds(options.folds, options.seed, options.repeats, groups, options.pooled),
        shortlist=options.shortlist
        if options.shortlist is not None
        else 20 * (options.preset is not None),
        intercept=options.intercept,
        non_negative=options.non_negative,
        rows=options.rows.value,
        pool=lists["pool"],
        force_in=lists["force_in"] or (),
        force_out=lists["force_out"] or (),
        min_rows=options.min_rows,
        limit=options.limit,
        heuristic=options.heuristic,
        top=options.top,
        chunk=options.chunk,
    )


def names_of(given: list[str] | None, known: Iterable[str]) -> tuple[str, ...] | None:
    """Return names, repeated or separated by commas; a name that contains a comma is one of
    `known`.
    """
    if given is None:
        return None
    whole = set(known)
    names = [part for text in given for part in ([text] if text in whole else text.split(","))]
    if not all(names):
        raise JbrlError(
            f"option with names: {','.join(given)!r}: expected names separated by commas, none of "
            "them empty"
        )
    return tuple(dict.fromkeys(names))
