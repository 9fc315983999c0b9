"""Formatting of text on a terminal."""

import warnings
from typing import Any

import typer

from jbrl.base.errors import JbrlWarning


def complain(message: str, kind: str = "error") -> None:
    """Print one line on standard error."""
    typer.secho(
        f"{kind}: ", err=True, nl=False, bold=True, fg="red" if kind == "error" else "yellow"
    )
    typer.echo(message, err=True)


def show_warnings() -> None:
    """Report warnings of jbrl in one line each from now on."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        *_: Any,
        **__: Any,
    ) -> None:
        if issubclass(category, JbrlWarning):
            complain(str(message), "warning")
        else:
            typer.echo(
                warnings.formatwarning(message, category, filename, lineno), err=True, nl=False
            )

    warnings.showwarning = show
    warnings.simplefilter("default", JbrlWarning)  # each text once


def duration(seconds: float) -> str:
    """Return seconds in words: `0.4 s`, `12 s`, `3 min 20 s`, `5 h 10 min`, `12 d 3 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 172_800:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def count(n: int, what: str) -> str:
    """Count in words: `1 unit`, `2 units`."""
    return f"{n} {what}{'s' if n != 1 else ''}"
