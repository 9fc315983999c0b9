"""The option that keeps compiled programs, for all commands that have it."""

from typing import Annotated

import typer

# The variable stands here as well as in `play.compile_cache`: help must not wait for modules of
# the runner.
CompileCache = Annotated[
    str | None,
    typer.Option(
        "--compile-cache",
        metavar="DIR",
        envvar="JBRL_COMPILE_CACHE",
        help=(
            "Keep compiled programs in DIR for the next run; 'auto': in your cache directory. Off "
            "by default."
        ),
    ),
]


def keep_compiled(where: str | None) -> None:
    """Keep compiled programs, if asked to."""
    if where:
        from jbrl.play import compile_cache

        compile_cache.use(where)
