"""Words of docstrings and comments: imperatives and noun phrases, without phrases that obscure.

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
# metaphors and personifications that plain words have replaced
BANNED = (
    "come up with",
    "dear to run",
    "fell silent",
    "hang on",
    "hangs on",
    "in the making",
    "in vain",
    "look again so often",
    "nobody knows",
    "sign of life",
    "signs of life",
    "the episode at work",
    "the unit at work",
    "told apart",
)


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
    return [phrase for phrase in BANNED if re.search(rf"\b{phrase}\b", text, re.IGNORECASE)]


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
    assert [found(text) for text in texts] == [["hang on"], ["the unit at work"]]


def test_no_docstring_begins_with_an_interrogative() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in CODE
        for _, text, line in docstrings(path)
        if interrogative(text)
    ]
    assert not wrong, "\n".join(wrong)


def beginning(path: Path) -> str:
    """Return the docstring of a module without parsing what follows it."""
    with path.open(encoding="utf-8") as lines:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                return ast.literal_eval(token.string) if token.type == tokenize.STRING else ""
    return ""


def test_no_module_of_tests_begins_with_an_interrogative() -> None:
    begun = {path: beginning(path) for path in TESTS}
    assert sum(map(bool, begun.values())) > 0.9 * len(TESTS)
    wrong = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path, text in begun.items()
        if interrogative(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_docstring_or_comment_has_a_banned_phrase() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {phrase}"
        for path in CODE
        for line, text in prose(path)
        for phrase in found(text)
    ]
    assert not wrong, "\n".join(wrong)
