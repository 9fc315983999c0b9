"""Messages, numbers in words, and tables on a terminal."""

import itertools
import json
import math
import textwrap
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import typer
from rich import progress as bars
from rich.console import Console

from jbrl.base.errors import JbrlWarning
from jbrl.cli.options import Format

if TYPE_CHECKING:
    import pandas as pd

GAP = "  "  # between columns
SECONDS_BETWEEN_LINES = 10.0  # of progress, where there is no terminal
WIDTH = 100  # of a table for people, where output is no terminal
LONGEST_WORD = 40  # that widens a column where the width of the table has no limit
NARROWEST = 12  # of a column whose text continues on the next line


def complain(message: str, kind: str = "error") -> None:
    """Print a message on standard error, in one line but for an error that has several."""
    message = message if kind == "error" else " ".join(message.splitlines())
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


class StepProgress(Protocol):
    """Function that shows that `done` of `total` parts of a step are done."""

    def __call__(self, step: str, done: int, total: int, note: str = "") -> None: ...


@contextmanager
def progress_bars(*, quiet: bool = False) -> Iterator[StepProgress]:
    """Show long work as a bar for each step on a terminal; elsewhere, as a line on standard error
    now and then.
    """
    console = Console(stderr=True, quiet=quiet)
    shown = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=24),
        bars.TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[note]}", markup=False),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )
    tasks: dict[str, bars.TaskID] = {}
    last = time.monotonic()

    def show(step: str, done: int, total: int, note: str = "") -> None:
        nonlocal last
        if shown.disable and not quiet and time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            typer.echo(f"{step}: {done:,.0f} of {total:,.0f} {note}".rstrip(), err=True)
        if step not in tasks:
            tasks[step] = shown.add_task(step, total=max(1, total), note=note)
        shown.update(tasks[step], completed=done, total=max(1, total), note=note)

    with shown:
        yield show


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


def print_table(table: "pd.DataFrame", format: Format, width: int | None = None) -> None:
    """Print a table to standard output.

    Args:
      width: columns of the terminal that an aligned table may take; longer texts continue on the
        next line. Default: no limit.
    """
    if format == "csv":
        typer.echo(table.to_csv(index=False, lineterminator="\n"), nl=False)
    elif format == "json":
        rows = [
            {name: _for_json(value) for name, value in row.items()}
            for row in table.to_dict("records")
        ]
        typer.echo(json.dumps(rows, indent=1))
    elif format == "md":
        table = _with_digits(table, 6)
        cells = [[_six_digits(value) for value in row] for row in table.itertuples(index=False)]
        for row in [list(table.columns), ["---"] * len(table.columns), *cells]:
            typer.echo(f"| {' | '.join(row)} |")
    else:
        typer.echo("\n".join(_aligned(table, width)))


def terminal_width() -> int:
    """Return the columns of a table for people: those of the terminal, 100 where there is none."""
    console = Console()
    return console.width if console.is_terminal else WIDTH


def readable(table: "pd.DataFrame", units: "pd.DataFrame") -> "pd.DataFrame":
    """Return parameters in words, and only those in which the agents of an algorithm differ.

    Args:
      units: of the study.
    """
    from jbrl.stats.table import parameters_text, setting_texts

    settings = {
        name: setting_texts(rows["parameters"], []) for name, rows in units.groupby("algorithm")
    }
    for who, parameters in (("algorithm", "parameters"), ("other", "other_parameters")):
        if who in table.columns:
            texts = [
                settings.get(a, {}).get(p, parameters_text(p)) if p else ""
                for a, p in zip(table[who], table[parameters], strict=True)
            ]
            table = table.assign(**{parameters: texts})
    return table


def for_people(
    table: "pd.DataFrame", units: "pd.DataFrame", one_valued: Sequence[str]
) -> "pd.DataFrame":
    """Return a table of few columns: `readable`, times with their units, without columns that say
    nothing.

    Args:
      one_valued: columns that say nothing where all rows have the same.
    """
    from jbrl.report.text import ABSENT, seconds_text

    shown = readable(table, units)
    twins = [name for name in ("prior", "test") if name in shown]
    same = [name for name in one_valued if name in shown and shown[name].nunique() < 2]
    if "experiment" in shown and all((shown[name] == shown["experiment"]).all() for name in twins):
        same += twins
    elif len(twins) == 2 and (shown["prior"] == shown["test"]).all():
        same.append("prior")
    empty = [name for name in shown if shown[name].isna().all()]
    shown = shown.drop(columns={*same, *empty} if len(shown) else [])
    times = [name for name in shown if str(name).endswith("_seconds")]
    texts = {
        name: [ABSENT if math.isnan(v) else seconds_text(v) for v in shown[name]] for name in times
    }
    return shown.assign(**texts).rename(
        columns=lambda name: str(name).removesuffix("_seconds").replace("_", " ")
    )


def fitting(
    table: "pd.DataFrame", order: Sequence[tuple[str, ...]]
) -> "tuple[pd.DataFrame, list[str]]":
    """Return a table without the columns that the terminal has no place for, and these columns.

    Args:
      order: of columns that may be left out, together, the first ones first.
    """
    left: list[str] = []
    for names in order:
        if max(map(len, _aligned(table, terminal_width()))) <= terminal_width():
            break
        left += [name for name in names if name in table]
        table = table.drop(columns=[*names], errors="ignore")
    return table, left


def _for_json(value: Any) -> Any:
    """Return `value`, or None for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _with_digits(table: "pd.DataFrame", digits: int) -> "pd.DataFrame":
    """Return a table whose means are texts where so many digits do not show their intervals."""
    from jbrl.base.notebook import numbers

    if not {"mean", "ci95"} <= set(table.columns):
        return table
    means = []
    for mean, half in zip(table["mean"], table["ci95"], strict=True):
        text = numbers(mean - half, mean + half, mean, digits=digits)[2]
        means.append(mean if text == f"{mean:.{digits}g}" else text)
    return table.assign(mean=means)


def _six_digits(value: Any) -> str:
    """Return a cell of Markdown; nothing for what is not known."""
    from jbrl.report.text import escape

    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    if isinstance(value, str):
        return escape(value)
    return "" if value is None else str(value)


def _aligned(table: "pd.DataFrame", limit: int | None = None) -> list[str]:
    """Return the lines of a table: numbers to the right, times with their unit, columns as wide as
    they need for any width of the terminal, or folded to `limit`.
    """
    from pandas.api.types import is_numeric_dtype

    told = _with_digits(table, 4)
    columns = [_texts(name, told[name]) for name in table.columns]
    is_text = [
        not (str(name).endswith("_seconds") or is_numeric_dtype(table[name]))
        for name in table.columns
    ]
    if limit is None:
        widths = [
            _width(column) if left else max(map(len, column))
            for column, left in zip(columns, is_text, strict=True)
        ]
    else:
        widths = _narrowed([max(map(len, column)) for column in columns], is_text, limit)
    return _lines(zip(*columns, strict=True), widths, is_text)


def _width(texts: Sequence[str]) -> int:
    """Return the width of a column of texts: words without a gap may take `LONGEST_WORD`."""
    widest = max(map(len, texts))
    if widest <= LONGEST_WORD or all(len(w) <= LONGEST_WORD for t in texts for w in t.split()):
        return widest
    return LONGEST_WORD


def _lines(
    rows: Iterable[Sequence[str]], widths: Sequence[int], is_text: Sequence[bool]
) -> list[str]:
    """Return the lines of rows; what is wider than its column continues on the next line."""
    lines = []
    for row in rows:
        cells = [textwrap.wrap(text, w) or [""] for text, w in zip(row, widths, strict=True)]
        lines += [
            _line(parts, widths, is_text) for parts in itertools.zip_longest(*cells, fillvalue="")
        ]
    return lines


def _line(cells: Sequence[str], widths: Sequence[int], is_text: Sequence[bool]) -> str:
    """Return a line of aligned cells, text to the left and numbers to the right."""
    padded = (
        cell.ljust(width) if left else cell.rjust(width)
        for cell, width, left in zip(cells, widths, is_text, strict=True)
    )
    return GAP.join(padded).rstrip()


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of a table of texts: the first column to the left, the others to the right."""
    names, *others = zip(*rows, strict=True)
    widths = [_width(names), *(max(1, *map(len, column)) for column in others)]
    return _lines(rows, widths, [True] + [False] * len(others))


def _texts(name: Any, values: "pd.Series") -> list[str]:
    """Return the name of a column and its values, as they are printed."""
    from jbrl.report.text import ABSENT, seconds_text

    texts = [str(name)]
    for value in values:
        if str(name).endswith("_seconds"):
            text = seconds_text(value)
        else:
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
        # a name may be nan or None
        is_absent = text in ("nan", "None") and not isinstance(value, str)
        texts.append(ABSENT if is_absent else text)
    return texts


def _narrowed(widths: Sequence[int], is_text: Sequence[bool], limit: int) -> list[int]:
    """Return widths of columns, the widest columns of text narrowed until a line takes `limit`."""
    widths = list(widths)
    texts = [k for k, is_column_of_text in enumerate(is_text) if is_column_of_text]
    while sum(widths) + len(GAP) * (len(widths) - 1) > limit and texts:
        widest = max(texts, key=widths.__getitem__)
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths
