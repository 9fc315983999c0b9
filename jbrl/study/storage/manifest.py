"""The manifest of a study: the tables of its file, its units in order, versions and machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jbrl.play.machine import machine, versions
from jbrl.play.unit import FORMAT, Unit
from jbrl.study.storage import files
from jbrl.study.storage.files import StoreError

NAME = "study.json"
# settings that distinguish studies
IDENTITY = ("name", "seed", "n_mdps", "horizon", "episodes", "horizon_epsilon", "discount")
# settings with other names in studies than in stored manifests
RENAMED = {"n_mdps": "n_environments"}
FIELDS = ("format", "study", "experiments", "agents", "units", "versions", "machine")


def read(path: Path) -> dict[str, Any]:
    """Read the manifest in a file.

    Raises:
      FileNotFoundError: there is none.
      DamagedError: it is not what was written, or not complete.
      StoreError: it cannot be read, or is of another format.
    """
    try:
        found = files.unpack_json(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.parent.is_file():
            raise StoreError(_not_a_directory(path.parent)) from None
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from None
    if found.get("format", FORMAT) != FORMAT:
        raise StoreError(
            f"{path}: format {found['format']!r}: this version of jbrl reads format {FORMAT}"
        )
    if not set(FIELDS) <= set(found):
        raise files.DamagedError("it is not complete")
    return found


def content(tables: Mapping[str, Any], units: Sequence[Unit]) -> dict[str, Any]:
    """Return the manifest of a study that is run here and now.

    Args:
      tables: the tables of the study file; `study` holds the settings. Experiments are listed with
        their rules (`Unit.rules`).
    """
    listed = [
        {
            "id": unit.id,
            "label": unit.label,
            **unit.row(),
            "oracle": unit.is_oracle,
            "knowledge": unit.knowledge_id,
        }
        for unit in units
    ]
    rules = {unit.experiment: unit.rules for unit in units}
    experiments = [table | rules.get(table["name"], {}) for table in tables["experiments"]]
    return {
        "format": FORMAT,
        **tables,
        "experiments": experiments,
        "units": listed,
        "versions": versions(),
        "machine": machine(),
    }


def check_same_study(before: Mapping[str, Any], settings: Mapping[str, Any], folder: Path) -> None:
    """Refuse settings that are of another study than those of the manifest in `folder`.

    Raises:
      StoreError: names the first setting that differs, and both values.
    """
    for field in IDENTITY:
        # one may have no lifetimes of that kind
        if field in before and field in settings and before[field] != settings[field]:
            raise StoreError(
                f"{folder} holds the results of another study: "
                f"{RENAMED.get(field, field)} is {before.get(field)!r} there and "
                f"{settings.get(field)!r} in this one; choose another --out"
            )


def _not_a_directory(path: Path) -> str:
    table = path.suffix in (".csv", ".parquet")
    return f"{path} is a file: expected a directory of results, the --out of 'jbrl run'" + (
        f"; 'jbrl evaluate {path}' reads score tables" if table else ""
    )
