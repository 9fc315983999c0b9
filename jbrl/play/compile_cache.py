"""Compiled programs kept on disk, so that the next process need not compile them again.

Off unless asked for.

Two caches share a folder: JAX's own (`jax_compilation_cache_dir`), and `executables`, which finds
programs of jbrl without tracing them. This module decides where the folder is. What the compiler
makes for one CPU may crash on another, which a cache in a shared home directory would bring about,
and is of no use to another version. Each combination of versions (jbrl, JAX, jaxlib) and processor
(model and features) therefore has a folder of its own inside the one that is named.

A cached program is machine code: a user who can write to the folder can run code as its reader.
Folders are made for their owner alone, and one that belongs to another user, or that others may
write to, is refused.
"""

import hashlib
import os
import platform
import re
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path

from jbrl.base.errors import JbrlError, as_path
from jbrl.play import executables
from jbrl.play.machine import processor, processor_features, versions

VARIABLE = "JBRL_COMPILE_CACHE"
AUTO = "auto"
# what `folder` names: nothing else is ever removed
_FOLDER = re.compile(r"jbrl-[^-]+-jax-[^-]+-jaxlib-[^-]+-[0-9a-f]{12}")
_SUFFIX = "-cache"  # of the files of JAX


@dataclass(frozen=True)
class CacheState:
    """Contents of a cache."""

    programs: int  # for this version and processor
    size: int  # bytes of these
    damaged: int  # of these, left half written by a process that was killed
    others: int  # folders of other versions or processors
    others_size: int  # bytes


def cache_folder() -> Path:
    """Return the folder of data that jbrl can recompute: `$XDG_CACHE_HOME/jbrl`, or
    `~/.cache/jbrl`.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "jbrl"


def place(where: str | Path) -> Path:
    """Return the directory that `where` names: itself, or for `auto` one in the user's cache
    directory.
    """
    if str(where) != AUTO:
        return as_path("compile_cache", where).expanduser().absolute()
    return cache_folder() / "compiled"


def folder(where: str | Path) -> Path:
    """Return its folder for programs of these versions and this processor."""
    name = "-".join(f"{package}-{versions()[package]}" for package in ("jbrl", "jax", "jaxlib"))
    return place(where) / f"{name}-{fingerprint()}"


def fingerprint() -> str:
    """Return twelve hexadecimal digits that stand for the processor: for the host, where the system
    does not say what its processor can do.
    """
    features = processor_features()
    identity = (
        platform.system(),
        platform.machine(),
        processor(),
        *(features or (platform.node(),)),
    )
    return hashlib.sha256("\n".join(identity).encode()).hexdigest()[:12]


def use(where: str | Path) -> Path:
    """Keep compiled programs in `where` (`auto`: the user's cache directory) from now on; call it
    before anything is compiled.

    Returns: the folder.

    Raises:
      JbrlError: it cannot be made or written, belongs to another user, or can be written by others.
    """
    import jax

    found = folder(where)
    try:
        found.parent.mkdir(parents=True, exist_ok=True)
        found.mkdir(mode=0o700, exist_ok=True)
        status = found.stat()
    except OSError as error:
        raise JbrlError(
            f"compile cache {found}: cannot be made: {error.strerror}; name another directory, or "
            "leave it out"
        ) from None
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise JbrlError(
            f"compile cache {found}: others may write to it, and so run code as you: expected a "
            "directory of your own"
        )
    if not os.access(found, os.W_OK | os.X_OK):
        raise JbrlError(
            f"compile cache {found}: cannot be written; name another directory, or leave it out"
        )
    jax.config.update("jax_compilation_cache_dir", str(found))
    # a study has many programs that take half a second
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    executables.use(found)
    return found


def state(where: str | Path) -> CacheState:
    """Describe the contents of `where`, checking each program."""
    mine = folder(where)
    programs = [
        file for suffix in (_SUFFIX, executables.SUFFIX) for file in mine.glob(f"*{suffix}")
    ]
    others = [other for other in _folders(where) if other != mine]
    return CacheState(
        len(programs),
        _size(mine),
        sum(map(_damaged, programs)),
        len(others),
        sum(map(_size, others)),
    )


def clear(where: str | Path) -> int:
    """Remove what is kept in `where`, also for other versions and processors, and nothing else; how
    many bytes that was.

    Raises:
      JbrlError: it cannot be removed.
    """
    removed = 0
    for found in _folders(where):
        size = _size(found)
        try:
            shutil.rmtree(found)
        except OSError as error:
            raise JbrlError(f"compile cache {found}: cannot be removed: {error.strerror}") from None
        removed += size
    return removed


def _folders(where: str | Path) -> list[Path]:
    root = place(where)
    return (
        sorted(
            f
            for f in root.iterdir()
            if f.is_dir() and not f.is_symlink() and _FOLDER.fullmatch(f.name)
        )
        if root.is_dir()
        else []
    )


def _size(found: Path) -> int:
    return sum(file.stat().st_size for file in found.rglob("*") if file.is_file())


def _damaged(program: Path) -> bool:
    """Return whether a program cannot be unpacked.

    JAX packs with zlib, or, where it finds a library for that, with zstd, which is not tested.
    """
    content = program.read_bytes()
    if program.suffix == executables.SUFFIX:
        return executables.damaged(content)
    if content[:1] != b"\x78" and content:
        return False
    try:
        zlib.decompress(content)
    except zlib.error:
        return True
    return False
