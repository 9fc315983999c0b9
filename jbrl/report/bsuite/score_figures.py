"""Figures of scores: the radar, the same in rows, bars of all experiments, one experiment."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jbrl.base.bsuite_sweep import EXPERIMENTS, TAGS, TYPES
from jbrl.report.axes import WIDTH, legend
from jbrl.report.bsuite.marks import DASHES, Styles, legend_rows, line_legend, side_by_side, symbol
from jbrl.report.bsuite.words import in_words
from jbrl.report.figures import Drawing
from jbrl.report.style import COLOURS, FAINT, INK, PAPER, drawn

WIDE = 11.0  # inches
FLOOR = 0.05  # below which the radar shows no difference, so that shapes keep an area
RADIUS = 1.65  # inches, of the radar
CROWD = 5  # agents beyond which lines of a radar hide each other
BARS = (  # order of the bar plot, by type
    *("bandit", "mnist", "catch", "mountain_car", "cartpole"),
    *("bandit_noise", "mnist_noise", "catch_noise", "mountain_car_noise", "cartpole_noise"),
    *("bandit_scale", "mnist_scale", "catch_scale", "mountain_car_scale", "cartpole_scale"),
    *("deep_sea", "deep_sea_stochastic", "cartpole_swingup"),
    *("umbrella_length", "umbrella_distract", "discounting_chain"),
    *("memory_len", "memory_size"),
)
HATCH = "////"


@drawn
def radar(tags: pd.DataFrame, styles: Styles) -> Drawing:
    """Tag scores on seven spokes, one closed line per agent.

    Args:
      tags: `jbrl.stats.bsuite.scores.tag_scores`.
    """
    agents = list(dict.fromkeys(tags["agent"]))
    legend_inches = 0.25 + 0.215 * legend_rows(agents)
    size = WIDTH, RADIUS * 2 + 0.7 + legend_inches
    drawing = Drawing(Figure(figsize=size), tags)
    axes: Any = drawing.figure.add_subplot(projection="polar")
    angles = np.linspace(0, 2 * np.pi, len(TAGS), endpoint=False)
    _web(axes, angles)
    for k, agent in enumerate(agents):
        rows = tags[tags["agent"] == agent].set_index("tag").loc[list(TAGS)]
        values = np.maximum(rows["score"].to_numpy(np.float64), FLOOR)
        look: Any = {"color": styles[agent].colour, "linestyle": DASHES[k % len(DASHES)]}
        axes.plot(np.append(angles, angles[0]), np.append(values, values[0]), linewidth=2, **look)
        if len(agents) <= 2:
            axes.fill(angles, values, color=styles[agent].colour, alpha=0.12, linewidth=0)
        for tag, angle, value, row in zip(TAGS, angles, values, rows.itertuples(), strict=True):
            gid = f"radar-{k}-{tag}"
            symbol(axes, angle, value, styles[agent], gid, full=bool(row.finished))
            drawing.titles[gid] = f"{agent}, {in_words(tag)}: {row.score:.3f}" + _left(row)
    line_legend(drawing.figure, agents, styles, bottom=True)
    width, height = 2 * RADIUS / size[0], 2 * RADIUS / size[1]
    axes.set_position(((1 - width) / 2, (legend_inches + 0.32) / size[1], width, height))
    return drawing


def _left(row: Any) -> str:
    return "" if row.finished else f" ({row.experiments} of {row.of} experiments, not all finished)"


def _web(axes: Any, angles: np.ndarray) -> None:
    """Draw spokes with names, and rings at quarters."""
    axes.set_ylim(0, 1)
    axes.set_yticks([0.25, 0.5, 0.75, 1.0], ["0.25", "0.5", "0.75", "1"], fontsize=8, color=INK)
    axes.set_rlabel_position(np.degrees(angles[1]) / 2)
    axes.set_xticks(angles, [""] * len(angles))
    axes.spines["polar"].set_color(FAINT)
    for tag, angle in zip(TAGS, angles, strict=True):
        side = math.cos(angle)
        text = in_words(tag).capitalize().replace(" ", "\n")
        place = "left" if side > 0.3 else "right" if side < -0.3 else "center"
        axes.text(angle, 1.09, text, ha=place, va="center", fontsize=10, clip_on=False)


@drawn
def tag_lines(tags: pd.DataFrame, styles: Styles) -> Drawing:
    """Draw the same scores in rows, which are easier to compare, with intervals where available."""
    agents = list(dict.fromkeys(tags["agent"]))
    height = 0.9 + len(TAGS) * (0.24 + 0.105 * len(agents))
    drawing = Drawing(Figure(figsize=(WIDTH, max(height, 4.0))), tags)
    axes = drawing.figure.subplots()
    offsets = side_by_side(len(agents), 0.36)
    for y, tag in enumerate(TAGS):
        rows = tags[tags["tag"] == tag].set_index("agent")
        for k, agent in enumerate(agents):
            row, gid = rows.loc[agent], f"tag-{k}-{tag}"
            _interval(axes, row, y + offsets[k], styles[agent].colour, horizontal=True)
            symbol(
                axes, row["score"], y + offsets[k], styles[agent], gid, full=bool(row["finished"])
            )
            drawing.titles[gid] = f"{agent}, {in_words(tag)}: {_with_interval(row)}"
    axes.set_yticks(range(len(TAGS)), [in_words(tag).capitalize() for tag in TAGS])
    axes.set_ylim(len(TAGS) - 0.45, -0.55)
    axes.set_xlim(0, 1)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.grid(axis="x")
    for y in range(1, len(TAGS)):
        axes.axhline(y - 0.5, color=FAINT, linewidth=0.4)
    axes.set_xlabel("mean score")
    top = legend(drawing.figure, agents, styles)
    bottom = 0.5 / drawing.figure.get_figheight()
    drawing.figure.subplots_adjust(left=0.26, right=0.96, top=top, bottom=bottom)
    return drawing


@drawn
def bars(scores: pd.DataFrame) -> Drawing:
    """Draw scores of all experiments by type, one panel per agent; unfinished ones hatched."""
    agents = list(dict.fromkeys(scores["agent"]))
    names = [name for name in BARS if name in set(scores["bsuite_env"])]
    height = 1.75 + 1.35 * len(agents)
    figure = Figure(figsize=(WIDE, height))
    panels = figure.subplots(len(agents), 1, sharex=True, squeeze=False)[:, 0]
    drawing = Drawing(figure, scores, wide=True)
    places = _spaced(names)
    for k, (agent, axes) in enumerate(zip(agents, panels, strict=True)):
        rows = scores[scores["agent"] == agent].set_index("bsuite_env")
        for name, x in zip(names, places, strict=True):
            _bar(axes, drawing, rows.loc[name], x, f"bar-{k}-{name}", agent)
        axes.axhline(1, color=INK, linewidth=0.7, linestyle=(0, (4, 3)))
        axes.set_ylim(0, 1.12)
        axes.set_yticks([0, 0.5, 1])
        axes.grid(axis="y")
        axes.set_title(agent, loc="left", fontsize=10, pad=3)
        axes.tick_params(axis="x", length=0)
    panels[-1].set_xticks(places, [in_words(name) for name in names], rotation=38, ha="right")
    for text in panels[-1].get_xticklabels():
        text.set_rotation_mode("anchor")
    panels[-1].set_xlim(places[0] - 0.8, places[-1] + 0.8)
    kinds = [kind for kind in TYPES if kind in {EXPERIMENTS[name].type for name in names}]
    handles = [Patch(facecolor=_type_colour(k), edgecolor=INK, label=in_words(k)) for k in kinds]
    handles.append(Patch(facecolor=PAPER, edgecolor=INK, hatch=HATCH, label="not finished"))
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", fontsize=9)
    figure.subplots_adjust(
        left=0.06, right=0.99, top=1 - 0.55 / height, bottom=1.2 / height, hspace=0.3
    )
    return drawing


def _spaced(names: Sequence[str]) -> list[float]:
    """Return the places of bars, with gaps between types."""
    found: list[float] = []
    for k, name in enumerate(names):
        gap = k > 0 and EXPERIMENTS[name].type != EXPERIMENTS[names[k - 1]].type
        found.append(found[-1] + 1 + 0.6 * gap if found else 0.0)
    return found


def _bar(axes: Axes, drawing: Drawing, row: pd.Series, x: float, gid: str, agent: str) -> None:
    """Draw one bar with its interval; an outlined stroke at 0 is a score of 0, a dash no score."""
    if not np.isfinite(row["score"]):
        axes.text(x, 0.03, "–", ha="center", fontsize=9)
        return
    colour = _type_colour(row["type"])
    look: Any = {"facecolor": colour, "edgecolor": INK, "linewidth": 0.5}
    if not row["finished"]:
        look = {"facecolor": PAPER, "edgecolor": colour, "linewidth": 0.8, "hatch": HATCH}
    axes.bar(x, row["score"], width=0.78, gid=gid, **look)
    _interval(axes, row, x, INK, horizontal=False)
    unfinished = "" if row["finished"] else ", not finished"
    drawing.titles[gid] = f"{agent}, {row.name}: {_with_interval(row)}{unfinished}"


def _type_colour(kind: str) -> str:
    return COLOURS[TYPES.index(kind)]


@drawn
def single(scores: pd.DataFrame, styles: Styles) -> Drawing:
    """Draw the score of each agent in one experiment, best on top; hollow where it is not finished.

    Args:
      scores: rows of `jbrl.stats.bsuite.scores.summary` of one experiment.
    """
    rows = scores.sort_values("score", ascending=False, kind="stable", na_position="last")
    height = 0.7 + 0.36 * len(rows)
    drawing = Drawing(Figure(figsize=(WIDTH, max(height, 1.4))), scores)
    axes = drawing.figure.subplots()
    for y, row in enumerate(rows.to_dict("records")):
        agent, gid = row["agent"], f"score-{y}"
        if not np.isfinite(row["score"]):
            axes.text(0.01, y, "no score", va="center", fontsize=9)
            continue
        axes.hlines(y, 0, row["score"], colors=styles[agent].colour, linewidth=1.0)
        _interval(axes, row, y, styles[agent].colour, horizontal=True)
        symbol(axes, row["score"], y, styles[agent], gid, full=bool(row["finished"]))
        unfinished = "" if row["finished"] else ", not finished"
        drawing.titles[gid] = f"{agent}: {_with_interval(row)}{unfinished}"
    axes.set_yticks(
        range(len(rows)), [textwrap.shorten(a, 24, placeholder="…") for a in rows["agent"]]
    )
    axes.set_ylim(len(rows) - 0.45, -0.6)
    axes.set_xlim(0, 1)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel("score")
    left = 0.05 + 0.0145 * min(24, rows["agent"].map(len).max())
    figure_height = drawing.figure.get_figheight()
    drawing.figure.subplots_adjust(
        left=left, right=0.965, bottom=0.5 / figure_height, top=1 - 0.08 / figure_height
    )
    return drawing


def _interval(axes: Axes, row: Any, at: float, colour: str, *, horizontal: bool) -> None:
    """Draw the interval of a score, where there is one."""
    lower, upper = (row.get(c, np.nan) for c in ("lower", "upper"))
    if np.isfinite(lower) and np.isfinite(upper):
        draw = axes.hlines if horizontal else axes.vlines
        draw(at, lower, upper, colors=colour, linewidth=1.6 if horizontal else 1.0, zorder=3)


def _with_interval(row: Any) -> str:
    lower, upper = (row.get(c, np.nan) for c in ("lower", "upper"))
    known = np.isfinite(lower) and np.isfinite(upper)
    return f"{row['score']:.3f}" + (f" ({lower:.3f} to {upper:.3f})" if known else "")
