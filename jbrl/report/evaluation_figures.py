"""The figures of an evaluation: aggregate scores with their intervals, the weights, quantile and
distribution functions.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jbrl.report.axes import WIDTH, left_margin, legend, legend_height, mark, rows_figure
from jbrl.report.figures import Drawing
from jbrl.report.style import COLOURS, FAINT, INK, Style, drawn
from jbrl.stats.evaluation.bands import half_widths
from jbrl.stats.evaluation.ranking import Evaluation
from jbrl.stats.evaluation.samples import Samples

Styles = Mapping[str, Style]
POINTS = 70  # of a curve: more than that many are not seen
BELOW, PLOT = 0.48, 2.85  # inches below the axes of curves, and of the axes
LEGEND = (58, 1)  # characters of a name, and lines
METHOD_NAMES = {"pbp": "PBP", "pbp-t": "PBP-t", "bootstrap": "bootstrap"}
_DASHES: dict[str, Any] = {"pbp": (0, ()), "pbp-t": (0, (4, 1.5)), "bootstrap": (0, (1, 1))}


@drawn
def aggregate(found: Evaluation, styles: Styles) -> Drawing:
    """Draw aggregate scores, best on top, with the interval of each method (figure 5 of Jordan et
    al. 2020).
    """
    methods = list(dict.fromkeys(found.aggregate["method"]))
    order = found.aggregate[found.aggregate["method"] == methods[0]]
    figure, axes = rows_figure(
        pd.DataFrame({"label": order["algorithm"]}), step=0.3 + 0.1 * len(methods)
    )
    drawing = Drawing(figure)
    offsets = np.linspace(-0.22, 0.22, len(methods)) if len(methods) > 1 else [0.0]
    for y, name in enumerate(order["algorithm"]):
        rows = found.aggregate[found.aggregate["algorithm"] == name].set_index("method")
        for offset, method in zip(offsets, methods, strict=True):
            row, gid = rows.loc[method], f"{method}-{y}"
            axes.hlines(
                y + offset,
                row["lower"],
                row["upper"],
                colors=styles[name].colour,
                linewidth=1.8,
                linestyles=_DASHES[method],
            )
            axes.vlines(
                [row["lower"], row["upper"]],
                y + offset - 0.07,
                y + offset + 0.07,
                colors=styles[name].colour,
                linewidth=1.2,
            )
            mark(axes, row["score"], y + offset, styles[name], gid, scale=0.75)
            drawing.titles[gid] = (
                f"{name}, {METHOD_NAMES[method]}: {row['score']:.4f} ({row['lower']:.4f} to "
                f"{row['upper']:.4f})"
            )
    axes.set_xlabel("aggregate score")
    if len(methods) > 1:
        lines = [
            Line2D([], [], color=INK, linestyle=_DASHES[m], linewidth=1.8, label=METHOD_NAMES[m])
            for m in methods
        ]
        top = figure.subplotpars.top - 0.3 / figure.get_figheight()
        figure.subplots_adjust(top=top)
        figure.legend(
            handles=lines,
            ncols=len(methods),
            loc="upper right",
            bbox_to_anchor=(0.98, 1.0),
            handlelength=3,
            fontsize=9,
        )
    return drawing


@drawn
def weights(found: Evaluation) -> Drawing:
    """Draw the strategies of player q: environments in rows, opponents in columns, per cent; the
    last column is the sum of a row.
    """
    table = found.weights.pivot(index="environment", columns="algorithm", values="weight")
    table = table.loc[list(found.samples.environments), list(found.samples.algorithms)]
    table = table.loc[table.sum(axis=1).sort_values(ascending=False, kind="stable").index]
    share = np.column_stack([table.to_numpy(), table.sum(axis=1)])
    m, n = table.shape
    columns = labels_of(table.columns, 34, 1)
    rows = labels_of(table.index, 26, 2)
    slanted = _inches(columns) * np.sqrt(0.5)  # of a label at 45°, to the left and down
    beside = max(0.25 + _inches(rows), slanted - 0.2)
    right, below = 0.1, 0.2 + slanted
    width = max(WIDTH, beside + right + 0.42 * (n + 1.35))
    step = 0.3 if all("\n" not in row for row in rows) else 0.36
    figure = Figure(figsize=(width, below + step * m + 0.1))
    axes = figure.subplots()
    drawing = Drawing(figure)
    for y in range(m):
        for x in range(n + 1):
            value = share[y, x]
            left = x + 0.35 * (x == n)
            axes.add_patch(
                _cell(
                    left,
                    y,
                    value / share[:, :n].max() if x < n else value / share[:, n].max(),
                    1 if x == n else 0,
                )
            )
            if value >= 0.005:
                text = axes.text(
                    left + 0.5,
                    y + 0.5,
                    f"{100 * value:.0f}",
                    ha="center",
                    va="center",
                    fontsize=8.5,
                )
                text.set_gid(f"cell-{y}-{x}")
                what = f"against {table.columns[x]}" if x < n else "in all"
                drawing.titles[f"cell-{y}-{x}"] = f"{table.index[y]}, {what}: {100 * value:.2f}%"
    axes.set_xlim(0, n + 1.35)
    axes.set_ylim(m, 0)
    axes.set_xticks([*np.arange(n) + 0.5, n + 0.85], [*columns, "sum"])
    axes.tick_params(axis="x", length=0, labelrotation=45)
    for label in axes.get_xticklabels():
        label.set(horizontalalignment="right", rotation_mode="anchor")
    axes.set_yticks(np.arange(m) + 0.5, rows)
    axes.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    high = figure.get_figheight()
    figure.subplots_adjust(
        left=beside / width, right=1 - right / width, top=1 - 0.1 / high, bottom=below / high
    )
    return drawing


def labels_of(names: Iterable[str], width: int, lines: int) -> list[str]:
    """Return labels of so many lines and characters at most, cut in the middle where need be, all
    different.

    Long names of algorithms often differ in their last parameters only: ends are kept.
    """
    found: list[str] = []
    room = width * lines - 2 * (lines - 1)
    for name in map(str, names):
        text = name if len(name) <= room else f"{name[: room // 3]}…{name[1 - room + room // 3 :]}"
        label = "\n".join(textwrap.wrap(text, width)) or name
        again = 2
        while label in found:
            label = f"{label.removesuffix(f' ({again - 1})')} ({again})"
            again += 1
        found.append(label)
    return found


def _inches(labels: Sequence[str]) -> float:
    """Return the length of the longest line, in the font of all figures, and its line height."""
    lines = [line for label in labels for line in label.split("\n")]
    return 0.085 * max(map(len, lines)) + 0.12


def _cell(x: float, y: float, share: float, colour: int) -> mpl.patches.Rectangle:
    """Draw a cell whose colour strengthens with its share, 0 to 1; light enough for dark text."""
    paint = (*to_rgb(COLOURS[colour]), 0.75 * float(np.sqrt(share)))
    return mpl.patches.Rectangle(
        (x + 0.03, y + 0.06), 0.94, 0.88, facecolor=paint, edgecolor=FAINT, linewidth=0.3
    )


@drawn
def quantiles(samples: Samples, environment: int, delta: float, styles: Styles) -> Drawing:
    """Draw quantile functions of an environment with their bands: the higher a curve, the better
    (figure 4 of Jordan et al. 2020).
    """
    return _curves(samples, environment, delta, styles, swapped=True)


@drawn
def distributions(samples: Samples, environment: int, delta: float, styles: Styles) -> Drawing:
    """Draw distribution functions of an environment with their bands: the further right a curve,
    the better.
    """
    return _curves(samples, environment, delta, styles, swapped=False)


def _curves(
    samples: Samples, environment: int, delta: float, styles: Styles, *, swapped: bool
) -> Drawing:
    drawing = _with_room(samples.algorithms)
    axes: Axes = drawing.figure.subplots()
    widths = half_widths(samples, delta)[:, environment]
    for i, name in enumerate(samples.algorithms):
        x, p = _thinned(samples, i, environment)
        below, above = np.maximum(0, p - widths[i]), np.minimum(1, p + widths[i])
        look: Any = {
            "color": styles[name].colour,
            "linewidth": 1.2,
            "marker": styles[name].marker,
            "markersize": 4,
        }
        look |= {"markevery": (3 + 5 * i % 17, 18)}  # not all at the same place
        if swapped:
            axes.fill_betweenx(x, below, above, color=styles[name].colour, alpha=0.13, linewidth=0)
            axes.plot(p, x, **look)
        else:
            axes.fill_between(x, below, above, color=styles[name].colour, alpha=0.13, linewidth=0)
            axes.plot(x, p, **look)
    labels = ("probability", "score")
    axes.set_xlabel(labels[not swapped])
    axes.set_ylabel(labels[swapped])
    (axes.set_xlim if swapped else axes.set_ylim)(0, 1)
    axes.grid()
    top = _legend(drawing, samples.algorithms, styles)
    bottom = BELOW / drawing.figure.get_figheight()
    drawing.figure.subplots_adjust(
        left=left_margin(axes, 0.13), right=0.965, bottom=bottom, top=top
    )
    return drawing


def _with_room(names: Sequence[str]) -> Drawing:
    """Return an empty figure whose axes keep their height for any length of the legend of these
    names.
    """
    labels = labels_of(names, *LEGEND)
    return Drawing(Figure(figsize=(WIDTH, BELOW + PLOT + legend_height(labels))))


def _legend(drawing: Drawing, names: Sequence[str], styles: Styles) -> float:
    """Draw the legend, with names that fit; return the fraction of the height left to the axes."""
    labels = labels_of(names, *LEGEND)
    looks = {label: styles[name] for label, name in zip(labels, names, strict=True)}
    return legend(drawing.figure, labels, looks)


def _thinned(samples: Samples, algorithm: int, environment: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and the distribution function at them: both corners of each step; where steps
    are too many to be seen, some of them.
    """
    counts = samples.counts[environment][algorithm]
    seen = np.flatnonzero(counts)
    p = np.cumsum(counts[seen]) / counts.sum()
    x = samples.supports[environment][seen]
    if len(seen) <= POINTS // 2:
        return x.repeat(2), np.append(0, p.repeat(2)[:-1])
    even = np.searchsorted(p, np.linspace(0, 1, POINTS) - 1e-12)
    kept = np.union1d(even.clip(0, len(seen) - 1), (0, len(seen) - 1))
    return x[kept], p[kept]


@drawn
def profiles(table: pd.DataFrame, styles: Styles) -> Drawing:
    """Draw performance profiles: share of normalised scores above a threshold, with bands."""
    names = list(dict.fromkeys(table["algorithm"]))
    drawing = _with_room(names)
    axes = drawing.figure.subplots()
    for i, name in enumerate(names):
        rows = table[table["algorithm"] == name]
        axes.fill_between(
            rows["threshold"],
            rows["lower"],
            rows["upper"],
            color=styles[name].colour,
            alpha=0.15,
            linewidth=0,
        )
        marker: Any = {
            "marker": styles[name].marker,
            "markevery": (4 + 3 * i % 12, 14),
            "markersize": 4,
        }
        axes.plot(
            rows["threshold"], rows["value"], color=styles[name].colour, linewidth=1.2, **marker
        )
    axes.set_xlabel("normalised score")
    axes.set_ylabel("share of scores above it")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.grid()
    top = _legend(drawing, names, styles)
    bottom = BELOW / drawing.figure.get_figheight()
    drawing.figure.subplots_adjust(left=0.1, right=0.965, bottom=bottom, top=top)
    return drawing
