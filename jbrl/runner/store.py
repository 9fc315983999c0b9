"""Results on disk: one file for each unit of work, one manifest for the study.

    DIR/study.json            the study as it was last run, its units in order, versions and machine
    DIR/units/ID.npz          result of a unit
    DIR/units/ID.partial.npz  checkpoint of a unit that is not finished
    DIR/knowledge/ID.npz      what an agent has found by searching on a prior; ID.partial.npz as above

Files are written beside their place and renamed into it, so that a reader, or a run that comes after a crash, sees a whole
file or none. Several processes may write into one directory. Directories of one study are merged by copying `units/*` and
`knowledge/*`.
"""

import dataclasses
import hashlib
import io
import json
import os
import time
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.errors import JbrlError
from jbrl.runner.machine import machine, versions
from jbrl.runner.unit import FORMAT, Unit, canonical

TRAJECTORY = ("states", "actions", "rewards")
IDENTITY = ("name", "seed", "n_mdps", "horizon", "horizon_epsilon", "discount")  # settings that make it another study
UNIT_COLUMNS = (
    *("experiment", "prior", "test", "algorithm", "parameters", "n"),
    *("offline_seconds", "online_seconds", "latency_seconds", "compile_seconds", "device", "seed", "status", "reason"),
)
STRATEGIES = (
    *("prior", "algorithm", "parameters", "seed", "strategy", "pulls", "mean", "std", "discarded", "chosen"),
    *("consumed", "simulated", "offline_seconds"),
)
_DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)
_STALE_SECONDS = 3600.0  # temporary files older than this were left by a killed run


class StoreError(JbrlError):
    """The results directory cannot be used."""


class ResultWarning(UserWarning):
    """A result file is damaged and counts as missing."""


@dataclass(frozen=True)
class Result:
    """What is known of a unit: all of it when `status` is "done", the first `n` MDPs when it is a checkpoint."""

    header: dict[str, Any]
    returns: np.ndarray  # [n] float64, discounted
    recorded: bool  # whether trajectories are kept beside it
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # of knowledge: all that is kept

    @property
    def status(self) -> str:
        return str(self.header["status"])

    @property
    def n(self) -> int:
        return len(self.returns)


class Store:
    """The results in one directory."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.units_folder = self.folder / "units"
        self.knowledge_folder = self.folder / "knowledge"
        self._damaged: set[Path] = set()  # files that have been warned of

    # ---- the study ----

    def manifest(self) -> dict[str, Any]:
        """The study as it was last run: `study`, `experiments`, `agents`, `units`, `versions`, `machine`.

        Raises:
          StoreError: there is none, or it cannot be read.
        """
        path = self.folder / "study.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["format"] != FORMAT:
                raise StoreError(f"{path}: format {found['format']!r}: this version of jbrl reads format {FORMAT}")
            return found
        except FileNotFoundError:
            raise StoreError(f"{self.folder}: no results of a study here ('jbrl run STUDY.toml --out {self.folder}' makes them)") from None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path}: damaged ({error}): remove it and run the study again; results are kept") from None

    def check(self, settings: dict[str, Any]) -> None:
        """Refuse a directory that holds another study.

        Raises:
          StoreError: names the first setting that differs, and both values.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"{self.folder} is not a directory; choose another --out")
        if not (self.folder / "study.json").exists():
            return
        before = self.manifest()["study"]
        for field in IDENTITY:
            if before.get(field) != settings.get(field):
                raise StoreError(
                    f"{self.folder} holds the results of another study: {field} is {before.get(field)!r} there "
                    f"and {settings.get(field)!r} in this one; choose another --out"
                )

    def open(self, tables: dict[str, Any], units: Sequence[Unit]) -> None:
        """Make the directory ready for results and write the manifest.

        Args:
          tables: the tables of the study file; `study` holds the settings.

        Raises:
          StoreError: the directory holds another study, or cannot be written.
        """
        self.check(tables["study"])
        listed = [
            {"id": unit.id, "label": unit.label, **unit.row(), "oracle": unit.agent.oracle, "knowledge": unit.knowledge_id}
            for unit in units
        ]
        content = {"format": FORMAT, **tables, "units": listed, "versions": versions(), "machine": machine()}
        try:
            for folder in (self.units_folder, self.knowledge_folder):
                folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob("*/.*.tmp"):
                if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                    left.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from None
        self._write(self.folder / "study.json", json.dumps(content, indent=1).encode())

    # ---- results ----

    def result(self, id: str) -> Result | None:
        """A unit's result, done or failed; None when there is none, or when it is damaged (with a warning)."""
        return self._load(self._path(id), id)

    def checkpoint(self, id: str) -> Result | None:
        """What is known of a unit that is not finished; None when nothing is."""
        return self._load(self._path(id, partial=True), id)

    def trajectories(self, id: str, *, partial: bool = False) -> dict[str, np.ndarray]:
        """Recorded trajectories: states [n, T+1] int32, actions [n, T] int32, rewards [n, T] float32.

        Raises:
          StoreError: there are none.
        """
        path = self._path(id, partial=partial)
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                return {name: file[name] for name in TRAJECTORY}
        except _DAMAGE as error:
            raise StoreError(f"{path}: no trajectories to be read ({error}); they are kept when [study] says record = true") from None

    def _path(self, id: str, *, partial: bool = False) -> Path:
        return self.units_folder / f"{id}{'.partial' if partial else ''}.npz"

    def save(self, unit: Unit, header: dict[str, Any], returns: np.ndarray, trajectories: dict[str, np.ndarray] | None = None) -> None:
        """Write the result of a unit, or a checkpoint when `header["status"]` is "partial".

        Raises:
          StoreError: it cannot be written.
        """
        header = {**header, "id": unit.id, "configuration": unit.configuration, "seed": unit.protocol.seed, "n": len(returns)}
        partial = header["status"] == "partial"
        self._write(self._path(unit.id, partial=partial), _packed(header, np.asarray(returns, np.float64), trajectories or {}))
        if header["status"] == "done":
            self._path(unit.id, partial=True).unlink(missing_ok=True)

    # ---- what was learned on priors ----

    def knowledge(self, id: str, *, partial: bool = False) -> Result | None:
        """What a search has found, or how far it has come when `partial`; None when there is nothing, or it is damaged (with a warning)."""
        return self._load(self._knowledge_path(id, partial=partial), id, everything=True)

    def save_knowledge(self, id: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write what a search has found, or how far it has come when `header["status"]` is "partial".

        Raises:
          StoreError: it cannot be written.
        """
        partial = header["status"] == "partial"
        self._write(self._knowledge_path(id, partial=partial), _packed({**header, "id": id}, np.zeros(0), arrays))
        if not partial:
            self._knowledge_path(id, partial=True).unlink(missing_ok=True)

    def _knowledge_path(self, id: str, *, partial: bool = False) -> Path:
        return self.knowledge_folder / f"{id}{'.partial' if partial else ''}.npz"

    # ---- files ----

    def _load(self, path: Path, id: str, *, everything: bool = False) -> Result | None:
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                header, returns = json.loads(file["header"].tobytes()), file["returns"]
                recorded = set(TRAJECTORY) <= set(file.files)
                arrays = {name: file[name] for name in file.files if name not in ("header", "returns")} if everything else {}
            checksum = header.pop("checksum")
            if header["format"] != FORMAT or header["id"] != id or checksum != _checksum(header, returns):
                raise ValueError("its content does not match its checksum")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from None
        except _DAMAGE as error:
            if path not in self._damaged:
                text = f"{path} is damaged ({error}) and counts as missing: running the study again redoes it"
                warnings.warn(text, ResultWarning, stacklevel=3)
            self._damaged.add(path)
            return None
        return Result(header, returns, recorded, arrays)

    def _write(self, path: Path, content: bytes) -> None:
        temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(f"{self.folder}: results cannot be written here: {error.strerror}; choose another --out, or make room")

    # ---- tables ----

    def units(self) -> pd.DataFrame:
        """One row per unit of the study, in its order: columns `UNIT_COLUMNS`.

        Times are wall seconds: `offline_seconds` and `compile_seconds` in all, `online_seconds` per decision, amortised over the
        MDPs played at once, `latency_seconds` per decision with a single MDP. `status` is "done", "failed" or "missing"; `reason`
        says why a unit failed.
        """
        return pd.DataFrame([self._unit_row(listed) for listed in self.manifest()["units"]], columns=list(UNIT_COLUMNS))

    def _unit_row(self, listed: dict[str, Any]) -> dict[str, Any]:
        result = self.result(listed["id"])
        header = result.header if result else {"status": "missing", "n": 0}
        return {**listed, **{name: header.get(name) for name in UNIT_COLUMNS if name not in listed}}

    def returns(self) -> pd.DataFrame:
        """One row per MDP of each finished unit, in the order of the study: experiment, algorithm, parameters, unit, seed, score.

        `unit` is the number of the MDP: with the same `seed`, the same number is the same MDP for every agent of an experiment.
        """
        parts = []
        for listed in self.manifest()["units"]:
            result = self.result(listed["id"])
            if result and result.status == "done":
                named = {name: listed[name] for name in ("experiment", "algorithm", "parameters")}
                parts.append(pd.DataFrame({**named, "unit": np.arange(result.n), "seed": listed["seed"], "score": result.returns}))
        if not parts:
            return pd.DataFrame({name: [] for name in ("experiment", "algorithm", "parameters", "unit", "seed", "score")})
        return pd.concat(parts, ignore_index=True)

    def strategies(self) -> pd.DataFrame:
        """One row for each strategy tried by each search on a prior, the most pulled first: columns `STRATEGIES`.

        `mean` and `std` are of the returns, one for each of the `pulls`. `consumed` and `simulated` are trajectories of the whole search:
        made use of, and played; `offline_seconds` is its wall time.
        """
        parts, seen = [], set()
        for listed in self.manifest()["units"]:
            id = listed.get("knowledge")
            found = self.knowledge(id) if id and id not in seen else None
            if found:
                seen.add(id)
                named = {name: listed[name] for name in ("prior", "algorithm", "parameters", "seed")}
                learned = found.header["learned"]
                cost = {"consumed": learned["consumed"], "simulated": learned["simulated"], "offline_seconds": learned["seconds"]}
                rows = pd.DataFrame({**named, **found.arrays, **cost})
                parts.append(rows.sort_values(["pulls", "chosen", "mean"], ascending=False, kind="stable"))
        return pd.concat(parts, ignore_index=True)[list(STRATEGIES)] if parts else pd.DataFrame(columns=list(STRATEGIES))


def _packed(header: dict[str, Any], returns: np.ndarray, arrays: dict[str, np.ndarray]) -> bytes:
    """The content of a file. Its header says what made it, and when."""
    header = {**header, "format": FORMAT, "versions": versions(), "machine": machine()}
    header |= {"written": datetime.now(UTC).isoformat(timespec="seconds")}
    header["checksum"] = _checksum(header, returns)
    buffer = io.BytesIO()
    text = np.frombuffer(canonical(header).encode(), np.uint8)
    np.savez_compressed(buffer, allow_pickle=False, header=text, returns=returns, **arrays)
    return buffer.getvalue()


def _checksum(header: dict[str, Any], returns: np.ndarray) -> str:
    """SHA-256 of header and returns; other arrays are guarded by the checksums of the zip format."""
    return hashlib.sha256(canonical(header).encode() + np.ascontiguousarray(returns).tobytes()).hexdigest()
