"""Figures of a bsuite report: radar, bars, and the plots of one experiment.

Agents differ by symbol and dashes as well as by colour; what is not finished is drawn hollow or
hatched. So every figure says the same in black and white.
"""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from jbrl.analysis.bsuite.curves import SHOWN_SIZES, THRESHOLDS, optimum
from jbrl.analysis.bsuite.measures import BASE
from jbrl.bsuite_sweep import DEEP_SEA_SIZES, EXPERIMENTS, TAGS, TYPES, Experiment
from jbrl.report.axes import WIDTH, legend
from jbrl.report.figures import Drawing
from jbrl.report.style import COLOURS, FAINT, INK, LOOK, PAPER, Style

Styles = Mapping[str, Style]
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
DASHES: tuple[Any, ...] = (
    (0, ()),
    (0, (5, 2)),
    (0, (1.2, 1.5)),
    (0, (5, 1.5, 1.2, 1.5)),
    (0, (8, 2, 2, 2)),
)
HATCH = "////"
MAP = mpl.colormaps["viridis"]


def words(name: str) -> str:
    """Return a name of the original in words: `credit_assignment` is "credit assignment"."""
    return name.replace("_", " ")


def _drawn(function: Callable[..., Drawing]) -> Callable[..., Drawing]:
    """Make a function draw in the look of all figures."""

    def draw(*args: object, **options: object) -> Drawing:
        with mpl.rc_context(LOOK):
            return function(*args, **options)

    draw.__doc__ = function.__doc__
    return draw


@_drawn
def radar(tags: pd.DataFrame, styles: Styles) -> Drawing:
    """Tag scores on seven spokes, one closed line per agent.

    Args:
      tags: `jbrl.analysis.bsuite.scores.tag_scores`.
    """
    agents = list(dict.fromkeys(tags["agent"]))
    legend_inches = 0.25 + 0.215 * math.ceil(len(agents) / _line_columns(agents))
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
            _symbol(axes, angle, value, styles[agent], gid, full=bool(row.finished))
            drawing.titles[gid] = f"{agent}, {words(tag)}: {row.score:.3f}" + _left(row)
    _line_legend(drawing.figure, agents, styles, bottom=True)
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
        text = words(tag).capitalize().replace(" ", "\n")
        place = "left" if side > 0.3 else "right" if side < -0.3 else "center"
        axes.text(angle, 1.09, text, ha=place, va="center", fontsize=10, clip_on=False)


@_drawn
def tag_lines(tags: pd.DataFrame, styles: Styles) -> Drawing:
    """Draw the same scores in rows, which are easier to compare, with intervals where available."""
    agents = list(dict.fromkeys(tags["agent"]))
    height = 0.9 + len(TAGS) * (0.24 + 0.105 * len(agents))
    drawing = Drawing(Figure(figsize=(WIDTH, max(height, 4.0))), tags)
    axes = drawing.figure.subplots()
    offsets = _offsets(len(agents), 0.36)
    for y, tag in enumerate(TAGS):
        rows = tags[tags["tag"] == tag].set_index("agent")
        for k, agent in enumerate(agents):
            row, gid = rows.loc[agent], f"tag-{k}-{tag}"
            _interval(axes, row, y + offsets[k], styles[agent].colour, horizontal=True)
            _symbol(
                axes, row["score"], y + offsets[k], styles[agent], gid, full=bool(row["finished"])
            )
            drawing.titles[gid] = f"{agent}, {words(tag)}: {_with_interval(row)}"
    axes.set_yticks(range(len(TAGS)), [words(tag).capitalize() for tag in TAGS])
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


@_drawn
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
    panels[-1].set_xticks(places, [words(name) for name in names], rotation=38, ha="right")
    for text in panels[-1].get_xticklabels():
        text.set_rotation_mode("anchor")
    panels[-1].set_xlim(places[0] - 0.8, places[-1] + 0.8)
    kinds = [kind for kind in TYPES if kind in {EXPERIMENTS[name].type for name in names}]
    handles = [Patch(facecolor=_type_colour(k), edgecolor=INK, label=words(k)) for k in kinds]
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


@_drawn
def single(scores: pd.DataFrame, styles: Styles) -> Drawing:
    """Draw the score of each agent in one experiment, best on top; hollow where it is not finished.

    Args:
      scores: rows of `jbrl.analysis.bsuite.scores.summary` of one experiment.
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
        _symbol(axes, row["score"], y, styles[agent], gid, full=bool(row["finished"]))
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


@_drawn
def learning(curves: pd.DataFrame, experiment: Experiment, styles: Styles) -> Drawing:
    """Draw average regret against episodes, one line per agent with a 95% band over runs.

    Args:
      curves: `jbrl.analysis.bsuite.curves.mean_curves` of an experiment without levels.
    """
    agents = list(dict.fromkeys(curves["agent"]))
    height = 3.2 + 0.215 * math.ceil(len(agents) / _line_columns(agents))
    drawing = Drawing(Figure(figsize=(WIDTH, height)), curves)
    axes = drawing.figure.subplots()
    for k, agent in enumerate(agents):
        rows = curves[curves["agent"] == agent]
        spread = rows["ci95"].fillna(0).to_numpy()
        x, y = rows["episode"].to_numpy(), rows["mean"].to_numpy()
        colour = styles[agent].colour
        axes.fill_between(x, y - spread, y + spread, color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, y, **_line(styles[agent], k), markevery=(2 + 2 * k, 11))
    _baseline(axes, experiment)
    _episodes(axes, experiment)
    axes.set_xlabel("episode")
    axes.set_ylabel("average regret")
    top = _line_legend(drawing.figure, agents, styles)
    drawing.figure.subplots_adjust(left=0.13, right=0.955, bottom=0.14, top=top)
    return drawing


@_drawn
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


@_drawn
def raw_lines(curves: pd.DataFrame, experiment: Experiment, styles: Styles, label: str) -> Drawing:
    """Draw one line per setting and run, one panel per agent; colours from dark to light by level.

    Args:
      curves: `regrets` or `returns` of `jbrl.analysis.bsuite.curves`.
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


@_drawn
def average(final: pd.DataFrame, experiment: Experiment, styles: Styles) -> Drawing:
    """Draw average regret at the end by level, with 95% intervals over runs.

    Args:
      final: `jbrl.analysis.bsuite.curves.final_regrets`.
    """
    agents = list(dict.fromkeys(final["agent"]))
    levels = sorted(final["level"].unique())
    drawing = Drawing(Figure(figsize=(WIDTH, 3.4)), final)
    axes = drawing.figure.subplots()
    offsets = _offsets(len(agents), 0.32)
    for k, agent in enumerate(agents):
        for row in final[final["agent"] == agent].to_dict("records"):
            x, gid = levels.index(row["level"]) + offsets[k], f"final-{k}-{row['level']:g}"
            spread = row["ci95"] if np.isfinite(row["ci95"]) else 0.0
            axes.vlines(x, row["mean"] - spread, row["mean"] + spread, colors=styles[agent].colour)
            _symbol(axes, x, row["mean"], styles[agent], gid, full=row["finished"])
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


@_drawn
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
            _symbol(axes, row["level"], row["mean"], styles[agent], gid, full=bool(good))
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


@_drawn
def solving(solved: pd.DataFrame, styles: Styles, *, logarithmic: bool) -> Drawing:
    """Draw the episode at which deep_sea was solved against its size, with the curve of dithering,
    2^N.

    Args:
      solved: `jbrl.analysis.bsuite.curves.solutions`; unsolved sizes are hollow, at the last
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
            _symbol(axes, x, y, styles[agent], gid, full=bool(known))
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


def level_words(experiment: Experiment) -> str:
    """Return the name of the setting that curves are grouped by."""
    if experiment.family == "discounting_chain":
        return "steps until the best reward"
    return words(experiment.level)


def _ratio_words(experiment: Experiment) -> str:
    memory = experiment.family == "memory_chain"
    return "errors, as a share of guessing" if memory else "average regret at the end"


def _offsets(count: int, reach: float) -> np.ndarray:
    return np.linspace(-reach, reach, count) if count > 1 else np.zeros(1)


def _symbol(axes: Any, x: float, y: float, style: Style, gid: str, *, full: bool) -> None:
    """Draw an agent's symbol; hollow when it is not `full`."""
    axes.plot(
        [x],
        [y],
        gid=gid,
        linestyle="none",
        marker=style.marker,
        markersize=6.2 * style.size,
        markerfacecolor=style.colour if full else PAPER,
        markeredgecolor=INK if full else style.colour,
        markeredgewidth=0.5 if full else 1.3,
        clip_on=False,
        zorder=4,
    )


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


def _line(style: Style, k: int) -> dict[str, Any]:
    return {
        "color": style.colour,
        "linewidth": 1.5,
        "linestyle": DASHES[k % len(DASHES)],
        "marker": style.marker,
        "markersize": 5 * style.size,
        "markeredgecolor": INK,
        "markeredgewidth": 0.4,
    }


def _shade(place: float) -> Any:
    """Return a colour between blue and green, seen on white and on black; `place` from 0 to 1."""
    return MAP(0.22 + 0.62 * place)


def _level_look(k: int) -> dict[str, Any]:
    """Return the look of the lines of levels: dark to light, with different dashes."""
    return {"color": _shade(0.25 * k), "linewidth": 1.4, "linestyle": DASHES[k % len(DASHES)]}


def _line_legend(
    figure: Figure, agents: Sequence[str], styles: Styles, *, bottom: bool = False
) -> float:
    """Draw lines, symbols and names above the axes, or below; return the top of the axes."""
    handles = [Line2D([], [], **_line(styles[a], k), label=a) for k, a in enumerate(agents)]
    columns = _line_columns(agents)
    place: Any = {"loc": "lower center" if bottom else "upper left", "handlelength": 3.2}
    figure.legend(handles=handles, ncols=columns, fontsize=9, **place)
    rows = math.ceil(len(agents) / columns)
    return 1 - (0.2 + 0.215 * rows) / figure.get_figheight()


def _line_columns(agents: Sequence[str]) -> int:
    return max(1, min(len(agents), 3, int(66 / (8 + max(map(len, agents))))))


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
