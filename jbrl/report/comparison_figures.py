"""Published means and ours, side by side: one panel for each pair of distributions."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jbrl.report.figures import Drawing
from jbrl.report.style import COLOURS, FAINT, INK, PAPER, drawn
from jbrl.report.text import parameters_text, score_text
from jbrl.stats.published.castronovo2016 import (
    BEST,
    CELL,
    DEFECT,
    MISPRINT,
    OTHER,
    SAME,
    cells,
)

PANEL = (3.0, 3.1)  # inches, without the names on the left
NAMES = 1.0  # inches, of the names
# Symbol, face and shift of each way; published means lie on the line.
WAYS = {
    SAME: ("o", COLOURS[0], 0.16),
    DEFECT: ("s", COLOURS[1], 0.32),
    MISPRINT: ("D", COLOURS[3], 0.32),
    OTHER: ("^", COLOURS[2], 0.16),
    BEST: ("o", PAPER, 0.48),
}
WORDS = {
    SAME: "as described",
    DEFECT: "as the program computes it",
    MISPRINT: "misprint corrected",
    OTHER: "as described, other parameters",
    BEST: "our best setting",
}


@drawn
def beside(candidates: pd.DataFrame, case: str) -> Drawing:
    """Draw the cells of one case.

    Args:
      candidates: what `castronovo2016.with_published` returns.
      case: "accurate" or "inaccurate".
    """
    printed = cells()
    printed = printed[printed["case"] == case]
    experiments = list(dict.fromkeys(printed["experiment"]))
    width, height = NAMES + PANEL[0] * len(experiments), PANEL[1] + 0.75
    drawing = Drawing(Figure(figsize=(width, height)))
    panels = drawing.figure.subplots(1, len(experiments), sharey=True, squeeze=False)[0]
    for axes, experiment in zip(panels, experiments, strict=True):
        mine = candidates[(candidates["case"] == case) & (candidates["experiment"] == experiment)]
        _panel(axes, printed[printed["experiment"] == experiment], mine, drawing)
        axes.set_title(experiment, fontsize=9.6, loc="left", pad=4)
        axes.set_xlabel("mean discounted return")
    drawing.figure.subplots_adjust(
        left=NAMES / width, right=0.985, bottom=0.5 / height, top=1 - 0.55 / height, wspace=0.1
    )
    _legend(drawing.figure)
    return drawing


def _panel(axes: Axes, printed: pd.DataFrame, mine: pd.DataFrame, drawing: Drawing) -> None:
    """Draw one experiment: a row for each algorithm, the published interval as a band, our means
    below it.
    """
    for y, cell in enumerate(printed.to_dict("records")):
        half = max(cell["ci95"], 1e-9)
        axes.barh(
            y + 0.22, 2 * half, 0.74, left=cell["mean"] - half, color=FAINT, alpha=0.35, linewidth=0
        )
        axes.vlines(cell["mean"], y - 0.15, y + 0.59, colors=INK, linewidth=1.1)
        for row in mine[mine["algorithm"] == cell["algorithm"]].to_dict("records"):
            _way(axes, y, row, drawing)
    axes.set_yticks([y + 0.22 for y in range(len(printed))], list(printed["algorithm"]))
    axes.set_ylim(len(printed) - 0.25, -0.35)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def _way(axes: Axes, y: int, row: dict, drawing: Drawing) -> None:
    marker, face, shift = WAYS[row["way"]]
    place, edge = y - 0.05 + shift, INK if face == PAPER else face
    if math.isfinite(row["ci95"]):
        axes.hlines(
            place, row["mean"] - row["ci95"], row["mean"] + row["ci95"], colors=edge, linewidth=1.2
        )
    gid = f"mark-{'-'.join(str(row[c]) for c in CELL)}-{row['way']}".replace(" ", "-")
    axes.plot(
        [row["mean"]],
        [place],
        gid=gid,
        marker=marker,
        markersize=5,
        markerfacecolor=face,
        markeredgecolor=edge,
        linestyle="none",
    )
    setting = parameters_text(row["parameters"])
    who = f"{row['agent']} ({setting})" if setting else str(row["agent"])
    drawing.titles[gid] = f"{who}, {WORDS[row['way']]}: {score_text(row['mean'], row['ci95'], 2)}"


def _legend(figure: Figure) -> None:
    handles = [Line2D([], [], color=FAINT, alpha=0.6, linewidth=7, label="published, 95% interval")]
    for way, (marker, face, _) in WAYS.items():
        edge = INK if face == PAPER else face
        handles.append(
            Line2D(
                [],
                [],
                color=edge,
                marker=marker,
                markerfacecolor=face,
                markersize=5,
                linewidth=1.2,
                label=WORDS[way],
            )
        )
    figure.legend(
        handles=handles,
        ncols=len(handles),
        loc="upper left",
        bbox_to_anchor=(0.0, 1.0),
        columnspacing=0.8,
        handlelength=1.5,
        fontsize=8.6,
    )
