"""Help that names no types: letters for numbers, and nothing where no value follows."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

LETTERS = {int: "N", float: "X"}


class _Plain:
    """Mixin: `--quiet` instead of `--quiet <bool>`, `--top N>=1` instead of `--top <int range>
    [x>=1]`, `DIR` instead of `DIR <path>`.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            _simplify(param)
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


def _simplify(param: Any) -> None:
    """Replace the type of an option or argument by a letter, or by nothing. Choices are left."""
    kind = param.type_descriptor
    if getattr(param, "is_flag", False):
        param.metavar = param.metavar or ""
    elif param.param_type_name == "argument":
        if not kind.is_choice:
            param.display_type_rich = lambda **_: None
    elif letter := LETTERS.get(kind.annotation):
        span = param._get_number_range_help_str() or "x"
        param.metavar = span.replace("x", param.metavar or letter)
        param._get_number_range_help_str = lambda: None  # not a second time
    elif not kind.is_choice and param.metavar is None:
        param.metavar = "TEXT"
