"""The page about parameters: how the score of an algorithm depends on each one that it draws."""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from jbrl.base.files import writing
from jbrl.report import content as doc
from jbrl.report.axes import DASHED, INK, WIDTH, Drawing, Style, Styles, drawn, styles, symbol_look
from jbrl.report.files import write_document
from jbrl.report.text import count, slug
from jbrl.stats.sensitivity import CURVES, MEASURES, SHARES, WHO
from jbrl.stats.table import setting_texts, symbol

WORDS = doc.prose("sensitivity")
ACROSS = 2  # panels beside each other
WIDE_RANGE = 20  # ratio of the greatest to the least value from which on an axis may be logarithmic
SKEWED = 0.3  # of the greatest value, where the median lies below it


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
        tables = {"shares.csv": shares, "curves.csv": curves}
        write_document(report, folder, "index", tables=tables)
    return out / "index.html"


def write_tuning(gains: pd.DataFrame, out: Path) -> Path:
    """Write `index.html` and `tuning.csv`; `gains` is `jbrl.stats.sensitivity.tuning`, the
    rest as in `write_page`.
    """
    blocks = (_gains(gains), doc.Paragraph((WORDS["tuning"],), "key"))
    report = doc.Document(
        title="What does tuning gain?",
        kind="Sensitivity across environments",
        facts=(
            count(int(gains["experiments"].iloc[0]), "experiment"),
            count(len(gains), "algorithm"),
        ),
        chapters=(doc.Chapter("tuning", "Settings for each environment, and one for all", blocks),),
        styles=styles(gains["algorithm"], set()),
    )
    with writing(out) as folder:
        write_document(report, folder, "index", tables={"tuning.csv": gains})
    return out / "index.html"


def _gains(gains: pd.DataFrame) -> doc.Table:
    hints = (
        *("the best setting of each environment", "the best setting for all"),
        *("the difference of the two", "parameters to choose for 95% of tuned"),
    )
    columns: list[tuple[object, Any]] = [
        ("Algorithm", lambda r: doc.Cell(r["algorithm"], algorithm=r["algorithm"])),
        (doc.Column("Settings", "number"), lambda r: doc.Cell(str(r["settings"]), r["settings"])),
        *(
            (doc.Column(name.capitalize(), "number", hint), partial(_measure, name))
            for name, hint in zip(MEASURES, hints, strict=True)
        ),
        ("Parameters", itemgetter("choose")),
    ]
    return doc.tabulate("gains", "Gains", columns, gains.to_dict("records"), sortable=True)


def _measure(name: str, row: dict[str, Any]) -> doc.Cell:
    form = "d" if name == "dimension" else ".2f"
    value, low, high = (row[f"{name}{end}"] for end in ("", "_lower", "_upper"))
    ends = "" if math.isnan(low) else f" ({low:{form}} to {high:{form}})"
    return doc.Cell(f"{value:{form}}{ends}", value)


def document(curves: pd.DataFrame, shares: pd.DataFrame) -> doc.Document:
    """Return the page as chapters, one for each experiment."""
    assert set(CURVES) <= set(curves) and set(SHARES) <= set(shares)
    looks = styles(shares["algorithm"], set())
    chapters = [
        doc.Chapter(f"experiment-{number}", str(name), tuple(_blocks(number, curves, rows, looks)))
        for number, (name, rows) in enumerate(shares.groupby("experiment", sort=False), 1)
    ]
    return doc.Document(
        title="Which parameters matter?",
        kind="Complete algorithms",
        facts=(
            count(len(chapters), "experiment"),
            count(shares["algorithm"].nunique(), "algorithm"),
            _trials(shares["n"]),
        ),
        chapters=tuple(chapters),
        styles=looks,
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
    for panel, (_, row) in zip(panels, shares.iterrows(), strict=False):
        _panel(panel, curves[curves["parameter"] == row["parameter"]], row, style)
        panel.axhline(mean, color=INK, linewidth=0.7, linestyle=DASHED)
    figure.supylabel("mean score", fontsize=9.6)
    return Drawing(figure, curves)


def _panel(axes: Axes, rows: pd.DataFrame, share: pd.Series, style: Style) -> None:
    x, y = rows["middle"].to_numpy(np.float64), rows["mean"].to_numpy(np.float64)
    half = rows["ci95"].fillna(0.0).to_numpy(np.float64)
    look = symbol_look(style, 4.5, 0.4)
    axes.errorbar(x, y, yerr=half, linewidth=1.2, elinewidth=1.0, **look)
    # values of which all trials have failed are on the axis, too
    axes.update_datalim(np.column_stack([x, np.full(len(x), np.nanmean(y))]))
    axes.autoscale_view()
    for middle, failed in rows.loc[rows["failed"] > 0, ["middle", "failed"]].to_numpy():
        place: Any = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom"}
        axes.annotate(f"×{failed:.0f}", (middle, 0), fontsize=7.5, color=INK, **place)
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


def _counted(row: Mapping[str, Any]) -> str:
    return f"{row['n']:,}" + (f" (×{row['failed']:,})" if row["failed"] else "")


def _share(row: Mapping[str, Any]) -> str:
    if not math.isfinite(row["share"]):
        return "nothing to compare"
    return f"{row['share']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"


def _blocks(
    number: int, curves: pd.DataFrame, shares: pd.DataFrame, looks: Styles
) -> Iterator[doc.Block]:
    yield _table(number, shares)
    yield doc.Paragraph((WORDS["key"],), "key")
    for place, (who, rows) in enumerate(shares.groupby(list(WHO), sort=False), 1):
        own = curves[(curves[list(WHO)] == pd.Series(who, index=list(WHO))).all(axis=1)]
        algorithm = rows["algorithm"].iloc[0]
        drawing = sensitivity(own, rows, looks[algorithm])
        drawing.note = WORDS["failed"] if own["failed"].any() else ""
        id = slug(f"parameters-{number}-{place}-{algorithm}")
        files = tuple(f"{id}.{end}" for end in ("csv", "svg", "png"))
        yield doc.Plot(id, _name(rows.iloc[0], shares), WORDS["caption"], drawing, files)


def _name(row: Mapping[str, Any], shares: pd.DataFrame) -> str:
    """Return the algorithm, with what it differs in from others of its name."""
    mine = shares[shares["algorithm"] == row["algorithm"]]["parameters"].unique()
    if len(mine) == 1:
        return str(row["algorithm"])
    return f"{row['algorithm']} ({setting_texts(mine)[row['parameters']]})"


def _table(number: int, shares: pd.DataFrame) -> doc.Table:
    test = doc.Column("p", "number", hint="permutation test of no dependence")
    trials = doc.Column("Trials", "number", hint="with a score, and those that have failed")
    columns: list[tuple[object, Any]] = [
        ("Algorithm", lambda r: doc.Cell(_name(r, shares), algorithm=r["algorithm"])),
        ("Parameter", lambda r: symbol(r["parameter"])),
        (doc.Column("Share", "number"), _marked_share),
        (test, lambda r: doc.Cell(f"{r['p_value']:.4f}", r["p_value"])),
        (trials, lambda r: doc.Cell(_counted(r), float(r["n"]))),
    ]
    rows = shares.to_dict("records")
    return doc.tabulate(f"shares-{number}", "Shares", columns, rows, sortable=True)


def _marked_share(row: Mapping[str, Any]) -> doc.Cell:
    mark = " ≠" * bool(row["significant"])
    return doc.Cell(_share(row) + mark, row["share"], strong=bool(mark))
