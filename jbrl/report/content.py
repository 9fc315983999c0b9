"""What a report says, apart from how it is written down: chapters of paragraphs, facts, figures and tables.

Nothing here knows of HTML, LaTeX or Markdown. A writer goes through `Document.chapters` and renders each block by its type; what it
cannot show (a symbol, a hint, the small drawing of an interval) it leaves out, since no block says anything by its looks alone: a
cell that is marked also says so in its text or in its `standing`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal

import pandas as pd

from jbrl.report.figures import Drawing
from jbrl.report.style import Style

Standing = Literal["", "best", "tied", "oracle", "bad", "quiet", "none"]  # of a cell: "bad" was not done, "none" is empty


@dataclasses.dataclass(frozen=True)
class Span:
    """A piece of a sentence."""

    text: str
    look: Literal["", "strong", "chip", "best", "tied"] = ""
    algorithm: str = ""  # whose symbol stands before it
    target: str = ""  # what it points to: "#" and the id of a chapter, or a file beside the report


Words = tuple[Span | str, ...]  # a sentence; spaces are part of the pieces


@dataclasses.dataclass(frozen=True)
class Heading:
    """A heading within a chapter."""

    text: str


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A sentence or several."""

    words: Words
    role: Literal["text", "setup", "verdict", "notice", "key"] = "text"  # a notice must not be missed; a key explains marks


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

    @property
    def data(self) -> pd.DataFrame:
        """What is drawn, one row per mark or area, in seconds and returns as measured."""
        return self.drawing.data


@dataclasses.dataclass(frozen=True)
class Column:
    """A heading of a table. "bar" columns have small drawings of intervals, "chip" columns one word each."""

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
    bar: tuple[float, float, float] | None = None  # lower end, mean and upper end in per cent of a scale that the column shares
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
    title: str  # "" where the heading of the chapter says it
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kind: Literal["overview", "scores", "plain"] = "plain"
    sortable: bool = False
    long: bool = False


Block = Heading | Paragraph | Items | Facts | Plot | Table


@dataclasses.dataclass(frozen=True)
class Chapter:
    """A part of the report with a heading of its own."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    kind: Literal["", "experiment"] = ""
    count: int = 0  # told beside the title in a list of contents; 0 is not


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
