"""Lay the results of a study beside the published ones, or beside those of another study."""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from jbrl.analysis import agreement as cells
from jbrl.analysis import published, two_studies
from jbrl.analysis import winners as winners_lists
from jbrl.analysis.agreement import Comparison
from jbrl.analysis.table import AGENT, RETURNS, check_columns
from jbrl.errors import JbrlError
from jbrl.report.terms import rules_of
from jbrl.results import Results

PUBLISHED = "published"
_SHOWN = 5  # agents that only one study has, named in a message


@dataclasses.dataclass(frozen=True)
class Side:
    """What is compared: the results of a study, an archive of them, or a table of returns."""

    name: str
    returns: pd.DataFrame
    units: pd.DataFrame  # experiment, prior, test; agents with their times where they are known
    protocol: dict[str, Any]  # horizon, where all experiments have the same, and discount; empty where they are not known
    rounding: float = 0.0  # what a return may be off, for having been rounded
    lifetimes: dict[str, str] = dataclasses.field(default_factory=dict)  # of experiments, in words; empty where they are not known

    @cached_property
    def played(self) -> pd.DataFrame:
        """`jbrl.analysis.agreement.played`."""
        try:
            return cells.played(self.returns, self.units)
        except JbrlError as error:
            raise JbrlError(f"{self.name}: {error}") from None


def compare(source: str | Path, to: str | Path = PUBLISHED) -> Comparison:
    """Lay `source` beside the published comparison (Castronovo et al. 2016) or beside another study.

    Args:
      source: results of a study, an archive of them, or a CSV or Parquet file of returns, columns `jbrl.analysis.table.RETURNS` with
        prior and test.
      to: "published", or another source.

    Raises:
      JbrlError: there is nothing to read, or the two have nothing in common or were played for another time or under another discount.
    """
    ours = read(source)
    return _with_published(ours) if str(to) == PUBLISHED else _with_study(ours, read(to))


def read(source: str | Path) -> Side:
    """A side of a comparison.

    Raises:
      JbrlError: `source` is neither results of a study nor a file of returns.
    """
    path = Path(source)
    if path.is_file():
        returns = _read_file(path)
        return Side(str(path), returns, returns[list(cells.PAIR)].drop_duplicates(), {})
    results = Results(path)
    settings, decimals = results.manifest["study"], results.manifest.get("decimals")
    known = {name: settings[name] for name in published.PROTOCOL if name in settings}
    lifetimes = {name: rules.lifetime for name, rules in rules_of(results.manifest).items()}
    if any(lifetime != _steps(known.get("horizon")) for lifetime in lifetimes.values()):
        known.pop("horizon", None)
    elif not lifetimes and isinstance(known.get("horizon"), int):
        lifetimes = dict.fromkeys(results.units["experiment"], _steps(known["horizon"]))
    return Side(str(path), results.returns, results.units, known, 0.0 if decimals is None else 0.5 * 10.0**-decimals, lifetimes)


def _steps(horizon: object) -> str:
    """A horizon as the manifest writes a lifetime."""
    return f"{horizon:,} steps" if isinstance(horizon, int) else ""


def _read_file(path: Path) -> pd.DataFrame:
    kinds = {".csv": lambda: pd.read_csv(path, keep_default_na=False), ".parquet": lambda: pd.read_parquet(path)}
    if path.suffix not in kinds:
        raise JbrlError(f"{path}: expected results of a study, or a file of returns that ends in .csv or .parquet")
    try:
        found = kinds[path.suffix]()
    except (OSError, ValueError) as error:
        raise JbrlError(f"{path}: cannot be read: {error}") from None
    check_columns(found, dict.fromkeys((*RETURNS, *cells.PAIR)), str(path))
    return found


def _with_published(ours: Side) -> Comparison:
    them = "the published comparison"
    cells.check_protocol(ours.protocol, published.PROTOCOL, ours.name, them)
    printed = ours.units.loc[ours.units["test"].isin(published.cells()["experiment"]), "experiment"]
    _check_lifetimes(ours, dict.fromkeys(printed, _steps(published.PROTOCOL["horizon"])), them)
    try:
        candidates = cells.with_published(ours.played)
    except JbrlError as error:
        raise JbrlError(f"{ours.name}: {error}") from None
    table = cells.verdicts(candidates)
    winners = None
    if set(cells.TIMES) <= set(ours.played.columns):
        winners = winners_lists.in_words(winners_lists.with_published(ours.played, ours.returns))
    return Comparison(ours.name, "Castronovo et al. 2016", table, _published_note(table), candidates, winners)


def _check_lifetimes(ours: Side, theirs: Mapping[str, str], them: str) -> None:
    """Refuse to compare experiments whose lifetimes differ in length. What is not known is not checked."""
    for name, lifetime in ours.lifetimes.items():
        if name in theirs and theirs[name] != lifetime:
            raise JbrlError(
                f"a lifetime of experiment {name} is {lifetime} in {ours.name} and {theirs[name]} in {them}: "
                "scores of different ones cannot be compared"
            )


def _published_note(table: pd.DataFrame) -> str:
    """How many cells agree, and how."""
    count = cells.counts(table)
    ways = "; ".join(f"{name}: {count[name]}" for name in (*cells.VERDICTS.values(), cells.DIFFERS, cells.ABSENT) if count[name])
    return f"{count['in all']} of {count['cells']} published cells agree in some way ({ways})"


def _with_study(ours: Side, theirs: Side) -> Comparison:
    cells.check_protocol(ours.protocol, theirs.protocol, ours.name, theirs.name)
    _check_lifetimes(ours, theirs.lifetimes, theirs.name)
    rounding = ours.rounding + theirs.rounding
    table = two_studies.beside(ours.played, ours.returns, theirs.played, theirs.returns, rounding=rounding)
    return Comparison(ours.name, theirs.name, table, _study_note(table, ours, theirs))


def _study_note(table: pd.DataFrame, ours: Side, theirs: Side) -> str:
    """How many agents differ, how many would by chance, and which are only in one."""
    count = {name: int((table["verdict"] == name).sum()) for name in dict.fromkeys(table["verdict"])}
    chance = (1 - two_studies.LEVEL) * table["verdict"].isin((two_studies.AGREES, two_studies.DIFFERS)).sum()
    counts_text = "; ".join(f"{name}: {n}" for name, n in count.items())
    parts = [
        f"{len(table)} agents are in both ({counts_text}). By chance {chance:.3g} would differ; with Holm's correction "
        f"{int(table['holm'].sum())} do."
    ]
    for side, only in zip((ours, theirs), two_studies.only_in_one(ours.played, theirs.played), strict=True):
        if len(only):
            first = [f"{e}/{a} {p}" for e, a, p in only[list(AGENT)].head(_SHOWN).itertuples(index=False)]
            parts.append(f"{len(only)} only in {side.name}: {', '.join(first)}{', …' if len(only) > _SHOWN else ''}")
    return "\n".join(parts)
