"""Nested plans: several searches, each of which may build upon the subsets found before.

Atari-5 → 3 → 1 is one.

[[steps]]
name = "Atari-5"
size = 5
force_out = ["surround"]

[[steps]]
name = "Atari-3"
size = 3
pool = ["Atari-5"]          # a name of an earlier step stands for its subset
"""

import dataclasses
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jbrl.base.errors import JbrlError, nearest
from jbrl.stats.subset.exhaustive import Progress
from jbrl.stats.subset.preparation import Prepared
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.search import Outcome, search

LISTS = ("pool", "force_in", "force_out")
FIELDS: dict[str, type] = {
    **dict.fromkeys(("size", "shortlist", "min_rows", "top"), int),
    "criterion": str,
    **dict.fromkeys(("intercept", "non_negative"), bool),
    **dict.fromkeys(LISTS, list),
}


@dataclasses.dataclass(frozen=True)
class Step:
    """One search of a plan: fields of `Search` that differ from the settings of all, and names of
    earlier steps in its lists.
    """

    name: str
    fields: dict[str, Any]


def read_plan(path: str | Path) -> list[Step]:
    """Read the steps of a TOML file.

    Raises:
      JbrlError: the file cannot be read, or a step has no name, an unknown field or a value of the
        wrong kind.
    """
    try:
        steps = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("steps")
    except OSError as error:
        raise JbrlError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise JbrlError(f"{path}: not valid TOML: {error}") from None
    if (
        not isinstance(steps, list)
        or not steps
        or not all(isinstance(step, dict) for step in steps)
    ):
        raise JbrlError(f"{path}: expected one table [[steps]] for each search")
    return [_step(fields, f"{path}: [[steps]] {number}") for number, fields in enumerate(steps, 1)]


def _step(fields: dict[str, Any], where: str) -> Step:
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise JbrlError(f"{where}: name = {name!r}: expected a text")
    for field, value in fields.items():
        if field == "name":
            continue
        if field not in FIELDS:
            raise JbrlError(f"{where}: unknown field '{field}'{nearest(field, FIELDS)}")
        kind = FIELDS[field]
        names = isinstance(value, list) and all(isinstance(v, str) for v in value)
        if type(value) is not kind or (kind is list and not names):
            raise JbrlError(
                f"{where}: {field} = {value!r}: expected "
                f"{'a list of names' if kind is list else kind.__name__}"
            )
    return Step(
        name, {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items() if k != "name"}
    )


def run_plan(
    prepared: Prepared, steps: list[Step], settings: Search, progress: Progress | None = None
) -> Iterator[tuple[str, Outcome]]:
    """Run the searches of a plan, one after the other: name and outcome.

    Raises:
      JbrlError: see `search`; the step is named.
    """
    known: dict[str, tuple[str, ...]] = {}
    for step in steps:
        lists = {
            field: _resolved(step.fields[field], known) for field in LISTS if field in step.fields
        }
        try:
            found = search(
                prepared,
                dataclasses.replace(settings, **{**step.fields, **lists}),
                progress=progress,
            )
        except JbrlError as error:
            raise JbrlError(f"step '{step.name}': {error}") from None
        known[step.name] = found.best.subset
        yield step.name, found


def _resolved(names: tuple[str, ...], known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for given in names for name in known.get(given, (given,))))
