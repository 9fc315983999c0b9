"""Figures as files for print and for pages without SVG: PDF and PNG."""

import warnings
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from jbrl.report.style import LOOK

DPI = 150


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PDF or PNG, by the ending of `path`; letters that the font lacks become
    boxes.

    The same figure gives the same bytes: no date and no versions are in the file.
    """
    nothing = (
        {"Software": None}
        if path.suffix == ".png"
        else dict.fromkeys(("CreationDate", "Creator", "Producer"))
    )
    with mpl.rc_context(LOOK | {"pdf.fonttype": 42}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(path, dpi=DPI, facecolor="white", metadata=nothing)
