"""The report of a study, and of what its agents have searched, in one form."""

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from jbrl.base.errors import JbrlError, nearest
from jbrl.base.files import writing
from jbrl.report import html, strategies
from jbrl.report.chapters import document, experiment
from jbrl.report.content import Chapter, Plot
from jbrl.report.files import RENDERERS, Form, write_document
from jbrl.report.sections import Metrics, no_metrics, sections
from jbrl.report.style import styles
from jbrl.report.tables import FILES, write_tables
from jbrl.report.text import rules_of
from jbrl.stats.brackets import of_experiments
from jbrl.stats.labels import named_of, oracles_of

MANY_ROWS = 300  # of scores from which on experiments are drawn side by side
Result = TypeVar("Result")

_work: Callable[[int], Any] | None = None  # of the pool that is open; a child has a copy


def write_report(
    scores: pd.DataFrame,
    returns: pd.DataFrame,
    manifest: Mapping[str, Any],
    out: Path,
    searched: pd.DataFrame | None = None,
    form: Form = "html",
    metrics: Metrics = no_metrics,
) -> Path:
    """Write the report in one form: HTML to the folder `out`, others to a folder within it that has
    the form's name, with their figures.

    Beside the HTML page `index.html` are its tables `summary` and `scores`, each `.csv` and `.md`.
    Where agents have searched, there is a page `strategies` as well.

    Args:
      scores: one row per unit of the study, columns `jbrl.report.sections.SCORES`; seconds; NaN
        where nothing is known.
      returns: one row per environment of each finished unit, columns `jbrl.base.schema.RETURNS`.
      manifest: `study`, `machine` and `versions` are tables to show. Oracles are the algorithms in
        the list `oracles`, and those of the entries of `units` whose `oracle` is true. The entries
        of `experiments` say how each is played and scored (`jbrl.report.text.Rules`). All may
        be absent.
      out: made if it is not there.
      searched: what agents have tried offline, columns as `jbrl.report.strategies` says.
      metrics: what is recorded beside the scores of an agent.

    Returns:
      Path of the page, the LaTeX source or the Markdown.

    Raises:
      JbrlError: a table lacks a column, holds a score that is not finite or two rows for one agent,
        `out` cannot be written, or there is no such form.
    """
    if form not in RENDERERS:
        raise JbrlError(f"unknown form of a report '{form}'{nearest(form, list(RENDERERS))}")
    ending = RENDERERS[form][0]
    page, place = ("index", out) if form == "html" else ("report", out / form)
    oracles = oracles_of(manifest)
    parts = sections(
        *(scores, returns, oracles, rules_of(manifest), of_experiments(manifest), metrics),
        named_of(manifest),
    )
    looks = styles(scores["algorithm"], oracles)
    chapters = None
    if form == "html" and len(parts) > 1 and len(scores) >= MANY_ROWS:
        chapters = side_by_side(lambda number: _drawn(experiment(parts, number, looks)), len(parts))
    pages = {}
    if searched is not None and len(searched):
        pages = {"Strategies found offline": f"strategies.{ending}"}
    report = document(parts, looks, manifest, chapters, pages, FILES if form == "html" else ())
    with writing(place) as folder:
        write_document(report, folder, page, form)
        if searched is not None and pages:
            beside = strategies.document(searched, report, f"{page}.{ending}")
            write_document(beside, folder, "strategies", form)
        if form == "html":
            write_tables(parts, folder)
    return place / f"{page}.{ending}"


def _drawn(chapter: Chapter) -> Chapter:
    """Return a chapter with its figures as SVG, which can be passed to other processes."""
    for plot in chapter.blocks:
        if isinstance(plot, Plot):
            plot.drawing.svg = html.svg(plot, chapter)
            plot.drawing.figure = Figure()
    return chapter


def side_by_side(work: Callable[[int], Result], count: int) -> list[Result]:
    """Return `[work(0), …, work(count - 1)]`, by several processes where that is safe, else one by
    one.

    Processes are forked, so that they see the tables of the report without a copy. This is safe on
    Linux while JAX is not loaded, whose threads do not survive a fork.

    Args:
      work: its result can be pickled; what it raises is raised here.
    """
    global _work
    processes = min(count, _cores())
    if processes < 2 or sys.platform != "linux" or "jax" in sys.modules or _work is not None:
        return [work(number) for number in range(count)]
    _work = work
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)
            context = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(processes, mp_context=context) as pool:
                return list(pool.map(_call, range(count)))
    except (BrokenProcessPool, OSError):  # no memory, or no processes, for more than this one
        return [work(number) for number in range(count)]
    finally:
        _work = None


def _call(number: int) -> Any:
    assert _work is not None
    return _work(number)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
