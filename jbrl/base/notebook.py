"""Parts that results and runs need in a notebook: whether one is running, a bar of progress, and
tables and histograms as HTML.

Nothing here is a dependency: IPython is used where it is running already.
"""

import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

BETWEEN = 0.25  # seconds between two updates of a bar
BINS, WIDTH, HEIGHT = 30, 300, 70  # of a histogram; pixels


def running() -> bool:
    """Return True in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


class Bar:
    """A bar of progress in a notebook; it shows nothing elsewhere."""

    def __init__(self) -> None:
        self._shown = running()
        self._handle: Any = None
        self._last = -BETWEEN

    def update(self, text: str, done: float, total: float) -> None:
        """Show that `done` of `total` parts are done; a call within a quarter of a second of the
        one before is left out, unless all is done.
        """
        now = time.monotonic()
        if not self._shown or (now - self._last < BETWEEN and done < total):
            return
        self._last = now
        from IPython.display import HTML, display

        content = HTML(
            f'<progress value="{done:g}" max="{total:g}" style="width: 16em"></progress> '
            f"<code>{escape(text)}</code>"
        )
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)


def duration(seconds: float) -> str:
    """Return a time with three digits in ns, µs, ms or s."""
    units = ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"))
    scale, unit = next(((s, u) for below, s, u in units if 0 < seconds < below), (1.0, "s"))
    return f"{seconds * scale:.3g} {unit}"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return a table as HTML; text is escaped."""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def facts(values: Mapping[str, Any]) -> str:
    """Return names and values as a table of two columns, in HTML."""
    rows = "".join(
        f'<tr><th style="text-align: left">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in values.items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


def numbers(low: float, high: float, *others: float, digits: int = 5) -> list[str]:
    """Return numbers as texts of some significant digits: of more where the ends `low` and `high`
    would read alike, so many that their difference has two.
    """
    if low < high < math.inf and f"{low:.{digits}g}" == f"{high:.{digits}g}":
        places = [math.floor(math.log10(v)) for v in (max(abs(low), abs(high)), high - low)]
        digits = min(17, max(digits, places[0] - places[1] + 2))
    return [f"{value:.{digits}g}" for value in (low, high, *others)]


def histogram(values: np.ndarray, label: str) -> str:
    """Return a histogram of finite numbers, [N], as SVG with the least and the greatest named."""
    counts, edges = np.histogram(values, BINS)
    side, unit = WIDTH / BINS, HEIGHT / max(1, counts.max())
    bars = "".join(
        f'<rect x="{k * side:.1f}" y="{HEIGHT - n * unit:.1f}" width="{side - 1:.1f}" '
        f'height="{n * unit:.1f}"/>'
        for k, n in enumerate(counts)
    )
    low, high = numbers(edges[0], edges[-1], digits=4)
    text = 'font-size="11" fill="currentColor"'
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT + 16}" role="img" aria-label="{escape(label)}">'
        f'<title>{escape(label)}</title><g fill="#0072b2">{bars}</g>'
        f'<text x="0" y="{HEIGHT + 13}" {text}>{low}</text>'
        f'<text x="{WIDTH / 2}" y="{HEIGHT + 13}" {text} text-anchor="middle">{escape(label)}'
        f'</text><text x="{WIDTH}" y="{HEIGHT + 13}" {text} text-anchor="end">{high}</text></svg>'
    )
