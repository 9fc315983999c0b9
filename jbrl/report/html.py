"""One self-contained page per study, with its tables beside it."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from matplotlib.figure import Figure

from jbrl.report import strategies as searches
from jbrl.report import tables
from jbrl.report.chapters import document, experiment, name_of
from jbrl.report.content import Block, Cell, Chapter, Document, Heading, Plot, Span, Words
from jbrl.report.files import writing
from jbrl.report.style import Style, styles
from jbrl.report.svg import inline
from jbrl.report.terms import rules_of
from jbrl.report.text import listing, seconds_text
from jbrl.report.workers import side_by_side
from jbrl.stats.brackets import of_experiments
from jbrl.stats.labels import oracles_of

MANY = 300  # rows of scores from which on experiments are drawn side by side
REMARK: Words = (
    Span("Tables", "strong"),
    " are sorted by a click on a heading. They are also here as files, beside this page: ",
    *(
        Span("summary.csv", target="summary.csv"),
        ", ",
        Span("summary.md", target="summary.md"),
        ", ",
    ),
    *(Span("scores.csv", target="scores.csv"), ", ", Span("scores.md", target="scores.md"), "."),
)
DATA: Words = (
    Span("Figures", "strong"),
    " give the numbers that they show as CSV, in full precision, from a link under each.",
)


def write_report(
    scores: pd.DataFrame,
    returns: pd.DataFrame,
    manifest: Mapping[str, Any],
    out: Path,
    strategies: pd.DataFrame | None = None,
) -> Path:
    """Write `index.html` and the same tables as `summary` and `scores`, each `.csv` and `.md`, to
    the folder `out`.

    Where agents have searched, write `strategies.html` as well.

    Args:
      scores: one row per unit of the study, columns `jbrl.report.tables.SCORES`; seconds; NaN where
        nothing is known.
      returns: one row per environment of each finished unit, columns `jbrl.stats.table.RETURNS`.
      manifest: `study`, `machine` and `versions` are tables to show. Oracles are the algorithms in
        the list `oracles`, and those of the entries of `units` whose `oracle` is true. The entries
        of `experiments` say how each is played and scored (`jbrl.report.terms.Rules`). All may
        be absent.
      out: made if it is not there.
      strategies: what agents have tried offline: columns as `jbrl.report.strategies.render` says.

    Returns:
      Path of the page.

    Raises:
      JbrlError: a table lacks a column, holds a score that is not finite or two rows for one agent,
        or `out` cannot be written.
    """
    oracles = oracles_of(manifest)
    parts = tables.sections(scores, returns, oracles, rules_of(manifest), of_experiments(manifest))
    searched = strategies is not None and len(strategies) > 0
    looks = styles(scores["algorithm"], oracles)
    experiments = None
    if len(parts) > 1 and len(scores) >= MANY:
        experiments = side_by_side(lambda number: _drawn(parts, number, looks), len(parts))
    report = document(parts, looks, manifest, (REMARK, DATA), experiments)
    pages = {
        "index.html": render(
            report, {"Strategies found offline": "strategies.html"} if searched else {}
        )
    }
    if strategies is not None and searched:
        pages["strategies.html"] = searches.render(
            strategies, name_of(manifest), template("strategies.html"), report.version
        )
    with writing(out) as folder:
        tables.write_tables(parts, folder)
        for name, page in pages.items():
            (folder / name).write_text(page, encoding="utf-8")
    return out / "index.html"


def _drawn(parts: Sequence[tables.Section], number: int, looks: Mapping[str, Style]) -> Chapter:
    """Return the chapter of an experiment with its figures as SVG, which can be passed to other
    processes.
    """
    chapter = experiment(parts, number, looks)
    for block in chapter.blocks:
        if isinstance(block, Plot):
            block.drawing.svg = _svg(block, chapter)
            block.drawing.figure = Figure()
    return chapter


def render(report: Document, pages: Mapping[str, str]) -> str:
    """Return the page as text.

    Args:
      pages: other pages beside it, title and file name, for the list of contents.
    """
    numbers = {name: number for number, name in enumerate(report.styles, 1)}
    return template("report.html").render(
        report=report, pages=pages, styles=report.styles, numbers=numbers
    )


def template(name: str) -> Template:
    """Return a template of `jbrl/report/templates`."""
    environment = Environment(
        loader=PackageLoader("jbrl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"seconds": seconds_text, "listing": listing, "sortable": _sortable}
    environment.filters |= {"folds": _folds, "runs": _runs, "svg": _svg, "csv": _csv, "key": _key}
    return environment.get_template(name)


def _folds(chapter: Chapter) -> list[tuple[str, list[Block]]]:
    """Return the blocks of a chapter in parts: title and blocks, the first without a title."""
    parts: list[tuple[str, list[Block]]] = [("", [])]
    for block in chapter.blocks:
        if isinstance(block, Heading) and block.folds:
            parts.append((block.text, []))
        else:
            parts[-1][1].append(block)
    return parts


def _runs(part: Sequence[Block]) -> list[tuple[str, list[Block]]]:
    """Return the blocks of a part, those of one type that follow each other together."""
    return [
        (kind, list(blocks)) for kind, blocks in groupby(part, lambda block: type(block).__name__)
    ]


def _svg(plot: Plot, chapter: Chapter) -> Markup:
    if plot.drawing.svg:
        return Markup(plot.drawing.svg)
    return Markup(
        inline(plot.drawing.figure, plot.id, f"{plot.title}, {chapter.title}", plot.drawing.titles)
    )


def _csv(plot: Plot) -> str:
    """Return the numbers of a figure as a link that holds them."""
    text = plot.data.to_csv(index=False, lineterminator="\n")
    return "data:text/csv;charset=utf-8," + quote(text, safe=" ,;:=()[]{}/*$!@'|+-.")


def _key(cell: Cell) -> str:
    """Return the sort key that the script for tables compares; empty when there is nothing."""
    if cell.value is None:
        return cell.text
    return cell.value if isinstance(cell.value, str) else _sortable(cell.value)


def _sortable(value: Any) -> str:
    return f"{value:.9g}" if value is not None and math.isfinite(value) else ""
