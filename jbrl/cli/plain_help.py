"""Help that names the type of an option only where a value follows it."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _Plain:
    """Mixin: `--quiet` instead of `--quiet <bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class PlainCommand(_Plain, TyperCommand):
    """A command with plain help."""


class PlainGroup(_Plain, TyperGroup):
    """A group of commands with plain help."""


def use_plain_help(app: typer.Typer) -> None:
    """Give plain help to all commands of `app` and of its groups.

    Groups that name a class of their own keep it.
    """
    for command in app.registered_commands:
        command.cls = PlainCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.cls = PlainGroup
            use_plain_help(group.typer_instance)
