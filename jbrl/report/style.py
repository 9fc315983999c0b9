"""One symbol and one colour per algorithm, the same in every figure and table of a report.

Colours are those of Okabe and Ito (2008) and of Paul Tol, distinguishable with any colour vision;
symbols are distinguishable in grey. Figures name colours by their value on paper; `jbrl.report.svg`
replaces them by the style sheet's variables of the same number.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path

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


Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")


def drawn(function: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """Make a function draw in the look of all figures (decorator)."""

    @functools.wraps(function)
    def draw(*args: Given.args, **options: Given.kwargs) -> Drawn:
        with mpl.rc_context(LOOK):
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
