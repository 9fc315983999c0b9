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

from jbrl.runner.unit import canonical

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
    sealed = content[:-DIGITS].endswith(_NPZ_LABEL)
    if sealed and not _intact(content):
        raise DamagedError("its content does not match its checksum")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            header = json.loads(file[HEADER].tobytes())
            if not sealed:
                _check_unsealed(header, file["returns"])
            kept = {name for name in file.files if name != HEADER}
            return header, {name: file[name] for name in sorted(kept) if names is None or name in names}, kept
    except DamagedError:
        raise
    except Exception as error:  # zip archives, NumPy and JSON have a dozen ways of saying that bytes make no sense
        raise DamagedError(str(error) or type(error).__name__) from None


def _check_unsealed(header: dict[str, Any], returns: np.ndarray) -> None:
    """Files of the first weeks: a checksum of header and returns stands in the header, other arrays have that of the zip archive."""
    expected = header.pop("checksum", None)
    if expected != hashlib.sha256(canonical(header).encode() + np.ascontiguousarray(returns).tobytes()).hexdigest():
        raise DamagedError("its content does not match its checksum" if expected else "it has no checksum")


def pack_json(content: Mapping[str, Any]) -> bytes:
    """The content of a .json file: the fields of `content`, at least one, and the seal."""
    text = json.dumps(content, indent=1).removesuffix("\n}") + ",\n "
    return _sealed(text.encode() + _JSON_LABEL) + _JSON_END


def unpack_json(content: bytes, unsealed: Collection[str] = ()) -> dict[str, Any]:
    """Inverse of `pack_json`.

    Args:
      unsealed: a file without a seal is read too if it has no other fields than these.

    Raises:
      DamagedError: the content is not what was written.
    """
    body = content.removesuffix(_JSON_END)
    sealed = body[:-DIGITS].endswith(_JSON_LABEL)
    if sealed and not _intact(body):
        raise DamagedError("its content does not match its checksum")
    try:
        found = json.loads(content)
    except ValueError as error:
        raise DamagedError(str(error)) from None
    if not isinstance(found, dict):
        raise DamagedError("not a JSON object")
    if sealed:
        del found["sha256"]
    elif not set(found) <= set(unsealed):
        raise DamagedError("it has no checksum")
    return found


def _sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).hexdigest().encode()


def _intact(content: bytes) -> bool:
    return content == _sealed(content[:-DIGITS])
