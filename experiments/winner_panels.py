"""The figure of winners under time bounds with one panel for each algorithm, which reads in grey
and shows all that tie: Figs 8 and 12 of Castronovo et al. 2016.

python experiments/winner_panels.py DIR [FILE.png]

DIR holds results of a study, or an archive of them. Each of its experiments with offline times is
drawn to a file beside FILE (winners.png), winners-EXPERIMENT.png.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import jbrl
from jbrl.report import bounds
from jbrl.report.axes import (
    FAINT,
    HATCH,
    INK,
    PAPER,
    WIDTH,
    Drawing,
    Floats,
    Style,
    Styles,
    drawn,
    styles,
    symbol_look,
)
from jbrl.report.sections import Section
from jbrl.report.text import listing

COLUMNS = 3  # panels side by side
NO_OFFLINE_TIMES = (
    "no agent computes anything offline, so that winners depend on the bound on online time alone: "
    "see the table of winners"
)


@drawn
def best_under_bounds(section: Section, styles: Styles) -> Drawing | str:
    """Draw a panel for each algorithm that wins somewhere; the others are named in the note.

    Each point is a pair of bounds: on the time per decision (to the right) and on the time before
    the first decision (upwards). Among the agents that keep both, the algorithm of a panel has the
    best one where it is full, is tied with the best (paired Z-test, one-sided, 95%) where it is
    hatched, and is worse, or too slow, where it is blank.
    """
    points = bounds.winners_or_reason(section)
    if isinstance(points, str):
        return points
    if not (section.contest.times("offline") > 0).any():
        return NO_OFFLINE_TIMES
    ranks = _ranks(points)
    drawing = Drawing(_panels(section, ranks, points, styles), bounds.stretches(points))
    nowhere = [n for n in dict.fromkeys(section.timed["algorithm"]) if n not in ranks]
    notes = [f"Among the best nowhere: {listing(nowhere)}."] if nowhere else []
    drawing.note = " ".join([*notes, *section.left_out(section.timed)])
    return drawing


def _panels(
    section: Section, ranks: dict[str, bounds.Grid], points: pd.DataFrame, styles: Styles
) -> Figure:
    """One panel for each winning algorithm, under its symbol and name."""
    winning = [name for name in styles if name in ranks]
    lines = math.ceil(len(winning) / COLUMNS)
    height = 0.55 + 1.45 * lines
    canvas = Figure(figsize=(WIDTH, height))
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


def _ranks(points: pd.DataFrame) -> dict[str, bounds.Grid]:
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


def _panel(axes: Axes, name: str, ranks: bounds.Grid, x: Floats, y: Floats, style: Style) -> None:
    """One algorithm: rectangles around the points where it wins."""
    looks: Any = {
        1: {"facecolors": PAPER, "edgecolors": style.colour, "hatch": HATCH},
        2: {"facecolors": style.colour, "edgecolors": "none"},
    }
    for rank, look in looks.items():
        rectangles = bounds.rectangles(ranks == rank, bounds.edges(x), bounds.edges(y))
        axes.add_collection(PolyCollection(rectangles, linewidths=0, **look))
    axes.set_title(name, fontsize=min(9.6, 160 / len(name)), loc="left", pad=3, x=0.11)
    look = symbol_look(style) | {"linestyle": "none", "clip_on": False}
    axes.plot([0.045], [1.075], transform=axes.transAxes, **look)
    for side in ("top", "right"):
        axes.spines[side].set(visible=True, color=FAINT)
    bounds.limits(axes, x, y, (3, 4))
    axes.tick_params(labelsize=8.2, color=INK)


def main(results: str, file: str = "winners.png") -> None:
    """Draw each experiment of a study to a file of its own name, or say why there is nothing."""
    parts, target = jbrl.Results(results).sections(), Path(file)
    looks = styles(dict.fromkeys(name for part in parts for name in part.done["algorithm"]))
    for part in parts:
        drawing = best_under_bounds(part, looks)
        if isinstance(drawing, str):
            print(f"{part.name}: {drawing}")
            continue
        place = target.with_stem(f"{target.stem}-{part.id}")
        drawing.figure.savefig(place, dpi=110)
        print(place)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", metavar="DIR")
    parser.add_argument("file", metavar="FILE.png", nargs="?", default="winners.png")
    main(**vars(parser.parse_args()))
