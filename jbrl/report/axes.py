"""Parts that figures are made of: one symbol and one colour per algorithm, the same in every figure
and table of a report; axes for times and for rows of names, legends, intervals, histograms.

Colours are those of Okabe and Ito (2008) and of Paul Tol, distinguishable with any colour vision;
symbols are distinguishable in grey. Figures name colours by their value on paper;
`jbrl.report.html` replaces them by the style sheet's variables of the same number.
"""

import dataclasses
import functools
import math
import textwrap
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, NullLocator

from jbrl.report.text import seconds_text

# text and axes; grid and secondary lines; ground
INK, FAINT, PAPER = "#1b1f24", "#8a929c", "#fefefe"
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255"),
    *("#999933", "#332288", "#44aa99", "#661100", "#117733", "#7f3fbf"),
)
ORACLE = "#5b6470"
SYMBOLS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", "p", ">", "h")
ORACLE_SYMBOL = "d"
_NAMES = {
    INK: "ink",
    FAINT: "faint",
    PAPER: "paper",
    ORACLE: "oracle",
    **{c: f"s{i}" for i, c in enumerate(COLOURS)},
}


LOOK: Any = {
    "svg.fonttype": "none",  # text stays text: small, selectable, in the page's font
    "svg.hashsalt": "jbrl",  # same figure, same bytes
    "font.family": "DejaVu Sans",  # wider than most, so that what fits here fits on the page
    "text.parse_math": False,  # names may hold a dollar sign
    "path.simplify": True,
    "font.size": 9.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "grid.color": FAINT,
    "grid.linewidth": 0.35,
    "grid.alpha": 0.6,
    "legend.frameon": False,
    "hatch.linewidth": 1.3,
}


@contextmanager
def in_look(**more: Any) -> Iterator[None]:
    """Draw in the look of all figures; letters that the font lacks are no reason for a warning."""
    with mpl.rc_context(LOOK | more), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")


def drawn(function: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """Make a function draw in the look of all figures (decorator)."""

    @functools.wraps(function)
    def draw(*args: Given.args, **options: Given.kwargs) -> Drawn:
        with in_look():
            return function(*args, **options)

    return draw


@dataclasses.dataclass(frozen=True)
class Style:
    """Look of an algorithm in figures."""

    colour: str
    marker: str

    @property
    def variable(self) -> str:
        """The style sheet's name of the colour."""
        return f"var(--{_NAMES[self.colour]})"

    @property
    def size(self) -> float:
        """Factor that makes symbols look equally large."""
        return {"*": 1.5, "D": 0.85, "d": 1.1, "P": 1.15, "X": 1.15}.get(self.marker, 1.0)

    @property
    def outline(self) -> str:
        """The symbol as SVG path data, centred, about 2 units wide."""
        style = MarkerStyle(self.marker)
        path = style.get_path().transformed(style.get_transform())
        letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
        parts = []
        for points, code in path.iter_segments(curves=True):
            # SVG's y axis points down.
            numbers = [
                f"{(v if i % 2 == 0 else -v) * 2 * self.size:.2f}" for i, v in enumerate(points)
            ]
            parts.append("Z" if code == Path.CLOSEPOLY else letters[code] + " ".join(numbers))
        return "".join(parts)


def styles(algorithms: Iterable[str], oracles: Collection[str] = ()) -> dict[str, Style]:
    """Return a style for each algorithm, by order; oracles are grey.

    The first 13 differ in colour, the first 12 in symbol; both together repeat after 156.
    """
    names = list(dict.fromkeys(algorithms))
    competing = [name for name in names if name not in oracles]
    looks = {
        name: Style(COLOURS[i % len(COLOURS)], SYMBOLS[i % len(SYMBOLS)])
        for i, name in enumerate(competing)
    }
    return {name: looks.get(name, Style(ORACLE, ORACLE_SYMBOL)) for name in names}


def variable(colour: str) -> str:
    """Return the style sheet's variable of a colour, with the colour itself for use outside the
    page; other colours stay as they are.
    """
    return f"var(--{_NAMES[colour]},{colour})" if colour in _NAMES else colour


WIDTH = 5.5  # inches
# seconds
DECADES = (
    *(10.0**e for e in range(-12, 2)),
    *(60.0, 600.0, 3600.0, 36000.0),
    *(86400.0 * 10**e for e in range(5)),
)
LINE, GAP = 0.165, 0.09  # inches: a line of the name of a row, the gap between two names
DASHES: tuple[Any, ...] = (  # of lines that differ in grey, too
    (0, ()),
    (0, (5, 2)),
    (0, (1.2, 1.5)),
    (0, (5, 1.5, 1.2, 1.5)),
    (0, (8, 2, 2, 2)),
)
DASHED: Any = (0, (4, 3))  # of lines to compare with
DOTTED: Any = (0, (1, 2))
HATCH = "////"  # where an algorithm is tied with the best: different from full in grey as well
Styles = Mapping[str, Style]
Floats = npt.NDArray[np.float64]


@dataclasses.dataclass
class Drawing:
    """A figure, the texts of its marks under the pointer (by gid), an addition to its caption, and
    the numbers that it shows.
    """

    figure: Figure
    data: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)  # one row per mark or area
    titles: dict[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""
    wide: bool = False  # needs the width of a page

    def mark(
        self,
        axes: Axes,
        place: tuple[float, float],
        style: Style,
        gid: str,
        title: str,
        *,
        scale: float = 1.0,
        faint: bool = False,
        full: bool = True,
    ) -> None:
        """Draw one symbol, to be found in the SVG under `gid`, with the text that the pointer
        shows; hollow unless `full`.
        """
        look = symbol_look(style, 7.5 * scale, 0.6 if full else 1.1) | {"linestyle": "none"}
        if not full:
            look |= {"markerfacecolor": PAPER, "markeredgecolor": style.colour}
        look |= {"alpha": 0.4, "zorder": 3} if faint else {"alpha": 1, "zorder": 4}
        axes.plot(*([value] for value in place), gid=gid, clip_on=False, **look)
        self.titles[gid] = title

    def margins(self, left: float, bottom: float, top: float, **more: float) -> None:
        """Place the axes: `left` and `top` are shares of the figure, `bottom` is in inches."""
        bottom /= self.figure.get_figheight()
        self.figure.subplots_adjust(
            **{"left": left, "right": 0.965, "bottom": bottom, "top": top} | more
        )


def symbol_look(style: Style, size: float = 6.5, width: float = 0.5) -> dict[str, Any]:
    """Return the look of a symbol, `size` in points, with an outline of this width."""
    return {
        "color": style.colour,
        "marker": style.marker,
        "markersize": size * style.size,
        "markeredgecolor": INK,
        "markeredgewidth": width,
    }


def line_look(style: Style, k: int) -> dict[str, Any]:
    """Return the look of line number `k`, which differs from others without colour."""
    line = {"linewidth": 1.5, "linestyle": DASHES[k % len(DASHES)]}
    return symbol_look(style, 5, 0.4) | line


def interval(
    axes: Axes, at: float, low: float, high: float, *, upright: bool = False, **look: Any
) -> None:
    """Draw a bar between two ends, along the x axis or upright; none where they are not known."""
    if math.isfinite(low) and math.isfinite(high):
        draw = axes.vlines if upright else axes.hlines
        draw(at, low, high, **{"linewidth": 1.6} | look)


def time_axis(
    axes: Axes, seconds: pd.Series, algorithms: pd.Series, order: Sequence[str]
) -> dict[Hashable, float]:
    """Make the x axis one of decimal logarithms of `seconds`, which are finite and not negative;
    the place of each, by index.

    Zeros have no logarithm: they stand in a strip of their own on the left, side by side by
    algorithm in the given order.
    """
    positive, zero = seconds[seconds > 0], seconds[seconds == 0]
    places: dict[Hashable, float] = {index: float(np.log10(s)) for index, s in positive.items()}
    left = right = 0.0
    ticks: dict[float, str] = {}
    if places:
        left, right = _padded(min(places.values()), max(places.values()))
        ticks = {float(np.log10(s)): seconds_text(s) for s in _time_ticks(10**left, 10**right)}
        _fine_ticks(axes, left, right)
    if len(zero):
        strip = 0.22 * (right - left) or 1.0
        names = [name for name in order if name in set(algorithms[zero.index])]
        side_by_side = np.arange(1, len(names) + 1) / (len(names) + 1)
        columns = dict(zip(names, left - strip + strip * side_by_side, strict=True))
        places |= {index: float(columns[algorithms[index]]) for index in zero.index}
        ticks[left - strip / 2] = "0"
        if len(positive):
            axes.axvline(left, color=FAINT, linewidth=0.8, linestyle=(0, (1, 2)), gid="strip")
        left -= strip
    axes.set_xlim(left, right)
    axes.set_xticks(list(ticks), list(ticks.values()))
    return places


def duration_ticks(axis: Axis, low: float, high: float, most: int) -> None:
    """Set the ticks of an axis of decimal logarithms of durations, from 10^`low` to 10^`high`
    seconds: `most` of them at most.
    """
    ticks = _time_ticks(10**low, 10**high)
    while len(ticks) > most:
        ticks = ticks[1::2]
    axis.set_ticks([float(np.log10(s)) for s in ticks], [seconds_text(s) for s in ticks])


def _padded(low: float, high: float) -> tuple[float, float]:
    """Return ends of an axis that shows at least a bit over a decade, so that there is a tick."""
    lack = max(0.0, 1.2 - (high - low))
    margin = 0.05 * (high - low + lack) + lack / 2
    return low - margin, high + margin


def _fine_ticks(axes: Axes, left: float, right: float) -> None:
    """Draw short ticks between the decades as one line, which takes a tenth of the space that minor
    ticks take in the SVG.
    """
    places = np.log10(
        [d * k for d, following in pairwise(DECADES) for k in range(2, 10) if d * k < following]
    )
    places = places[(places > left) & (places < right)]
    y = np.tile([0, -0.012, np.nan], len(places))
    look: Any = {"color": INK, "linewidth": 0.5, "clip_on": False}
    axes.add_artist(Line2D(np.repeat(places, 3), y, transform=axes.get_xaxis_transform(), **look))


def _time_ticks(low: float, high: float) -> list[float]:
    """Return durations between two: the decades; where these are few, 2 and 5 times them as well,
    unless too near the next.
    """
    for factors in ((1,), (1, 2, 5)):
        wanted = {
            d * f for d, following in pairwise(DECADES) for f in factors if d * f * 1.5 < following
        }
        ticks = sorted(s for s in wanted if low <= s <= high)
        if len(ticks) >= 3:
            break
    return ticks


def left_margin(axes: Axes, least: float) -> float:
    """Return the fraction of the width that the numbers and the label of the y axis need, `least`
    or more: its limits are final.
    """
    longest = max(map(len, axes.yaxis.get_major_formatter().format_ticks(list(axes.get_yticks()))))
    return max(least, 0.1 + 0.018 * (longest - 4))


def log_ticks(axes: Axes, which: str, ticks: Sequence[float]) -> None:
    """Make the axis "x" or "y" logarithmic, with these numbers only."""
    axes.set(**{f"{which}scale": "log"})
    axis: Axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,g}" if value < 1e6 else f"{value:,.0f}")


def legend_height(names: Sequence[str], *, lines: bool = False) -> float:
    """Return the inches that `legend` needs, with the space to be free around it."""
    return 0.17 + 0.215 * math.ceil(len(names) / _columns(names, lines=lines))


def legend(
    figure: Figure,
    names: Sequence[str],
    styles: Styles,
    *,
    lines: bool = False,
    place: str = "upper left",
) -> float:
    """Draw symbols, on `lines` or alone, and names above the axes or below; return the fraction of
    the height that is left to the axes.
    """
    handles = []
    for k, name in enumerate(names):
        style = styles[name]
        look = line_look(style, k) if lines else symbol_look(style) | {"linestyle": "none"}
        handles.append(Line2D([], [], label=name, **look))
    where: dict[str, Any] = {"loc": place}
    if not lines:
        where |= {"bbox_to_anchor": (0.08, 1.0), "handletextpad": 0.1, "columnspacing": 1.2}
    columns = _columns(names, lines=lines)
    figure.legend(handles=handles, ncols=columns, fontsize=9, **where)
    return float(1 - legend_height(names, lines=lines) / figure.get_figheight())


def _columns(names: Sequence[str], *, lines: bool) -> int:
    """As many columns as the width holds, by the length of the names."""
    for columns in range(len(names), 1, -1):
        parts = np.array_split([len(name) for name in names], columns)
        if sum(5.6 * part.max() + (52 if lines else 30) for part in parts) < 0.92 * 72 * WIDTH:
            return columns
    return 1


def panel(
    height: float, data: pd.DataFrame | None = None, width: float = WIDTH
) -> tuple[Drawing, Axes]:
    """Make a drawing of one pair of axes, of this size in inches, and of the numbers `data`."""
    drawing = Drawing(Figure(figsize=(width, height)), pd.DataFrame() if data is None else data)
    return drawing, drawing.figure.subplots()


def rows_panel(
    names: Sequence[str],
    data: pd.DataFrame | None = None,
    *,
    step: float = 0.36,
    size: float = 9.6,
    above: float = 0.08,
) -> tuple[Drawing, Axes]:
    """Make a `panel` with one line per name, the first on top; higher where names take many lines.

    Args:
      step: inches from one line to the next, at least.
      size: of the letters.
      above: inches to be free above the axes.
    """
    names = [textwrap.fill(str(name), 28, break_on_hyphens=False) for name in names]
    lines = [name.count("\n") + 1 for name in names]
    neighbours = [(one + other) / 2 for one, other in pairwise(lines)]
    if max(lines) > 1:
        step = max(step, GAP + LINE * max(neighbours, default=lines[0]))
    ends = [max(0.55, (LINE * count + GAP) / 2 / step) for count in (lines[0], lines[-1])]
    height = 0.52 + above + step * (len(names) - 1 + sum(ends))
    drawing, axes = panel(height, data)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.set_ylim(len(names) - 1 + ends[1], -ends[0])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    longest = max(len(line) for name in names for line in name.split("\n"))
    left = min(0.42, 0.03 + 0.0015 * size * longest)
    drawing.margins(left, 0.52, 1 - above / height)
    return drawing, axes


def labels_of(names: Iterable[str], width: int, lines: int) -> list[str]:
    """Return labels of so many lines and characters at most, cut in the middle where need be, all
    different.

    Long names of algorithms often differ in their last parameters only: ends are kept.
    """
    labels: list[str] = []
    room = width * lines - 2 * (lines - 1)
    for name in map(str, names):
        text = name if len(name) <= room else f"{name[: room // 3]}…{name[1 - room + room // 3 :]}"
        label = "\n".join(textwrap.wrap(text, width)) or name
        again = 2
        while label in labels:
            label = f"{label.removesuffix(f' ({again - 1})')} ({again})"
            again += 1
        labels.append(label)
    return labels


def histogram(axes: Axes, sample: Floats, edges: Floats, y: float, colour: str) -> None:
    """Draw outline of a histogram above row `y`, its highest bin as high as the row allows."""
    counts, _ = np.histogram(sample, edges)
    used = np.flatnonzero(counts)
    counts, edges = counts[used[0] : used[-1] + 1], edges[used[0] : used[-1] + 2]
    tops = y + 0.1 - 0.62 * counts / counts.max()
    look: Any = {"facecolor": to_rgba(colour, 0.32), "edgecolor": colour, "linewidth": 0.8}
    axes.stairs(tops, edges, baseline=y + 0.1, fill=True, **look)


def box(axes: Axes, sample: Floats, y: float, colour: str) -> None:
    """Draw 5, 25, 50, 75 and 95% of a sample as a thin bar, a thick bar and a stroke at height
    `y`.
    """
    p5, p25, p50, p75, p95 = np.percentile(sample, [5, 25, 50, 75, 95])
    axes.hlines(y, p5, p95, colors=colour, linewidth=1)
    axes.hlines(y, p25, p75, colors=colour, linewidth=5)
    axes.vlines(p50, y - 0.1, y + 0.1, colors=INK, linewidth=1.4)
