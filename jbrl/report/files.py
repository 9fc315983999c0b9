"""Pages with their figures in one form."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure

from jbrl.report import html, latex, markdown
from jbrl.report.axes import in_look
from jbrl.report.content import Document

Form = Literal["html", "latex", "markdown"]
# ending, renderer, and ending of the figures beside it, none where the page has them inside
RENDERERS = {
    "html": ("html", html.render, ""),
    "latex": ("tex", latex.render, "pdf"),
    "markdown": ("md", markdown.render, "svg"),
}
DPI = 150  # of PNG


def write_document(
    report: Document,
    folder: Path,
    name: str,
    form: Form = "html",
    tables: Mapping[str, pd.DataFrame] | None = None,
) -> None:
    """Write a page `name` in one form, the files of its figures, and `tables` by the names of their
    files (CSV), to `folder`.
    """
    ending, render, image = RENDERERS[form]
    for file, content in (tables or {}).items():
        content.to_csv(folder / file, index=False, lineterminator="\n")
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
    with in_look(**{"pdf.fonttype": 42}):
        figure.savefig(path, dpi=DPI, facecolor="white", metadata=dict.fromkeys(keys))
