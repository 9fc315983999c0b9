"""Headers and returns of all results of a study in one file, read in place of unzipping thousands.

    DIR/index.npz

An entry is found by the name of a unit and the checksum of its file. A caller has read that file
and checked its checksum, so the index spares parsing and no check: a file that is damaged, missing
or newer than the index is noticed as it is without one. The index holds nothing that the files do
not. It is written whole or not at all and is sealed; one that is missing, damaged or written by
another version of jbrl is empty, and the next reader writes it anew.
"""

import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jbrl.base.files import write_whole
from jbrl.play import unit
from jbrl.study.storage import files
from jbrl.study.storage.files import StoreError

NAME = "index.npz"
FORMAT = 1  # of the index; raised when its arrays change their meaning
MANY = 64  # results from which on an index is read, and new ones from which on it is written
MAX_NUMBERS = 2**25  # returns that an index holds, 256 MiB; further ones are read from their files
_READERS = 2  # threads; only parsing is serialised, not reading and checksums

Entry = tuple[str, bytes, np.ndarray]  # checksum of the file, header as JSON text, returns


@dataclass(frozen=True)
class Outcome:
    """The result of a unit, done or failed, without what is kept beside its scores."""

    header: dict[str, Any]
    returns: np.ndarray  # [n] float64, scores

    @property
    def status(self) -> str:
        """One of "done" and "failed"."""
        return str(self.header["status"])


class Index:
    """Contents of files with known checksums."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._numbers = 0  # returns of all entries
        self.added = 0  # entries that the stored index lacks

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    @classmethod
    def load(cls, path: Path) -> "Index":
        """Read the index in the file `path`; an empty one when that is missing, damaged or cannot
        be read.
        """
        found = cls()
        try:
            header, arrays, _ = files.unpack(path.read_bytes())
            if header.get("index") == FORMAT:
                found._entries = _entries(header["ids"], header["checksums"], arrays)
                found._numbers = len(arrays["returns"])
        except (OSError, MemoryError, files.DamagedError, KeyError, ValueError):
            return cls()
        return found

    def find(self, id: str, checksum: str) -> Outcome | None:
        """Return the result of a unit whose file has this checksum; None when it is not here."""
        entry = self._entries.get(id)
        if entry is None or entry[0] != checksum:
            return None
        return Outcome(json.loads(entry[1]), entry[2])

    def add(self, id: str, checksum: str, found: Outcome) -> None:
        """Store the content of a file, in place of the earlier entry of the unit, if capacity
        remains.
        """
        before = self._entries.pop(id, None)
        numbers = self._numbers - (len(before[2]) if before else 0)
        if numbers + len(found.returns) <= MAX_NUMBERS:
            text = unit.canonical(found.header).encode()
            self._entries[id] = checksum, text, found.returns
            self.added += 1
            numbers += len(found.returns)
        self._numbers = numbers

    def save(self, path: Path, ids: Collection[str]) -> None:
        """Write the entries of the units `ids`; those of units that the study has no more
        are dropped.

        Raises:
          OSError: it cannot be written; what was there before still is.
        """
        kept = [id for id in ids if id in self._entries]
        entries = [self._entries[id] for id in kept]
        checksums = [checksum for checksum, _, _ in entries]
        header = {"index": FORMAT, "ids": kept, "checksums": checksums}
        arrays: dict[str, np.ndarray] = {
            "headers": np.frombuffer(b"".join(text for _, text, _ in entries), np.uint8),
            "header_ends": np.cumsum([len(text) for _, text, _ in entries], dtype=np.int64),
            "returns": np.concatenate([np.zeros(0), *(returns for _, _, returns in entries)]),
            "return_ends": np.cumsum([len(values) for _, _, values in entries], dtype=np.int64),
        }
        write_whole(path, files.pack(header, arrays, compress=False))
        self.added = 0


def _entries(
    ids: list[str], checksums: list[str], arrays: dict[str, np.ndarray]
) -> dict[str, Entry]:
    """Return the entries of a stored index by unit."""
    text, returns = arrays["headers"].tobytes(), arrays["returns"]
    header_ends, return_ends = arrays["header_ends"].tolist(), arrays["return_ends"].tolist()
    entries = zip(
        (text[start:end] for start, end in zip([0, *header_ends], header_ends, strict=False)),
        (returns[start:end] for start, end in zip([0, *return_ends], return_ends, strict=False)),
        strict=True,
    )
    return {
        id: (checksum, *entry) for id, checksum, entry in zip(ids, checksums, entries, strict=True)
    }


def read(
    paths: Mapping[str, Path], known: Index | None = None
) -> tuple[dict[str, Outcome], dict[str, files.DamagedError]]:
    """Read the results of units, and what is wrong with damaged files; a unit without a file is in
    neither.

    Args:
      paths: the file of each unit.
      known: spares parsing, and receives the results that it lacks.

    Raises:
      StoreError: a file cannot be read.
    """
    ids = list(paths)
    pieces = [ids[start : start + MANY] for start in range(0, len(ids), MANY)]
    with ThreadPoolExecutor(_READERS) as pool:
        parts = pool.map(lambda piece: [_read(id, paths[id], known) for id in piece], pieces)
        results = [one for part in parts for one in part if one is not None]
    outcomes: dict[str, Outcome] = {}
    damaged: dict[str, files.DamagedError] = {}
    for id, checksum, found in results:
        if isinstance(found, files.DamagedError):
            damaged[id] = found
            continue
        outcomes[id] = found
        if known is not None and checksum:
            known.add(id, checksum, found)
    return outcomes, damaged


def _read(
    id: str, path: Path, known: Index | None
) -> tuple[str, str, Outcome | files.DamagedError] | None:
    """Read the result of one unit, with the checksum of its file where the index lacks it."""
    found = content(path)
    if found is None:
        return None
    try:
        checksum = files.checksum(found)
        outcome = known.find(id, checksum) if known is not None else None
        if outcome is not None:
            return id, "", outcome
        header, arrays, _ = parse(found, path, id, ("returns",))
        return id, checksum, Outcome(header, arrays["returns"])
    except files.DamagedError as error:
        return id, "", error


def content(path: Path) -> bytes | None:
    """Read the bytes of a file; None when there is none.

    Raises:
      StoreError: it cannot be read at present.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, MemoryError) as error:
        raise _unreadable(path, error) from None


def parse(
    found: bytes, path: Path, id: str, names: Collection[str] | None
) -> tuple[dict[str, Any], dict[str, np.ndarray], set[str]]:
    """Return the same as `files.parse` for the result of unit `id`, whose checksum has been
    checked.

    Raises:
      DamagedError: it is the result of another unit, of another format, or none at all.
      StoreError: the memory does not suffice.
    """
    try:
        header, arrays, kept = files.parse(found, names)
    except MemoryError as error:
        raise _unreadable(path, error) from None
    if header["format"] != unit.FORMAT or header["id"] != id:
        raise files.DamagedError("it is the result of another unit, or of another version of jbrl")
    return header, arrays, kept


def _unreadable(path: Path, error: Exception) -> StoreError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return StoreError(f"{path}: cannot be read: {reason}")
