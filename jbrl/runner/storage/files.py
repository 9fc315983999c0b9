"""Files that are whole and known to be: written beside their place, renamed into it, and sealed by a checksum.

The seal of an .npz file is the last 64 characters of it, in the comment of its zip archive: the SHA-256 of all bytes before them. So
`head -c -64 FILE | sha256sum` prints what `tail -c 64 FILE` does. In a .json file the same digits are the last value, `"sha256"`, and are
followed by a quotation mark, a line and a brace. Nothing is parsed before the seal is found right, and nothing is ever unpickled.
"""

import contextlib
import hashlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jbrl.runner.storage.unit import canonical

DIGITS = 64  # of a SHA-256, hexadecimal
HEADER = "header"
_NPZ_LABEL = b"sha256:"
_JSON_LABEL, _JSON_END = b'"sha256": "', b'"\n}\n'


class DamagedError(Exception):
    """The content of a file is not what was written. The message says what is wrong with it."""


def write_whole(path: Path, content: bytes) -> None:
    """Put `content` in the place of `path`: whoever reads, or comes after a crash, sees the old file or the new one, whole.

    Raises:
      OSError: it cannot be written; what was there before still is, and nothing is left beside it.
    """
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of an .npz file: `header`, plain data, as JSON text under that name, and `arrays` under theirs, none of objects."""
    buffer = io.BytesIO()
    text = np.frombuffer(canonical(header).encode(), np.uint8)
    np.savez_compressed(buffer, allow_pickle=False, **{HEADER: text, **arrays})
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = _NPZ_LABEL + bytes(DIGITS)
    return _sealed(buffer.getvalue()[:-DIGITS])


def unpack(content: bytes, names: Collection[str] | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray], set[str]]:
    """Inverse of `pack`.

    Args:
      names: of the arrays that are wanted; None: all. An array that is not there is left out.

    Returns: the header, the arrays that are wanted, the names of all arrays.

    Raises:
      DamagedError: the content is not what was written.
    """
    _check_seal(content, content[:-DIGITS].endswith(_NPZ_LABEL))
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            header = json.loads(file[HEADER].tobytes())
            kept = {name for name in file.files if name != HEADER}
            return header, {name: file[name] for name in sorted(kept) if names is None or name in names}, kept
    except MemoryError:  # says nothing of the content
        raise
    except Exception as error:  # zip archives, NumPy and JSON have a dozen ways of saying that bytes make no sense
        raise DamagedError(str(error) or type(error).__name__) from None


def pack_json(content: Mapping[str, Any]) -> bytes:
    """The content of a .json file: the fields of `content`, at least one, and the seal."""
    text = json.dumps(content, indent=1).removesuffix("\n}") + ",\n "
    return _sealed(text.encode() + _JSON_LABEL) + _JSON_END


def unpack_json(content: bytes) -> dict[str, Any]:
    """Inverse of `pack_json`.

    Raises:
      DamagedError: the content is not what was written.
    """
    body = content.removesuffix(_JSON_END)
    _check_seal(body, body[:-DIGITS].endswith(_JSON_LABEL))
    try:
        found = json.loads(content)
    except ValueError as error:
        raise DamagedError(str(error)) from None
    del found["sha256"]
    return found


def _check_seal(content: bytes, labelled: bool) -> None:
    if not labelled:
        raise DamagedError("it has no checksum")
    if content != _sealed(content[:-DIGITS]):
        raise DamagedError("its content does not match its checksum")


def _sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).hexdigest().encode()


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a sealed JSON file; None when there is none, or a damaged one."""
    try:
        return unpack_json(path.read_bytes())
    except (OSError, DamagedError):
        return None
