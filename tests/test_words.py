"""Words of docstrings, comments, messages, templates and pages: imperatives and noun phrases,
without phrases that obscure; imports flow one way.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.terminal import output_of

ROOT = Path(__file__).parents[1]
CODE = [
    path for part in ("jbrl", "benchmarks", "experiments") for path in (ROOT / part).rglob("*.py")
]
PAGES = [
    ROOT / "README.md",
    *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
    *(path for path in (ROOT / "jbrl/report/templates").iterdir() if path.is_file()),
]
# metaphors and personifications that plain words have replaced; a space is any white space
BANNED = (
    *("as ever", "at work", "come up with", "dear to run", "each beside (?:each|the)"),
    *("fell silent", "GiB are here", "hangs? on", "in the making", "in vain"),
    *("look again so often", "nobody knows", "signs? of life", "the luck", "the same luck"),
    r"(?:tell|tells|told|telling)(?: \S+){0,6} apart",
    "what (?:a|the) user gets who",
)
BANNED_PATTERN = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
JOINTS = re.compile(r"(?:\s|#|(?:\b[frFR]{1,2})?[\"'])+")  # between words of one text
OPENING = re.compile(r'"""(?:What|Whether|How|Which|Who|Whose|Where|When|Why)\b')


def banned(text: str) -> list[str]:
    """Return the banned phrases in a text; comments and strings over several lines are one."""
    return [match.group() for match in BANNED_PATTERN.finditer(JOINTS.sub(" ", text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""Results hang\non the seed."""', ["hang on"]),
        ("x = 1  # the unit\n# at work", ["at work"]),
        ('x = f"tells none of {n} " "pairs apart"', ["tells none of {n} pairs apart"]),
        ('"""Results depend on the seed."""', []),
    ],
)
def test_a_banned_phrase_is_found_across_lines(text, expected):
    assert banned(text) == expected


def test_no_text_has_a_banned_phrase():
    wrong = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for path in CODE + PAGES
        for phrase in banned(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_docstring_begins_with_an_interrogative():
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in CODE
        for match in OPENING.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_import_contracts_hold():
    program = "from importlinter.cli import lint_imports_command as lint; lint()"
    said = output_of(sys.executable, "-c", program, "--no-cache", "--no-logo", cwd=ROOT)
    assert " kept, 0 broken" in said


def test_playing_needs_neither_terminal_nor_report():
    # None: cannot be imported
    hidden = ("typer", "rich", "jinja2", "matplotlib")
    hide = f"import sys; sys.modules |= dict.fromkeys({hidden})"
    output_of(sys.executable, "-c", f"{hide}; import jbrl, jbrl.play.experiment", cwd=ROOT)
