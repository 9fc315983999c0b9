"""Comparison of the results of a study with the published ones, or with those of another study."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, as_path, located
from jbrl.base.schema import RETURNS
from jbrl.results import Results
from jbrl.stats import two_studies
from jbrl.stats.brackets import digests_of_tests
from jbrl.stats.published import castronovo2016, jordan2020
from jbrl.stats.score_files import read_score_table
from jbrl.stats.table import check_columns, lifetimes_of
from jbrl.stats.two_studies import PAIR, Comparison
from jbrl.study.storage.archive import UNIT

PUBLISHED = "published"
WITH_END = "with_end("  # of a problem whose lifetimes have further episodes that do not count
_DIGITS = 8  # of a digest in a message
_SHOWN = 5  # agents that only one study has, named in a message


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of a comparison: results of a study, an archive of them, or a table of returns."""

    name: str
    returns: pd.DataFrame
    units: pd.DataFrame  # experiment, prior, test; agents with their times where they are known
    # horizon, where all experiments have the same, and discount; empty where they are not known
    protocol: dict[str, Any]
    rounding: float = 0.0  # what a return may be off, for having been rounded
    # of experiments, in words; empty where they are not known
    lifetimes: dict[str, str] = dataclasses.field(default_factory=dict)

    def digests(self, which: str) -> dict[str, str | None]:
        """Return the digest of the "prior" or "test" distribution of each experiment, None where it
        is not known.
        """
        column = f"{which}_digest"
        if column not in self.units.columns:
            return {}
        known = self.units.dropna(subset=[column]).drop_duplicates("experiment")
        return dict(zip(known["experiment"], known[column], strict=True))

    @cached_property
    def played(self) -> pd.DataFrame:
        """`two_studies.played`."""
        with located(self.name):
            return two_studies.played(self.returns, self.units)


def compare(source: str | Path, to: str | Path = PUBLISHED) -> Comparison:
    """Compare `source` with published results or with another study.

    Args:
      source: results of a study, an archive of them, or a CSV or Parquet file of returns, columns
        `jbrl.base.schema.RETURNS` with prior and test; beside "jordan2020" any score table.
      to: "published" (Castronovo et al. 2016), "jordan2020" (Jordan et al. 2020), or another
        source.

    Raises:
      JbrlError: there is nothing to read, or the two have nothing in common or were played for
        another time or under another discount.
    """
    known: dict[str, Callable[[str | Path], Comparison]] = {
        PUBLISHED: with_castronovo2016,
        "jordan2020": with_jordan2020,
    }
    return known[str(to)](source) if str(to) in known else _with_study(read(source), read(to))


def read(source: str | Path) -> Side:
    """Read a side of a comparison.

    Raises:
      JbrlError: `source` is neither results of a study nor a file of returns.
    """
    path = as_path("results", source)
    if path.is_file():
        returns = _read_file(path)
        return Side(str(path), returns, returns[list(PAIR)].drop_duplicates(), {})
    results = Results(path)
    settings, decimals = results.manifest["study"], results.manifest.get("decimals")
    known = {name: settings[name] for name in castronovo2016.PROTOCOL if name in settings}
    lifetimes = lifetimes_of(results.manifest)
    if any(lifetime != _steps(known.get("horizon")) for lifetime in lifetimes.values()):
        known.pop("horizon", None)
    elif not lifetimes and isinstance(known.get("horizon"), int):
        lifetimes = dict.fromkeys(results.units["experiment"], _steps(known["horizon"]))
    rounding = 0.0 if decimals is None else 0.5 * 10.0**-decimals
    return Side(str(path), results.returns, results.units, known, rounding, lifetimes)


def with_jordan2020(source: str | Path) -> Comparison:
    """Compare scores of the algorithms and environments of Jordan et al. 2020 with the published
    means.

    Args:
      source: results of a study, an archive of them, or a score table with the columns algorithm,
        environment, score.

    Raises:
      JbrlError: see `jordan2020_scores`.
    """
    cells = jordan2020.compare_cells(jordan2020_scores(source))
    return Comparison(str(source), "Jordan et al. 2020", cells, jordan2020.in_words(cells))


def jordan2020_scores(source: str | Path) -> pd.DataFrame:
    """Return the scores of the algorithms and environments of Jordan et al. 2020, under jbrl's
    names.

    Args:
      source: results of a study, an archive of them, or a score table with the columns algorithm,
        environment, score.

    Returns:
      Columns algorithm, environment, score, one row per trial; and `jordan2020.UNDEFINED` where
      the results have counts of NaN, as a directory of them does.

    Raises:
      JbrlError: there is nothing to read, no row belongs to the comparison, a lifetime has another
        number of episodes than the published one, or an algorithm was played with several settings.
    """
    path = Path(source)
    table = read_score_table(path) if path.is_file() else _trials(Results(path))
    with located(str(path)):
        return jordan2020.known(table)


def environments(results: Results) -> dict[str, str]:
    """Return the environment of each experiment of a study: the name of its problem, without
    `with_end`.
    """
    tests = zip(results.units["experiment"], results.units["test"], strict=True)
    return {
        name: test[len(WITH_END) :].removesuffix(")") if test.startswith(WITH_END) else test
        for name, test in tests
    }


def _trials(results: Results) -> pd.DataFrame:
    """Return the scores of a study with the problems of its experiments as environments."""
    folder, returns = results.store.folder, results.returns
    lifetimes, problems = lifetimes_of(results.manifest), environments(results)
    tests = dict(zip(results.units["experiment"], results.units["test"], strict=True))
    published = {k: v for k, v in problems.items() if v in jordan2020.PROBLEMS.values()}
    for name, problem in published.items():
        further = 0 if tests[name] == problem else jordan2020.END
        wanted = f"{jordan2020.episodes(problem) + further:,} episodes"
        if lifetimes[name] != wanted:
            raise JbrlError(
                f"{folder}: a lifetime of experiment {name} is {lifetimes[name]}, and "
                f"{wanted} in the published comparison: scores of different ones cannot be compared"
            )
    settings = returns.groupby(["experiment", "algorithm"], sort=False)["parameters"].nunique()
    for (experiment, algorithm), count in settings[settings > 1].items():
        if algorithm in jordan2020.ALGORITHMS.values():
            raise JbrlError(
                f"{folder}: {count} settings of {algorithm} in experiment {experiment}: expected "
                "one, since the published comparison has one"
            )
    table = returns.assign(environment=returns["experiment"].map(problems), **_undefined(results))
    return table.drop(columns=["experiment", "parameters", "unit", "seed"])


def _undefined(results: Results) -> dict[str, np.ndarray]:
    """Return for each trial whether its agent has counted NaN, 1 or 0, and NaN where it does not
    count; nothing where no trial is known to be one or the other.
    """
    returns, undefined = results.returns, np.full(len(results.returns), np.nan)
    for unit in results.manifest["units"]:
        mine = np.logical_and.reduce([returns[name] == unit[name] for name in UNIT])
        counted = results.undefined(unit["id"]) if mine.any() else None
        if counted is not None:
            undefined[mine] = counted[returns.loc[mine, "unit"]]
    return {} if np.isnan(undefined).all() else {jordan2020.UNDEFINED: undefined}


def _steps(horizon: object) -> str:
    """Return a horizon as the manifest writes a lifetime."""
    return f"{horizon:,} steps" if isinstance(horizon, int) else ""


def _read_file(path: Path) -> pd.DataFrame:
    if path.suffix not in (".csv", ".parquet"):
        raise JbrlError(
            f"{path}: expected results of a study, or a file of returns that ends in .csv or "
            ".parquet"
        )
    try:
        is_csv = path.suffix == ".csv"
        returns = pd.read_csv(path, keep_default_na=False) if is_csv else pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise JbrlError(f"{path}: cannot be read: {error}") from None
    check_columns(returns, dict.fromkeys((*RETURNS, *PAIR)), str(path))
    return returns


def with_castronovo2016(source: str | Path) -> Comparison:
    """Compare results with the 48 published cells of Castronovo et al. 2016.

    Raises:
      JbrlError: see `compare`.
    """
    ours, them = read(source), "the published comparison"
    two_studies.check_protocol(ours.protocol, castronovo2016.PROTOCOL, ours.name, them)
    known = castronovo2016.cells()["experiment"]
    printed = ours.units.loc[ours.units["test"].isin(known), "experiment"]
    lifetime = _steps(castronovo2016.PROTOCOL["horizon"])
    _check_lifetimes(ours, dict.fromkeys(printed, lifetime), them)
    with located(ours.name):
        candidates = castronovo2016.with_published(ours.played)
    table, digests = castronovo2016.verdicts(candidates), digests_of_tests(ours.units)
    words = castronovo2016.in_words(table)
    return Comparison(ours.name, "Castronovo et al. 2016", table, words, candidates, digests)


def _check_lifetimes(ours: Side, theirs: Mapping[str, str], them: str) -> None:
    """Refuse to compare experiments whose lifetimes differ in length.

    What is not known is not checked.
    """
    for name, lifetime in ours.lifetimes.items():
        if name in theirs and theirs[name] != lifetime:
            raise JbrlError(
                f"a lifetime of experiment {name} is {lifetime} in {ours.name} and "
                f"{theirs[name]} in {them}: scores of different ones cannot be compared"
            )


def _with_study(ours: Side, theirs: Side) -> Comparison:
    two_studies.check_protocol(ours.protocol, theirs.protocol, ours.name, theirs.name)
    _check_lifetimes(ours, theirs.lifetimes, theirs.name)
    table = two_studies.beside(
        ours.played,
        ours.returns,
        theirs.played,
        theirs.returns,
        rounding=ours.rounding + theirs.rounding,
        problems=two_studies.same_problems(ours.digests("test"), theirs.digests("test")),
    )
    notes = [_study_note(table, ours, theirs), *_problem_notes(table, ours, theirs)]
    return Comparison(ours.name, theirs.name, table, "\n".join(notes))


def _problem_notes(table: pd.DataFrame, ours: Side, theirs: Side) -> Iterator[str]:
    """Explain why MDPs cannot be paired, and for which experiments this is not known."""
    differing = table.loc[table["problem"] == two_studies.OTHER, "experiment"]
    for name in dict.fromkeys(differing):
        pair = [str(side.digests("test")[name])[:_DIGITS] for side in (ours, theirs)]
        yield (
            f"Experiment {name}: its test problem has the same name in both and is not the same "
            f"(digest {pair[0]}… in {ours.name}, {pair[1]}… in {theirs.name}): MDPs cannot be "
            "paired, and scores are of different problems"
        )
    priors = two_studies.same_problems(ours.digests("prior"), theirs.digests("prior"))
    for name in dict.fromkeys(table["experiment"]):
        if priors.get(name) == two_studies.OTHER and name not in set(differing):
            yield f"Experiment {name}: its prior has the same name in both and is not the same"
    unknown = table[(table["problem"] == two_studies.UNKNOWN) & (table["test"] == "paired")]
    if len(unknown):
        names = ", ".join(dict.fromkeys(unknown["experiment"]))
        yield (
            f"Experiments {names}: MDPs are paired by seed and number alone, since one side does "
            "not say which distribution they were drawn from"
        )


def _study_note(table: pd.DataFrame, ours: Side, theirs: Side) -> str:
    """Count the agents that differ, those expected to differ by chance, and those in only one
    study.
    """
    counts = table.groupby("verdict", sort=False).size()
    tested = counts.reindex([two_studies.AGREES, two_studies.DIFFERS], fill_value=0).sum()
    counts_text = "; ".join(f"{name}: {n}" for name, n in counts.items())
    parts = [
        f"{len(table)} agents are in both ({counts_text}). By chance "
        f"{(1 - two_studies.LEVEL) * tested:.3g} would differ; with Holm's correction "
        f"{int(table['holm'].sum())} do."
    ]
    lone = two_studies.only_in_one(ours.played, theirs.played)
    for side, only in zip((ours, theirs), lone, strict=True):
        if len(only):
            first = only.head(_SHOWN)
            names = first["experiment"] + "/" + first["algorithm"] + " " + first["parameters"]
            more = ", …" if len(only) > _SHOWN else ""
            parts.append(f"{len(only)} only in {side.name}: {', '.join(names)}{more}")
    return "\n".join(parts)
