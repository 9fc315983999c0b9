"""Parts that figures are made of: axes for times and for rows of agents, legends, symbols,
intervals, histograms.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jbrl.report.style import FAINT, INK, ORACLE, Style
from jbrl.report.tables import Section
from jbrl.report.text import seconds_text

WIDTH = 5.5  # inches
# seconds
DECADES = (
    *(10.0**e for e in range(-12, 2)),
    60.0,
    600.0,
    3600.0,
    36000.0,
    *(86400.0 * 10**e for e in range(5)),
)
LINE, GAP = 0.165, 0.09  # inches: a line of the name of a row, the gap between two names
STRIP = 0.08  # of the axes' height, for an oracle above the scale


def time_axis(
    axes: Axes, seconds: pd.Series, algorithms: pd.Series, order: Sequence[str]
) -> dict[object, float]:
    """Make the x axis one of decimal logarithms of `seconds`, which are finite and not negative;
    the place of each, by index.

    Zeros have no logarithm: they stand in a strip of their own on the left, side by side by
    algorithm in the given order.
    """
    positive, zero = seconds[seconds > 0], seconds[seconds == 0]
    found: dict[object, float] = {index: float(np.log10(s)) for index, s in positive.items()}
    left = right = 0.0
    ticks: dict[float, str] = {}
    if found:
        left, right = _padded(min(found.values()), max(found.values()))
        ticks = {float(np.log10(s)): seconds_text(s) for s in _time_ticks(10**left, 10**right)}
        _fine_ticks(axes, left, right)
    if len(zero):
        strip = 0.22 * (right - left) or 1.0
        names = [name for name in order if name in set(algorithms[zero.index])]
        places = dict(
            zip(
                names,
                left - strip + strip * np.arange(1, len(names) + 1) / (len(names) + 1),
                strict=True,
            )
        )
        found |= {index: float(places[algorithms[index]]) for index in zero.index}
        ticks[left - strip / 2] = "0"
        if len(positive):
            axes.axvline(left, color=FAINT, linewidth=0.8, linestyle=(0, (1, 2)), gid="strip")
        left -= strip
    axes.set_xlim(left, right)
    axes.set_xticks(list(ticks), list(ticks.values()))
    return found


def duration_ticks(axis: Axis, low: float, high: float, most: int) -> None:
    """Set the ticks of an axis of decimal logarithms of durations, from 10^`low` to 10^`high`
    seconds: `most` of them at most.
    """
    ticks = _time_ticks(10**low, 10**high)
    while len(ticks) > most:
        ticks = ticks[1::2]
    axis.set_ticks([float(np.log10(s)) for s in ticks], [seconds_text(s) for s in ticks])


def _padded(low: float, high: float) -> tuple[float, float]:
    """Return ends of an axis that shows at least a bit over a decade, so that there is a tick."""
    lack = max(0.0, 1.2 - (high - low))
    margin = 0.05 * (high - low + lack) + lack / 2
    return low - margin, high + margin


def _fine_ticks(axes: Axes, left: float, right: float) -> None:
    """Draw short ticks between the decades as one line, which takes a tenth of the space that minor
    ticks take in the SVG.
    """
    places = np.log10(
        [d * k for d, following in pairwise(DECADES) for k in range(2, 10) if d * k < following]
    )
    places = places[(places > left) & (places < right)]
    y = np.tile([0, -0.012, np.nan], len(places))
    line = Line2D(
        np.repeat(places, 3),
        y,
        transform=axes.get_xaxis_transform(),
        color=INK,
        linewidth=0.5,
        clip_on=False,
    )
    axes.add_artist(line)


def _time_ticks(low: float, high: float) -> list[float]:
    """Return durations between two: the decades; where these are few, 2 and 5 times them as well,
    unless too near the next.
    """
    for factors in ((1,), (1, 2, 5)):
        wanted = {
            d * f for d, following in pairwise(DECADES) for f in factors if d * f * 1.5 < following
        }
        found = sorted(s for s in wanted if low <= s <= high)
        if len(found) >= 3:
            break
    return found


def left_margin(axes: Axes, least: float) -> float:
    """Return the fraction of the width that the numbers and the label of the y axis need, `least`
    or more: its limits are final.
    """
    longest = max(map(len, axes.yaxis.get_major_formatter().format_ticks(list(axes.get_yticks()))))
    return max(least, 0.1 + 0.018 * (longest - 4))


def reference_lines(axes: Axes, section: Section) -> int:
    """Draw a horizontal line for each oracle, with its score.

    A line that would squeeze everything else is drawn above the scale; the number of these is
    returned.
    """
    low, high = axes.get_ylim()
    reach = high + 0.45 * (high - low)
    beyond = 0
    for index, row in section.oracles.iloc[::-1].iterrows():
        text = f"{row['label']} {section.score(row)}"
        if row["mean"] <= reach:
            y, transform = row["mean"], axes.get_yaxis_transform()
            low, high = min(low, y - 0.03 * (high - low)), max(high, y + 0.03 * (high - low))
        else:
            beyond += 1
            y, transform = 1 + STRIP * beyond, axes.transAxes
            text += " (above the scale)"
        line = Line2D(
            [0, 1],
            [y, y],
            transform=transform,
            color=ORACLE,
            linewidth=1.1,
            linestyle=(0, (5, 3)),
            clip_on=False,
        )
        line.set_gid(f"reference-{index}")
        axes.add_artist(line)
        axes.annotate(
            text,
            (1, y),
            (0, -3),
            xycoords=transform,
            textcoords="offset points",
            ha="right",
            va="top",
            color=ORACLE,
            fontsize=8.5,
        )
    axes.set_ylim(low, high)
    return beyond


def legend_height(names: Sequence[str]) -> float:
    """Return the inches that `legend` needs, with the space to be free around it."""
    return 0.17 + 0.215 * math.ceil(len(names) / _columns(names))


def legend(figure: Figure, names: Sequence[str], styles: Mapping[str, Style]) -> float:
    """Draw symbols and names above the axes; return the fraction of the height that is left to the
    axes.
    """
    handles = []
    for name in names:
        style = styles[name]
        look: Any = {
            "color": style.colour,
            "markeredgecolor": INK,
            "markeredgewidth": 0.5,
            "markersize": 6.5 * style.size,
        }
        handles.append(Line2D([], [], linestyle="none", marker=style.marker, label=name, **look))
    place: Any = {
        "loc": "upper left",
        "bbox_to_anchor": (0.08, 1.0),
        "handletextpad": 0.1,
        "columnspacing": 1.2,
    }
    figure.legend(handles=handles, ncols=_columns(names), fontsize=9, **place)
    return 1 - legend_height(names) / figure.get_figheight()


def _columns(names: Sequence[str]) -> int:
    """As many columns as the width holds, by the length of the names."""
    for columns in range(len(names), 1, -1):
        parts = np.array_split([len(name) for name in names], columns)
        if sum(5.6 * part.max() + 30 for part in parts) < 0.92 * 72 * WIDTH:
            return columns
    return 1


def rows_figure(rows: pd.DataFrame, step: float = 0.36) -> tuple[Figure, Axes]:
    """Make axes with one line per agent, the first on top, named on the left in the order of
    `rows`; higher where names take many lines.
    """
    names = [textwrap.fill(label, 28, break_on_hyphens=False) for label in rows["label"]]
    lines = [name.count("\n") + 1 for name in names]
    neighbours = [(one + other) / 2 for one, other in pairwise(lines)]
    step = max(step, GAP + LINE * max(neighbours, default=lines[0]))
    ends = [max(0.55, (LINE * count + GAP) / 2 / step) for count in (lines[0], lines[-1])]
    height = 0.6 + step * (len(rows) - 1 + sum(ends))
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots()
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 1 + ends[1], -ends[0])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    longest = max(len(line) for name in names for line in name.split("\n"))
    left = min(0.42, 0.03 + 0.0145 * longest)
    figure.subplots_adjust(left=left, right=0.965, bottom=0.52 / height, top=1 - 0.08 / height)
    return figure, axes


def histogram(axes: Axes, sample: np.ndarray, edges: np.ndarray, y: float, colour: str) -> None:
    """Draw outline of a histogram above row `y`, its highest bin as high as the row allows."""
    counts, _ = np.histogram(sample, edges)
    used = np.flatnonzero(counts)
    counts, edges = counts[used[0] : used[-1] + 1], edges[used[0] : used[-1] + 2]
    tops = y + 0.1 - 0.62 * counts / counts.max()
    axes.stairs(
        tops,
        edges,
        baseline=y + 0.1,
        fill=True,
        facecolor=to_rgba(colour, 0.32),
        edgecolor=colour,
        linewidth=0.8,
    )


def box(axes: Axes, sample: np.ndarray, y: float, colour: str) -> None:
    """Draw 5, 25, 50, 75 and 95% of a sample as a thin bar, a thick bar and a stroke at height
    `y`.
    """
    p5, p25, p50, p75, p95 = np.percentile(sample, [5, 25, 50, 75, 95])
    axes.hlines(y, p5, p95, colors=colour, linewidth=1)
    axes.hlines(y, p25, p75, colors=colour, linewidth=5)
    axes.vlines(p50, y - 0.1, y + 0.1, colors=INK, linewidth=1.4)


def interval(axes: Axes, x: float, mean: float, ci95: float, colour: str, *, faint: bool) -> None:
    """Draw vertical bar from mean - ci95 to mean + ci95; none where the interval is not known."""
    if math.isfinite(ci95):
        axes.vlines(
            x,
            mean - ci95,
            mean + ci95,
            colors=colour,
            linewidth=1.0 if faint else 1.5,
            alpha=0.35 if faint else 1,
        )


def mark(
    axes: Axes,
    x: float,
    y: float,
    style: Style,
    gid: str,
    *,
    scale: float = 1.0,
    faint: bool = False,
    face: str | None = None,
) -> None:
    """Draw one symbol, to be found in the SVG under `gid`."""
    axes.plot(
        [x],
        [y],
        gid=gid,
        marker=style.marker,
        markersize=7.5 * scale * style.size,
        markerfacecolor=face or style.colour,
        markeredgecolor=INK if face is None or face == style.colour else style.colour,
        markeredgewidth=0.6,
        alpha=0.4 if faint else 1,
        linestyle="none",
        clip_on=False,
        zorder=4 if not faint else 3,
    )
