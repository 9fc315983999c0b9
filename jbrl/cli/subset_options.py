"""Options that `jbrl subset search` and `report` have in common."""

import dataclasses
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jbrl.base.errors import JbrlError, nearest
from jbrl.cli.options import Natural, Positive

if TYPE_CHECKING:
    from jbrl.stats.subset.preparation import Prepared
    from jbrl.stats.subset.problem import Search

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
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise JbrlError(f"{path}: not valid TOML: {error}") from None
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
    given["target_environments"] = names_of(options.target_environments, table["environment"])
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
        given[name] = names_of(given[name], prepared.environments)
    given["folds"] = Folds(options.folds, options.seed, options.repeats, groups, options.pooled)
    if options.shortlist is None and options.preset:
        given["shortlist"] = 20
    return Search(**{name: value for name, value in given.items() if value is not None})


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


def mapping_of(columns: str | None) -> dict[str, str]:
    """Parse `environment=game,score=return` as a mapping."""
    pairs = [text.split("=", 1) for text in columns.split(",")] if columns else []
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise JbrlError(
            f"--columns '{columns}': expected NAME=COLUMN, separated by commas, as "
            "environment=game,score=return"
        )
    return {name.strip(): column.strip() for name, column in pairs}
