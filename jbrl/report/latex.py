r"""A page as LaTeX with booktabs tables, its figures as PDF and their numbers as CSV beside it.

Any text becomes source that is set as that text, by pdfLaTeX with the encoding T1. Letters of
Latin-1 and Latin Extended-A are known to LaTeX; Greek letters and signs that pages use become
commands; what no font at hand has is written as its code, U+65E5, rather than lost or refused.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Iterator, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from jbrl.report.content import Cell, Column, Document, Row, Sentence, Span, Table

ABREAST = 6  # experiments side by side in the overview; more go into further tables
LINE = 116.0  # characters of \footnotesize in a line
GAP = 1.5  # characters between columns
_TEXT = {  # signs, and the names of their commands after \\text
    "\\^~<>|": "backslash asciicircum asciitilde less greater bar",
    "\"'`": "quotedbl quotesingle asciigrave",
    "’‘“”": "quoteright quoteleft quotedblleft quotedblright",
    "\N{MICRO SIGN}–—€": "mu endash emdash euro",
}
COMMANDS = {
    **{sign: rf"\{sign}" for sign in "{}$&#%_"},
    **{
        sign: rf"\text{name}{{}}"
        for signs, names in _TEXT.items()
        for sign, name in zip(signs, names.split(), strict=True)
    },
    **{sign: f"{{{sign}}}" for sign in "[]*"},  # [ after \\ would begin an argument
    "\N{NO-BREAK SPACE}": "~",
    "\N{THIN SPACE}": r"\,",
    "…": r"\ldots{}",
}
_NAMES = {
    "±≈×÷¬√→←≤≥≠∞·": "pm approx times div neg surd rightarrow leftarrow leq geq neq infty cdot",
    "αβγδεζηθικλμνξ": "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi",
    "πρσςτυφχψω": "pi rho sigma varsigma tau upsilon varphi chi psi omega",
    "ΓΔΘΛΞΠΣΥΦΨΩ": "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega",
}
MATHS = {  # what stands between \ensuremath{ and }
    "−": "-",
    **{
        letter: rf"\{name}"
        for letters, names in _NAMES.items()
        for letter, name in zip(letters, names.split(), strict=True)
    },
}
LOWERED = {chr(0x2080 + k): str(k) for k in range(10)}


class Tex(str):
    """LaTeX source, not to be escaped again."""

    __slots__ = ()


def escape(text: object) -> Tex:
    """Return source that LaTeX sets as `text`; `Tex` stays as it is."""
    if isinstance(text, Tex):
        return text
    plain = re.sub(r"(?![\u00a0\u2009])[\s\x00-\x1f\x7f-\x9f]", " ", str(text))
    source = "".join(map(_character, unicodedata.normalize("NFC", plain)))
    # two in a row would become a dash, or a quotation mark
    return Tex(re.sub("-(?=-)|,(?=,)", r"\g<0>{}", source))


def _character(c: str) -> str:
    if c in COMMANDS:
        return COMMANDS[c]
    if c in MATHS:
        return rf"\ensuremath{{{MATHS[c]}}}"
    if c in LOWERED:
        return r"\textsubscript{" + LOWERED[c] + "}"
    if c.isascii() or _known(c):
        return c
    return rf"\texttt{{U+{ord(c):04X}}}"


def _known(c: str) -> bool:
    """Return whether LaTeX knows the character in T1 or TS1: all but a few of Latin-1 and Latin
    Extended-A.
    """
    return 0xA1 <= ord(c) <= 0x17F and c not in "\u00adĦħĸĿŀŉŦŧſ"


@dataclasses.dataclass(frozen=True)
class Part:
    """A table, or as many of its columns as fit, in LaTeX."""

    columns: Tex
    head: Tex
    rows: tuple[Tex, ...]


def render(report: Document) -> str:
    """Return the source as text.

    The template has `<< >>` and `<% %>` in place of braces; its expressions are escaped unless they
    are Tex.
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
    }
    return environment.get_template("report.tex").render(report=report)


def fragment(content: Table, caption: str, label: str) -> str:
    r"""Return a table for a paper, in plain LaTeX: nothing needs a package.

    Args:
      caption: a sentence.
      label: what `\ref` calls it.
    """
    spec = "".join("l" if column.kind == "text" else "r" for column in content.columns)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(caption)}}}",
        rf"\label{{{label}}}",
        rf"\begin{{tabular}}{{{spec}}}",
        r"\hline",
        " & ".join(escape(column.text) for column in content.columns) + r" \\",
        r"\hline",
        *(
            " & ".join(_cell(cell, wrap=False) for cell in row.cells) + r" \\"
            for row in content.rows
        ),
        r"\hline",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def sentence(words: str | Sentence, role: str = "text") -> Tex:
    """Write a sentence; in a key, each mark after some space."""
    if isinstance(words, str):
        return escape(words)
    texts = [_span(w) if isinstance(w, Span) else escape(w) for w in words]
    if role == "key" and len(words) > 1:
        marks = [isinstance(w, Span) and not w.target for w in words]
        texts = [
            Tex(rf"\qquad {tex}:") if mark else tex for tex, mark in zip(texts, marks, strict=True)
        ]
    return Tex("".join(texts).removeprefix(r"\qquad "))


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
    widths = {}
    for place, k in enumerate(sorted(wanted, key=lambda k: wanted[k])):
        widths[k] = max(4.0, min(wanted[k], room / (len(wanted) - place)))
        room -= widths[k]
    return widths


def _heading(column: Column, wrap: bool) -> Tex:
    small = rf"\newline{{\scriptsize {escape(column.small)}}}" if column.small and wrap else ""
    return Tex(escape(column.text) + small)


def _row(row: Row, wraps: Sequence[bool]) -> Tex:
    cells = [_cell(cell, wrap) for cell, wrap in zip(row.cells, wraps, strict=True)]
    return Tex(
        " & ".join(rf"\itshape {cell}" if row.kind == "oracle" and cell else cell for cell in cells)
    )


def _cell(cell: Cell, wrap: bool) -> Tex:
    text = str(sentence(cell.text))
    text = rf"{escape('≈')} {text}" if cell.standing == "tied" else text
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
    words = (cell.text,) if isinstance(cell.text, str) else cell.text
    text = sum(len(w if isinstance(w, str) else w.text) for w in words)
    text += 2 * (cell.standing == "tied")
    return max(
        round(text * (1.3 if cell.code else 1.12 if cell.strong else 1.0)),
        round(0.85 * len(cell.small)),
    )
