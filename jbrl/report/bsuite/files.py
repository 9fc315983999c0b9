"""A figure of the page, and its files beside it: the numbers as CSV, the drawing as SVG and PNG."""

from pathlib import Path

from jbrl.report.content import Plot
from jbrl.report.figures import Drawing
from jbrl.report.images import save
from jbrl.report.svg import alone


def plot(id: str, title: str, caption: str, drawing: Drawing) -> Plot:
    """Return a figure of the page that links to its files in the folder `figures`."""
    files = tuple(f"figures/{id}.{ending}" for ending in ("csv", "svg", "png"))
    return Plot(id, title, caption, drawing.note, drawing, files)


def write_files(plot: Plot, folder: Path) -> None:
    """Write a figure as SVG and PNG, its numbers as CSV."""
    plot.data.to_csv(folder / f"{plot.id}.csv", index=False, lineterminator="\n")
    (folder / f"{plot.id}.svg").write_text(alone(plot.drawing.figure), encoding="utf-8")
    save(plot.drawing.figure, folder / f"{plot.id}.png")
