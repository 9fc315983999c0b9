"""The figures of best algorithms under time bounds: Figs 8 and 12 of Castronovo et al. 2016 as one
map, and with one panel for each algorithm.

The map says which algorithm is best. Where more than two tie, their colours cannot share a point:
the panels show all that tie, and read in grey.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from scipy import ndimage

from jbrl.base.errors import JbrlError
from jbrl.report import axes as parts
from jbrl.report.axes import FAINT, INK, PAPER, Style
from jbrl.report.figures import ONE_ALGORITHM, figure
from jbrl.report.sections import Section
from jbrl.report.text import listing
from jbrl.stats.time_bounds import winners_map

POINTS = 60  # bounds on each axis
COLUMNS = 3  # panels side by side
SMALLEST_AREA = 12  # points of an area that has a symbol
NO_OFFLINE_TIMES = (
    "no agent computes anything offline, so that winners depend on the bound on online time alone: "
    "see the table of winners"
)
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
    points = _winners(section)
    if isinstance(points, str):
        return points
    strip = not (section.contest.times("offline") > 0).any()
    if strip:  # all bounds on offline time admit the same agents
        points = points[points["y"] == points["y"].iloc[0]]
    winners = {name for algorithms in points["algorithms"] for name in algorithms[:2]}
    shown = [name for name in styles if name in winners]
    height = parts.legend_height(shown) + (0.95 if strip else 3.27)
    drawing = parts.Drawing(Figure(figsize=(parts.WIDTH, height)), _data(points))
    axes = drawing.figure.subplots()
    x, y = np.log10(points["x"].unique()), np.log10(points["y"].unique())
    y = y if len(y) > 1 else np.array([0.0, 1.0])
    cells = points["algorithms"].to_numpy().reshape(-1, len(x))
    _areas(axes, np.repeat(cells, 2, axis=0) if strip else cells, x, y, styles)
    _limits(axes, x, y, (6, 7))
    axes.set_xlabel(f"bound on {section.decision_time}")
    if strip:
        axes.set_yticks([])
    else:
        axes.set_ylabel("bound on offline time")
    drawing.margins(0.15, 0.5, parts.legend(drawing.figure, shown, styles))
    drawing.note = " ".join(section.left_out(section.timed))
    return drawing


@figure(
    "bounds",
    "Best or tied, algorithm by algorithm",
    "Each point is a pair of bounds: on the time per decision (to the right) and on the time "
    "before the first decision (upwards). Among the agents that keep both, the algorithm of a "
    "panel has the best one where it is full, is tied with the best (paired Z-test, one-sided, "
    "95%) where it is hatched, and is worse, or too slow, where it is blank. {Figures} 8 and 12 "
    "of the paper.",
    part="answer",
)
def best_under_bounds(section: Section, styles: parts.Styles) -> parts.Drawing | str:
    """Algorithms that win nowhere are named in the note."""
    points = _winners(section)
    if isinstance(points, str):
        return points
    if not (section.contest.times("offline") > 0).any():
        return NO_OFFLINE_TIMES
    ranks = _ranks(points)
    drawing = parts.Drawing(_panels(section, ranks, points, styles), _data(points))
    nowhere = [n for n in dict.fromkeys(section.timed["algorithm"]) if n not in ranks]
    notes = [f"Among the best nowhere: {listing(nowhere)}."] if nowhere else []
    drawing.note = " ".join([*notes, *section.left_out(section.timed)])
    return drawing


def _winners(section: Section) -> pd.DataFrame | str:
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
    edges = _edges(x), _edges(y)
    firsts, seconds = (
        np.vectorize(lambda names, k=k: (*names, "", "")[k], otypes=[object])(cells) for k in (0, 1)
    )
    for name in dict.fromkeys(firsts[firsts != ""]):
        style, own = styles[name], firsts == name
        for other in dict.fromkeys(seconds[own]):
            look: Any = {"edgecolors": "none"}
            if other:
                look = {"edgecolors": styles[other].colour, "hatch": parts.HATCH}
            rectangles = _rectangles(own & (seconds == other), *edges)
            look |= {"facecolors": style.colour, "linewidths": 0}
            axes.add_collection(PolyCollection(rectangles, **look))
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


def _panels(
    section: Section, ranks: dict[str, Grid], points: pd.DataFrame, styles: parts.Styles
) -> Figure:
    """One panel for each winning algorithm, under its symbol and name."""
    winning = [name for name in styles if name in ranks]
    lines = math.ceil(len(winning) / COLUMNS)
    height = 0.55 + 1.45 * lines
    canvas = Figure(figsize=(parts.WIDTH, height))
    panels = canvas.subplots(lines, COLUMNS, sharex=True, sharey=True, squeeze=False)
    x, y = np.log10(points["x"].unique()), np.log10(points["y"].unique())
    for number, axes in enumerate(panels.flat):
        if number < len(winning):
            _panel(axes, winning[number], ranks[winning[number]], x, y, styles[winning[number]])
            axes.tick_params(labelbottom=number + COLUMNS >= len(winning))
        else:
            axes.set_visible(False)
    canvas.supxlabel(f"bound on {section.decision_time}", fontsize=9.6, y=0.02)
    canvas.supylabel("bound on offline time", fontsize=9.6, x=0.015)
    canvas.subplots_adjust(
        left=0.15, right=0.985, bottom=0.62 / height, top=1 - 0.22 / height, hspace=0.42, wspace=0.1
    )
    return canvas


def _data(points: pd.DataFrame) -> pd.DataFrame:
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


def _ranks(points: pd.DataFrame) -> dict[str, Grid]:
    """For each algorithm that wins somewhere: 2 where it is best, 1 where it is tied, else 0;
    [y, x].
    """
    shape = (points["y"].nunique(), points["x"].nunique())
    names = dict.fromkeys(name for algorithms in points["algorithms"] for name in algorithms)
    ranks = {
        name: [2 if a[:1] == (name,) else int(name in a) for a in points["algorithms"]]
        for name in names
    }
    return {name: np.array(rank).reshape(shape) for name, rank in ranks.items()}


def _panel(
    axes: Axes, name: str, ranks: Grid, x: parts.Floats, y: parts.Floats, style: Style
) -> None:
    """One algorithm: rectangles around the points where it wins."""
    looks: Any = {
        1: {"facecolors": PAPER, "edgecolors": style.colour, "hatch": parts.HATCH},
        2: {"facecolors": style.colour, "edgecolors": "none"},
    }
    for rank, look in looks.items():
        rectangles = _rectangles(ranks == rank, _edges(x), _edges(y))
        axes.add_collection(PolyCollection(rectangles, linewidths=0, **look))
    axes.set_title(name, fontsize=min(9.6, 160 / len(name)), loc="left", pad=3, x=0.11)
    look = parts.symbol_look(style) | {"linestyle": "none", "clip_on": False}
    axes.plot([0.045], [1.075], transform=axes.transAxes, **look)
    for side in ("top", "right"):
        axes.spines[side].set(visible=True, color=FAINT)
    _limits(axes, x, y, (3, 4))
    axes.tick_params(labelsize=8.2, color=INK)


def _limits(axes: Axes, x: parts.Floats, y: parts.Floats, most: tuple[int, int]) -> None:
    """Set the ends of axes of logarithms of seconds, with so many ticks at most."""
    parts.duration_ticks(axes.xaxis, x[0], x[-1], most=most[0])
    parts.duration_ticks(axes.yaxis, y[0], y[-1], most=most[1])
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))


def _edges(centres: parts.Floats) -> parts.Floats:
    """Borders of cells around evenly spaced points: one more than there are points."""
    half = (centres[1] - centres[0]) / 2
    return np.append(centres - half, centres[-1] + half)


def _rectangles(cells: Grid, x: parts.Floats, y: parts.Floats) -> list[parts.Floats]:
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
