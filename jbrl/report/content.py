"""Content of a report, independent of its format: chapters of paragraphs, facts, figures and
tables.

Nothing here knows of HTML, LaTeX or Markdown. A writer goes through `Document.chapters` and renders
each block by its type; what it cannot show (a symbol, a hint, the small drawing of an interval) it
leaves out, since no block carries information by its looks alone: a cell that is marked also says
so in its text or in its `standing`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import pandas as pd

from jbrl.report.figures import Drawing
from jbrl.report.style import Style

# of a cell: "bad" was not done, "none" is empty
Standing = Literal["", "best", "tied", "oracle", "bad", "quiet", "none"]


@dataclasses.dataclass(frozen=True)
class Span:
    """A piece of a sentence."""

    text: str
    look: Literal["", "strong", "chip", "best", "tied", "code"] = ""
    algorithm: str = ""  # whose symbol stands before it
    target: str = ""  # what it points to: "#" and the id of a chapter, or a file beside the report


Words = tuple[Span | str, ...]  # a sentence; spaces are part of the pieces


def marked(text: str) -> Words:
    """Return a text in which backticks enclose code as a sentence."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is left over: it is part of the text
        return (text,)
    found = [Span(part, "code") if k % 2 else part for k, part in enumerate(parts)]
    return tuple(part for part in found if part != "")


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

    words: Words
    # a notice must not be missed; a key explains marks
    role: Literal["text", "setup", "verdict", "notice", "key"] = "text"


@dataclasses.dataclass(frozen=True)
class Items:
    """A list without order."""

    items: tuple[Words, ...]


@dataclasses.dataclass(frozen=True)
class Facts:
    """Names and values."""

    title: str
    lines: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure with its caption and the numbers that it shows."""

    id: str  # different from all other ids of the report; letters, digits and hyphens
    title: str
    caption: str
    note: str  # what this one needs to have said, "" when nothing
    drawing: Drawing
    # beside the page, with figure and numbers; none: the page holds the numbers
    files: tuple[str, ...] = ()

    @property
    def data(self) -> pd.DataFrame:
        """Data of the drawing, one row per mark or area, in seconds and returns as measured."""
        return self.drawing.data


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

    text: str = ""
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
    """One line of a table; its first cell names it."""

    cells: tuple[Cell, ...]
    kind: Literal["", "oracle", "missing", "failed"] = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns and rows. A long one may be shown a part at a time."""

    id: str
    title: str  # "" where the heading of the chapter says it; a page repeats that as the caption
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kind: Literal["overview", "scores", "plain"] = "plain"
    sortable: bool = False
    long: bool = False


Block = Heading | Paragraph | Items | Facts | Plot | Table


def folded(title: str, blocks: Sequence[Block]) -> list[Block]:
    """Return blocks as details under a title; nothing where there are none."""
    return [Heading(title, folds=True), *blocks] if blocks else []


@dataclasses.dataclass(frozen=True)
class Chapter:
    """A part of the report with a heading of its own."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    kind: Literal["", "experiment"] = ""
    count: int = 0  # shown beside the title in a list of contents, unless 0


@dataclasses.dataclass(frozen=True)
class Document:
    """A report as a whole."""

    title: str
    kind: str  # what stands above the title
    facts: tuple[str, ...]  # what it is about, in a few words each
    notices: tuple[Paragraph, ...]  # before everything else
    chapters: tuple[Chapter, ...]
    styles: Mapping[str, Style]  # symbol and colour of each algorithm
    version: str  # of jbrl, "" when it is not known
