"""The report as Markdown: one page, its figures as SVG and their numbers as CSV beside it."""

import re
from collections.abc import Iterator
from pathlib import Path

from jbrl.report.content import (
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Heading,
    Items,
    Paragraph,
    Plot,
    Row,
    Span,
    Table,
    Words,
)
from jbrl.report.files import plots_of, writing
from jbrl.report.svg import alone


def write_markdown(report: Document, out: Path) -> Path:
    """Write `report.md`, `figures/*.svg` and `figures/*.csv` to the folder `out`; return the path
    of the first.

    Raises:
      JbrlError: `out` cannot be written.
    """
    with writing(out) as folder:
        figures = folder / "figures"
        figures.mkdir()
        for plot in plots_of(report):
            (figures / f"{plot.id}.svg").write_text(alone(plot.drawing.figure), encoding="utf-8")
            plot.data.to_csv(figures / f"{plot.id}.csv", index=False)
        (folder / "report.md").write_text(render(report), encoding="utf-8")
    return out / "report.md"


def render(report: Document) -> str:
    """Return the page as text."""
    parts = [
        f"# {escape(report.title)}",
        escape(", ".join(report.facts)) + ".",
        *(f"> {sentence(p.words)}" for p in report.notices),
    ]
    parts.append("\n".join(f"- [{escape(c.title)}](#{c.id})" for c in report.chapters))
    for chapter in report.chapters:
        parts.append(f'<a id="{chapter.id}"></a>\n\n## {escape(chapter.title)}')
        parts += [text for block in chapter.blocks for text in _block(block)]
    return "\n\n".join([*parts, f"Made by jbrl {escape(report.version)}".rstrip() + "."]) + "\n"


def escape(text: str) -> str:
    """Return Markdown that is read as `text`, also within a table; line breaks become spaces."""
    found = re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", re.sub(r"[\s\x00]+", " ", str(text)))
    # what would begin a list, or underline a heading
    found = re.sub(r"^( *)([-+=])", r"\1\\\2", found)
    return re.sub(r"^( *\d+)([.)])(?= |$)", r"\1\\\2", found)


def sentence(words: Words) -> str:
    """Write a sentence."""
    return "".join(_span(w) if isinstance(w, Span) else escape(w) for w in words)


def table(found: Table) -> str:
    """Write a pipe table; small drawings are left out."""
    kept = [k for k, column in enumerate(found.columns) if column.kind != "bar"]
    columns = [found.columns[k] for k in kept]
    rules = ["---:" if column.kind == "number" else "---" for column in columns]
    rows = [[_cell(row.cells[k], row) for k in kept] for row in found.rows]
    return "\n".join(
        f"| {' | '.join(line)} |" for line in ([_heading(c) for c in columns], rules, *rows)
    )


def _block(block: Block) -> Iterator[str]:
    """Yield paragraphs of a block."""
    if isinstance(block, Heading):
        yield f"### {escape(block.text)}"
    elif isinstance(block, Paragraph):
        yield ("> " if block.role == "notice" else "") + sentence(block.words)
    elif isinstance(block, Items):
        yield "\n".join(f"- {sentence(words)}" for words in block.items)
    elif isinstance(block, Facts):
        yield f"### {escape(block.title)}"
        yield "\n".join(f"- {escape(name)}: {escape(value)}" for name, value in block.lines)
    elif isinstance(block, Plot):
        yield f"### {escape(block.title)}"
        yield f"![{escape(block.title)}](figures/{block.id}.svg)"
        yield " ".join(
            filter(
                None,
                [
                    escape(block.caption),
                    f"*{escape(block.note)}*" if block.note else "",
                    _data(block),
                ],
            )
        )
    else:
        yield from _titled(block)


def _titled(found: Table) -> Iterator[str]:
    """Write a table with its title and the meaning of its headings."""
    if found.title:
        yield f"### {escape(found.title)}"
    hints = [
        f"{escape(c.text)}: {escape(c.hint)}" for c in found.columns if c.hint and c.kind != "bar"
    ]
    if hints:
        yield "; ".join(hints) + "."
    yield table(found)


def _data(plot: Plot) -> str:
    return f"[CSV](figures/{plot.id}.csv)"


def _span(span: Span) -> str:
    text = escape(span.text)
    if span.target:
        return f"[{text}]({span.target})"
    if span.look == "code":
        return f"`{span.text}`"
    return f"*{text}*:" if span.look == "chip" else f"**{text}**" if span.look else text


def _heading(column: Column) -> str:
    return escape(column.text) + (f"<br>{escape(column.small)}" if column.small else "")


def _cell(cell: Cell, row: Row) -> str:
    text = "; ".join(map(escape, cell.items)) if cell.items else escape(cell.text).strip()
    if not text:
        return ""
    text = f"**{text}**" if cell.strong else text
    text = f"≈ {text}" if cell.standing == "tied" else text
    text = f"*{text}*" if row.kind == "oracle" else text
    return text + (f" ({escape(cell.small)})" if cell.small else "")
