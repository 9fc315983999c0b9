"""A page as Markdown, its figures as SVG and their numbers as CSV beside it."""

from collections.abc import Iterator

from jbrl.report import content as doc
from jbrl.report.text import escape


def render(report: doc.Document) -> str:
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


def sentence(words: str | doc.Sentence) -> str:
    """Write a sentence."""
    if isinstance(words, str):
        return escape(words)
    return "".join(_span(w) if isinstance(w, doc.Span) else escape(w) for w in words)


def table(content: doc.Table) -> str:
    """Write a pipe table; small drawings are left out."""
    kept = [k for k, column in enumerate(content.columns) if column.kind != "bar"]
    columns = [content.columns[k] for k in kept]
    rules = ["---:" if column.kind == "number" else "---" for column in columns]
    rows = [[_cell(row.cells[k], row) for k in kept] for row in content.rows]
    lines = ([_heading(column) for column in columns], rules, *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _block(block: doc.Block) -> Iterator[str]:
    """Yield paragraphs of a block."""
    match block:
        case doc.Heading():
            yield f"### {escape(block.text)}"
        case doc.Paragraph():
            yield ("> " if block.role == "notice" else "") + sentence(block.words)
        case doc.Items():
            yield "\n".join(f"- {sentence(words)}" for words in block.items)
        case doc.Facts():
            yield f"### {escape(block.title)}"
            yield "\n".join(f"- {escape(name)}: {escape(value)}" for name, value in block.lines)
        case doc.Plot():
            yield f"### {escape(block.title)}"
            yield f"![{escape(block.title)}](figures/{block.id}.svg)"
            note = f"*{escape(block.drawing.note)}*" if block.drawing.note else ""
            texts = (escape(block.caption), note, f"[CSV](figures/{block.id}.csv)")
            yield " ".join(filter(None, texts))
        case doc.Table():
            if block.title:
                yield f"### {escape(block.title)}"
            if block.hints:
                yield f"{escape(block.hints)}."
            yield table(block)


def _span(span: doc.Span) -> str:
    text = escape(span.text)
    if span.target:
        return f"[{text}]({span.target})"
    if span.look == "code":
        return f"`{span.text}`"
    return f"*{text}*:" if span.look == "chip" else f"**{text}**" if span.look else text


def _heading(column: doc.Column) -> str:
    return escape(column.text) + (f"<br>{escape(column.small)}" if column.small else "")


def _cell(cell: doc.Cell, row: doc.Row) -> str:
    text = "; ".join(map(escape, cell.items)) if cell.items else sentence(cell.text).strip()
    if not text:
        return ""
    text = f"**{text}**" if cell.strong else text
    text = f"≈ {text}" if cell.standing == "tied" else text
    text = f"*{text}*" if row.kind == "oracle" else text
    return text + (f" ({escape(cell.small)})" if cell.small else "")
