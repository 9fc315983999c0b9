"""Executables kept on disk under keys that need no tracing, for the next process.

JAX's own cache knows a program by its text, which has to be traced and lowered first. Here a key is
made of what the text follows from: the function and the structure, shapes and dtypes of its
arguments, with all that is static in them; jbrl's sources; versions; JAX's configuration; the
options of the compiler; the devices. Where anything in it comes from outside jbrl, or has no name
that holds in another process, there is no key, and JAX's cache is all there is.

An executable that JAX has read from its own cache lacks parts when it is written once more (jaxlib
0.10.2: "Function … not found" when it is called), so only what was compiled here is kept.

Entries are pickles, and machine code: they are read only where nobody else can have written them.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import inspect
import os
import pickle
import sys
import threading
import time
import types
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.monitoring
import numpy as np
from jax.experimental import serialize_executable

from jbrl.base.files import write_whole
from jbrl.play.machine import versions

SUFFIX = ".program"
READING = 10.0  # seconds within which a process has read all sources before this one
MARGIN = 0.1  # seconds by which clocks of files may be late


def _first_read() -> float:
    """Return a time before which this process has read none of the sources, in seconds since the
    epoch: when it started, or `READING` ago, if that is later or the system does not say.
    """
    now = time.time()
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot
    except (OSError, ValueError, IndexError, AttributeError):
        age = READING
    return now - (min(age, READING) if age >= 0 else READING)


_FIRST_READ = _first_read()
_PACKAGE = Path(__file__).parents[1]
_KNOWN = {"jbrl", "jax", "jaxlib", "numpy", "builtins"}  # packages that the versions stand for
_DIGEST = 32  # bytes in front of an entry

_folder: Path | None = None  # of `use`


class Kept(NamedTuple):
    """An executable from the disk."""

    call: Any  # `jax.stages.Compiled`
    bytes: int  # of memory that a call takes
    beside: Any  # what was kept with it


class _NoKeyError(Exception):
    """A part of an identity has no name that holds in another process."""


def use(folder: Path | None) -> None:
    """Keep executables in a folder that only its owner can write, or nowhere."""
    global _folder
    _folder = folder


def find(identity: Any, options: dict[str, Any], devices: Sequence[jax.Device]) -> Kept | None:
    """Return the executable with this identity; None: there is none, or it cannot be read."""
    stored = recall((identity, options))
    if stored is None:
        return None
    (serialized, in_tree, out_tree), size, beside = stored
    try:
        call = serialize_executable.deserialize_and_load(
            serialized,
            in_tree,
            out_tree,
            backend=devices[0].client,
            execution_devices=list(devices),
        )
    except Exception as error:  # of any kind: this machine cannot run it
        _discard(_file((identity, options)), error)
        return None
    return Kept(call, size, beside)


def compile_lowered(lowered: Any, options: dict[str, Any]) -> tuple[Any, bool]:
    """Compile; return the executable, and whether it may be kept: JAX's cache did not have it."""
    _listen()
    _thread.found = False
    compiled = lowered.compile(compiler_options=options)
    return compiled, not _thread.found


_thread = threading.local()


@functools.cache
def _listen() -> None:
    def note(event: str, **_: Any) -> None:
        _thread.found = getattr(_thread, "found", False) or event.endswith("/cache_hits")

    jax.monitoring.register_event_listener(note)


def keep(
    identity: Any, options: dict[str, Any], compiled: Any, size: int, beside: Any = None
) -> None:
    """Keep an executable, where it has a key and can be written down."""
    if _folder is None or key((identity, options)) is None:
        return
    try:
        serialized = serialize_executable.serialize(compiled)
    except Exception:  # one that calls the host
        return
    remember((identity, options), (serialized, size, beside))


def recall(identity: Any) -> Any:
    """Return what was kept under an identity; None: nothing, or the file is damaged."""
    file = _file(identity)
    if file is None:
        return None
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = stream.read()
    except OSError:
        return None
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        _warn(f"{file}: others may write to it: not read")
        return None
    try:
        if damaged(content):
            raise ValueError("damaged")
        return pickle.loads(zlib.decompress(content[_DIGEST:]))
    except Exception as error:
        _discard(file, error)
        return None


def remember(identity: Any, value: Any) -> None:
    """Keep a value that can be pickled under an identity, if that has a key."""
    file = _file(identity)
    if file is None:
        return
    try:
        packed = zlib.compress(pickle.dumps(value), 1)
    except (pickle.PicklingError, TypeError, AttributeError):
        return
    try:
        write_whole(file, hashlib.sha256(packed).digest() + packed)
    except OSError as error:
        _warn(f"{file}: cannot be written: {error.strerror}")


def damaged(content: bytes) -> bool:
    """Return whether an entry is not as it was written."""
    return hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]


def _discard(file: Path | None, error: Exception) -> None:
    """Remove an entry that is of no use, and say so once."""
    _warn(f"{file}: cannot be used and is removed: {type(error).__name__}: {error}")
    with contextlib.suppress(OSError):
        if file:
            file.unlink()


def _warn(sentence: str) -> None:
    warnings.warn(f"compile cache: {sentence}", stacklevel=2)


def _file(identity: Any) -> Path | None:
    found = key(identity) if _folder is not None and _settled() else None
    return _folder / f"{found}{SUFFIX}" if _folder and found else None


# ---- keys ----


def key(identity: Any) -> str | None:
    """Return 64 hexadecimal digits for an identity in this environment; None: it has no key."""
    content = hashlib.sha256()
    try:
        _add(content, (*environment(), identity))
    except _NoKeyError:
        return None
    return content.hexdigest()


def environment() -> tuple[Any, ...]:
    """Return all that decides what is compiled beside the program itself.

    Folders of processors are apart already (`compile_cache.folder`).
    """
    settings = {
        name: repr(value)
        for name, value in sorted(jax.config.values.items())
        if "cache" not in name and "_log" not in name
    }
    flags = {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")}
    packages = {name: v for name, v in versions().items() if name != "commit"}
    wide = str(jax.dtypes.canonicalize_dtype(np.float64))  # where `jax.enable_x64` is a context
    return sources(), packages, settings, flags, wide


@functools.cache
def sources() -> str:
    """Return the SHA-256 of all files of the package, in hexadecimal."""
    content = hashlib.sha256()
    for file in _files():
        content.update(f"{file.relative_to(_PACKAGE)}\n{file.stat().st_size}\n".encode())
        content.update(file.read_bytes())
    return content.hexdigest()


@functools.cache
def _files() -> tuple[Path, ...]:
    found = (f for f in _PACKAGE.rglob("*") if f.is_file() and f.suffix not in (".pyc", ".tmp"))
    return tuple(sorted(found))


def _settled() -> bool:
    """Return whether the sources are those that were imported: none has changed since the first
    was read.
    """
    try:
        newest = max(file.stat().st_mtime for file in _files())
    except OSError:
        return False
    return newest < _FIRST_READ - MARGIN


def _add(content: Any, value: Any) -> None:
    """Add a value to a digest, with its kind and its length.

    Raises:
      _NoKeyError: of a kind that is not known here.
    """
    kind, parts = _described(value)
    content.update(f"{kind}:{len(parts)}\n".encode())
    for part in parts:
        if isinstance(part, bytes):
            content.update(f"{len(part)}\n".encode() + part)
        else:
            _add(content, part)


def _described(value: Any) -> tuple[str, Sequence[Any]]:
    """Return the kind of a value, and its parts: bytes, or values.

    Raises:
      _NoKeyError: of a kind that is not known here.
    """
    kind = type(value)
    if kind in (bool, int, str, type(None), types.EllipsisType):
        return kind.__name__, [repr(value).encode()]
    if kind is bytes:
        return "bytes", [value]
    if kind is float:
        return "float", [value.hex().encode()]
    if kind in (tuple, list):
        return kind.__name__, value
    if kind is dict:
        return "dict", [*value, *value.values()]
    if value is types.NoneType:
        return "type", []
    if isinstance(value, type):
        return "type", [_name(value, value.__qualname__)]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _described_array(value)
    if isinstance(value, np.dtype):
        return "dtype", [value.str.encode()]
    return _described_object(value)


def _described_array(value: Any) -> tuple[str, Sequence[Any]]:
    if isinstance(value, jax.core.Tracer) or getattr(value.dtype, "kind", "O") not in "biufc":
        raise _NoKeyError
    found = np.asarray(value)
    return "array", [found.dtype.str.encode(), repr(found.shape).encode(), found.tobytes()]


def _described_object(value: Any) -> tuple[str, Sequence[Any]]:
    if isinstance(value, jax.tree_util.PyTreeDef):
        return "tree", [value.num_leaves, value.node_data(), *value.children()]
    if isinstance(value, jax.core.ShapedArray):
        return "shape", [value.shape, str(value.dtype), value.weak_type, str(value.sharding)]
    if isinstance(value, jax.Device):
        return "device", [value.platform, value.device_kind, value.id]
    if isinstance(value, functools.partial):
        return "partial", [value.func, value.args, value.keywords]
    if inspect.ismethod(value):
        return "method", [value.__self__, value.__func__]
    if inspect.isfunction(value):
        return "function", [_name(value, value.__qualname__)]
    kind = type(value)
    name = _name(kind, kind.__qualname__)
    if isinstance(value, enum.Enum):
        return "enum", [name, value.name]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "named", [name, *value]
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value)]
        return "record", [name, fields, [getattr(value, field) for field in fields]]
    raise _NoKeyError


def _name(value: Any, qualified: str) -> bytes:
    """Return the name of a class or a function by which another process finds it.

    Raises:
      _NoKeyError: it is from outside the packages that are known, or local to a function.
    """
    module = sys.modules.get(value.__module__)
    found: Any = module
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if value.__module__.partition(".")[0] not in _KNOWN or found is not value:
        raise _NoKeyError
    return f"{value.__module__}:{qualified}".encode()
