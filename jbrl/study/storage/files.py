"""Files that are provably whole: sealed by a checksum.

The seal of an .npz file is the last 64 characters of it, in the comment of its zip archive: the
SHA-256 of all bytes before them. So `head -c -64 FILE | sha256sum` prints what `tail -c 64 FILE`
does. In a .json file the same digits are the last value, `"sha256"`, and are followed by a
quotation mark, a line and a brace. Nothing is parsed before the seal is found right, and nothing is
ever unpickled.
"""

import contextlib
import functools
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jbrl.base.errors import JbrlError, bytes_text
from jbrl.play.machine import available_memory
from jbrl.play.unit import canonical

DIGITS = 64  # of a SHA-256, hexadecimal
HEADER = "header"
LARGE = 1 << 28  # bytes of arrays, beyond which they are compared with the memory that is free
_NPZ_LABEL = b"sha256:"
_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_JSON_LABEL, _JSON_END = b'"sha256": "', b'"\n}\n'


class DamagedError(Exception):
    """The content of a file is not what was written. The message says what is wrong with it."""


class StoreError(JbrlError):
    """The results directory cannot be used."""


def pack(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, compress: bool = True
) -> bytes:
    """Return the content of an .npz file: `header`, plain data, as JSON text under that name, and
    `arrays` under theirs, none of objects.
    """
    buffer = io.BytesIO()
    text = np.frombuffer(canonical(header).encode(), np.uint8)
    save = np.savez_compressed if compress else np.savez
    save(buffer, allow_pickle=False, **{HEADER: text, **arrays})
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = _NPZ_LABEL + bytes(DIGITS)
    with buffer.getbuffer() as content:  # in place: a checkpoint may be as large as the memory
        content[-DIGITS:] = hashlib.sha256(content[:-DIGITS]).hexdigest().encode()
    return buffer.getvalue()


def unpack(
    content: bytes, names: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray], set[str]]:
    """Invert `pack`.

    Args:
      names: of the arrays that are wanted; None: all. An array that is not there is left out.

    Returns: the header, the arrays that are wanted, the names of all arrays.

    Raises:
      DamagedError: the content is not what was written.
    """
    _check_seal(content, content.endswith(_NPZ_LABEL, 0, max(0, len(content) - DIGITS)))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check_size(sum(member.file_size for member in archive.infolist()))
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            header = json.loads(_array(archive.read(members.pop(HEADER))).tobytes())
            if not isinstance(header, dict):
                raise TypeError("its header is no JSON object")
            wanted = [name for name in sorted(members) if names is None or name in names]
            arrays = {name: _array(archive.read(members[name])) for name in wanted}
            return header, arrays, set(members)
    except MemoryError:  # is independent of the content
        raise
    except Exception as error:
        # zip archives, NumPy and JSON have a dozen errors for invalid bytes
        raise DamagedError(str(error) or type(error).__name__) from None


@contextlib.contextmanager
def naming_fields(path: Path) -> Iterator[None]:
    """Raise `StoreError` in place of errors of whatever stands in the place of a field or an array
    of a file whose seal is right.
    """
    try:
        yield
    except JbrlError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise StoreError(
            f"{path}: {what}: expected what jbrl has written: remove it to have it made anew"
        ) from None


def _check_size(needed: int) -> None:
    """Refuse arrays that a small file may hold, compressed, and no memory.

    Raises:
      MemoryError: they take more than is free.
    """
    if needed > LARGE and 0 < (free := available_memory()) < needed:
        raise MemoryError(f"its arrays take {bytes_text(needed)}, {bytes_text(free)} are free")


def _array(content: bytes) -> np.ndarray:
    """Read the array in the content of an .npy file, none of objects.

    `np.load` parses the description of an array anew for each of thousands of equal ones, which
    takes several times as long as all the rest.
    """
    start = 10 + int.from_bytes(content[8:10], "little")
    if content[:8] != _NPY_MAGIC:  # a description of more than 64 KiB, or with names beyond Latin 1
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    shape, fortran, dtype = _description(content[:start])
    count = math.prod(shape)
    found = np.frombuffer(content, dtype, count, start) if count else np.empty(0, dtype)
    return found.reshape(shape, order="F" if fortran else "C").copy(order="K")


@functools.lru_cache(maxsize=256)
def _description(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read shape, order and type of the elements of an array; refuse objects, which would be
    unpickled.
    """
    file = io.BytesIO(content)
    np.lib.format.read_magic(file)
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    return shape, fortran, dtype


def under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): v for name, v in arrays.items() if name.startswith(prefix)}


def pack_json(content: Mapping[str, Any]) -> bytes:
    """Return the content of a .json file: the fields of `content`, at least one, and the seal."""
    text = json.dumps(content, indent=1).removesuffix("\n}") + ",\n "
    body = text.encode() + _JSON_LABEL
    return body + hashlib.sha256(body).hexdigest().encode() + _JSON_END


def unpack_json(content: bytes) -> dict[str, Any]:
    """Invert `pack_json`.

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
    body, seal = memoryview(content)[:-DIGITS], content[-DIGITS:]
    if hashlib.sha256(body).hexdigest().encode() != seal:
        raise DamagedError("its content does not match its checksum")


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a sealed JSON file; None when there is none, or a damaged one."""
    try:
        return unpack_json(path.read_bytes())
    except (OSError, DamagedError):
        return None
