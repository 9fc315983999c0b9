"""Folders that are written whole or not at all, and pages with their figures in one form."""

import contextlib
import os
import secrets
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import matplotlib as mpl
from matplotlib.figure import Figure

from jbrl.base.errors import JbrlError
from jbrl.report import html, latex, markdown
from jbrl.report.content import Document
from jbrl.report.style import LOOK

Form = Literal["html", "latex", "markdown"]
# ending, renderer, and ending of the figures beside it, none where the page has them inside
RENDERERS = {
    "html": ("html", html.render, ""),
    "latex": ("tex", latex.render, "pdf"),
    "markdown": ("md", markdown.render, "svg"),
}
DPI = 150  # of PNG
_STALE_SECONDS = 3600.0  # temporary folders older than this were left by a killed process


def write_document(report: Document, folder: Path, name: str, form: Form = "html") -> None:
    """Write a page `name` in one form, and the files of its figures, to `folder`."""
    ending, render, image = RENDERERS[form]
    for plot in report.plots:
        beside = tuple(f"figures/{plot.id}.{kind}" for kind in (image, "csv"))
        for file in beside if image else plot.files:
            path = folder / file
            path.parent.mkdir(exist_ok=True)
            if path.suffix == ".csv":
                plot.drawing.data.to_csv(path, index=False, lineterminator="\n")
            else:
                save(plot.drawing.figure, path)
    (folder / f"{name}.{ending}").write_text(render(report), encoding="utf-8")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, PDF or PNG, by the ending of `path`; letters that the font of the
    latter two lacks become boxes.

    The same figure gives the same bytes: no date and no versions are in the file.
    """
    if path.suffix == ".svg":
        path.write_text(html.alone(figure), encoding="utf-8")
        return
    keys = ("Software",) if path.suffix == ".png" else ("CreationDate", "Creator", "Producer")
    with mpl.rc_context(LOOK | {"pdf.fonttype": 42}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(path, dpi=DPI, facecolor="white", metadata=dict.fromkeys(keys))


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
