"""A page as self-contained HTML, its figures as small SVG elements that take part in it: its font,
its colours, its dark mode, its ids.
"""

import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from jbrl.report.axes import in_look, variable
from jbrl.report.content import Block, Cell, Chapter, Document, Heading, Plot, Sentence

_STYLE = r' style="([^"]*)"'
MANY = 8  # elements with the same style from which on it gets a name
_NAMELESS = (
    r"(?:figure|axes|patch|text|line2d|xtick|ytick|matplotlib\.axis|LineCollection|"
    r"PathCollection|FillBetweenPolyCollection|legend)_\d+"
)


def render(report: Document) -> str:
    """Return the page as text."""
    environment = Environment(
        loader=PackageLoader("jbrl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"folds": _folds, "runs": _runs, "svg": svg, "csv": _csv, "key": _key}
    environment.filters["words"] = _words
    numbers = {name: number for number, name in enumerate(report.styles, 1)}
    return environment.get_template("report.html").render(report=report, numbers=numbers)


def _folds(chapter: Chapter) -> list[tuple[str, list[Block]]]:
    """Return the blocks of a chapter in parts: title and blocks, the first without a title."""
    parts: list[tuple[str, list[Block]]] = [("", [])]
    for block in chapter.blocks:
        if isinstance(block, Heading) and block.folds:
            parts.append((block.text, []))
        else:
            parts[-1][1].append(block)
    return parts


def _runs(part: Sequence[Block]) -> list[tuple[str, list[Block]]]:
    """Return the blocks of a part, those of one type that follow each other together."""
    return [
        (kind, list(blocks)) for kind, blocks in groupby(part, lambda block: type(block).__name__)
    ]


def svg(plot: Plot, chapter: Chapter) -> Markup:
    """Return the figure as an element of the page."""
    drawing = plot.drawing
    label = f"{plot.title}, {chapter.title}"
    return Markup(inline(drawing.figure, plot.id, label, drawing.titles))


def _csv(plot: Plot) -> str:
    """Return the numbers of a figure as a link that holds them."""
    text = plot.drawing.data.to_csv(index=False, lineterminator="\n")
    return "data:text/csv;charset=utf-8," + quote(text, safe=" ,;:=()[]{}/*$!@'|+-.")


def _words(text: str | Sentence) -> Sentence:
    return (text,) if isinstance(text, str) else text


def _key(cell: Cell) -> str:
    """Return the sort key that the script for tables compares; empty when there is nothing."""
    if cell.value is None:
        return "".join(w if isinstance(w, str) else w.text for w in _words(cell.text))
    if isinstance(cell.value, str):
        return cell.value
    return f"{cell.value:.9g}" if math.isfinite(cell.value) else ""


def inline(figure: Figure, id: str, label: str, titles: Mapping[str, str] | None = None) -> str:
    """Return the figure as an `<svg>` element.

    Args:
      id: of the element; a prefix to all ids within, so that ids on a page stay different.
      label: text for a screen reader.
      titles: for artists with a gid, the text shown while the pointer rests on them.
    """
    text = _small(_drawn(figure, transparent=True), id, label)
    for gid, title in (titles or {}).items():
        mark = f'<g id="{id}-{gid}"'
        titled = f'{mark} class="mark"><title>{escape(title)}</title>'
        text = text.replace(f"{mark}>", titled, 1)
    return text


def alone(figure: Figure) -> str:
    """Return the figure as an SVG file, on white paper."""
    return _drawn(figure, transparent=False)


def _drawn(figure: Figure, *, transparent: bool) -> str:
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # same figure, same bytes
    with in_look():
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
        f'<svg class="plot" id="{escape(id)}" role="img" aria-label="{escape(label)}" '
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
    tag = re.sub(r"(?<=: )#[0-9a-f]{6}", lambda colour: variable(colour.group()), tag)
    tag = re.sub(r'\bid="', f'id="{id}-', tag)
    tag = re.sub(r'(?:xlink:)?(href="#|url\(#)', rf"\g<1>{id}-", tag)
    return re.sub(r"\s+", " ", tag)


def _classed(text: str, id: str) -> str:
    """Write styles that many elements have once: this halves a figure of hundreds of symbols."""
    times = Counter(
        style for tag in re.findall(r"<[^>]*>", text) for style in re.findall(_STYLE, tag)
    )
    frequent = [style for style, number in times.items() if number >= MANY]
    names = {style: f"k{i}" for i, style in enumerate(frequent)}

    def classed(style: re.Match[str]) -> str:
        name = names.get(style.group(1))
        return f' class="{name}"' if name else style.group()

    def named(tag: re.Match[str]) -> str:
        return re.sub(_STYLE, classed, tag.group())

    rules = "".join(f"#{escape(id)} .{name}{{{style}}}" for style, name in names.items())
    return f"<style>{rules}</style>{re.sub('<[^>]*>', named, text)}" if names else text
