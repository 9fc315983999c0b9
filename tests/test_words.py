"""Words of docstrings, comments, messages, templates and pages: imperatives and noun phrases,
without phrases that obscure.

`ruff` checks the imperative mood of functions (D401); it has no rule for interrogatives.
"""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = [
    path for part in ("jbrl", "benchmarks", "experiments") for path in (ROOT / part).rglob("*.py")
]
TESTS = list((ROOT / "tests").rglob("*.py"))
INTERROGATIVES = {"What", "Whether", "How", "Which", "Who", "Whose", "Where", "When", "Why"}
PAGES = [
    ROOT / "README.md",
    *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
]
TEMPLATES = [
    path
    for path in (ROOT / "jbrl" / "report" / "templates").iterdir()
    if path.suffix in (".html", ".tex")
]
# metaphors and personifications that plain words have replaced; a space is any white space
BANNED = (
    "as ever",
    "at work",
    "come up with",
    "dear to run",
    "each beside (?:each|the)",
    "fell silent",
    "GiB are here",
    "hang on",
    "hangs on",
    "in the making",
    "in vain",
    "look again so often",
    "nobody knows",
    "sign of life",
    "signs of life",
    "the luck",
    "the same luck",
    r"(?:tell|tells|told|telling)(?: \S+){0,6} apart",
    "what (?:a|the) user gets who",
)
JOINTS = re.compile(r"(?:\s|#|(?:\b[frFR]{1,2})?[\"'])+")  # between words of one text
OPENING = re.compile(rf"[\"']\s*(?:{'|'.join(INTERROGATIVES)})\b")
BANNED_PATTERN = re.compile(rf"\b(?:{'|'.join(BANNED)})\b".replace(" ", r"\s+"), re.IGNORECASE)


@functools.cache
def docstrings(path: Path) -> list[tuple[ast.AST, str, int]]:
    """Return each module, class or function, its docstring and its line."""
    found: list[tuple[ast.AST, str, int]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                found.append((node, text, node.body[0].lineno))
    return found


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string outside docstrings that has a space: of messages and of
    the help of options; the constant parts of an f-string as one.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed: set[int] = set()  # statements of a string alone, and parts of f-strings
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            passed.update(map(id, parts))
            yield node.lineno, "…".join(str(part.value) for part in parts)
        elif id(node) not in passed and isinstance(node, ast.Constant):
            text = node.value
            if isinstance(text, str) and " " in text:
                yield node.lineno, text


def suspicious(path: Path, pattern: re.Pattern[str]) -> bool:
    """Return whether a pattern is found in the source, comments and strings over several lines
    taken as one: a file without it need not be parsed.
    """
    source = path.read_text(encoding="utf-8")
    return pattern.search(JOINTS.sub(" ", source)) is not None


def interrogative(text: str) -> bool:
    """Return whether a docstring begins with an interrogative."""
    word = re.match(r"\w+", text)
    return word is not None and word.group() in INTERROGATIVES


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring and each block of comments, on one line."""
    for _, text, line in docstrings(path):
        yield line, " ".join(text.split())
    block: list[str] = []
    first = last = 0
    source = io.StringIO(path.read_text(encoding="utf-8"))
    for token in tokenize.generate_tokens(source.readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                if block:
                    yield first, " ".join(block)
                block, first = [], token.start[0]
            block.append(token.string.lstrip("# "))
            last = token.start[0]
    if block:
        yield first, " ".join(block)


def found(text: str) -> list[str]:
    """Return the banned phrases in a text."""
    return [" ".join(match.group().split()) for match in BANNED_PATTERN.finditer(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What a unit costs.", True),
        ("Whether it is done.", True),
        ("Cost of a unit.", False),
        ("Return what a unit costs.", False),
        ("Whatever.", False),
    ],
)
def test_the_interrogatives(text: str, expected: bool) -> None:
    assert interrogative(text) is expected


def test_a_banned_phrase_is_found_across_lines(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""Results hang\non the seed."""\nx = 1  # the unit\n# at work\n')
    texts = [text for _, text in prose(file)]
    assert [found(text) for text in texts] == [["hang on"], ["at work"]]


def test_a_banned_phrase_is_found_in_messages_and_not_in_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""Told apart."""\nx = f"tells none of {n} " "pairs apart"\n'
        'y = {"drawn as ever": "in vain"}\n'
    )
    assert suspicious(file, BANNED_PATTERN)
    phrases = [phrase for _, text in messages(file) for phrase in found(text)]
    assert sorted(phrases) == ["as ever", "in vain", "tells none of … pairs apart"]


@pytest.mark.parametrize(
    "source", ["x = 1  # the unit\n# at work\n", 'x = (\n    "at "\n    f"work"\n)\n']
)
def test_a_phrase_over_two_lines_makes_a_file_suspicious(tmp_path: Path, source: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(source)
    assert suspicious(file, BANNED_PATTERN)


def test_no_docstring_begins_with_an_interrogative() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in CODE + TESTS
        if OPENING.search(path.read_text(encoding="utf-8"))
        for _, text, line in docstrings(path)
        if interrogative(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_docstring_comment_or_message_has_a_banned_phrase() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {phrase}"
        for path in CODE
        if suspicious(path, BANNED_PATTERN)
        for line, text in (*prose(path), *messages(path))
        for phrase in found(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_page_or_template_has_a_banned_phrase() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for path in PAGES + TEMPLATES
        for phrase in found(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)
