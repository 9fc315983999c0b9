"""The report as Markdown: read again by a parser, any text is itself and tables are whole."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from jbrl.report.content import Cell, Column, Row, Span, Table
from jbrl.report.files import write_document
from jbrl.report.markdown import escape, render, sentence, table
from tests import kept
from tests.report.synthetic import study, undo
from tests.report.test_chapters import blocks, report_of

PARSER = MarkdownIt("commonmark").enable("table")
LETTERS = st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]) | st.sampled_from(
    "\\`*_[]<>#|-+1.)"
)


def spoken(source):
    """Text of a document, without its markup."""
    return "".join(
        child.content
        for token in PARSER.parse(source)
        if token.type == "inline"
        for child in token.children
    )


@settings(max_examples=150)
@given(st.text(LETTERS))
@example("1. a")
@example("- a *b* _c_ [d](e) <f> `g` | h # & &amp; \\| 10) $x$")
@example("===")
def test_any_text_is_read_as_itself(text):
    expected = re.sub(r"\s+", " ", text).strip(" ")
    assert spoken(escape(text)).strip(" ") == expected
    cells = spoken(
        table(
            Table("t", "", (Column(text), Column("x", "number")), (Row((Cell(text), Cell("1"))),))
        )
    )
    assert cells == f"{expected}x{expected}1"


def test_sentences():
    below, chip = Span("below", target="#gc"), Span("accurate", "chip")
    words = ("50* are ", Span("A", "strong"), "; see ", below, " ", chip, " x")
    assert sentence(words) == "50\\* are **A**; see [below](#gc) *accurate*: x"


def test_marks_of_cells():
    row = (
        Cell("1", strong=True, small="ε = 0"),
        Cell("2", standing="tied"),
        Cell(items=("a", "b|")),
        Cell(bar=(0, 1, 2)),
    )
    kinds = (Column("A", small="prior"), Column("B", "number"), Column("C"), Column("D", "bar"))
    found = table(
        Table("t", "", kinds, (Row(row), Row((Cell("o"), Cell(), Cell("p"), Cell()), "oracle")))
    ).splitlines()
    assert found == [
        "| A<br>prior | B | C |",
        "| --- | ---: | --- |",
        "| **1** (ε = 0) | ≈ 2 | a; b\\| |",
        "| *o* |  | *p* |",
    ]


def test_the_page_is_whole():
    report = report_of(*undo(*study(), "BEB", "failed"))
    page = render(report)
    kept.compare("study without BEB", {"Markdown": page})
    tokens = PARSER.parse(page)
    headings = [t.tag for t in tokens if t.type == "heading_open"]
    assert headings.count("h2") == len(report.chapters) == 6
    assert sum(t.type == "table_open" for t in tokens) == len(blocks(report, Table)) > 4
    links = {
        dict(c.attrs).get("href")
        for t in tokens
        if t.type == "inline"
        for c in t.children
        if c.type == "link_open"
    }
    anchors = set(re.findall(r'<a id="([^"]+)">', page))
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    assert page.count("> **1 of 10 units** have no result") == 1


def test_files(tmp_path):
    report = report_of(*study(n=3, experiments=(("GC", "GC", "GC"),)))
    write_document(report, tmp_path, "report", "markdown")
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\((figures/[\w.-]+)\)", page)
    assert len(named) >= 8
    assert all((tmp_path / name).stat().st_size > 20 for name in named)
