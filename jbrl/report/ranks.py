"""The figure of ranks under a bootstrap of the environments."""

import functools
import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from jbrl.base.errors import JbrlError
from jbrl.report.axes import rows_figure
from jbrl.report.figures import LONELY, WHO, Drawing, figure
from jbrl.report.style import INK, Style
from jbrl.report.tables import Section
from jbrl.stats.paired_bootstrap import RESAMPLES, draw_counts, pair, resampled
from jbrl.stats.rank_stability import Stability, rank_stability, ranks_table

SIDE = 0.86  # of a square that stands for all resamples
LEAST = 0.001  # share that is drawn


@figure(
    "ranks",
    "How firm the ranks are",
    f"The best agent of each algorithm, ranked by its mean in each of {RESAMPLES:,} resamples of "
    "the {environments}. The area of a square is the share of resamples in which the agent has "
    "that rank; thin lines hold 95% of them. On the right, the share in which no other agent is "
    "better.",
    part="scores",
)
def ranks_under_resampling(section: Section, styles: Mapping[str, Style]) -> Drawing | str:
    """Draw ranks with rows in the order of all environments, so that a firm order is a diagonal."""
    rows = section.champions.reset_index(drop=True)
    if len(rows) < 2:
        return LONELY if len(rows) else ""
    try:
        [paired] = pair(section.returns_of(rows))
        found = rank_stability([resampled(paired, _counts(len(paired.mdps)))])
    except JbrlError as error:
        return str(error)
    return _drawn(section, found, styles)


@functools.lru_cache(maxsize=1)
def _counts(n: int) -> np.ndarray:
    """Return the resamples of `n` environments, [R, n]: the same for experiments of that size."""
    counts = draw_counts(n, RESAMPLES, 0)
    counts.flags.writeable = False
    return counts


def _drawn(section: Section, found: Stability, styles: Mapping[str, Style]) -> Drawing:
    agents = found.parts[0].paired.agents
    rows = agents.merge(section.champions, on=["algorithm", "parameters"], how="left")
    shares, table = found.shares(), ranks_table([found]).set_index(["algorithm", "parameters"])
    drawn, axes = rows_figure(rows)
    rank, agent = np.meshgrid(np.arange(1, len(rows) + 1), np.arange(len(rows)))
    data = rows.loc[agent.ravel(), WHO].assign(rank=rank.ravel(), share=shares.ravel())
    drawing = Drawing(drawn, data[data["share"] > 0].reset_index(drop=True))
    for y, row in rows.iterrows():
        told = table.loc[(row["algorithm"], row["parameters"])]
        _squares(axes, y, shares[y], styles[row["algorithm"]].colour, f"mark-{y}")
        axes.hlines(y, told["rank_lower"], told["rank_upper"], colors=INK, linewidth=0.8)
        axes.text(
            1.01,
            y,
            _share(told["first"]),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=8.5,
        )
        ends = f"95%: {told['rank_lower']} to {told['rank_upper']}"
        drawing.titles[f"mark-{y}"] = (
            f"{row['label']}: rank {told['rank']}, {ends}, first in {_share(told['first'])}"
        )
    axes.set(xlim=(0.4, len(rows) + 0.6), xlabel="rank")
    axes.set_xticks(range(1, len(rows) + 1, math.ceil(len(rows) / 15)))
    drawn.subplots_adjust(right=0.9)
    return drawing


def _squares(axes: Axes, y: int, shares: np.ndarray, colour: str, gid: str) -> None:
    """Draw a square for each rank of an agent, unless it is too small to be seen."""
    ranks = np.flatnonzero(shares >= LEAST) + 1
    half = SIDE / 2 * np.sqrt(shares[ranks - 1])
    corners = np.stack(
        [
            [ranks - half, ranks + half, ranks + half, ranks - half],
            [y - half, y - half, y + half, y + half],
        ]
    )
    outlines = list(corners.transpose(2, 1, 0))
    squares = PolyCollection(
        outlines, facecolors=[to_rgba(colour, 0.75)], edgecolors=colour, linewidths=0.5, gid=gid
    )
    axes.add_collection(squares)


def _share(share: float) -> str:
    """Return a share in per cent; none is rounded to 0 or 1."""
    if 0 < share < 0.01:
        return "< 1%"
    return "> 99%" if 0.99 < share < 1 else f"{100 * share:.0f}%"
