"""Matplotlib figures as small SVG elements that take part in the page: its font, its colours, its
dark mode, its ids.
"""

import html
import io
import re
from collections import Counter
from collections.abc import Mapping

import matplotlib as mpl
from matplotlib.figure import Figure

from jbrl.report.style import LOOK, variable

_STYLE = r' style="([^"]*)"'
MANY = 8  # elements with the same style from which on it gets a name
_NAMELESS = (
    r"(?:figure|axes|patch|text|line2d|xtick|ytick|matplotlib\.axis|LineCollection|"
    r"PathCollection|FillBetweenPolyCollection|legend)_\d+"
)


def inline(figure: Figure, id: str, label: str, titles: Mapping[str, str] | None = None) -> str:
    """Return the figure as an `<svg>` element.

    Args:
      id: of the element; a prefix to all ids within, so that ids on a page stay different.
      label: text for a screen reader.
      titles: for artists with a gid, the text shown while the pointer rests on them.
    """
    return _titled(_small(_drawn(figure, transparent=True), id, label), id, titles or {})


def alone(figure: Figure) -> str:
    """Return the figure as an SVG file, on white paper."""
    return _drawn(figure, transparent=False)


def _drawn(figure: Figure, *, transparent: bool) -> str:
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # same figure, same bytes
    with mpl.rc_context(LOOK):
        figure.savefig(buffer, format="svg", transparent=transparent, metadata=nothing)
    return buffer.getvalue()


def _small(text: str, id: str, label: str) -> str:
    box = re.search(r'viewBox="([^"]*)"', text)
    text = text[text.index("<svg") :]
    text = re.sub(r"<svg[^>]*>", "", text, count=1)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->", "", text, flags=re.S)
    # what stands between tags is the user's
    text = re.sub(r"<[^>]*>", lambda tag: _small_tag(tag.group(), id), text)
    text = re.sub(r">\s*\n\s*<", "><", text)
    # grounds that are not painted
    text = re.sub(r'<path d="[^"]*" style="fill: none"/>|<g/>', "", text)
    text = re.sub(r"(?:<g></g>)+", "", text)
    text = _classed(text.strip(), id)
    viewbox = box.group(1) if box else "0 0 1 1"
    return (
        f'<svg class="plot" id="{html.escape(id)}" role="img" aria-label="{html.escape(label)}" '
        f'viewBox="{viewbox}">{text}'
    )


def _small_tag(tag: str, id: str) -> str:
    tag = re.sub(rf' id="{_NAMELESS}"', "", tag)
    tag = re.sub(r";? ?font-family: [^;\"]*", "", tag)
    tag = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", tag)
    # symbols are small and need the second digit
    digits = r"(\.\d)\d+" if "clip-path" in tag else r"(\.\d\d)\d+"
    tag = re.sub(digits, r"\1", tag)
    # the ground of a pattern: an attribute holds no variable, a style does
    tag = re.sub(r' fill="(#[0-9a-f]{6})"', r' style="fill: \1"', tag)
    tag = re.sub(r"(?<=: )#[0-9a-f]{6}", lambda found: variable(found.group()), tag)
    tag = re.sub(r'\bid="', f'id="{id}-', tag)
    tag = re.sub(r'(?:xlink:)?(href="#|url\(#)', rf"\g<1>{id}-", tag)
    return re.sub(r"\s+", " ", tag)


def _classed(text: str, id: str) -> str:
    """Write styles that many elements have once: this halves a figure of hundreds of symbols."""
    styles = Counter(
        style for tag in re.findall(r"<[^>]*>", text) for style in re.findall(_STYLE, tag)
    )
    names = {
        style: f"k{i}"
        for i, style in enumerate(style for style, times in styles.items() if times >= MANY)
    }

    def named(tag: re.Match) -> str:
        return re.sub(
            _STYLE,
            lambda found: (
                f' class="{names[found.group(1)]}"' if found.group(1) in names else found.group()
            ),
            tag.group(),
        )

    rules = "".join(f"#{html.escape(id)} .{name}{{{style}}}" for style, name in names.items())
    return f"<style>{rules}</style>{re.sub('<[^>]*>', named, text)}" if names else text


def _titled(text: str, id: str, titles: Mapping[str, str]) -> str:
    for gid, title in titles.items():
        name = f'id="{id}-{gid}"'
        text = text.replace(
            f"<g {name}>", f'<g {name} class="mark"><title>{html.escape(title)}</title>', 1
        )
    return text
