"""Commands from functions: the signature holds the options, the docstring their help.

    def rank(folder: Folder, *, table: Literal["ranks", "pairs"] = "ranks", seed: Natural = 0):

is the command `jbrl rank DIR --table ranks|pairs --seed N>=0`. Parameters before the star are
arguments, the others options. What they mean stands in the section Args of the docstring; a text in
parentheses after a name is the placeholder of its value: `experiment (NAME): …`. A section with
another title is a panel of the help, the section Examples is shown as it is. The fields of a
dataclass that a parameter is annotated with are options too.
"""

import copy
import dataclasses
import functools
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of results, the --out of 'jbrl run'.")
]
Format = Literal["table", "csv", "json", "md"]
Quiet = Annotated[bool, typer.Option("--quiet", "-q")]
Natural = Annotated[int, typer.Option(min=0)]
Positive = Annotated[int, typer.Option(min=1)]
CompileCache = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        envvar="JBRL_COMPILE_CACHE",  # as in play.compile_cache, which help does not wait for
        help="Keep compiled programs in DIR for the next run; 'auto': in your cache directory. Off "
        "by default.",
    ),
]


class _Entry(NamedTuple):
    """Meaning and metavariable of a parameter in a docstring."""

    metavar: str | None
    help: str
    panel: str | None


def add_commands(app: typer.Typer, *functions: Callable[..., None]) -> None:
    """Add functions as commands of their names to `app`."""
    for function in functions:
        _add_command(app, function)


def group_of(help: str, *functions: Callable[..., None]) -> typer.Typer:
    """Return a group of commands, which are functions."""
    group = typer.Typer(cls=PlainGroup, help=help, no_args_is_help=True, rich_markup_mode="rich")
    add_commands(group, *functions)
    return group


def _add_command(app: typer.Typer, function: Callable[..., None]) -> None:
    text, entries = _documentation(function)
    parts: dict[str, Any] = {}  # class of each parameter that is a dataclass
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        annotation = parameter.annotation
        if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            parts[parameter.name] = annotation
            for cls in reversed(annotation.__mro__):
                entries |= _documentation(cls)[1]
            fields = inspect.signature(annotation).parameters.values()
            parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in fields]
        else:
            parameters.append(parameter)
    parameters = [_declared(p, entries.get(p.name)) for p in parameters]

    @functools.wraps(function)
    def run(**given: Any) -> None:
        for name, cls in parts.items():
            names = [field.name for field in dataclasses.fields(cls)]
            given[name] = cls(**{field: given.pop(field) for field in names})
        function(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command(function.__name__.strip("_"), cls=PlainCommand, help=text)(run)


def _documentation(described: Any) -> tuple[str, dict[str, _Entry]]:
    """Return the help of a command, and what is said about each of its parameters."""
    text, *sections = re.split(r"^(\S.*):\n(?=  )", inspect.getdoc(described) or "", flags=re.M)
    text, entries = escape(text.strip()), {}
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if title.startswith("Example"):
            text += f"\n\n[bold]{title}[/bold]\n\n\b\n{escape(textwrap.dedent(body).strip())}"
            continue
        panel = None if title in ("Args", "Attributes") else title
        for name, metavar, help in re.findall(
            r"^  (\w+)(?: \((.+?)\))?: (.*(?:\n    .*)*)", body, flags=re.M
        ):
            entries[name] = _Entry(metavar or None, escape(" ".join(help.split())), panel)
    return text, entries


def _declared(parameter: inspect.Parameter, entry: _Entry | None) -> inspect.Parameter:
    """Return a parameter annotated as the argument or option that it is."""
    annotation, given = _for_typer(parameter.annotation)
    is_option = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    info: ArgumentInfo | OptionInfo
    info = copy.copy(given or (typer.Option() if is_option else typer.Argument()))
    if entry is not None:
        info.metavar, info.help = entry.metavar or info.metavar, entry.help
        info.rich_help_panel = entry.panel
    if is_option:
        name = parameter.name.rstrip("_").replace("_", "-")
        is_flag = bool in (annotation, *typing.get_args(annotation))
        if info.default is ...:  # else the first of the names that are given
            both = is_flag and parameter.default is not False
            info.param_decls = (f"--{name}/--no-{name}" if both else f"--{name}",)
        info.show_default = not (is_flag and parameter.default is None)
    return parameter.replace(annotation=Annotated[annotation, info])


def _for_typer(annotation: Any) -> tuple[Any, Any]:
    """Return a type that typer knows, a list for a sequence and a path for text or a path, and what
    `Annotated` says besides.
    """
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    kinds = typing.get_args(annotation) if is_union else (annotation,)
    kind, info = Path if Path in kinds else kinds[0], None
    if typing.get_origin(kind) is Annotated:
        kind, info = typing.get_args(kind)
    if typing.get_origin(kind) is Sequence:
        kind = list[str]
    return (kind | None if type(None) in kinds else kind), info


class _Plain:
    """Mixin: `--quiet` instead of `--quiet <bool>`, `--top N>=1` instead of `--top <int range>
    [x>=1]`, `DIR` instead of `DIR <path>`.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            _simplify(param)
        return params


class PlainCommand(_Plain, TyperCommand):
    """A command whose help names no types: letters for numbers, nothing where no value follows."""


class PlainGroup(_Plain, TyperGroup):
    """A group of such commands."""


def _simplify(param: Any) -> None:
    """Replace the type of an option or argument by a letter, or by nothing. Choices are left."""
    kind = param.type_descriptor
    if getattr(param, "is_flag", False):
        param.metavar = param.metavar or ""
    elif param.param_type_name == "argument":
        if not kind.is_choice:
            param.display_type_rich = lambda **_: None
    elif letter := {int: "N", float: "X"}.get(kind.annotation):
        span = param._get_number_range_help_str() or "x"
        param.metavar = span.replace("x", param.metavar or letter)
        param._get_number_range_help_str = lambda: None  # not a second time
    elif not kind.is_choice and param.metavar is None:
        param.metavar = "TEXT"
