"""The commands, and the handling of errors.

Modules that need JAX are imported inside commands: help must not wait for them, and the number of
devices has to be set before JAX starts.
"""

import errno
from typing import Any

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli import (
    bound,
    bsuite,
    catalogue,
    compare,
    doctor,
    evaluate,
    formulas,
    rank,
    run,
    sensitivity,
    status,
    subset,
    tables,
)
from jbrl.cli.plain_help import PlainGroup, use_plain_help
from jbrl.cli.text import complain
from jbrl.study.stopping import Stopped, interruptible

USER_ERROR = 2
BY_SIGNAL = 128  # added to the number of the signal
INTERRUPTED = BY_SIGNAL + 2


class _Commands(PlainGroup):
    """Report errors in the input in one message, and end with exit code 2; obey Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with interruptible(INTERRUPTED, lambda text: complain(text, "interrupted")):
                return super().invoke(ctx)
        except JbrlError as error:
            complain(str(error))
            raise typer.Exit(USER_ERROR) from None
        except OSError as error:
            # not about a file, or a pipe that its reader has closed
            if error.filename is None or error.errno == errno.EPIPE:
                raise
            complain(f"{error.filename}: cannot be used: {error.strerror}")
            raise typer.Exit(USER_ERROR) from None
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
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("scores")(tables.scores)
app.command("returns")(tables.returns)
app.command("rank")(rank.rank)
app.command("sensitivity")(sensitivity.sensitivity)
app.command("strategies")(tables.strategies)
app.command("report")(tables.report)
app.command("compare")(compare.compare)
app.command("archive")(compare.archive)
app.command("evaluate")(evaluate.evaluate)
app.command("bound")(bound.bound)
app.command("list")(catalogue.list_)
app.command("show")(catalogue.show)
app.command("formulas")(formulas.formulas)
app.command("cite")(catalogue.cite)
app.command("doctor")(doctor.doctor)
app.add_typer(subset.app, name="subset")
app.add_typer(bsuite.app, name="bsuite")
use_plain_help(app)


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
