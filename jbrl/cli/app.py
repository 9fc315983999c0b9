"""The commands, the handling of errors, and the reference of all commands.

Modules that need JAX are imported inside commands: help must not wait for them, and the number of
devices has to be set before JAX starts.
"""

import errno
from collections.abc import Iterator
from typing import Any

import typer
from rich.text import Text
from typer.main import get_command

from jbrl.base.errors import JbrlError
from jbrl.cli import bsuite, catalogue, rank, results, subset
from jbrl.cli.bound import bound
from jbrl.cli.choose import choose, policy
from jbrl.cli.doctor import doctor
from jbrl.cli.evaluate import compare, evaluate
from jbrl.cli.options import PlainGroup, add_commands, group_of
from jbrl.cli.output import complain, show_warnings
from jbrl.cli.run import BAD_INPUT, BY_SIGNAL, run
from jbrl.study.stopping import Stopped, interruptible

INTERRUPTED = BY_SIGNAL + 2


class _Commands(PlainGroup):
    """Report errors in the input in one message, and end with exit code 2; obey Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        show_warnings()
        try:
            with interruptible(INTERRUPTED, lambda text: complain(text, "interrupted")):
                return super().invoke(ctx)
        except JbrlError as error:
            complain(str(error))
            raise typer.Exit(BAD_INPUT) from None
        except OSError as error:
            # not about a file, or a pipe that its reader has closed
            if error.filename is None or error.errno == errno.EPIPE:
                raise
            complain(f"{error.filename}: cannot be used: {error.strerror or type(error).__name__}")
            raise typer.Exit(BAD_INPUT) from None
        except Stopped as stopped:
            raise typer.Exit(BY_SIGNAL + stopped.number) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="jbrl",
    cls=_Commands,
    help=(
        "A benchmark for reinforcement learning, played as arrays: run a study, read its scores, "
        "write its report."
    ),
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_commands(
    app,
    run,
    results.status,
    results.scores,
    results.returns,
    rank.rank,
    rank.sensitivity,
    results.strategies,
    results.report,
    compare,
    results.archive,
    evaluate,
    bound,
    choose,
    policy,
    catalogue.list_,
    catalogue.show,
    catalogue.formulas,
    catalogue.cite,
    doctor,
)
app.add_typer(group_of(subset.HELP, subset.search, subset.predict, subset.report), name="subset")
app.add_typer(
    group_of(bsuite.HELP, bsuite.score, bsuite.table, bsuite.import_, bsuite.export, bsuite.report),
    name="bsuite",
)


def _version(wanted: bool) -> None:
    if wanted:
        from jbrl import __version__

        typer.echo(f"jbrl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    del version


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
