"""The page of a comparison: a study beside the published numbers, or beside another study."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from jbrl.report import comparison_figures
from jbrl.report.files import writing
from jbrl.report.html import template
from jbrl.report.svg import inline
from jbrl.report.text import ABSENT, decimals_for, parameters_text, score_text, slug
from jbrl.stats import brackets, two_studies
from jbrl.stats.published.castronovo2016 import ABSENT as NOT_PLAYED
from jbrl.stats.published.castronovo2016 import (
    BEST,
    CELL,
    DEFECT,
    DIFFERS,
    MISPRINT,
    OTHER,
    SAME,
    VERDICTS,
    cells,
)
from jbrl.stats.two_studies import Comparison

CHIPS = {  # how a verdict looks
    VERDICTS[SAME]: "best",
    VERDICTS[DEFECT]: "tied",
    VERDICTS[MISPRINT]: "tied",
    VERDICTS[OTHER]: "tied",
    DIFFERS: "bad",
    NOT_PLAYED: "",
    two_studies.IDENTICAL: "best",
    two_studies.UNTESTED: "",
}
PUBLISHED = (0.95, 250)  # discount and horizon
DIGITS = 2  # as the paper prints its scores


def write_page(found: Comparison, out: Path) -> Path:
    """Write `compare.html` and the table as `compare.csv` to the folder `out`, made if it is not
    there; return the path of the page, or of the table where it says all (Jordan et al. 2020).

    Raises:
      JbrlError: it cannot be written.
    """
    page = ""
    if found.candidates is not None:
        page = published_page(found)
    elif "other_mean" in found.table:
        page = studies_page(found)
    with writing(out, "the page", "choose another --out") as folder:
        found.table.to_csv(folder / "compare.csv", index=False, lineterminator="\n")
        if page:
            (folder / "compare.html").write_text(page, encoding="utf-8")
    return out / ("compare.html" if page else "compare.csv")


def published_page(found: Comparison) -> str:
    """Return the page beside the published numbers, as text."""
    assert found.candidates is not None
    sections = [_published_section(found, case) for case in dict.fromkeys(cells()["case"])]
    return template("compare.html").render(
        title="Beside the published comparison",
        kicker="Castronovo et al. 2016",
        ours=found.ours,
        notes=found.note.splitlines(),
        published=sections,
        agents=[],
        chips=CHIPS,
        absent=ABSENT,
    )


def studies_page(found: Comparison) -> str:
    """Return the page beside another study, as text."""
    return template("compare.html").render(
        title="Two studies",
        kicker=f"{found.ours} beside {found.theirs}",
        ours=found.ours,
        notes=found.note.splitlines(),
        published=[],
        agents=[_agent(row) for row in found.table.to_dict("records")],
        chips=CHIPS,
        absent=ABSENT,
    )


def _published_section(found: Comparison, case: str) -> dict[str, Any]:
    """Return one case: its figure and the rows of its tables."""
    assert found.candidates is not None
    drawing = comparison_figures.beside(found.candidates, case)
    svg = Markup(
        inline(
            drawing.figure,
            f"{case}--means",
            f"Published means and ours, {case} prior",
            drawing.titles,
        )
    )
    ways = dict(list(found.candidates.groupby(list(CELL), sort=False)))
    rows = [
        _cell(row, ways.get(tuple(row[c] for c in CELL)), found.digests)
        for row in found.table[found.table["case"] == case].to_dict("records")
    ]
    explained = [row for row in rows if row["explanation"]]
    return {
        "name": f"{case.capitalize()} prior",
        "id": slug(case),
        "figure": svg,
        "rows": rows,
        "explained": explained,
    }


def _cell(
    row: dict[str, Any], ways: pd.DataFrame | None, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Return a row of the table of cells in words; `ways` says how it was played."""
    played = {} if ways is None else {way["way"]: _way(way, row) for way in ways.to_dict("records")}
    return {
        **row,
        "score": score_text(row["published"], row["published_ci95"], DIGITS),
        "share": _share(row, digests),
        "described": played.get(SAME) or played.get(OTHER),
        "as_published": played.get(DEFECT) or played.get(MISPRINT),
        "best_way": played.get(BEST),
        "difference_text": _signed(row["difference"]),
        "combined_text": _signed(row["combined"]).lstrip("+"),
        "apart_text": _signed(row["apart"], 1),
    }


def _share(row: dict[str, Any], digests: Mapping[str, str]) -> str:
    """Return the share of the Bayes-optimal value that the published score is."""
    bracket = brackets.find(row["experiment"], *PUBLISHED, digests.get(row["experiment"]))
    if bracket is None:
        return ""
    return brackets.share_text(brackets.share(row["published"], row["published_ci95"], bracket))


def _way(way: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Describe a way in which a cell was played; bold where it decides."""
    decides = way["way"] != BEST and all(way[c] == row[c] for c in ("agent", "parameters"))
    who = (
        f"{comparison_figures.WORDS[way['way']]}: {_agent_text(way)}, "
        f"{'agrees' if way['agrees'] else 'does not agree'}"
    )
    return {
        "score": score_text(way["mean"], way["ci95"], DIGITS),
        "mean": way["mean"],
        "title": who,
        "decides": decides,
    }


def _agent_text(row: dict[str, Any]) -> str:
    setting = parameters_text(row["parameters"])
    return f"{row['agent']} ({setting})" if setting else str(row["agent"])


def _agent(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table of two studies in words."""
    decimals = decimals_for([row["ci95"], row["other_ci95"]])
    setting = parameters_text(row["parameters"])
    return {
        **row,
        "label": f"{row['algorithm']} ({setting})" if setting else row["algorithm"],
        "ours": score_text(row["mean"], row["ci95"], decimals),
        "theirs": score_text(row["other_mean"], row["other_ci95"], decimals),
        "difference_text": _signed(row["difference"], decimals + 1),
        "interval_text": ABSENT
        if np.isnan(row["interval"])
        else f"{row['interval']:.{decimals + 1}f}",
        "p_text": ABSENT if np.isnan(row["p_value"]) else f"{row['p_value']:.2g}",
    }


def _signed(value: float, digits: int = DIGITS) -> str:
    """Return a difference with its sign."""
    return ABSENT if np.isnan(value) else f"{value:+.{digits}f}".replace("-", "−")
