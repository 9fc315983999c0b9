"""Files and folders that are written whole or not at all: made beside their place, flushed to the
disk, and renamed into it; and the text, TOML and JSON files that users write.
"""

import contextlib
import json
import os
import secrets
import shutil
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jbrl.base.errors import JbrlError, nearest, shown

FLUSHED_AT_ONCE = 32
NO_TEXT = "not a text file in UTF-8"
_STALE_SECONDS = 3600.0  # temporary folders older than this were left by a killed process


@contextmanager
def naming(path: str | Path, done: str) -> Iterator[None]:
    """Raise `JbrlError` in place of an OSError: `path` cannot be `done`, "read" or "written"."""
    try:
        yield
    except OSError as error:
        raise JbrlError(f"{path}: cannot be {done}: {error.strerror or error}") from None


def write_whole(path: Path, content: bytes) -> None:
    """Replace the content of `path`: a reader, also after a crash, sees the old file or the new
    one, whole.

    Raises:
      OSError: it cannot be written; what was there before still is, and nothing is left beside it.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when it is written.

    Raises:
      OSError: see `write_whole`.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file():  # a pipe or a device
        yield path
        return
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def writing(
    out: Path, what: str = "the report", choose: str = "choose another folder"
) -> Iterator[Path]:
    """Yield a temporary folder whose files become those of the folder `out` when all are written.

    Nothing of `out` changes before that, and nothing is left behind when a file cannot be written.
    A new folder appears whole. One that is there keeps its other files; where not all new ones can
    be put into place, those that were there before are put back.

    Args:
      out: made if it is not there, with its parents.
      what, choose: words for the message.

    Raises:
      JbrlError: in place of an OSError: `out` cannot be written, for example because the disk
        is full.
    """
    made = [folder for folder in (out, *out.parents) if not _exists(folder)]
    temporary = (out if not made else made[-1].parent) / f".report.{secrets.token_hex(4)}.tmp"
    new = temporary / "new"
    try:
        sweep(temporary.parent, ".report.*.tmp")
        new.mkdir(parents=True)
        yield new
        out.parent.mkdir(parents=True, exist_ok=True)
        _flush(new)
        if _exists(out):
            _move(new, out, temporary / "old")
        else:
            new.rename(out)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in made:
            with contextlib.suppress(OSError):  # it is not there, or it is not empty
                folder.rmdir()
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            text = f"{out}: {what} cannot be written here: {reason}; {choose}, or make room"
            raise JbrlError(text) from None
        if isinstance(error, JbrlError) and str(new) in str(error):
            raise JbrlError(str(error).replace(str(new), str(out))) from None
        raise
    shutil.rmtree(temporary, ignore_errors=True)


def is_temporary(path: Path) -> bool:
    """Return whether a killed process may have left the file or folder behind."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def check_file(path: Path) -> None:
    """Refuse what is there but no file: to read a pipe may take for ever.

    Raises:
      JbrlError: it is a pipe, a folder or a device.
    """
    if _exists(path) and not path.is_file():
        kind = "a folder" if path.is_dir() else "a pipe or a device"
        raise JbrlError(f"{path}: cannot be read: it is {kind}: expected a file")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, or a folder that may not be looked into
        return False


def _flush(path: Path) -> None:
    """Put a file, or all files of a folder, on the disk; many at once, since each waits for it."""

    def flush(file: Path) -> None:
        with file.open("rb") as content:
            os.fsync(content.fileno())

    if not path.is_dir():
        flush(path)
        return
    with ThreadPoolExecutor(FLUSHED_AT_ONCE) as pool:
        list(pool.map(flush, filter(Path.is_file, path.rglob("*"))))


def _move(source: Path, target: Path, before: Path) -> None:
    """Put all files below `source` into their places below `target`, or none: `before` keeps those
    that are replaced.
    """
    names = sorted(path.relative_to(source) for path in source.rglob("*") if not path.is_dir())
    for name in names:
        if os.path.lexists(target / name):
            (before / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(target / name, before / name)
    made = [target / name.parent for name in names if not (target / name.parent).exists()]
    moved = []
    try:
        for folder in made:
            folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (source / name).replace(target / name)
            moved.append(name)
    except BaseException:
        for name in moved:
            if (before / name).exists():
                (before / name).rename(target / name)
            else:
                (target / name).unlink()
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _copy(path: Path, copy: Path) -> None:
    """Give a file a second name, or copy it where files have one only."""
    try:
        os.link(path, copy)
    except OSError:
        shutil.copy2(path, copy)


def sweep(folder: Path, names: str) -> None:
    """Remove temporary folders, whose names are a pattern, that killed processes have left."""
    for left in folder.glob(names):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def read_text(path: Path, what: str = "") -> str:
    """Read a text file in UTF-8, with or without the mark that Excel writes.

    Args:
      what: for messages, as in " as a study".

    Raises:
      JbrlError: there is no such file, or it is no text.
    """
    check_file(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or NO_TEXT
        raise JbrlError(f"{path}: cannot be read{what}: {reason}") from None


def read_toml(path: Path, what: str = "") -> dict[str, Any]:
    """Read a TOML file.

    Args:
      what: for messages, as in " as a study".

    Raises:
      JbrlError: it cannot be read, or is not TOML.
    """
    text = read_text(path, what)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        last = len(text.splitlines())
        reason = str(error).replace("(at end of document)", f"(at end of document, line {last})")
        raise JbrlError(f"{path}: not valid TOML: {reason}") from None
    except ValueError:
        raise JbrlError(
            f"{path}: holds an integer of thousands of digits: expected numbers of fewer digits"
        ) from None
    except RecursionError:
        raise JbrlError(
            f"{path}: nested too deeply: expected tables and lists as jbrl's studies have them"
        ) from None


def read_object(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> Any:
    """Read the JSON object in a file.

    Raises:
      JbrlError: it cannot be read, is not JSON or no object, lacks a field or has one too many, or
        twice.
    """
    text = read_text(path)

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict[str, Any]()
        for name, value in pairs:
            if name in found:
                raise JbrlError(f"{path}: the field '{shown(name, str)}' is there twice")
            found[name] = value
        return found

    try:
        data = json.loads(text, object_pairs_hook=fields)
    except JbrlError:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise JbrlError(f"{path}: not valid JSON: {place}: {error.msg}") from None
    except RecursionError:
        raise JbrlError(
            f"{path}: not valid JSON: nested too deeply: expected lists within lists within lists "
            "at most"
        ) from None
    except ValueError:
        raise JbrlError(
            f"{path}: not valid JSON: an integer of thousands of digits: expected numbers that "
            "float32 holds"
        ) from None
    if not isinstance(data, dict):
        raise JbrlError(f"{path}: expected a JSON object with the fields {', '.join(required)}")
    known = (*required, *optional)
    for field in data:
        if field not in known:
            raise JbrlError(f"{path}: unknown field '{shown(field, str)}'{nearest(field, known)}")
    for field in required:
        if field not in data:
            raise JbrlError(f"{path}: the field '{field}' is missing")
    return data
