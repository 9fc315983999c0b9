"""The figures of best algorithms under time bounds: Figs 8 and 12 of Castronovo et al. 2016 as one
map, and with one panel for each algorithm.

The map says which algorithm is best. Where more than two tie, their colours cannot share a point:
the panels show all that tie, and read in grey.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from scipy import ndimage

from jbrl.base.errors import JbrlError
from jbrl.report.axes import WIDTH, duration_ticks, legend, legend_height
from jbrl.report.figures import LONELY, Drawing, figure
from jbrl.report.style import FAINT, INK, PAPER, Style
from jbrl.report.tables import Section
from jbrl.report.text import listing
from jbrl.stats.time_bounds import winners_map

POINTS = 60  # bounds on each axis
COLUMNS = 3  # panels side by side
HATCH = "////"  # where an algorithm is tied with the best: different from full in grey as well
LEAST = 12  # points of an area that has a symbol


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
def best_within_bounds(section: Section, styles: Mapping[str, Style]) -> Drawing | str:
    """Return the panels of all algorithms laid over each other; without offline times, one
    strip.
    """
    found = _found(section)
    if isinstance(found, str):
        return found
    strip = not (section.contest.times("offline") > 0).any()
    if strip:  # all bounds on offline time admit the same agents
        found = found[found["y"] == found["y"].iloc[0]]
    best = [name for name in styles if name in {a[0] for a in found["algorithms"] if a}]
    tied = {name for algorithms in found["algorithms"] for name in algorithms[1:2]}
    shown = [name for name in styles if name in {*best, *tied}]
    height = legend_height(shown) + (0.95 if strip else 3.27)
    drawing = Drawing(Figure(figsize=(WIDTH, height)), _data(found))
    axes = drawing.figure.subplots()
    x, y = np.log10(found["x"].unique()), np.log10(found["y"].unique())
    y = y if len(y) > 1 else np.array([0.0, 1.0])
    cells = found["algorithms"].to_numpy().reshape(-1, len(x))
    cells = np.repeat(cells, 2, axis=0) if strip else cells
    _areas(axes, cells, x, y, styles)
    duration_ticks(axes.xaxis, x[0], x[-1], most=6)
    duration_ticks(axes.yaxis, y[0], y[-1], most=7)
    if strip:
        axes.set_yticks([])
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), xlabel="bound on online time per decision")
    axes.set_ylabel("" if strip else "bound on offline time")
    top = legend(drawing.figure, shown, styles)
    drawing.figure.subplots_adjust(left=0.15, right=0.965, bottom=0.5 / height, top=top)
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
def best_under_bounds(section: Section, styles: Mapping[str, Style]) -> Drawing | str:
    """Algorithms that win nowhere are named in the note."""
    found = _found(section)
    if isinstance(found, str):
        return found
    if not (section.contest.times("offline") > 0).any():
        return (
            "no agent computes anything offline, so that winners depend on the bound on online "
            "time alone: see the table of winners"
        )
    ranks = _ranks(found)
    drawing = Drawing(
        _panels(ranks, [name for name in styles if name in ranks], found, styles), _data(found)
    )
    nowhere = [n for n in dict.fromkeys(section.timed["algorithm"]) if n not in ranks]
    notes = [f"Among the best nowhere: {listing(nowhere)}."] if nowhere else []
    drawing.note = " ".join([*notes, *section.left_out(section.timed)])
    return drawing


def _found(section: Section) -> pd.DataFrame | str:
    """Return the map of winners, or the reason why there is none."""
    rows = section.competitors
    if section.timed["algorithm"].nunique() < 2:
        if rows.empty:
            return ""
        few = rows["algorithm"].nunique() < 2
        return LONELY if few else "fewer than two algorithms have known times"
    try:
        return winners_map(section.contest, points=POINTS)
    except JbrlError as error:
        return str(error)


def _areas(
    axes: Axes, cells: np.ndarray, x: np.ndarray, y: np.ndarray, styles: Mapping[str, Style]
) -> None:
    """Points [y, x], tuples of algorithms with the best first, in the colour of the best; those
    of a tie striped; a symbol in each area.
    """
    edges = _edges(x), _edges(y)
    firsts = np.vectorize(lambda names: names[0] if names else "", otypes=[object])(cells)
    seconds = np.vectorize(lambda n: n[1] if len(n) > 1 else "", otypes=[object])(cells)
    for name in dict.fromkeys(firsts[firsts != ""]):
        style, mine = styles[name], firsts == name
        for other in dict.fromkeys(seconds[mine]):
            look: Any = {"edgecolors": "none"}
            if other:
                look = {"edgecolors": styles[other].colour, "hatch": HATCH}
            rectangles = _rectangles(mine & (seconds == other), *edges)
            axes.add_collection(
                PolyCollection(rectangles, facecolors=style.colour, linewidths=0, **look)
            )
        for place in _middles(mine):
            axes.plot(
                [x[place[1]]],
                [y[0] + (y[-1] - y[0]) * (place[0] + 0.5) / len(cells)],
                linestyle="none",
                marker=style.marker,
                color=PAPER,
                markeredgecolor=INK,
                markeredgewidth=0.8,
                markersize=9 * style.size,
            )


def _middles(mine: np.ndarray) -> list[tuple[int, int]]:
    """Return the point of each connected area of the true points [y, x] that is farthest from its
    edge; small areas have none.
    """
    areas, count = ndimage.label(mine)
    found = []
    for area in range(1, count + 1):
        inside = areas == area
        if inside.sum() >= min(LEAST, mine.shape[1] // 10 * len(mine)):
            depth = ndimage.distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
            deepest = np.argwhere(depth == depth.max())
            middle = ((deepest - deepest.mean(axis=0)) ** 2).sum(axis=1).argmin()
            found.append((int(deepest[middle, 0]), int(deepest[middle, 1])))
    return found


def _panels(
    ranks: Mapping[str, np.ndarray],
    winning: list[str],
    found: pd.DataFrame,
    styles: Mapping[str, Style],
) -> Figure:
    """One panel for each winning algorithm, under its symbol and name."""
    lines = math.ceil(len(winning) / COLUMNS)
    height = 0.55 + 1.45 * lines
    drawn = Figure(figsize=(WIDTH, height))
    panels = drawn.subplots(lines, COLUMNS, sharex=True, sharey=True, squeeze=False)
    x, y = np.log10(found["x"].unique()), np.log10(found["y"].unique())
    for number, axes in enumerate(panels.flat):
        if number < len(winning):
            _panel(axes, winning[number], ranks[winning[number]], x, y, styles[winning[number]])
            axes.tick_params(labelbottom=number + COLUMNS >= len(winning))
        else:
            axes.set_visible(False)
    drawn.supxlabel("bound on online time per decision", fontsize=9.6, y=0.02)
    drawn.supylabel("bound on offline time", fontsize=9.6, x=0.015)
    drawn.subplots_adjust(
        left=0.15, right=0.985, bottom=0.62 / height, top=1 - 0.22 / height, hspace=0.42, wspace=0.1
    )
    return drawn


def _data(found: pd.DataFrame) -> pd.DataFrame:
    """For each offline bound, the stretches of online bounds with the same winners, the best
    first; seconds.
    """
    changed = (found["algorithms"] != found["algorithms"].shift()) | (
        found["y"] != found["y"].shift()
    )
    stretches = found.assign(winners=found["algorithms"].map("; ".join)).groupby(changed.cumsum())
    columns = {
        "offline_bound": ("y", "first"),
        "online_bound_from": ("x", "min"),
        "online_bound_to": ("x", "max"),
    }
    return stretches.agg(**columns, winners=("winners", "first"))


def _ranks(found: pd.DataFrame) -> dict[str, np.ndarray]:
    """For each algorithm that wins somewhere: 2 where it is best, 1 where it is tied, else 0;
    [y, x].
    """
    shape = (found["y"].nunique(), found["x"].nunique())
    names = dict.fromkeys(name for algorithms in found["algorithms"] for name in algorithms)
    return {
        name: np.array(
            [2 if a[:1] == (name,) else int(name in a) for a in found["algorithms"]]
        ).reshape(shape)
        for name in names
    }


def _panel(
    axes: Axes, name: str, ranks: np.ndarray, x: np.ndarray, y: np.ndarray, style: Style
) -> None:
    """One algorithm: rectangles around the points where it wins."""
    tied, best = (_rectangles(ranks == rank, _edges(x), _edges(y)) for rank in (1, 2))
    axes.add_collection(
        PolyCollection(tied, facecolors=PAPER, edgecolors=style.colour, hatch=HATCH, linewidths=0)
    )
    axes.add_collection(
        PolyCollection(best, facecolors=style.colour, edgecolors="none", linewidths=0)
    )
    axes.set_title(name, fontsize=min(9.6, 160 / len(name)), loc="left", pad=3, x=0.11)
    look: Any = {
        "color": style.colour,
        "markeredgecolor": INK,
        "markeredgewidth": 0.5,
        "markersize": 6.5 * style.size,
    }
    axes.plot(
        [0.045],
        [1.075],
        transform=axes.transAxes,
        clip_on=False,
        linestyle="none",
        marker=style.marker,
        **look,
    )
    for side in ("top", "right"):
        axes.spines[side].set(visible=True, color=FAINT)
    duration_ticks(axes.xaxis, x[0], x[-1], most=3)
    duration_ticks(axes.yaxis, y[0], y[-1], most=4)
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.tick_params(labelsize=8.2, color=INK)


def _edges(centres: np.ndarray) -> np.ndarray:
    """Borders of cells around evenly spaced points: one more than there are points."""
    half = (centres[1] - centres[0]) / 2
    return np.append(centres - half, centres[-1] + half)


def _rectangles(cells: np.ndarray, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Few rectangles [4, 2] that cover the true cells [Y, X]: runs of a row, joined to the same run
    of the rows before.
    """
    # first and last cell of a run, and the row where it began
    open_runs: dict[tuple[int, int], int] = {}
    found = []

    def close(run: tuple[int, int], begin: int, end: int) -> None:
        left, right, low, high = x[run[0]], x[run[1] + 1], y[begin], y[end]
        found.append(np.array([(left, low), (right, low), (right, high), (left, high)]))

    for row in range(len(cells) + 1):
        runs = _runs(cells[row]) if row < len(cells) else []
        for run in [run for run in open_runs if run not in runs]:
            close(run, open_runs.pop(run), row)
        for run in runs:
            open_runs.setdefault(run, row)
    return found


def _runs(row: np.ndarray) -> list[tuple[int, int]]:
    """First and last index of each run of true entries."""
    steps = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return [(int(a), int(b) - 1) for a, b in zip(steps[::2], steps[1::2], strict=True)]
