"""Results on disk: one file for each unit of work, one manifest for the study.

    DIR/study.json            the study as it was last run, its units in order, versions and machine
    DIR/units/ID.npz          result of a unit
    DIR/units/ID.partial.npz  checkpoint of a unit that is not finished
    DIR/knowledge/ID.npz      what an agent has found by searching on a prior; ID.partial.npz
                              as above

A reader, or a run after a crash, sees a whole file or none, and a checksum proves that it is what
was written (`study.storage.files`). Several processes may write into one directory. Directories of
one study are merged by copying `units/*` and `knowledge/*`.
"""

import contextlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlWarning, as_path
from jbrl.base.files import write_whole
from jbrl.play.machine import machine, versions
from jbrl.play.unit import FORMAT, Unit
from jbrl.study.storage import files
from jbrl.study.storage.files import StoreError
from jbrl.study.storage.tables import (
    TRAJECTORY,
    Outcomes,
    Result,
    strategies_of_search,
    strategy_table,
)

METRIC = "metric_"  # prefix of the arrays that a recorder keeps beside the score
FLIGHT = "flight_"  # prefix of the arrays of lifetimes that are not over
# beside the results: how long each unit was expected to take, by the process that planned it
ESTIMATES_FILE = "expected.json"
ARCHIVED = "returns.parquet"  # which archives have, and no directory of results
_READERS = 2  # threads; only parsing is serialised, not reading and checksums
_STALE_SECONDS = 3600.0  # temporary files older than this were left by a killed run


def save_estimates(folder: Path, seconds: Mapping[str, float]) -> None:
    """Write the expected durations of units, by id, beside those that others have written.

    No result depends on it.
    """
    with contextlib.suppress(OSError):
        content = {"seconds": {**saved_estimates(folder), **seconds}}
        write_whole(folder / ESTIMATES_FILE, files.pack_json(content))


def saved_estimates(folder: Path) -> dict[str, float]:
    """Return seconds that units were expected to take, by id, as far as they were written."""
    return dict((files.read_json(folder / ESTIMATES_FILE) or {"seconds": {}})["seconds"])


class ResultWarning(JbrlWarning):
    """A result file is damaged and counts as missing."""


class Store:
    """The results in one directory."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = as_path("out", folder)
        self.units_folder = self.folder / "units"
        self.knowledge_folder = self.folder / "knowledge"
        self._manifest_path = self.folder / MANIFEST
        self._damaged: set[Path] = set()  # files that have been warned of

    # ---- the study ----

    def manifest(self) -> dict[str, Any]:
        """Read the manifest of the study's last run: `study`, `experiments`, `agents`, `units`,
        `versions`, `machine`.

        Raises:
          StoreError: there is none, it is that of an archive, or it cannot be read.
        """
        try:
            return read_manifest(self._manifest_path)
        except FileNotFoundError:
            raise StoreError(
                f"{self.folder}: no results of a study here ('jbrl run STUDY.toml --out "
                f"{self.folder}' makes them)"
            ) from None
        except files.DamagedError as error:
            if (self.folder / ARCHIVED).is_file():
                raise StoreError(
                    f"{self.folder}: an archive of a study, where nothing runs: 'jbrl scores "
                    f"{self.folder}' prints its units"
                ) from None
            raise StoreError(
                f"{self._manifest_path}: damaged ({error}): run the study again, which writes it "
                "anew; results are kept"
            ) from None

    def check(self, settings: dict[str, Any]) -> None:
        """Refuse a directory that holds another study, or an archive.

        A manifest that is damaged counts as missing, with a warning.

        Raises:
          StoreError: names the first setting that differs, and both values.
        """
        try:
            if self.folder.exists() and not self.folder.is_dir():
                raise StoreError(f"{self.folder} is not a directory; choose another --out")
        except OSError as error:  # a name that is too long, or a folder that may not be looked into
            raise StoreError(
                f"{self.folder}: cannot be used: {error.strerror}; choose another --out"
            ) from None
        if (self.folder / ARCHIVED).is_file():
            raise StoreError(
                f"{self.folder}: holds an archive of a study: results need a folder of their own; "
                "choose another --out"
            )
        try:
            before = read_manifest(self._manifest_path)["study"]
        except FileNotFoundError:
            return
        except files.DamagedError as error:
            self._warn(self._manifest_path, error)
            return
        check_same_study(before, settings, self.folder)

    def open(self, tables: dict[str, Any], units: Sequence[Unit]) -> None:
        """Make the directory ready for results and write the manifest.

        Args:
          tables: the tables of the study file; `study` holds the settings. Experiments are listed
            with their rules (`Unit.rules`).

        Raises:
          StoreError: the directory holds another study, or cannot be written.
        """
        self.check(tables["study"])
        content = files.pack_json(manifest_of(tables, units))
        try:
            for folder in (self.units_folder, self.knowledge_folder):
                folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._manifest_path, content)
            self._sweep(self._manifest_path.stat().st_mtime)
        except OSError as error:
            raise self._unwritable(error) from None

    def _sweep(self, now: float) -> None:
        """Remove what killed runs have left.

        `now` is of the file system's clock, which is not that of this machine everywhere.
        """
        for left in (*self.folder.glob(".*.tmp"), *self.folder.glob("*/.*.tmp")):
            with contextlib.suppress(FileNotFoundError):  # another process was about to rename it
                if now - left.stat().st_mtime > _STALE_SECONDS:
                    left.unlink()

    # ---- results ----

    def result(self, id: str, *, arrays: bool = False) -> Result | None:
        """Read a unit's result, done or failed; None when there is none, or when it is damaged
        (with a warning).

        Args:
          arrays: with all that is kept beside the scores: trajectories, metrics.
        """
        return self._load(self._path(id), id, None if arrays else ())

    def results(self, ids: Sequence[str]) -> dict[str, Result]:
        """Read the results of several units, done or failed, in the order of `ids`; those without
        one are left out.

        Damaged files count as missing, with a warning.

        Raises:
          StoreError: a file cannot be read.
        """
        with ThreadPoolExecutor(_READERS) as pool:
            read = list(pool.map(lambda id: _read(self._path(id), id, ()), ids))
        results = {id: self._sound(self._path(id), one) for id, one in zip(ids, read, strict=True)}
        return {id: result for id, result in results.items() if result is not None}

    def checkpoint(self, id: str) -> Result | None:
        """Read the checkpoint of an unfinished unit, with all its arrays; None for none."""
        return self._load(self._path(id, partial=True), id)

    def trajectories(self, id: str) -> dict[str, np.ndarray]:
        """Read recorded trajectories: states [n, T+1] int32, actions [n, T] int32, rewards [n, T]
        float32.

        Raises:
          StoreError: there are none.
        """
        found = self.result(id, arrays=True)
        if not (found and found.recorded):
            raise StoreError(
                f"{self._path(id)}: no trajectories to be read; they are kept when [study] says "
                "record = true"
            )
        return {name: found.arrays[name] for name in TRAJECTORY}

    def metrics(self, id: str) -> dict[str, np.ndarray]:
        """Read the metrics that a unit's recorder kept beside the scores, [n] float64 by name;
        empty where there are none.
        """
        found = self.result(id, arrays=True)
        return files.under(METRIC, found.arrays) if found else {}

    def _path(self, id: str, *, partial: bool = False) -> Path:
        return self.units_folder / f"{id}{'.partial' if partial else ''}.npz"

    def save(
        self,
        unit: Unit,
        header: dict[str, Any],
        returns: np.ndarray,
        arrays: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Write the result of a unit, or a checkpoint when `header["status"]` is "partial".

        Args:
          arrays: trajectories, metrics (`METRIC` and a name), and in a checkpoint lifetimes that
            are not over (`FLIGHT` and a name).

        Raises:
          StoreError: it cannot be written.
        """
        header = {
            **header,
            "id": unit.id,
            "configuration": unit.configuration,
            "seed": unit.protocol.seed,
            "n": len(returns),
        }
        partial = header["status"] == "partial"
        self._write(
            self._path(unit.id, partial=partial),
            header,
            {"returns": np.asarray(returns, np.float64), **(arrays or {})},
        )
        # one that has failed with scores is complete, too
        if not partial and (header["status"] == "done" or len(returns)):
            self._path(unit.id, partial=True).unlink(missing_ok=True)

    # ---- what was learned on priors ----

    def knowledge(self, id: str, *, partial: bool = False) -> Result | None:
        """Read the findings of a search, or its progress when `partial`; None when there is
        nothing, or it is damaged (with a warning).
        """
        return self._load(self.knowledge_path(id, partial=partial), id)

    def save_knowledge(
        self, id: str, header: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> None:
        """Write what a search has found, or how far it has come when `header["status"]`
        is "partial".

        Raises:
          StoreError: it cannot be written.
        """
        partial = header["status"] == "partial"
        self._write(
            self.knowledge_path(id, partial=partial),
            {**header, "id": id},
            {"returns": np.zeros(0), **arrays},
        )
        if not partial:
            self.knowledge_path(id, partial=True).unlink(missing_ok=True)

    def knowledge_path(self, id: str, *, partial: bool = False) -> Path:
        return self.knowledge_folder / f"{id}{'.partial' if partial else ''}.npz"

    # ---- files ----

    def _load(self, path: Path, id: str, names: Collection[str] | None = None) -> Result | None:
        """Read the header, returns and the arrays called `names`, None for all."""
        return self._sound(path, _read(path, id, names))

    def _sound(self, path: Path, found: Result | files.DamagedError | None) -> Result | None:
        """Return what `_read` has found; a damaged file counts as missing, with a warning."""
        if isinstance(found, files.DamagedError):
            self._warn(path, found)
            return None
        return found

    def _warn(self, path: Path, error: Exception) -> None:
        if path not in self._damaged:
            text = (
                f"{path} is damaged ({error}) and counts as missing: running the study again "
                "redoes it"
            )
            warnings.warn(text, ResultWarning, stacklevel=4)
        self._damaged.add(path)

    def _write(self, path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write a file whose header says what made it, and when."""
        made = {
            "format": FORMAT,
            "versions": versions(),
            "machine": machine(),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        # weights hardly get smaller, and a checkpoint is soon replaced
        compress = header["status"] != "partial"
        try:
            write_whole(path, files.pack({**header, **made}, arrays, compress=compress))
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self.folder}: results cannot be written here: {error.strerror}; choose another "
            "--out, or make room"
        )

    # ---- tables ----

    def read(self) -> Outcomes:
        """Read all results as they are now, each file once."""
        listed = self.manifest()["units"]
        return Outcomes(listed, self.results([unit["id"] for unit in listed]))

    def units(self) -> pd.DataFrame:
        """Return one row per unit of the study, in its order: `Outcomes.units`."""
        return self.read().units()

    def returns(self) -> pd.DataFrame:
        """Return one row per environment of each finished unit, in the order of the study:
        `Outcomes.returns`.
        """
        return self.read().returns()

    def strategies(self, most: int | None = None) -> pd.DataFrame:
        """Return one row for each strategy tried by each search on a prior, the most pulled first,
        and for each stretch of each training, the first one first: columns `STRATEGY_COLUMNS`.

        `mean` and `std` are of the returns, one for each of the `pulls`. `consumed` and `simulated`
        are trajectories of the whole search: made use of, and played; `offline_seconds` is its
        wall time.

        Args:
          most: rows of each search; None: all. Trainings have all of theirs.
        """
        parts, seen = [], set()
        for unit in self.manifest()["units"]:
            id = unit.get("knowledge")
            found = self.knowledge(id) if id and id not in seen else None
            if found:
                seen.add(id)
                parts.append(strategies_of_search(unit, found.header, found.arrays, most))
        return strategy_table(parts)


def _read(path: Path, id: str, names: Collection[str] | None) -> Result | files.DamagedError | None:
    """Return the result of unit `id` in a file, with the arrays called `names`, None for all; what
    is wrong with the file, where it is damaged; None for no file.

    Raises:
      StoreError: it cannot be read at present.
    """
    try:
        content = path.read_bytes()
        wanted = None if names is None else ("returns", *names)
        header, arrays, kept = files.unpack(content, wanted)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except files.DamagedError as error:
        return error
    except (OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise StoreError(f"{path}: cannot be read: {reason}") from None
    same = header.get("format") == FORMAT and header.get("id") == id
    if not same or "status" not in header or "returns" not in arrays:
        return files.DamagedError("it is the result of another unit, or of another version of jbrl")
    return Result(header, arrays.pop("returns"), set(TRAJECTORY) <= kept, arrays)


MANIFEST = "study.json"
# settings that distinguish studies
IDENTITY = ("name", "seed", "n_mdps", "horizon", "episodes", "horizon_epsilon", "discount")
# settings with other names in studies than in stored manifests
RENAMED = {"n_mdps": "n_environments"}
FIELDS = ("format", "study", "experiments", "agents", "units", "versions", "machine")


def read_manifest(path: Path) -> dict[str, Any]:
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


def manifest_of(tables: Mapping[str, Any], units: Sequence[Unit]) -> dict[str, Any]:
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
