"""The map of the best algorithms under time bounds: Figs 8 and 12 of Castronovo et al. 2016.

Where more than two algorithms tie, their colours cannot share a point: the tables of winners
(`jbrl.report.tables.winners`) name all that do.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from scipy import ndimage

from jbrl.base.errors import JbrlError
from jbrl.report import axes as parts
from jbrl.report.axes import PAPER
from jbrl.report.figures import ONE_ALGORITHM, figure
from jbrl.report.sections import Section
from jbrl.stats.time_bounds import winners_map

POINTS = 60  # bounds on each axis
SMALLEST_AREA = 12  # points of an area that has a symbol
Grid = npt.NDArray[Any]


@figure(
    "choice",
    "Best algorithm within time bounds",
    "Each point is a pair of bounds: on the time per decision (to the right) and on the time "
    "before the first decision (upwards). Its colour and the symbol in the area are those of the "
    "algorithm with the best agent that keeps both bounds; stripes have the colour of the next "
    "one that is tied with it (paired Z-test, one-sided, 95%). No agent keeps the bounds of a "
    "blank point. {Figures} 8 and 12 of the paper.",
    part="answer",
)
def best_within_bounds(section: Section, styles: parts.Styles) -> parts.Drawing | str:
    """Return the panels of all algorithms laid over each other; without offline times, one
    strip.
    """
    points = winners_or_reason(section)
    if isinstance(points, str):
        return points
    strip = not (section.contest.times("offline") > 0).any()
    if strip:  # all bounds on offline time admit the same agents
        points = points[points["y"] == points["y"].iloc[0]]
    winners = {name for algorithms in points["algorithms"] for name in algorithms[:2]}
    shown = [name for name in styles if name in winners]
    height = parts.legend_height(shown) + (0.95 if strip else 3.27)
    drawing, axes = parts.panel(height, stretches(points))
    x, y = np.log10(points["x"].unique()), np.log10(points["y"].unique())
    y = y if len(y) > 1 else np.array([0.0, 1.0])
    cells = points["algorithms"].to_numpy().reshape(-1, len(x))
    _areas(axes, np.repeat(cells, 2, axis=0) if strip else cells, x, y, styles)
    limits(axes, x, y, (6, 7))
    axes.set_xlabel(f"bound on {section.decision_time}")
    if strip:
        axes.set_yticks([])
    else:
        axes.set_ylabel("bound on offline time")
    drawing.margins(0.15, 0.5, parts.legend(drawing.figure, shown, styles))
    drawing.note = " ".join(section.left_out(section.timed))
    return drawing


def winners_or_reason(section: Section) -> pd.DataFrame | str:
    """Return the map of winners, or the reason why there is none."""
    rows = section.competitors
    if section.timed["algorithm"].nunique() < 2:
        if rows.empty:
            return ""
        few = rows["algorithm"].nunique() < 2
        return ONE_ALGORITHM if few else "fewer than two algorithms have known times"
    try:
        return winners_map(section.contest, points=POINTS)
    except JbrlError as error:
        return str(error)


def _areas(axes: Axes, cells: Grid, x: parts.Floats, y: parts.Floats, styles: parts.Styles) -> None:
    """Points [y, x], tuples of algorithms with the best first, in the colour of the best; those
    of a tie striped; a symbol in each area.
    """
    borders = edges(x), edges(y)
    firsts, seconds = (
        np.vectorize(lambda names, k=k: (*names, "", "")[k], otypes=[object])(cells) for k in (0, 1)
    )
    for name in dict.fromkeys(firsts[firsts != ""]):
        style, own = styles[name], firsts == name
        for other in dict.fromkeys(seconds[own]):
            look: Any = {"edgecolors": "none"}
            if other:
                look = {"edgecolors": styles[other].colour, "hatch": parts.HATCH}
            covered = rectangles(own & (seconds == other), *borders)
            look |= {"facecolors": style.colour, "linewidths": 0}
            axes.add_collection(PolyCollection(covered, **look))
        for row, column in _middles(own):
            height = y[0] + (y[-1] - y[0]) * (row + 0.5) / len(cells)
            look = parts.symbol_look(style, 9, 0.8) | {"color": PAPER, "linestyle": "none"}
            axes.plot([x[column]], [height], **look)


def _middles(own: Grid) -> list[tuple[int, int]]:
    """Return the point of each connected area of the true points [y, x] that is farthest from its
    edge; small areas have none.
    """
    areas, count = ndimage.label(own)
    middles = []
    for area in range(1, count + 1):
        inside = areas == area
        if inside.sum() >= min(SMALLEST_AREA, own.shape[1] // 10 * len(own)):
            depth = ndimage.distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
            deepest = np.argwhere(depth == depth.max())
            middle = ((deepest - deepest.mean(axis=0)) ** 2).sum(axis=1).argmin()
            middles.append((int(deepest[middle, 0]), int(deepest[middle, 1])))
    return middles


def stretches(points: pd.DataFrame) -> pd.DataFrame:
    """For each offline bound, the stretches of online bounds with the same winners, the best
    first; seconds.
    """
    columns = points[["algorithms", "y"]]
    changed = (columns != columns.shift()).any(axis=1)
    points = points.assign(winners=points["algorithms"].map("; ".join))
    return points.groupby(changed.cumsum()).agg(
        offline_bound=("y", "first"),
        online_bound_from=("x", "min"),
        online_bound_to=("x", "max"),
        winners=("winners", "first"),
    )


def limits(axes: Axes, x: parts.Floats, y: parts.Floats, most: tuple[int, int]) -> None:
    """Set the ends of axes of logarithms of seconds, with so many ticks at most."""
    parts.duration_ticks(axes.xaxis, x[0], x[-1], most=most[0])
    parts.duration_ticks(axes.yaxis, y[0], y[-1], most=most[1])
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))


def edges(centres: parts.Floats) -> parts.Floats:
    """Borders of cells around evenly spaced points: one more than there are points."""
    half = (centres[1] - centres[0]) / 2
    return np.append(centres - half, centres[-1] + half)


def rectangles(cells: Grid, x: parts.Floats, y: parts.Floats) -> list[parts.Floats]:
    """Few rectangles [4, 2] that cover the true cells [Y, X]: runs of a row, joined to the same run
    of the rows before.
    """
    # first and last cell of a run, and the row where it began
    open_runs: dict[tuple[int, int], int] = {}
    rectangles = []

    def close(run: tuple[int, int], begin: int, end: int) -> None:
        left, right, low, high = x[run[0]], x[run[1] + 1], y[begin], y[end]
        rectangles.append(np.array([(left, low), (right, low), (right, high), (left, high)]))

    for row in range(len(cells) + 1):
        runs = _runs(cells[row]) if row < len(cells) else []
        for run in [run for run in open_runs if run not in runs]:
            close(run, open_runs.pop(run), row)
        for run in runs:
            open_runs.setdefault(run, row)
    return rectangles


def _runs(row: Grid) -> list[tuple[int, int]]:
    """First and last index of each run of true entries."""
    steps = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return [(int(a), int(b) - 1) for a, b in zip(steps[::2], steps[1::2], strict=True)]
