"""Figures of a bsuite report: scores as a radar, in rows and as bars; regrets and returns against
episodes; regrets and solutions against the levels of the settings of an experiment.

Agents differ by symbol and dashes as well as by colour; what is not finished is drawn hollow. So
every figure says the same in black and white.
"""

import math
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from jbrl.base.bsuite_sweep import DEEP_SEA_SIZES, EXPERIMENTS, TAGS, TYPES, Experiment
from jbrl.report import axes as parts
from jbrl.report.axes import COLOURS, FAINT, INK, PAPER, drawn
from jbrl.stats.bsuite.curves import SHOWN_SIZES, THRESHOLDS, least_regrets, optima
from jbrl.stats.bsuite.measures import BASE

MAP = mpl.colormaps["viridis"]
WIDE = 11.0  # inches
FLOOR = 0.05  # below which the radar shows no difference, so that shapes keep an area
RADIUS = 1.65  # inches, of the radar
SYMBOL = 0.83  # scale of symbols, of which there are many
BARS = (  # order of the bar plot, by type
    *("bandit", "mnist", "catch", "mountain_car", "cartpole"),
    *("bandit_noise", "mnist_noise", "catch_noise", "mountain_car_noise", "cartpole_noise"),
    *("bandit_scale", "mnist_scale", "catch_scale", "mountain_car_scale", "cartpole_scale"),
    *("deep_sea", "deep_sea_stochastic", "cartpole_swingup"),
    *("umbrella_length", "umbrella_distract", "discounting_chain"),
    *("memory_len", "memory_size"),
)


def in_words(name: str) -> str:
    """Return a name of the original in words: `credit_assignment` is "credit assignment"."""
    return name.replace("_", " ")


def level_words(experiment: Experiment) -> str:
    """Return the name of the setting that curves are grouped by."""
    if experiment.family == "discounting_chain":
        return "steps until the best reward"
    return in_words(experiment.level)


def _agents(table: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(table["agent"]))


def _side_by_side(count: int, reach: float) -> parts.Floats:
    """Return places of `count` marks around 0, at most `reach` from it, [count] float64."""
    return np.linspace(-reach, reach, count) if count > 1 else np.zeros(1)


@drawn
def radar(tags: pd.DataFrame, styles: parts.Styles) -> parts.Drawing:
    """Tag scores on seven spokes, one closed line per agent.

    Args:
      tags: `jbrl.stats.bsuite.scores.tag_scores`.
    """
    agents = _agents(tags)
    below = 0.08 + parts.legend_height(agents, lines=True)
    width, height = parts.WIDTH, RADIUS * 2 + 0.7 + below
    drawing = parts.Drawing(Figure(figsize=(width, height)), tags)
    axes: Any = drawing.figure.add_subplot(projection="polar")
    angles = np.linspace(0, 2 * np.pi, len(TAGS), endpoint=False)
    _web(axes, angles)
    for k, agent in enumerate(agents):
        rows, colour = tags[tags["agent"] == agent].set_index("tag").loc[list(TAGS)], styles[agent]
        values = np.maximum(rows["score"].to_numpy(np.float64), FLOOR)
        dashes = parts.DASHES[k % len(parts.DASHES)]
        look: Any = {"color": colour.colour, "linestyle": dashes, "linewidth": 2}
        axes.plot(np.append(angles, angles[0]), np.append(values, values[0]), **look)
        if len(agents) <= 2:
            axes.fill(angles, values, color=colour.colour, alpha=0.12, linewidth=0)
        for tag, angle, value, row in zip(TAGS, angles, values, rows.itertuples(), strict=True):
            unfinished = f" ({row.experiments} of {row.of} experiments, not all finished)"
            title = f"{agent}, {in_words(tag)}: {row.score:.3f}" + unfinished * (not row.finished)
            place, gid, full = (angle, value), f"radar-{k}-{tag}", bool(row.finished)
            drawing.mark(axes, place, styles[agent], gid, title, full=full, scale=SYMBOL)
    parts.legend(drawing.figure, agents, styles, lines=True, place="lower center")
    left, share = (1 - 2 * RADIUS / width) / 2, 2 * RADIUS / height
    axes.set_position((left, (below + 0.32) / height, 2 * RADIUS / width, share))
    return drawing


def _web(axes: Any, angles: parts.Floats) -> None:
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
def tag_lines(tags: pd.DataFrame, styles: parts.Styles) -> parts.Drawing:
    """Draw the same scores in rows, which are easier to compare, with intervals where available."""
    agents = _agents(tags)
    height = max(4.0, 0.9 + len(TAGS) * (0.24 + 0.105 * len(agents)))
    drawing, axes = parts.panel(height, tags)
    offsets = _side_by_side(len(agents), 0.36)
    for y, tag in enumerate(TAGS):
        rows = tags[tags["tag"] == tag].set_index("agent")
        for k, agent in enumerate(agents):
            row, at = rows.loc[agent], y + offsets[k]
            name = f"{agent}, {in_words(tag)}"
            _score(drawing, axes, row, at, styles, agent, f"tag-{k}-{tag}", name)
    axes.set_yticks(range(len(TAGS)), [in_words(tag).capitalize() for tag in TAGS])
    axes.set_ylim(len(TAGS) - 0.45, -0.55)
    axes.set_xlim(0, 1)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.grid(axis="x")
    for y in range(1, len(TAGS)):
        axes.axhline(y - 0.5, color=FAINT, linewidth=0.4)
    axes.set_xlabel("mean score")
    drawing.margins(0.26, 0.5, parts.legend(drawing.figure, agents, styles), right=0.96)
    return drawing


@drawn
def single(scores: pd.DataFrame, styles: parts.Styles) -> parts.Drawing:
    """Draw the score of each agent in one experiment, best on top; hollow where it is not finished.

    Args:
      scores: rows of `jbrl.stats.bsuite.scores.summary` of one experiment.
    """
    rows = scores.sort_values("score", ascending=False, kind="stable", na_position="last")
    names = [textwrap.shorten(name, 24, placeholder="…") for name in rows["agent"]]
    drawing, axes = parts.rows_panel(names, scores)
    for y, row in enumerate(rows.to_dict("records")):
        if not np.isfinite(row["score"]):
            axes.text(0.01, y, "no score", va="center", fontsize=9)
            continue
        agent = row["agent"]
        axes.hlines(y, 0, row["score"], colors=styles[agent].colour, linewidth=1.0)
        _score(drawing, axes, row, y, styles, agent, f"score-{y}", agent)
    axes.set_xlim(0, 1)
    axes.tick_params(axis="y", pad=8)
    axes.set_xlabel("score")
    return drawing


def _score(
    drawing: parts.Drawing,
    axes: Axes,
    row: Any,
    y: float,
    styles: parts.Styles,
    agent: str,
    gid: str,
    name: str,
) -> None:
    """Draw a score with its interval, in a row."""
    parts.interval(axes, y, *_ends(row), colors=styles[agent].colour, zorder=3)
    place, full = (row["score"], y), bool(row["finished"])
    title = f"{name}: {_with_interval(row)}"
    drawing.mark(axes, place, styles[agent], gid, title, full=full, scale=SYMBOL)


def _ends(row: Any) -> tuple[float, float]:
    """Return the interval of a score, NaN where there is none."""
    return row.get("lower", np.nan), row.get("upper", np.nan)


def _with_interval(row: Any) -> str:
    lower, upper = _ends(row)
    known = np.isfinite(lower) and np.isfinite(upper)
    text = f"{row['score']:.3f}" + (f" ({lower:.3f} to {upper:.3f})" if known else "")
    return text if row["finished"] else f"{text}, not finished"


@drawn
def bars(scores: pd.DataFrame) -> parts.Drawing:
    """Draw scores of all experiments by type, one panel per agent; unfinished ones hatched."""
    agents = _agents(scores)
    names = [name for name in BARS if name in set(scores["bsuite_env"])]
    types = [EXPERIMENTS[name].type for name in names]
    colours = dict(zip(TYPES, COLOURS, strict=False))
    height = 1.75 + 1.35 * len(agents)
    figure = Figure(figsize=(WIDE, height))
    panels = figure.subplots(len(agents), 1, sharex=True, squeeze=False)[:, 0]
    drawing = parts.Drawing(figure, scores, wide=True)
    gaps = [1 + 0.6 * (one != other) for one, other in pairwise(types)]
    places = np.append(0.0, np.cumsum(gaps))  # with gaps between types
    for k, (agent, axes) in enumerate(zip(agents, panels, strict=True)):
        rows = scores[scores["agent"] == agent].set_index("bsuite_env")
        for name, kind, x in zip(names, types, places, strict=True):
            row, gid = rows.loc[name], f"bar-{k}-{name}"
            if not np.isfinite(row["score"]):
                axes.text(x, 0.03, "–", ha="center", fontsize=9)
                continue
            look: Any = {"facecolor": colours[kind], "edgecolor": INK, "linewidth": 0.5}
            if not row["finished"]:
                look = {"facecolor": PAPER, "edgecolor": colours[kind], "linewidth": 0.8}
                look["hatch"] = parts.HATCH
            axes.bar(x, row["score"], width=0.78, gid=gid, **look)
            parts.interval(axes, x, *_ends(row), upright=True, colors=INK, linewidth=1.0, zorder=3)
            drawing.titles[gid] = f"{agent}, {name}: {_with_interval(row)}"
        axes.axhline(1, color=INK, linewidth=0.7, linestyle=parts.DASHED)
        axes.set_ylim(0, 1.12)
        axes.set_yticks([0, 0.5, 1])
        axes.grid(axis="y")
        axes.set_title(agent, loc="left", fontsize=10, pad=3)
        axes.tick_params(axis="x", length=0)
    panels[-1].set_xticks(places, [in_words(name) for name in names], rotation=38, ha="right")
    for text in panels[-1].get_xticklabels():
        text.set_rotation_mode("anchor")
    panels[-1].set_xlim(places[0] - 0.8, places[-1] + 0.8)
    handles = [
        Patch(facecolor=colour, edgecolor=INK, label=in_words(kind))
        for kind, colour in colours.items()
        if kind in types
    ]
    handles.append(Patch(facecolor=PAPER, edgecolor=INK, hatch=parts.HATCH, label="not finished"))
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", fontsize=9)
    drawing.margins(0.06, 1.2, 1 - 0.55 / height, right=0.99, hspace=0.3)
    return drawing


@drawn
def learning(curves: pd.DataFrame, experiment: Experiment, styles: parts.Styles) -> parts.Drawing:
    """Draw average regret against episodes, one line per agent with a 95% band over runs.

    Args:
      curves: `jbrl.stats.bsuite.curves.mean_curves` of an experiment without levels.
    """
    agents = _agents(curves)
    height = 3.03 + parts.legend_height(agents, lines=True)
    drawing, axes = parts.panel(height, curves)
    for k, agent in enumerate(agents):
        rows, style = curves[curves["agent"] == agent], styles[agent]
        spread = rows["ci95"].fillna(0).to_numpy()
        x, y = rows["episode"].to_numpy(), rows["mean"].to_numpy()
        axes.fill_between(x, y - spread, y + spread, color=style.colour, alpha=0.15, linewidth=0)
        axes.plot(x, y, **parts.line_look(style, k), markevery=(2 + 2 * k, 11))
    _best_learner(axes, experiment, _baseline(axes, experiment))
    _episodes(axes, experiment)
    axes.set(xlabel="episode", ylabel="average regret")
    top = parts.legend(drawing.figure, agents, styles, lines=True)
    drawing.margins(0.13, 0.14 * height, top, right=0.955)
    return drawing


@drawn
def by_level(curves: pd.DataFrame, experiment: Experiment) -> parts.Drawing:
    """Draw average regret against episodes, one line per level, one panel per agent.

    Args:
      curves: `mean_curves` of an experiment with five levels.
    """
    figure, panels, agents = _panels(curves)
    deep_sea = experiment.family == "deep_sea"
    levels = sorted(curves["level"].unique())
    levels = [level for level in levels if not deep_sea or level in SHOWN_SIZES]
    looks: list[Any] = [
        {
            "color": _shade(0.25 * k),
            "linewidth": 1.4,
            "linestyle": parts.DASHES[k % len(parts.DASHES)],
        }
        for k in range(len(levels))
    ]
    for agent, axes in zip(agents, panels, strict=True):
        own = curves[curves["agent"] == agent]
        for k, level in enumerate(levels):
            rows = own[own["level"] == level]
            axes.plot(rows["episode"], rows["mean"], **looks[k], markevery=(1 + 2 * k, 11))
        _best_learner(axes, experiment, _baseline(axes, experiment))
        _episodes(axes, experiment)
    lines = dict(zip(levels, looks, strict=True))
    label = "average bad episodes" if deep_sea else "average regret"
    _finish_panels(figure, panels, label, lines, level_words(experiment))
    return parts.Drawing(figure, curves)


@drawn
def raw_lines(
    curves: pd.DataFrame, experiment: Experiment, styles: parts.Styles, label: str
) -> parts.Drawing:
    """Draw one line per setting and run, one panel per agent; colours from dark to light by level.

    Args:
      curves: `regrets` or `returns` of `jbrl.stats.bsuite.curves`.
    """
    figure, panels, agents = _panels(curves)
    levels = sorted(curves["level"].unique())
    shades = {level: _shade(k / max(1, len(levels) - 1)) for k, level in enumerate(levels)}
    for agent, axes in zip(agents, panels, strict=True):
        runs = curves[curves["agent"] == agent].groupby(["bsuite_id", "run"], sort=False)
        lines = [rows[["episode", "average"]].to_numpy() for _, rows in runs]
        own = styles[agent].colour if len(levels) == 1 else None
        colours = [own or shades[rows["level"].iloc[0]] for _, rows in runs]
        axes.add_collection(LineCollection(lines, colors=colours, linewidths=0.8))
        axes.autoscale_view()
        _episodes(axes, experiment)
        if label == "average return":
            for best in optima(experiment):
                axes.axhline(best, color=INK, linewidth=0.8, linestyle=parts.DASHED)
        else:
            _baseline(axes, experiment)
    ends = [levels[0], levels[len(levels) // 2], levels[-1]] if len(levels) > 2 else levels
    looks = {v: {"color": shades[v], "linewidth": 2} for v in ends if len(levels) > 1}
    _finish_panels(figure, panels, label, looks, level_words(experiment))
    return parts.Drawing(figure, curves)


def _panels(curves: pd.DataFrame) -> tuple[Figure, list[Axes], list[str]]:
    """Make axes for each agent, with its name."""
    agents = _agents(curves)
    columns = 1 if len(agents) == 1 else 2
    rows = math.ceil(len(agents) / columns)
    figure = Figure(figsize=(parts.WIDTH, 3.6 if len(agents) == 1 else 0.95 + 1.75 * rows))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for k, axes in enumerate(grid[len(agents) :]):
        axes.set_visible(False)
        grid[len(agents) + k - columns].tick_params(labelbottom=True)
    for agent, axes in zip(agents, grid, strict=False):
        axes.set_title(
            textwrap.shorten(agent, 34, placeholder="…"), fontsize=9.5, loc="left", pad=3
        )
    return figure, list(grid[: len(agents)]), agents


def _finish_panels(
    figure: Figure, panels: Sequence[Axes], label: str, looks: dict[float, Any], title: str
) -> None:
    """Draw labels shared by panels, and the legend of levels above them."""
    height = figure.get_figheight()
    figure.supxlabel("episode", fontsize=9.6, y=0.08 / height)
    figure.supylabel(label, fontsize=9.6, x=0.005)
    if looks:
        handles = [Line2D([], [], label=f"{level:g}", **look) for level, look in looks.items()]
        handles[0].set_label(f"{title}: {handles[0].get_label()}")
        place: Any = {"loc": "upper left", "handlelength": 2.6, "columnspacing": 1.0}
        figure.legend(handles=handles, ncols=len(handles), fontsize=8.6, **place)
    top, bottom = 1 - (0.55 if looks else 0.3) / height, 0.5 / height
    space: Any = {"hspace": 0.28, "wspace": 0.08}
    figure.subplots_adjust(left=0.125, right=0.955, top=top, bottom=bottom, **space)
    for axes in panels:
        axes.grid()


def _shade(place: float) -> Any:
    """Return a colour between blue and green, seen on white and on black; `place` from 0 to 1."""
    return MAP(0.22 + 0.62 * place)


def _episodes(axes: Axes, experiment: Experiment) -> None:
    parts.log_ticks(axes, "x", [10**k for k in range(int(math.log10(experiment.episodes)) + 1)])
    axes.set_xlim(1, experiment.episodes)


def _baseline(axes: Axes, experiment: Experiment) -> float | None:
    """Draw the average regret that scores 0, or the least one that counts as solved; return it."""
    lines = {"discounting_chain": 0.08, "deep_sea": 0.99, **BASE}
    lines |= {k: v for k, v in THRESHOLDS.items() if k != "cartpole_swingup"}
    value = lines.get(experiment.family)
    if value is not None:
        axes.axhline(value, color=INK, linewidth=0.8, linestyle=parts.DASHED)
    return value


def _best_learner(axes: Axes, experiment: Experiment, at_first: float | None) -> None:
    """Draw limits of the average regret of the best learner: that of its first episode, and all its
    regret divided by the episodes so far, which is what it has once everything has been tried.
    """
    episodes = np.geomspace(1, experiment.episodes, 200)
    for regret in least_regrets(experiment):
        limit = np.minimum(math.inf if at_first is None else at_first, regret / episodes)
        axes.plot(episodes, limit, color=INK, linewidth=0.8, linestyle=parts.DOTTED)


@drawn
def average(final: pd.DataFrame, experiment: Experiment, styles: parts.Styles) -> parts.Drawing:
    """Draw average regret at the end by level, with 95% intervals over runs.

    Args:
      final: `jbrl.stats.bsuite.curves.final_regrets`.
    """
    agents, levels = _agents(final), sorted(final["level"].unique())
    drawing, axes = parts.panel(3.4, final)
    offsets = _side_by_side(len(agents), 0.32)
    for k, agent in enumerate(agents):
        style = styles[agent]
        for row in final[final["agent"] == agent].to_dict("records"):
            level, mean = row["level"], row["mean"]
            x, gid = levels.index(level) + offsets[k], f"final-{k}-{level:g}"
            low, high = mean - row["ci95"], mean + row["ci95"]
            parts.interval(axes, x, low, high, upright=True, colors=style.colour)
            title, full = f"{agent}, {level:g}: {mean:.3g}", bool(row["finished"])
            drawing.mark(axes, (x, mean), style, gid, title, full=full, scale=SYMBOL)
    axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
    axes.set_xlim(-0.6, len(levels) - 0.4)
    _baseline(axes, experiment)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(axis="y")
    axes.set(xlabel=level_words(experiment), ylabel="average regret at the end")
    drawing.margins(0.13, 0.51, parts.legend(drawing.figure, agents, styles))
    return drawing


@drawn
def scaling(values: pd.DataFrame, experiment: Experiment, styles: parts.Styles) -> parts.Drawing:
    """Draw the quantity that decides the score against the level: full symbols are on the good side
    of the line.

    Args:
      values: columns agent, level, mean: `final_regrets`, or `bests` for swing-up.
    """
    agents, threshold = _agents(values), THRESHOLDS[experiment.family]
    swingup = experiment.family == "cartpole_swingup"
    drawing, axes = parts.panel(3.6, values)
    for k, agent in enumerate(agents):
        rows, style = values[values["agent"] == agent], styles[agent]
        faint: Any = {"color": style.colour, "linewidth": 0.6, "alpha": 0.7}
        axes.plot(
            rows["level"], rows["mean"], **faint, linestyle=parts.DASHES[k % len(parts.DASHES)]
        )
        for n, row in enumerate(rows.to_dict("records")):
            place = row["level"], row["mean"]
            good = bool(place[1] > threshold if swingup else place[1] < threshold)
            title = f"{agent}, {place[0]:g}: {place[1]:.3g}"
            drawing.mark(axes, place, style, f"scale-{k}-{n}", title, full=good, scale=SYMBOL)
    axes.axhline(threshold, color=INK, linewidth=0.9, linestyle=parts.DASHED)
    if not swingup:
        low, high = values["level"].min(), values["level"].max()
        parts.log_ticks(axes, "x", [tick for tick in (1, 3, 10, 30, 100) if low <= tick <= high])
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(axis="y")
    memory = experiment.family == "memory_chain"
    regret = "errors, as a share of guessing" if memory else "average regret at the end"
    axes.set_xlabel(level_words(experiment))
    axes.set_ylabel("best return of an episode" if swingup else regret)
    drawing.margins(0.13, 0.5, parts.legend(drawing.figure, agents, styles))
    return drawing


@drawn
def solving(solved: pd.DataFrame, styles: parts.Styles, *, logarithmic: bool) -> parts.Drawing:
    """Draw the episode at which deep_sea was solved against its size, with the curve of dithering,
    2^N.

    Args:
      solved: `jbrl.stats.bsuite.curves.solutions`; unsolved sizes are hollow, at the last
        episode that was logged.
    """
    agents = _agents(solved)
    drawing, axes = parts.panel(3.6, solved)
    for k, agent in enumerate(agents):
        shift = 0.0 if logarithmic else 0.18 * (k - (len(agents) - 1) / 2)
        for n, row in enumerate(solved[solved["agent"] == agent].to_dict("records")):
            known, size = bool(np.isfinite(row["episode"])), row["size"]
            y = row["episode"] if known else row["episodes"]
            when = f"solved at {y:,.0f}" if known else f"not solved by {y:,.0f}"
            place, title = (size + shift, y), f"{agent}, N = {size}: {when}"
            look: Any = {"full": known, "scale": SYMBOL}
            drawing.mark(axes, place, styles[agent], f"solve-{k}-{n}", title, **look)
    sizes = np.arange(5, 20)
    most = float(solved["episodes"].max())
    axes.plot(sizes, 2.0**sizes, color=INK, linewidth=1.0, linestyle=parts.DASHED)
    if logarithmic:
        parts.log_ticks(axes, "y", [1, 10, 100, 1000, 10_000])
        parts.log_ticks(axes, "x", [5, 10, 20, 30, 40, 50])
        axes.set_ylim(0.8, 2 * most)
    else:
        axes.set_ylim(-0.03 * most, 1.06 * most)
    axes.set_xlim(4.6, DEEP_SEA_SIZES[-1] * 1.06)
    axes.grid()
    axes.set(xlabel="size N", ylabel="episodes until solved")
    drawing.margins(0.16, 0.5, parts.legend(drawing.figure, agents, styles))
    return drawing
