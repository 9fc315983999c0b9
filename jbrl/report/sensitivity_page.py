"""The page about parameters: how the score of an algorithm depends on each one that it draws."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from jbrl import __version__
from jbrl.report.axes import WIDTH
from jbrl.report.content import Cell, Chapter, Column, Document, Paragraph, Plot, Row, Table
from jbrl.report.figures import Drawing
from jbrl.report.files import plots_of, writing
from jbrl.report.html import render
from jbrl.report.images import save
from jbrl.report.style import INK, Style, drawn, styles
from jbrl.report.svg import alone
from jbrl.report.text import count, parameters_text, slug, symbol, varied
from jbrl.stats.sensitivity import CURVES, SHARES, WHO

ACROSS = 2  # panels beside each other
WIDE_RANGE = 20  # ratio of the greatest to the least value from which on an axis may be logarithmic
SKEWED = 0.3  # of the greatest value, where the median lies below it
CAPTION = (
    "Mean score of the trials of each group against the median of the parameter within it, with a "
    "95% interval. All other parameters keep their distributions. The line is the mean of all "
    "trials."
)
FAILED = (
    "× marks trials of a group that have failed, because learning diverged, with their number; "
    "means and shares are of the others."
)
KEY = (
    "A share is the part of the variance of the score over trials that the parameter explains by "
    "itself, with a 95% interval (jackknife). ≠ marks a dependence that a permutation test finds "
    "at 5% among the parameters of the algorithm (Holm). No mark: none can be told. Interactions "
    "of parameters do not show here."
)


def write_page(curves: pd.DataFrame, shares: pd.DataFrame, out: Path) -> Path:
    """Write `index.html`, `shares.csv`, `curves.csv` and the figures as SVG and PNG.

    Args:
      curves, shares: of `jbrl.stats.sensitivity`.
      out: folder, made if it is not there.

    Returns:
      Path of the page.

    Raises:
      JbrlError: it cannot be written.
    """
    report = document(curves, shares)
    with writing(out) as folder:
        shares.to_csv(folder / "shares.csv", index=False, lineterminator="\n")
        curves.to_csv(folder / "curves.csv", index=False, lineterminator="\n")
        for plot in plots_of(report):
            (folder / f"{plot.id}.svg").write_text(alone(plot.drawing.figure), encoding="utf-8")
            save(plot.drawing.figure, folder / f"{plot.id}.png")
        (folder / "index.html").write_text(render(report, {}), encoding="utf-8")
    return out / "index.html"


def document(curves: pd.DataFrame, shares: pd.DataFrame) -> Document:
    """Return the page as chapters, one for each experiment."""
    assert set(CURVES) <= set(curves) and set(SHARES) <= set(shares)
    looks = styles(shares["algorithm"], set())
    chapters = [
        Chapter(f"experiment-{number}", str(name), tuple(_blocks(number, curves, rows, looks)))
        for number, (name, rows) in enumerate(shares.groupby("experiment", sort=False), 1)
    ]
    return Document(
        title="Which parameters matter?",
        kind="Complete algorithms",
        facts=(
            count(len(chapters), "experiment"),
            count(shares["algorithm"].nunique(), "algorithm"),
            _trials(shares["n"]),
        ),
        notices=(),
        chapters=tuple(chapters),
        styles=looks,
        version=__version__,
    )


def _trials(numbers: pd.Series) -> str:
    least, most = int(numbers.min()), int(numbers.max())
    return f"{least:,} trials each" if least == most else f"{least:,} to {most:,} trials each"


@drawn
def sensitivity(curves: pd.DataFrame, shares: pd.DataFrame, style: Style) -> Drawing:
    """Draw the mean score of one algorithm in one experiment against each of its parameters.

    Args:
      curves, shares: rows of that algorithm and experiment.

    Returns:
      Panels in the order of `shares`, with a common axis of scores.
    """
    names = list(shares["parameter"])
    across = min(ACROSS, len(names))
    down = math.ceil(len(names) / across)
    scored = curves[curves["n"] > 0]
    mean = float(np.average(scored["mean"], weights=scored["n"]))
    size = (WIDTH if across > 1 else 0.6 * WIDTH, 0.3 + 1.95 * down)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    for panel, row in zip(panels, shares.to_dict("records"), strict=False):
        _panel(panel, curves[curves["parameter"] == row["parameter"]], row, style)
        panel.axhline(mean, color=INK, linewidth=0.7, linestyle=(0, (4, 3)))
    figure.supylabel("mean score", fontsize=9.6)
    return Drawing(figure, curves)


def _panel(axes: Any, rows: pd.DataFrame, share: dict[str, Any], style: Style) -> None:
    x, y = rows["middle"].to_numpy(np.float64), rows["mean"].to_numpy(np.float64)
    half = rows["ci95"].fillna(0.0).to_numpy(np.float64)
    axes.errorbar(
        x,
        y,
        yerr=half,
        color=style.colour,
        marker=style.marker,
        markersize=4.5 * style.size,
        markeredgecolor=INK,
        markeredgewidth=0.4,
        linewidth=1.2,
        elinewidth=1.0,
    )
    # values of which all trials have failed are on the axis, too
    axes.update_datalim(np.column_stack([x, np.full(len(x), np.nanmean(y))]))
    axes.autoscale_view()
    for middle, failed in rows.loc[rows["failed"] > 0, ["middle", "failed"]].to_numpy():
        place = {"xy": (middle, 0), "xycoords": ("data", "axes fraction")}
        axes.annotate(f"×{failed:.0f}", **place, ha="center", va="bottom", fontsize=7.5, color=INK)
    low, high = float(rows["low"].min()), float(rows["high"].max())
    if low > 0 and high / low >= WIDE_RANGE and np.median(x) < SKEWED * high:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:g}")
    elif len(x) <= 4 and (rows["low"] == rows["high"]).all():
        axes.xaxis.set_major_locator(FixedLocator(list(x)))
        axes.margins(x=0.15)
    mark = " ≠" if share["significant"] else ""
    title = f"{symbol(share['parameter'])}\n{_share(share)}{mark}"
    axes.set_title(title, fontsize=8.6, loc="left", pad=3)
    axes.grid(axis="y")
    axes.tick_params(labelsize=8)


def _counted(row: dict[str, Any]) -> str:
    return f"{row['n']:,}" + (f" (×{row['failed']:,})" if row["failed"] else "")


def _share(row: dict[str, Any]) -> str:
    if not math.isfinite(row["share"]):
        return "nothing to compare"
    return f"{row['share']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"


def _blocks(
    number: int, curves: pd.DataFrame, shares: pd.DataFrame, looks: dict[str, Style]
) -> Iterator[Paragraph | Plot | Table]:
    yield _table(number, shares)
    yield Paragraph((KEY,), "key")
    for place, (who, rows) in enumerate(shares.groupby(list(WHO), sort=False), 1):
        inside = (curves[list(WHO)] == pd.Series(who, index=list(WHO))).all(axis=1)
        title = _name(rows.iloc[0], shares)
        yield Plot(
            id=slug(f"parameters-{number}-{place}-{rows['algorithm'].iloc[0]}"),
            title=title,
            caption=CAPTION,
            note=FAILED if curves[inside]["failed"].any() else "",
            drawing=sensitivity(curves[inside], rows, looks[rows["algorithm"].iloc[0]]),
        )


def _name(row: pd.Series, shares: pd.DataFrame) -> str:
    """Return the algorithm, with what it differs in from others of its name."""
    mine = shares[shares["algorithm"] == row["algorithm"]]["parameters"].unique()
    if len(mine) == 1:
        return str(row["algorithm"])
    return f"{row['algorithm']} ({parameters_text(row['parameters'], varied(mine))})"


def _table(number: int, shares: pd.DataFrame) -> Table:
    columns = (
        Column("Algorithm"),
        Column("Parameter"),
        Column("Share", "number"),
        Column("p", "number", hint="permutation test of no dependence"),
        Column("Trials", "number", hint="with a score, and those that have failed"),
    )
    rows = []
    for (_, row), known in zip(shares.iterrows(), shares.to_dict("records"), strict=True):
        mark = " ≠" if known["significant"] else ""
        cells = (
            Cell(_name(row, shares), algorithm=known["algorithm"]),
            Cell(symbol(known["parameter"])),
            Cell(_share(known) + mark, value=known["share"], strong=bool(known["significant"])),
            Cell(f"{known['p_value']:.4f}", value=known["p_value"]),
            Cell(_counted(known), value=float(known["n"])),
        )
        rows.append(Row(cells))
    return Table(f"shares-{number}", "Shares", columns, tuple(rows), sortable=True)
