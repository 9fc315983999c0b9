"""Figures of what agents learn in one experiment: regrets and returns against episodes, regrets and
solutions against the levels of its settings.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from jbrl.base.bsuite_sweep import DEEP_SEA_SIZES, Experiment
from jbrl.report.axes import WIDTH, legend
from jbrl.report.bsuite.marks import (
    DASHES,
    Styles,
    legend_rows,
    line,
    line_legend,
    side_by_side,
    symbol,
)
from jbrl.report.bsuite.words import level_words
from jbrl.report.figures import Drawing
from jbrl.report.style import INK, drawn
from jbrl.stats.bsuite.curves import SHOWN_SIZES, THRESHOLDS, optimum
from jbrl.stats.bsuite.measures import BASE

MAP = mpl.colormaps["viridis"]


@drawn
def learning(curves: pd.DataFrame, experiment: Experiment, styles: Styles) -> Drawing:
    """Draw average regret against episodes, one line per agent with a 95% band over runs.

    Args:
      curves: `jbrl.stats.bsuite.curves.mean_curves` of an experiment without levels.
    """
    agents = list(dict.fromkeys(curves["agent"]))
    height = 3.2 + 0.215 * legend_rows(agents)
    drawing = Drawing(Figure(figsize=(WIDTH, height)), curves)
    axes = drawing.figure.subplots()
    for k, agent in enumerate(agents):
        rows = curves[curves["agent"] == agent]
        spread = rows["ci95"].fillna(0).to_numpy()
        x, y = rows["episode"].to_numpy(), rows["mean"].to_numpy()
        colour = styles[agent].colour
        axes.fill_between(x, y - spread, y + spread, color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, y, **line(styles[agent], k), markevery=(2 + 2 * k, 11))
    _baseline(axes, experiment)
    _episodes(axes, experiment)
    axes.set_xlabel("episode")
    axes.set_ylabel("average regret")
    top = line_legend(drawing.figure, agents, styles)
    drawing.figure.subplots_adjust(left=0.13, right=0.955, bottom=0.14, top=top)
    return drawing


@drawn
def by_level(curves: pd.DataFrame, experiment: Experiment) -> Drawing:
    """Draw average regret against episodes, one line per level, one panel per agent.

    Args:
      curves: `mean_curves` of an experiment with five levels.
    """
    figure, panels, agents = _panels(curves)
    drawing = Drawing(figure, curves)
    levels = sorted(curves["level"].unique())
    if experiment.family == "deep_sea":
        levels = [level for level in levels if level in SHOWN_SIZES]
    looks = [_level_look(k) for k in range(len(levels))]
    for agent, axes in zip(agents, panels, strict=True):
        mine = curves[curves["agent"] == agent]
        for k, level in enumerate(levels):
            rows = mine[mine["level"] == level]
            axes.plot(rows["episode"], rows["mean"], **looks[k], markevery=(1 + 2 * k, 11))
        _baseline(axes, experiment)
        _episodes(axes, experiment)
    handles = [
        Line2D([], [], **look, label=f"{v:g}") for v, look in zip(levels, looks, strict=True)
    ]
    label = "average bad episodes" if experiment.family == "deep_sea" else "average regret"
    _finish_panels(figure, panels, label, handles, level_words(experiment))
    return drawing


@drawn
def raw_lines(curves: pd.DataFrame, experiment: Experiment, styles: Styles, label: str) -> Drawing:
    """Draw one line per setting and run, one panel per agent; colours from dark to light by level.

    Args:
      curves: `regrets` or `returns` of `jbrl.stats.bsuite.curves`.
    """
    figure, panels, agents = _panels(curves)
    drawing = Drawing(figure, curves)
    levels = sorted(curves["level"].unique())
    shades = {level: _shade(k / max(1, len(levels) - 1)) for k, level in enumerate(levels)}
    for agent, axes in zip(agents, panels, strict=True):
        mine = curves[curves["agent"] == agent]
        runs = list(mine.groupby(["bsuite_id", "run"], sort=False))
        lines = [rows[["episode", "average"]].to_numpy() for _, rows in runs]
        own = styles[agent].colour if len(levels) == 1 else None
        colours = [own or shades[rows["level"].iloc[0]] for _, rows in runs]
        axes.add_collection(LineCollection(lines, colors=colours, linewidths=0.8))
        axes.autoscale_view()
        _episodes(axes, experiment)
        if label == "average return":
            axes.axhline(optimum(experiment), color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        else:
            _baseline(axes, experiment)
    ends = [levels[0], levels[len(levels) // 2], levels[-1]] if len(levels) > 2 else levels
    handles = [Line2D([], [], color=shades[v], linewidth=2, label=f"{v:g}") for v in ends]
    grouped = len(levels) > 1
    _finish_panels(figure, panels, label, handles if grouped else [], level_words(experiment))
    return drawing


@drawn
def average(final: pd.DataFrame, experiment: Experiment, styles: Styles) -> Drawing:
    """Draw average regret at the end by level, with 95% intervals over runs.

    Args:
      final: `jbrl.stats.bsuite.curves.final_regrets`.
    """
    agents = list(dict.fromkeys(final["agent"]))
    levels = sorted(final["level"].unique())
    drawing = Drawing(Figure(figsize=(WIDTH, 3.4)), final)
    axes = drawing.figure.subplots()
    offsets = side_by_side(len(agents), 0.32)
    for k, agent in enumerate(agents):
        for row in final[final["agent"] == agent].to_dict("records"):
            x, gid = levels.index(row["level"]) + offsets[k], f"final-{k}-{row['level']:g}"
            spread = row["ci95"] if np.isfinite(row["ci95"]) else 0.0
            axes.vlines(x, row["mean"] - spread, row["mean"] + spread, colors=styles[agent].colour)
            symbol(axes, x, row["mean"], styles[agent], gid, full=row["finished"])
            drawing.titles[gid] = f"{agent}, {row['level']:g}: {row['mean']:.3g}"
    axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
    axes.set_xlim(-0.6, len(levels) - 0.4)
    _baseline(axes, experiment)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(axis="y")
    axes.set_xlabel(level_words(experiment))
    axes.set_ylabel("average regret at the end")
    top = legend(drawing.figure, agents, styles)
    drawing.figure.subplots_adjust(left=0.13, right=0.965, bottom=0.15, top=top)
    return drawing


@drawn
def scaling(values: pd.DataFrame, experiment: Experiment, styles: Styles) -> Drawing:
    """Draw the quantity that decides the score against the level: full symbols are on the good side
    of the line.

    Args:
      values: columns agent, level, mean: `final_regrets`, or `bests` for swing-up.
    """
    agents = list(dict.fromkeys(values["agent"]))
    swingup = experiment.family == "cartpole_swingup"
    threshold = THRESHOLDS[experiment.family]
    drawing = Drawing(Figure(figsize=(WIDTH, 3.6)), values)
    axes = drawing.figure.subplots()
    for k, agent in enumerate(agents):
        rows = values[values["agent"] == agent]
        faint: Any = {"color": styles[agent].colour, "linewidth": 0.6, "alpha": 0.7}
        axes.plot(rows["level"], rows["mean"], **faint, linestyle=DASHES[k % len(DASHES)])
        for n, row in enumerate(rows.to_dict("records")):
            good = row["mean"] > threshold if swingup else row["mean"] < threshold
            gid = f"scale-{k}-{n}"
            symbol(axes, row["level"], row["mean"], styles[agent], gid, full=bool(good))
            drawing.titles[gid] = f"{agent}, {row['level']:g}: {row['mean']:.3g}"
    axes.axhline(threshold, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    if not swingup:
        axes.set_xscale("log")
        _log_ticks(axes, rows=values["level"])
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(axis="y")
    axes.set_xlabel(level_words(experiment))
    axes.set_ylabel("best return of an episode" if swingup else _ratio_words(experiment))
    top = legend(drawing.figure, agents, styles)
    drawing.figure.subplots_adjust(left=0.13, right=0.965, bottom=0.14, top=top)
    return drawing


@drawn
def solving(solved: pd.DataFrame, styles: Styles, *, logarithmic: bool) -> Drawing:
    """Draw the episode at which deep_sea was solved against its size, with the curve of dithering,
    2^N.

    Args:
      solved: `jbrl.stats.bsuite.curves.solutions`; unsolved sizes are hollow, at the last
        episode that was logged.
    """
    agents = list(dict.fromkeys(solved["agent"]))
    drawing = Drawing(Figure(figsize=(WIDTH, 3.6)), solved)
    axes = drawing.figure.subplots()
    for k, agent in enumerate(agents):
        shift = 0.18 * (k - (len(agents) - 1) / 2)
        for n, row in enumerate(solved[solved["agent"] == agent].to_dict("records")):
            known = np.isfinite(row["episode"])
            y, gid = row["episode"] if known else row["episodes"], f"solve-{k}-{n}"
            x = row["size"] if logarithmic else row["size"] + shift
            symbol(axes, x, y, styles[agent], gid, full=bool(known))
            when = f"solved at {y:,.0f}" if known else f"not solved by {y:,.0f}"
            drawing.titles[gid] = f"{agent}, N = {row['size']}: {when}"
    sizes = np.arange(5, 20)
    most = float(solved["episodes"].max())
    axes.plot(sizes, 2.0**sizes, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(0.8, 2 * most)
        axes.yaxis.set_major_locator(FixedLocator([1, 10, 100, 1000, 10_000]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_major_locator(FixedLocator([5, 10, 20, 30, 40, 50]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(-0.03 * most, 1.06 * most)
    axes.set_xlim(4.6, DEEP_SEA_SIZES[-1] * 1.06)
    axes.grid()
    axes.set_xlabel("size N")
    axes.set_ylabel("episodes until solved")
    top = legend(drawing.figure, agents, styles)
    left = 0.16
    drawing.figure.subplots_adjust(left=left, right=0.965, bottom=0.14, top=top)
    return drawing


def _ratio_words(experiment: Experiment) -> str:
    memory = experiment.family == "memory_chain"
    return "errors, as a share of guessing" if memory else "average regret at the end"


def _shade(place: float) -> Any:
    """Return a colour between blue and green, seen on white and on black; `place` from 0 to 1."""
    return MAP(0.22 + 0.62 * place)


def _level_look(k: int) -> dict[str, Any]:
    """Return the look of the lines of levels: dark to light, with different dashes."""
    return {"color": _shade(0.25 * k), "linewidth": 1.4, "linestyle": DASHES[k % len(DASHES)]}


def _panels(curves: pd.DataFrame) -> tuple[Figure, list[Axes], list[str]]:
    """Make axes for each agent, with its name."""
    agents = list(dict.fromkeys(curves["agent"]))
    columns = 1 if len(agents) == 1 else 2
    rows = math.ceil(len(agents) / columns)
    height = 3.6 if len(agents) == 1 else 0.95 + 1.75 * rows
    figure = Figure(figsize=(WIDTH, height))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for k, axes in enumerate(grid[len(agents) :]):
        axes.set_visible(False)
        grid[len(agents) + k - columns].tick_params(labelbottom=True)
    for agent, axes in zip(agents, grid, strict=False):
        title = textwrap.shorten(agent, 34, placeholder="…")
        axes.set_title(title, fontsize=9.5, loc="left", pad=3)
    return figure, list(grid[: len(agents)]), agents


def _finish_panels(
    figure: Figure, panels: Sequence[Axes], label: str, handles: Sequence[Line2D], title: str
) -> None:
    """Draw labels shared by panels, and the legend of levels above them."""
    height = figure.get_figheight()
    figure.supxlabel("episode", fontsize=9.6, y=0.08 / height)
    figure.supylabel(label, fontsize=9.6, x=0.005)
    top = 0.3
    if handles:
        labels = [str(handle.get_label()) for handle in handles]
        figure.legend(
            handles=handles,
            labels=[f"{title}: {labels[0]}", *labels[1:]],
            ncols=len(handles),
            loc="upper left",
            fontsize=8.6,
            handlelength=2.6,
            columnspacing=1.0,
        )
        top = 0.55
    figure.subplots_adjust(
        left=0.125, right=0.955, top=1 - top / height, bottom=0.5 / height, hspace=0.28, wspace=0.08
    )
    for axes in panels:
        axes.grid()


def _episodes(axes: Axes, experiment: Experiment) -> None:
    axes.set_xscale("log")
    axes.set_xlim(1, experiment.episodes)
    ticks = [10**k for k in range(int(math.log10(experiment.episodes)) + 1)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _log_ticks(axes: Axes, rows: pd.Series) -> None:
    ticks = [tick for tick in (1, 3, 10, 30, 100) if rows.min() <= tick <= rows.max()]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")


def _baseline(axes: Axes, experiment: Experiment) -> None:
    """Draw the average regret that scores 0, or the least one that counts as solved."""
    lines = {"discounting_chain": 0.08, "deep_sea": 0.99, **BASE}
    lines |= {k: v for k, v in THRESHOLDS.items() if k != "cartpole_swingup"}
    value = lines.get(experiment.family)
    if value is not None:
        axes.axhline(value, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
