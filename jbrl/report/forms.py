"""The forms of a report: what is written, and where."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from jbrl.base.errors import JbrlError, nearest
from jbrl.report import html, tables
from jbrl.report.chapters import document
from jbrl.report.latex import write_latex
from jbrl.report.markdown import write_markdown
from jbrl.report.style import styles
from jbrl.report.terms import rules_of
from jbrl.stats.brackets import of_experiments
from jbrl.stats.labels import oracles_of

Form = Literal["html", "latex", "markdown"]
_OTHERS = {"latex": write_latex, "markdown": write_markdown}


def write(
    form: Form,
    scores: pd.DataFrame,
    returns: pd.DataFrame,
    manifest: Mapping[str, Any],
    out: Path,
    strategies: pd.DataFrame | None = None,
) -> Path:
    """Write the report in one form: HTML to the folder `out`, others to a folder within it that has
    the form's name.

    Arguments, and errors that tables give rise to, are those of `jbrl.report.html.write_report`.

    Returns:
      Path of the page, the LaTeX source or the Markdown.

    Raises:
      JbrlError: no such form.
    """
    if form == "html":
        return html.write_report(scores, returns, manifest, out, strategies)
    if form not in _OTHERS:
        raise JbrlError(f"unknown form of a report '{form}'{nearest(form, ['html', *_OTHERS])}")
    oracles = oracles_of(manifest)
    parts = tables.sections(scores, returns, oracles, rules_of(manifest), of_experiments(manifest))
    report = document(parts, styles(scores["algorithm"], oracles), manifest)
    return _OTHERS[form](report, out / form)
