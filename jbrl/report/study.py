"""The report of a study, and of what its agents have searched, in one form."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from jbrl.base.errors import JbrlError, nearest
from jbrl.base.files import writing
from jbrl.report import strategies
from jbrl.report.chapters import document
from jbrl.report.files import RENDERERS, Form, write_document
from jbrl.report.sections import Metrics, no_metrics, sections
from jbrl.report.style import styles
from jbrl.report.tables import FILES, write_tables
from jbrl.report.text import rules_of
from jbrl.stats.brackets import of_experiments
from jbrl.stats.labels import named_of, oracles_of


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
    pages = {}
    if searched is not None and len(searched):
        pages = {"Strategies found offline": f"strategies.{ending}"}
    report = document(parts, looks, manifest, pages, FILES if form == "html" else ())
    with writing(place) as folder:
        write_document(report, folder, page, form)
        if searched is not None and pages:
            beside = strategies.document(searched, report, f"{page}.{ending}")
            write_document(beside, folder, "strategies", form)
        if form == "html":
            write_tables(parts, folder)
    return place / f"{page}.{ending}"
