"""The commands, and the handling of errors.

Modules that need JAX are imported inside commands: help must not wait for them, and the number of
devices has to be set before JAX starts.
"""

import errno
from typing import Any

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli import bsuite, catalogue, rank, results, subset
from jbrl.cli.choose import bound, choose, policy
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
        except MemoryError as error:
            complain(f"the memory of this machine does not suffice: {error or 'no reason given'}")
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
