"""The report as LaTeX: `report.tex` with booktabs tables, its figures as PDF and their numbers
as CSV.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from jbrl.report.content import Cell, Column, Document, Row, Span, Table, Words
from jbrl.report.files import plots_of, writing
from jbrl.report.images import save
from jbrl.report.tex import Tex, escape

ABREAST = 6  # experiments side by side in the overview; more go into further tables
LINE = 116.0  # characters of \footnotesize in a line
GAP = 1.5  # characters between columns


@dataclasses.dataclass(frozen=True)
class Part:
    """A table, or as many of its columns as fit, in LaTeX."""

    columns: Tex
    head: Tex
    rows: tuple[Tex, ...]


def write_latex(report: Document, out: Path) -> Path:
    """Write `report.tex`, `figures/*.pdf` and `figures/*.csv` to the folder `out`; return the path
    of the first.

    Raises:
      JbrlError: `out` cannot be written.
    """
    with writing(out) as folder:
        figures = folder / "figures"
        figures.mkdir()
        for plot in plots_of(report):
            save(plot.drawing.figure, figures / f"{plot.id}.pdf")
            plot.data.to_csv(figures / f"{plot.id}.csv", index=False)
        (folder / "report.tex").write_text(render(report), encoding="utf-8")
    return out / "report.tex"


def render(report: Document) -> str:
    """Return the source as text."""
    return templates().get_template("report.tex").render(report=report)


def templates() -> Environment:
    """Return templates in LaTeX: `<< >>` and `<% %>` in place of braces, expressions escaped unless
    they are Tex.
    """
    environment = Environment(
        loader=PackageLoader("jbrl.report"),
        autoescape=False,  # which would be for HTML; `finalize` escapes
        finalize=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.filters |= {
        "source": Tex,
        "type": lambda block: type(block).__name__,
        "sentence": sentence,
        "parts": parts,
        "hints": hints,
    }
    return environment


def sentence(words: Words, role: str = "text") -> Tex:
    """Write a sentence; in a key, each mark after some space."""
    found = [_span(w) if isinstance(w, Span) else escape(w) for w in words]
    if role == "key":
        spaced = [
            rf"\qquad {tex}:" if isinstance(w, Span) else tex
            for w, tex in zip(words, found, strict=True)
        ]
        return Tex("".join(spaced).removeprefix(r"\qquad "))
    return Tex("".join(found))


def hints(table: Table) -> Tex:
    """Explain the headings."""
    return escape(
        "; ".join(f"{c.text}: {c.hint}" for c in table.columns if c.hint and c.kind != "bar")
    )


def parts(table: Table) -> list[Part]:
    """Return the table in LaTeX, in several parts where its columns would not fit; without small
    drawings.
    """
    kept = [k for k, column in enumerate(table.columns) if column.kind != "bar"]
    groups = [kept]
    if table.kind == "overview":
        groups = [[0, *kept[start : start + ABREAST]] for start in range(1, len(kept), ABREAST)]
    return [_part([table.columns[k] for k in group], _lines(table.rows, group)) for group in groups]


def _span(span: Span) -> Tex:
    text = escape(span.text)
    if span.target.startswith("#"):
        return Tex(rf"\hyperref[{span.target[1:]}]{{{text}}}")
    if span.look == "chip":
        return Tex(rf"\emph{{{text}}}\enspace")
    if span.look == "code":
        return Tex(rf"\texttt{{{text}}}")
    return Tex(rf"\textbf{{{text}}}") if span.look else text


def _lines(rows: Sequence[Row], columns: Sequence[int]) -> Iterator[Row]:
    """Yield rows with some of the cells; one with several texts in a cell becomes as many rows, so
    that pages can break between them.
    """
    for row in rows:
        cells = [row.cells[k] for k in columns]
        for n in range(max(1, *(len(cell.items) for cell in cells))):
            yield Row(tuple(_item(cell, n) for cell in cells), row.kind)


def _item(cell: Cell, n: int) -> Cell:
    if cell.items:
        return Cell(cell.items[n] if n < len(cell.items) else "")
    return cell if n == 0 else Cell()


def _part(columns: Sequence[Column], lines: Iterator[Row]) -> Part:
    rows = list(lines)
    lengths = [
        max(_length(column), *(_width(row.cells[k]) for row in rows))
        for k, column in enumerate(columns)
    ]
    wraps = [column.kind == "text" for column in columns]
    head = " & ".join(_heading(column, wrap) for column, wrap in zip(columns, wraps, strict=True))
    return Part(_columns(columns, lengths), Tex(head), tuple(_row(row, wraps) for row in rows))


def _columns(columns: Sequence[Column], lengths: Sequence[int]) -> Tex:
    """Return the widths of columns: numbers and marks take the width they need; texts share the
    rest.
    """
    kinds = {"number": "r", "chip": "l"}
    texts = {k: lengths[k] + 2.0 for k, column in enumerate(columns) if column.kind == "text"}
    others = sum(length for k, length in enumerate(lengths) if k not in texts)
    widths = _shared(texts, LINE - others - GAP * len(columns))
    spec = [
        rf"L{{{widths[k] / LINE:.3f}\linewidth}}" if k in widths else kinds[column.kind]
        for k, column in enumerate(columns)
    ]
    return Tex("@{}" + "".join(spec) + "@{}")


def _shared(wanted: dict[int, float], room: float) -> dict[int, float]:
    """Return the wanted lengths, or an equal part of what those that want less leave over."""
    found = {}
    for place, k in enumerate(sorted(wanted, key=lambda k: wanted[k])):
        found[k] = max(4.0, min(wanted[k], room / (len(wanted) - place)))
        room -= found[k]
    return found


def _heading(column: Column, wrap: bool) -> Tex:
    small = rf"\newline{{\scriptsize {escape(column.small)}}}" if column.small and wrap else ""
    return Tex(escape(column.text) + small)


def _row(row: Row, wraps: Sequence[bool]) -> Tex:
    cells = [_cell(cell, wrap) for cell, wrap in zip(row.cells, wraps, strict=True)]
    return Tex(
        " & ".join(rf"\itshape {cell}" if row.kind == "oracle" and cell else cell for cell in cells)
    )


def _cell(cell: Cell, wrap: bool) -> Tex:
    text = str(escape(f"≈ {cell.text}" if cell.standing == "tied" else cell.text))
    if cell.strong:
        text = rf"\textbf{{{text}}}"
    if cell.code:
        text = rf"\texttt{{{text}}}"
    if cell.small:
        text += (
            rf"\newline{{\scriptsize {escape(cell.small)}}}" if wrap else escape(f" ({cell.small})")
        )
    return Tex(text)


def _length(column: Column) -> int:
    return max(len(column.text), round(0.85 * len(column.small)))


def _width(cell: Cell) -> int:
    """Return the characters of the longer of its lines."""
    text = len(cell.text) + 2 * (cell.standing == "tied")
    return max(
        round(text * (1.3 if cell.code else 1.12 if cell.strong else 1.0)),
        round(0.85 * len(cell.small)),
    )
