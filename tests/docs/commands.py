"""Commands of the documentation: found in Markdown, and checked against the options that exist."""

import dataclasses
import functools
import re
import shlex
from pathlib import Path

import typer
from typer.main import get_command

from jbrl.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    if "_build" not in path.parts
)
ELLIPSIS = ("…", "...")


@dataclasses.dataclass(frozen=True)
class Command:
    """A command line on a page; `shown` where it stands in a console block, not in a sentence."""

    page: str
    line: int
    text: str
    shown: bool

    @property
    def words(self) -> list[str]:
        """Words up to the first pipe or redirection, without comments."""
        words = shlex.split(self.text, comments=True)
        ends = [k for k, word in enumerate(words) if word in ("|", ">", "&&")]
        return words[: ends[0]] if ends else words

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.text[:60]}"


def found() -> list[Command]:
    """Every command of the pages, in order."""
    commands = []
    for page in PAGES:
        text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
        for match in re.finditer(r"^\$ (.+)$", text, re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            commands.append(Command(name, line, match[1], True))
        prose = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
        for match in re.finditer(r"`(jbrl [^`]+)`", prose):
            line = prose.count("\n", 0, match.start()) + 1
            commands.append(Command(name, line, re.sub(r"\s+", " ", match[1]), False))
    return commands


@functools.cache
def jbrl():
    """Return the command `jbrl` with all that is below it."""
    return get_command(app)


def problem_of(words: list[str]) -> str | None:
    """Return why `jbrl` would not know the command or an option of it; None if it does."""
    command, name = jbrl(), "jbrl"
    words = [word for word in words if word not in ELLIPSIS]
    context = typer.Context(command)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"{name} has no command '{words[0]}'"
        name, command = f"{name} {words[0]}", command.commands[words[0]]
        words = words[1:]
    known = {
        option
        for parameter in command.get_params(context)
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("-")
    }
    for word in words:
        option = word.split("=")[0].split("|")[0]
        if re.match(r"--?[a-z]", option) and option not in known:
            return f"{name} has no option {option}"
    return None
