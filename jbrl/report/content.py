"""Content of a page, independent of its format: chapters of paragraphs, facts, figures and tables.

Nothing here knows of HTML, LaTeX or Markdown. A writer goes through `Document.chapters` and renders
each block by its type; what it cannot show (a symbol, a hint, the small drawing of an interval) it
leaves out, since no block carries information by its looks alone: a cell that is marked also says
so in its text or in its `standing`.
"""

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Literal

from jbrl import __version__
from jbrl.report.axes import Drawing, Style

# of a cell: "near" is almost as good as "best", "bad" was not done or fails, "none" is empty
Standing = Literal["", "best", "tied", "near", "oracle", "bad", "quiet", "none"]
RowKind = Literal["", "oracle", "missing", "failed"]
_MARKUP = re.compile(r"\*\*(.+?)\*\*|`([^`]+)`|\[([^]]+)\]\(([^)]+)\)|\{(\w+)\}")


@dataclasses.dataclass(frozen=True)
class Span:
    """A piece of a sentence."""

    text: str
    look: Literal["", "strong", "chip", "best", "tied", "code"] = ""
    algorithm: str = ""  # whose symbol stands before it
    target: str = ""  # what it points to: "#" and the id of a chapter, or a file beside the page


Sentence = tuple[Span | str, ...]  # spaces are part of the pieces


def sentence(template: str, **values: Any) -> Sentence:
    """Return the sentence that a template makes.

    Args:
      template: `**strong**`, `` `code` ``, `[text](target)`, and `{name}` for a value.
      values: spans, sentences, or what is shown as its text; their texts are no markup.
    """
    parts: list[Span | str] = []
    end = 0
    for match in _MARKUP.finditer(template):
        strong, code, text, target, name = match.groups()
        parts.append(template[end : match.start()])
        end = match.end()
        if name:
            value = values[name]
            pieces = value if isinstance(value, tuple) else (value,)
            parts += [piece if isinstance(piece, Span) else str(piece) for piece in pieces]
        elif strong:
            parts.append(Span(strong.format(**values), "strong"))
        else:
            parts.append(Span(code, "code") if code else Span(text, target=target))
    parts.append(template[end:])
    return tuple(part for part in parts if part != "")


def marked(text: str) -> Sentence:
    """Return a message as a sentence: backticks enclose code, other signs are themselves."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is left over: it is part of the text
        return (text,)
    pieces = [Span(part, "code") if k % 2 else part for k, part in enumerate(parts)]
    return tuple(piece for piece in pieces if piece != "")


def links(names: Iterable[str]) -> Sentence:
    """Return files beside the page as a list of links."""
    parts: list[Span | str] = []
    for name in names:
        parts += [", ", Span(name, target=name)]
    return tuple(parts[1:])


def resource(name: str) -> str:
    """Return the text of a file of `templates`."""
    return resources.files("jbrl.report").joinpath("templates", name).read_text("utf-8")


def prose(page: str) -> dict[str, str]:
    """Return captions, introductions and meanings of headings of a page, from
    `templates/words.toml`.
    """
    words: dict[str, dict[str, str]] = tomllib.loads(resource("words.toml"))
    return words[page]


def reading(page: str, files: Iterable[str] = (), **values: Any) -> tuple[Sentence, ...]:
    """Return the explanations of a page, from `templates/reading.md`, and what `files` are beside
    it.
    """
    part = resource("reading.md").split(f"# {page}\n", 1)[1].split("\n# ", 1)[0]
    items = [sentence(line[2:], **values) for line in part.splitlines() if line]
    beside = links(files)
    return (*items, *(reading("files", names=beside) if beside else ()))


@dataclasses.dataclass(frozen=True)
class Heading:
    """A heading within a chapter.

    With `folds`, all blocks up to the next such heading are details: a page shows them on demand.
    """

    text: str
    folds: bool = False


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A sentence or several."""

    words: Sentence
    # a notice must not be missed; a key explains marks
    role: Literal["text", "setup", "verdict", "notice", "key"] = "text"


@dataclasses.dataclass(frozen=True)
class Items:
    """A list without order."""

    items: tuple[Sentence, ...]


@dataclasses.dataclass(frozen=True)
class Facts:
    """Names and values."""

    title: str
    lines: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure with its caption and the numbers that it shows."""

    id: str  # different from all other ids of the page; letters, digits and hyphens
    title: str
    caption: str
    drawing: Drawing
    # beside the page, with figure and numbers; none: the page holds the numbers
    files: tuple[str, ...] = ()
    height: float = 0.8  # at most, on paper, as a part of the height of the text


@dataclasses.dataclass(frozen=True)
class Column:
    """A heading of a table.

    "bar" columns have small drawings of intervals, "chip" columns one word each.
    """

    text: str
    kind: Literal["text", "number", "bar", "chip"] = "text"
    hint: str = ""  # in other words
    small: str = ""  # below the heading
    target: str = ""  # as of a Span


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of a table. `tied` cells are to be marked with ≈."""

    text: str | Sentence = ""
    value: float | str | None = None  # to sort by; None: the text
    strong: bool = False
    standing: Standing = ""
    small: str = ""  # below the text
    hint: str = ""
    algorithm: str = ""  # whose symbol stands before the text
    # lower end, mean and upper end in per cent of a scale that the column shares
    bar: tuple[float, float, float] | None = None
    code: bool = False
    items: tuple[str, ...] = ()  # several short texts in place of one


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a table."""

    cells: tuple[Cell, ...]
    kind: RowKind = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns and rows. A long one may be shown a part at a time."""

    id: str
    title: str  # "" where the heading of the chapter says it; a page repeats that as the caption
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kind: Literal["overview", "scores", "dense", "plain"] = "plain"
    sortable: bool = False
    long: bool = False
    heads: int = 1  # first cells of a row that name it

    @property
    def hints(self) -> str:
        """The meaning of the headings, for pages without a pointer."""
        named = [c for c in self.columns if c.hint and c.kind != "bar"]
        return "; ".join(f"{c.text}: {c.hint}" for c in named)


def table(
    id: str,
    title: str,
    columns: Iterable[object],
    rows: Iterable[Row | Iterable[object]],
    **options: Any,
) -> Table:
    """Return a table; what is no column or cell stands for a plain one with its text.

    Args:
      options: further fields of `Table`.
    """
    heads = tuple(c if isinstance(c, Column) else Column(str(c)) for c in columns)
    lines = (row if isinstance(row, Row) else Row(tuple(map(_cell, row))) for row in rows)
    return Table(id, title, heads, tuple(lines), **options)


def tabulate(
    id: str,
    title: str,
    columns: Iterable[tuple[object, Callable[[Any], object]]],
    rows: Iterable[Any],
    kind_of: Callable[[Any], RowKind] | None = None,
    **options: Any,
) -> Table:
    """Return the `table` of columns, a heading and the cell of a row each.

    Args:
      kind_of: the kind of a row; default: none has one.
      options: further fields of `Table`.
    """
    heads, cells = zip(*columns, strict=True)
    lines = (
        Row(tuple(_cell(cell(row)) for cell in cells), kind_of(row) if kind_of else "")
        for row in rows
    )
    return table(id, title, heads, lines, **options)


def _cell(value: object) -> Cell:
    return value if isinstance(value, Cell) else Cell(str(value))


Block = Heading | Paragraph | Items | Facts | Plot | Table


def folded(title: str, blocks: Sequence[Block]) -> list[Block]:
    """Return blocks as details under a title; nothing where there are none."""
    return [Heading(title, folds=True), *blocks] if blocks else []


@dataclasses.dataclass(frozen=True)
class Chapter:
    """A part of a page with a heading of its own."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    kind: Literal["", "experiment"] = ""
    count: int = 0  # shown beside the title in a list of contents, unless 0


@dataclasses.dataclass(frozen=True)
class Document:
    """A page as a whole."""

    title: str
    kind: str  # what stands above the title
    facts: tuple[str, ...]  # what it is about, in a few words each
    chapters: tuple[Chapter, ...]
    # symbol and colour of each algorithm
    styles: Mapping[str, Style] = dataclasses.field(default_factory=dict)
    notices: tuple[Paragraph, ...] = ()  # before everything else
    version: str = __version__  # of jbrl; "" where it is not known
    pages: Mapping[str, str] = dataclasses.field(default_factory=dict)  # beside it, file by title

    @property
    def plots(self) -> Iterator[Plot]:
        """All figures with their numbers, in order."""
        for chapter in self.chapters:
            yield from (block for block in chapter.blocks if isinstance(block, Plot))
