"""Symbols, lines and legends of the figures of a bsuite report.

Agents differ by symbol and dashes as well as by colour; what is not finished is drawn hollow. So
every figure says the same in black and white.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jbrl.report.style import INK, PAPER, Style

Styles = Mapping[str, Style]
DASHES: tuple[Any, ...] = (
    (0, ()),
    (0, (5, 2)),
    (0, (1.2, 1.5)),
    (0, (5, 1.5, 1.2, 1.5)),
    (0, (8, 2, 2, 2)),
)


def symbol(axes: Any, x: float, y: float, style: Style, gid: str, *, full: bool) -> None:
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


def line(style: Style, k: int) -> dict[str, Any]:
    """Return the look of the line of agent number `k`."""
    return {
        "color": style.colour,
        "linewidth": 1.5,
        "linestyle": DASHES[k % len(DASHES)],
        "marker": style.marker,
        "markersize": 5 * style.size,
        "markeredgecolor": INK,
        "markeredgewidth": 0.4,
    }


def line_legend(
    figure: Figure, agents: Sequence[str], styles: Styles, *, bottom: bool = False
) -> float:
    """Draw lines, symbols and names above the axes, or below; return the top of the axes."""
    handles = [Line2D([], [], **line(styles[a], k), label=a) for k, a in enumerate(agents)]
    place: Any = {"loc": "lower center" if bottom else "upper left", "handlelength": 3.2}
    figure.legend(handles=handles, ncols=_columns(agents), fontsize=9, **place)
    return 1 - (0.2 + 0.215 * legend_rows(agents)) / figure.get_figheight()


def legend_rows(agents: Sequence[str]) -> int:
    """Return the number of rows of `line_legend`."""
    return math.ceil(len(agents) / _columns(agents))


def _columns(agents: Sequence[str]) -> int:
    """As many columns as the width holds, by the length of the names."""
    return max(1, min(len(agents), 3, int(66 / (8 + max(map(len, agents))))))


def side_by_side(count: int, reach: float) -> np.ndarray:
    """Return places of `count` marks around 0, at most `reach` from it, [count] float64."""
    return np.linspace(-reach, reach, count) if count > 1 else np.zeros(1)
