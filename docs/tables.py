"""Tables that pages of the documentation have: parameters, and the reference of all commands."""

from collections.abc import Iterator
from typing import Any

import typer
from rich.text import Text
from typer.main import get_command

from jbrl.base.parameters import accepted_values
from jbrl.cli.app import app
from jbrl.cli.catalogue import settable, toml


def parameter_table(cls: type) -> str:
    """Return the parameters of an agent, an environment or a problem as a table in Markdown."""
    rows = []
    for field in settable(cls):
        values = accepted_values(field, None) + (", static" if field.metadata.get("static") else "")
        doc = str(field.metadata.get("doc", "")).replace("|", "\\|")
        rows.append(f"| `{field.name}` | `{toml(field.default)}` | {values} | {doc} |")
    header = ["| Parameter | Default | Accepted | Meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([*header, *rows])


def reference() -> str:
    """Return the reference of all commands as Markdown: of each a section with its description, a
    table of its arguments and options, and its examples.
    """
    return "\n\n".join(_section(words, command) for words, command in _walk(get_command(app)))


def _walk(command: Any, words: str = "jbrl") -> Iterator[tuple[str, Any]]:
    """Yield each command below `command` with the words that call it, groups before their parts."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, f"{words} {name}")


def _section(words: str, command: Any) -> str:
    text, *examples = (command.help or "").split("\n\n\b\n")
    paragraphs = [" ".join(Text.from_markup(part).plain.split()) for part in text.split("\n\n")]
    context = typer.Context(command)
    rows = [_row(p) for p in command.get_params(context) if p.name != "help"]
    table = ["| Argument or option | Meaning | Default |", "| --- | --- | --- |", *rows]
    return "\n\n".join(
        [
            f"## `{words}`",
            *(paragraphs[:-1] if examples else paragraphs),  # the last one is the word Examples
            *(["\n".join(table)] if rows else []),
            *(f"```console\n$ {lines.replace(chr(10), f'{chr(10)}$ ')}\n```" for lines in examples),
        ]
    )


def _row(parameter: Any) -> str:
    """Return the row of an argument or an option in the table of its command."""
    metavar = parameter.metavar or "|".join(map(str, parameter.type_descriptor.choices or ()))
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names, metavar = metavar, ""
    cells = [
        f"`{f'{names} {metavar}'.strip()}`",
        Text.from_markup(parameter.help or "").plain,
        "required" if parameter.required else _default(parameter.default),
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(value: Any) -> str:
    """Return a default as it is typed; nothing for an option that is not given."""
    return "" if value is None or value is False else "on" if value is True else f"`{value}`"
