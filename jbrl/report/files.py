"""Common parts of writers of reports: the figures of a document, and folders that are written whole
or not at all.
"""

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jbrl.base.errors import JbrlError
from jbrl.report.content import Document, Plot

_STALE_SECONDS = 3600.0  # temporary folders older than this were left by a killed process


def plots_of(report: Document) -> Iterator[Plot]:
    """Yield all figures, in order."""
    for chapter in report.chapters:
        yield from (block for block in chapter.blocks if isinstance(block, Plot))


@contextmanager
def writing(
    out: Path, what: str = "the report", choose: str = "choose another folder"
) -> Iterator[Path]:
    """Yield a temporary folder whose files become those of the folder `out` when all are written.

    Nothing of `out` changes before that, and nothing is left behind when a file cannot be written.
    Other files that `out` holds stay.

    Args:
      out: made if it is not there, with its parents.
      what, choose: words for the message.

    Raises:
      JbrlError: in place of an OSError: `out` cannot be written, for example because the disk
        is full.
    """
    made = [folder for folder in (out, *out.parents) if not _exists(folder)]
    temporary = (out if not made else made[-1].parent) / f".report.{secrets.token_hex(4)}.tmp"
    try:
        _sweep(temporary.parent)
        temporary.mkdir()
        yield temporary
        out.mkdir(parents=True, exist_ok=True)
        _move(temporary, out)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in made:
            with contextlib.suppress(OSError):  # it is not there, or it is not empty
                folder.rmdir()
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            text = f"{out}: {what} cannot be written here: {reason}; {choose}, or make room"
            raise JbrlError(text) from None
        if isinstance(error, JbrlError) and str(temporary) in str(error):
            raise JbrlError(str(error).replace(str(temporary), str(out))) from None
        raise


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, or a folder that may not be looked into
        return False


def _move(source: Path, target: Path) -> None:
    """Put all files below `source` into their places below `target`, and remove it."""
    for folder, folders, names in os.walk(source):
        place = target / Path(folder).relative_to(source)
        for name in folders:
            (place / name).mkdir(exist_ok=True)
        for name in names:
            (Path(folder) / name).replace(place / name)
    shutil.rmtree(source)


def _sweep(folder: Path) -> None:
    """Remove temporary folders that killed processes have left."""
    for left in folder.glob(".report.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
