"""The report as LaTeX: any text is set as that text, tables are whole, and the whole compiles where
LaTeX is there.
"""

import re
import shutil
import subprocess
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jbrl.report.content import Cell, Column, Facts, Plot, Row, Span, Table
from jbrl.report.files import write_document
from jbrl.report.latex import (
    ABREAST,
    COMMANDS,
    LOWERED,
    MATHS,
    Tex,
    escape,
    parts,
    render,
    sentence,
)
from tests import kept
from tests.report.synthetic import AGENTS, MANIFEST, study, undo
from tests.report.test_chapters import blocks, report_of

KNOWN = "".join(chr(c) for c in (*range(0x20, 0x7F), *range(0xA0, 0x180))) + "".join(
    [*MATHS, *LOWERED, "–—…’‘“”€"]
)
AWKWARD = (
    "a_b^c~d $5 & 100% #1 {x} \\y <z> |w| \"q\" 'r' `s` -- ,, ?` << [1] * é ß ł µ β₀ ≈ − ½ № 日本 "
    "😀"
)


def plain(tex):
    """Return the text that LaTeX sets, by the definitions of its commands."""
    words = {source: text for text, source in COMMANDS.items()}
    words |= {rf"\ensuremath{{{name}}}": c for c, name in MATHS.items()}
    words |= {rf"\textsubscript{{{digit}}}": c for c, digit in LOWERED.items()}
    words |= {"{}": ""}
    found, rest = "", tex
    while rest:
        command = max((w for w in words if rest.startswith(w)), key=len, default=None)
        code = re.match(r"\\texttt\{U\+([0-9A-F]{4,6})\}", rest)
        if command is not None:
            found, rest = found + words[command], rest[len(command) :]
        elif code:
            found, rest = found + chr(int(code.group(1), 16)), rest[code.end() :]
        else:
            assert rest[0] not in "\\{}$&#%_^~", f"{rest[0]} stands by itself in {tex}"
            assert not rest.startswith(("--", ",,", "<", ">", "`", "'", '"')), (
                f"a ligature in {tex}"
            )
            found, rest = found + rest[0], rest[1:]
    return found


@given(st.text(st.characters(codec="utf-8") | st.sampled_from(KNOWN), max_size=40))
@example(AWKWARD)
@example("---,,,--")
def test_any_text_is_set_as_itself(text):
    expected = re.sub(
        r"[\s\x00-\x1f\x7f-\x9f]", lambda c: c.group() if c.group() in "\u00a0\u2009" else " ", text
    )
    assert plain(escape(text)) == unicodedata.normalize("NFC", expected)


@settings(max_examples=20)
@given(st.text(max_size=20))
def test_source_is_not_escaped_again(text):
    assert escape(escape(text)) == escape(text)
    assert isinstance(escape(text), Tex)


def test_sentences():
    below = Span("below", target="#gc-2")
    words = ("50% are ", Span("A_1", "strong"), "; see ", below, " ", Span("x", "chip"))
    assert sentence(words) == r"50\% are \textbf{A\_1}; see \hyperref[gc-2]{below} \emph{x}\enspace"
    key = (Span("best", "best"), " highest ", Span("≈ tied", "tied"), " not worse")
    expected = r"\textbf{best}: highest \qquad \textbf{\ensuremath{\approx} tied}: not worse"
    assert sentence(key, "key") == expected
    assert sentence("é\u017f漢") == r"é\texttt{U+017F}\texttt{U+6F22}"


def test_wide_overviews_are_split_and_small_drawings_left_out():
    columns = (
        Column("Algorithm"),
        *(Column(f"E{k}") for k in range(ABREAST + 2)),
        Column("", "bar"),
    )
    row = Row((Cell("A & B"), *(Cell(str(k)) for k in range(ABREAST + 2)), Cell(bar=(0, 1, 2))))
    first, second = parts(Table("t", "", columns, (row,), "overview"))
    assert first.rows == (r"A \& B & 0 & 1 & 2 & 3 & 4 & 5",)
    assert second.rows == (r"A \& B & 6 & 7",)
    assert second.head == "Algorithm & E6 & E7"
    assert second.columns.count("L{") == 3


def test_several_texts_in_a_cell_are_several_rows():
    table = Table(
        "t",
        "",
        (Column("Algorithm"), Column("Parameters")),
        (Row((Cell("A"), Cell(items=("x", "y")))), Row((Cell("B"), Cell("z")))),
    )
    assert parts(table)[0].rows == ("A & x", " & y", "B & z")


def test_columns_fit_the_line():
    columns = (
        Column("Agent"),
        Column("Score", "number"),
        Column("Standing", "chip"),
        Column("Reason"),
    )
    row = Row((Cell("BAMCP (K = 1)" * 9), Cell("1.0 ± 0.1"), Cell("best"), Cell("because " * 40)))
    spec = parts(Table("t", "", columns, (row,)))[0].columns
    assert re.sub(r"L\{[^}]*\}", "L", spec) == "@{}LrlL@{}"
    shares = [float(share) for share in re.findall(r"L\{([\d.]+)\\linewidth\}", spec)]
    assert 0.5 < sum(shares) < 0.9


def test_everything_is_in_the_source():
    report = report_of(*study())
    source = render(report)
    kept.compare("study for a paper", {"LaTeX": source})
    counts = [source.count(rf"\{end}{{longtable}}") for end in ("begin", "end")]
    assert counts == [len(blocks(report, (Table, Facts)))] * 2
    assert source.count(r"\section{") == len(report.chapters)
    assert source.count(r"\includegraphics") == len(blocks(report, Plot)) > 8
    assert "<" not in re.sub(r"%.*", "", source)


@pytest.mark.slow
def test_files(tmp_path):
    report = report_of(*study(n=3, experiments=(("GC", "GC", "GC"),)))
    write_document(report, tmp_path, "report", "latex")
    source = (tmp_path / "report.tex").read_text(encoding="utf-8")
    drawn = re.findall(r"figures/([\w-]+)\.pdf", source)
    assert drawn
    for name in drawn:
        assert (tmp_path / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (tmp_path / "figures" / f"{name}.csv").stat().st_size > 20


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("latexmk") is None, reason="no latexmk")
def test_it_compiles(tmp_path):
    """With names full of special characters, units that failed, and an algorithm that fills pages
    with its agents.
    """
    agents = (*AGENTS, *(("UCB_1 & \\co", {"c": k}) for k in range(80)), (AWKWARD, {}))
    scores, returns = undo(
        *study(n=4, experiments=((AWKWARD, "U_GC", "GC"),), agents=agents), "BEB", "failed", AWKWARD
    )
    machine = {"processor": KNOWN, "cores": 2}
    report = report_of(
        scores, returns, MANIFEST | {"study": {"name": AWKWARD, "seed": [0, 1]}, "machine": machine}
    )
    write_document(report, tmp_path, "report", "latex")
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=300
    )
    log = (tmp_path / "report.log").read_text(errors="replace")
    assert done.returncode == 0, log[-3000:]
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert "undefined" not in log
