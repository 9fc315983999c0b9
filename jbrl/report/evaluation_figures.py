"""The figures of an evaluation: aggregate scores with their intervals, the weights, quantile and
distribution functions.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jbrl.report import axes as parts
from jbrl.report.axes import COLOURS, FAINT, INK, Style, drawn
from jbrl.stats.evaluation.propagation import half_widths
from jbrl.stats.evaluation.ranking import Evaluation
from jbrl.stats.evaluation.samples import Samples

POINTS = 70  # of a curve: more than that many are not seen
BELOW, PLOT = 0.48, 2.85  # inches below the axes of curves, and of the axes
LEGEND = (58, 1)  # characters of a name, and lines
METHOD_NAMES = {"pbp": "PBP", "pbp-t": "PBP-t", "bootstrap": "bootstrap"}
METHOD_DASHES: dict[str, Any] = {"pbp": (0, ()), "pbp-t": (0, (4, 1.5)), "bootstrap": (0, (1, 1))}


@drawn
def aggregate(evaluation: Evaluation, styles: parts.Styles) -> parts.Drawing:
    """Draw aggregate scores, best on top, with the interval of each method (figure 5 of Jordan et
    al. 2020).
    """
    table = evaluation.aggregate
    methods = list(dict.fromkeys(table["method"]))
    names = table.loc[table["method"] == methods[0], "algorithm"]
    several = len(methods) > 1
    above = 0.38 if several else 0.08
    figure, axes = parts.rows_figure(names, step=0.3 + 0.1 * len(methods), above=above)
    drawing = parts.Drawing(figure, table)
    offsets = np.linspace(-0.22, 0.22, len(methods)) if several else [0.0]
    for y, name in enumerate(names):
        rows, colour = table[table["algorithm"] == name].set_index("method"), styles[name].colour
        for offset, method in zip(offsets, methods, strict=True):
            row, at = rows.loc[method], y + offset
            ends = [row["lower"], row["upper"]]
            look: Any = {"linewidth": 1.8, "linestyles": METHOD_DASHES[method]}
            parts.interval(axes, at, *ends, colors=colour, **look)
            axes.vlines(ends, at - 0.07, at + 0.07, colors=colour, linewidth=1.2)
            title = f"{name}, {METHOD_NAMES[method]}: {row['score']:.4f}"
            title += f" ({row['lower']:.4f} to {row['upper']:.4f})"
            place = (row["score"], at)
            drawing.mark(axes, place, styles[name], f"{method}-{y}", title, scale=0.75)
    axes.set_xlabel("aggregate score")
    if several:
        looks = {METHOD_NAMES[m]: METHOD_DASHES[m] for m in methods}
        lines = [
            Line2D([], [], color=INK, linestyle=dashes, linewidth=1.8, label=name)
            for name, dashes in looks.items()
        ]
        place_: Any = {"loc": "upper right", "bbox_to_anchor": (0.98, 1.0), "handlelength": 3}
        figure.legend(handles=lines, ncols=len(methods), fontsize=9, **place_)
    return drawing


@drawn
def weights(evaluation: Evaluation) -> parts.Drawing:
    """Draw the strategies of player q: environments in rows, opponents in columns, per cent; the
    last column is the sum of a row.
    """
    samples = evaluation.samples
    table = evaluation.weights.pivot(index="environment", columns="algorithm", values="weight")
    table = table.loc[list(samples.environments), list(samples.algorithms)]
    table = table.loc[table.sum(axis=1).sort_values(ascending=False, kind="stable").index]
    columns, rows = parts.labels_of(table.columns, 34, 1), parts.labels_of(table.index, 26, 2)
    table["sum"] = table.sum(axis=1)
    share = table.to_numpy()
    m, n = share[:, :-1].shape
    slanted = _inches(columns) * np.sqrt(0.5)  # of a label at 45°, to the left and down
    beside = max(0.25 + _inches(rows), slanted - 0.2)
    right, below = 0.1, 0.2 + slanted
    width = max(parts.WIDTH, beside + right + 0.42 * (n + 1.35))
    step = 0.36 if any("\n" in row for row in rows) else 0.3
    height = below + step * m + 0.1
    figure = Figure(figsize=(width, height))
    axes = figure.subplots()
    drawing = parts.Drawing(figure, evaluation.weights)
    for y in range(m):
        for x in range(n + 1):
            total = x == n
            left, value = x + 0.35 * total, share[y, x]
            most = share[:, n].max() if total else share[:, :n].max()
            axes.add_patch(_cell(left, y, value / most, COLOURS[total]))
            if value >= 0.005:
                gid = f"cell-{y}-{x}"
                place: Any = {"ha": "center", "va": "center", "fontsize": 8.5}
                axes.text(left + 0.5, y + 0.5, f"{100 * value:.0f}", **place).set_gid(gid)
                what = "in all" if total else f"against {table.columns[x]}"
                drawing.titles[gid] = f"{table.index[y]}, {what}: {100 * value:.2f}%"
    axes.set_xlim(0, n + 1.35)
    axes.set_ylim(m, 0)
    axes.set_xticks([*np.arange(n) + 0.5, n + 0.85], [*columns, "sum"])
    axes.tick_params(axis="x", length=0, labelrotation=45)
    for label in axes.get_xticklabels():
        label.set(horizontalalignment="right", rotation_mode="anchor")
    axes.set_yticks(np.arange(m) + 0.5, rows)
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    drawing.margins(beside / width, below, 1 - 0.1 / height, right=1 - right / width)
    return drawing


def _inches(labels: Sequence[str]) -> float:
    """Return the length of the longest line, in the font of all figures, and its line height."""
    lines = [line for label in labels for line in label.split("\n")]
    return 0.085 * max(map(len, lines)) + 0.12


def _cell(x: float, y: float, share: float, colour: str) -> mpl.patches.Rectangle:
    """Draw a cell whose colour strengthens with its share, 0 to 1; light enough for dark text."""
    look: Any = {"facecolor": (*to_rgb(colour), 0.75 * float(np.sqrt(share)))}
    look |= {"edgecolor": FAINT, "linewidth": 0.3}
    return mpl.patches.Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, **look)


@drawn
def curves(
    samples: Samples, environment: int, delta: float, styles: parts.Styles, *, quantiles: bool
) -> parts.Drawing:
    """Draw distribution functions of an environment with their bands, the further right the better;
    or quantile functions, the higher the better (figure 4 of Jordan et al. 2020).
    """
    drawing, axes = _with_legend(samples.algorithms, styles)
    widths = half_widths(samples, delta)[:, environment]
    for i, name in enumerate(samples.algorithms):
        x, p = _thinned(samples, i, environment)
        below, above = np.maximum(0, p - widths[i]), np.minimum(1, p + widths[i])
        fill = axes.fill_betweenx if quantiles else axes.fill_between
        fill(x, below, above, color=styles[name].colour, alpha=0.13, linewidth=0)
        axes.plot(*((p, x) if quantiles else (x, p)), **_curve(styles[name], 3 + 5 * i % 17, 18))
    labels = ("probability", "score")
    axes.set(xlabel=labels[not quantiles], ylabel=labels[quantiles])
    (axes.set_xlim if quantiles else axes.set_ylim)(0, 1)
    drawing.figure.subplots_adjust(left=parts.left_margin(axes, 0.13))
    return drawing


def _curve(style: Style, first: int, every: int) -> dict[str, Any]:
    """Return the look of a curve whose symbols are not all at the same place."""
    look = {"color": style.colour, "linewidth": 1.2, "marker": style.marker, "markersize": 4}
    return look | {"markevery": (first, every)}


def _with_legend(names: Sequence[str], styles: parts.Styles) -> tuple[parts.Drawing, Axes]:
    """Make axes that keep their height for any length of the legend of these names above them."""
    labels = parts.labels_of(names, *LEGEND)
    drawing = parts.Drawing(
        Figure(figsize=(parts.WIDTH, BELOW + PLOT + parts.legend_height(labels)))
    )
    axes = drawing.figure.subplots()
    axes.grid()
    looks = {label: styles[name] for label, name in zip(labels, names, strict=True)}
    drawing.margins(0.1, BELOW, parts.legend(drawing.figure, labels, looks))
    return drawing, axes


def _thinned(
    samples: Samples, algorithm: int, environment: int
) -> tuple[parts.Floats, parts.Floats]:
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
def profiles(table: pd.DataFrame, styles: parts.Styles) -> parts.Drawing:
    """Draw performance profiles: share of normalised scores above a threshold, with bands."""
    drawing, axes = _with_legend(list(dict.fromkeys(table["algorithm"])), styles)
    drawing.data = table
    for i, (name, rows) in enumerate(table.groupby("algorithm", sort=False)):
        x, style = rows["threshold"], styles[str(name)]
        band: Any = {"color": style.colour, "alpha": 0.15, "linewidth": 0}
        axes.fill_between(x, rows["lower"], rows["upper"], **band)
        axes.plot(x, rows["value"], **_curve(style, 4 + 3 * i % 12, 14))
    axes.set(xlabel="normalised score", ylabel="share of scores above it", xlim=(0, 1), ylim=(0, 1))
    return drawing
