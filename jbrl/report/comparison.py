"""The page of a comparison: a study beside the published numbers, or beside another study."""

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jbrl.base.files import writing
from jbrl.report import content as doc
from jbrl.report.axes import COLOURS, FAINT, INK, PAPER, Drawing, drawn, interval
from jbrl.report.files import write_document
from jbrl.report.text import ABSENT, decimals_for, named, number_text, score_text, slug
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
from jbrl.stats.table import parameters_text
from jbrl.stats.two_studies import Comparison

STANDINGS: dict[str, doc.Standing] = {  # how a verdict looks
    VERDICTS[SAME]: "best",
    VERDICTS[DEFECT]: "near",
    VERDICTS[MISPRINT]: "near",
    VERDICTS[OTHER]: "near",
    DIFFERS: "bad",
    NOT_PLAYED: "",
    two_studies.IDENTICAL: "best",
    two_studies.UNTESTED: "",
}
PUBLISHED = (0.95, 250)  # discount and horizon
DIGITS = 2  # as the paper prints its scores
PANEL = (3.0, 3.1)  # inches, without the names on the left
NAMES = 1.0  # inches, of the names
# Symbol, face and shift of each way; published means lie on the line.
WAYS = {
    SAME: ("o", COLOURS[0], 0.16),
    DEFECT: ("s", COLOURS[1], 0.32),
    MISPRINT: ("D", COLOURS[3], 0.32),
    OTHER: ("^", COLOURS[2], 0.16),
    BEST: ("o", PAPER, 0.48),
}
WAY_NAMES = {
    SAME: "as described",
    DEFECT: "as the program computes it",
    MISPRINT: "misprint corrected",
    OTHER: "as described, other parameters",
    BEST: "our best setting",
}
WORDS = doc.prose("comparison")  # a caption, and what headings mean
VERDICT = doc.Column("Verdict", "chip")
LOOK: Any = {"kind": "dense", "sortable": True, "heads": 2}


def write_page(comparison: Comparison, out: Path) -> Path:
    """Write `compare.html` and the table as `compare.csv` to the folder `out`, made if it is not
    there; return the path of the page, or of the table where it says all (Jordan et al. 2020).

    Raises:
      JbrlError: it cannot be written.
    """
    paged = comparison.candidates is not None or "other_mean" in comparison.table
    with writing(out, "the page", "choose another --out") as folder:
        comparison.table.to_csv(folder / "compare.csv", index=False, lineterminator="\n")
        if paged:
            write_document(document(comparison), folder, "compare")
    return out / ("compare.html" if paged else "compare.csv")


def document(comparison: Comparison) -> doc.Document:
    """Return the page beside the published numbers, or beside another study."""
    published = comparison.candidates is not None
    if published:
        chapters = [_case(comparison, case) for case in dict.fromkeys(cells()["case"])]
    else:
        chapters = [doc.Chapter("Agents", "Agents in both", (_agents(comparison.table),))]
    items = doc.reading("published" if published else "studies", ["compare.csv"])
    chapters.append(doc.Chapter("Reading", "How to read this page", (doc.Items(items),)))
    beside = f"{comparison.ours} beside {comparison.theirs}"
    return doc.Document(
        title="Beside the published comparison" if published else "Two studies",
        kind="Castronovo et al. 2016" if published else beside,
        facts=(comparison.ours,),
        notices=tuple(doc.Paragraph((note,), "verdict") for note in comparison.note.splitlines()),
        chapters=tuple(chapters),
    )


def _case(comparison: Comparison, case: str) -> doc.Chapter:
    """Show one case: its figure and its tables."""
    assert comparison.candidates is not None
    id = slug(case)
    ways = dict(list(comparison.candidates.groupby(list(CELL), sort=False)))
    printed = comparison.table[comparison.table["case"] == case].to_dict("records")
    for row in printed:
        own = ways.get(tuple(row[c] for c in CELL))
        row["ways"] = {} if own is None else {way["way"]: way for way in own.to_dict("records")}
    drawing = beside(comparison.candidates, case)
    blocks: list[doc.Block] = [
        doc.Plot(f"{id}--means", "Published means and ours", WORDS["means"], drawing),
        _cells(f"{id}--cells", printed, comparison.digests),
    ]
    reasons = [
        (
            f"{row['experiment']}, {row['algorithm']}",
            _verdict(row),
            doc.Cell(row["explanation"], small=f"({row['reference']})" if row["reference"] else ""),
        )
        for row in printed
        if row["explanation"]
    ]
    if reasons:
        columns = ("Cell", VERDICT, "Reason")
        title = "Reasons of the differences"
        blocks.append(doc.table(f"{id}--reasons", title, columns, reasons))
    return doc.Chapter(id, f"{case.capitalize()} prior", tuple(blocks), "experiment")


def _verdict(row: Mapping[str, Any], small: str = "") -> doc.Cell:
    return doc.Cell(row["verdict"], standing=STANDINGS[row["verdict"]], small=small)


def _cells(id: str, rows: list[dict[str, Any]], digests: Mapping[str, str]) -> doc.Table:
    """Tabulate published cells; `ways` of a row are those in which it was played."""

    def number(name: str) -> doc.Column:
        return doc.Column(name, "number", WORDS.get(name, ""))

    columns: list[tuple[object, Any]] = [
        ("Experiment", itemgetter("experiment")),
        (
            doc.Column("Algorithm", hint=WORDS["Algorithm"]),
            lambda r: doc.Cell(r["algorithm"], small=r["printed"]),
        ),
        (number("Published"), lambda r: _mean(r["published"], r["published_ci95"])),
        (number("Share"), lambda r: bayes_share(r, digests) or ABSENT),
        (number("As described"), lambda r: _played(r, SAME, OTHER)),
        (number("As published"), lambda r: _played(r, DEFECT, MISPRINT)),
        (number("Our best"), lambda r: _played(r, BEST)),
        (number("Difference"), lambda r: _signed(r["difference"])),
        (number("Allowed"), lambda r: _signed(r["combined"], sign="")),
        (number("Apart"), lambda r: _signed(r["apart"], 1)),
        (VERDICT, _verdict),
    ]
    return doc.tabulate(id, "Published scores and ours", columns, rows, **LOOK)


def _mean(mean: float, ci95: float, digits: int = DIGITS) -> doc.Cell:
    return doc.Cell(score_text(mean, ci95, digits), mean)


def _played(row: Mapping[str, Any], *ways: str) -> doc.Cell:
    """Describe the first of some ways in which a cell was played."""
    known = [row["ways"][way] for way in ways if way in row["ways"]]
    return _way(known[0], row) if known else doc.Cell(ABSENT, np.nan, standing="none")


def bayes_share(row: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """Return the share of the Bayes-optimal value that the published score is."""
    bracket = brackets.find(row["experiment"], *PUBLISHED, digests.get(row["experiment"]))
    if bracket is None:
        return ""
    return brackets.share_text(brackets.share(row["published"], row["published_ci95"], bracket))


def _way(way: Mapping[str, Any], row: Mapping[str, Any]) -> doc.Cell:
    """Describe a way in which a cell was played; bold where it decides."""
    decides = way["way"] != BEST and all(way[c] == row[c] for c in ("agent", "parameters"))
    agrees = "agrees" if way["agrees"] else "does not agree"
    hint = f"{WAY_NAMES[way['way']]}: {_named(way['agent'], way['parameters'])}, {agrees}"
    score = score_text(way["mean"], way["ci95"], DIGITS)
    return doc.Cell(score, way["mean"], strong=decides, hint=hint)


def _named(agent: str, parameters: str) -> str:
    return named(agent, parameters_text(parameters))


def _agents(rows: pd.DataFrame) -> doc.Table:
    """Tabulate the agents that are in both studies."""
    digits = [decimals_for(pair) for pair in rows[["ci95", "other_ci95"]].to_numpy()]
    interval = doc.Column("± 95%", "number", "of the difference")
    columns: list[tuple[object, Any]] = [
        ("Experiment", itemgetter("experiment")),
        ("Agent", lambda r: _named(r["algorithm"], r["parameters"])),
        (doc.Column("Here", "number"), lambda r: _mean(r["mean"], r["ci95"], r["digits"])),
        (
            doc.Column("There", "number"),
            lambda r: _mean(r["other_mean"], r["other_ci95"], r["digits"]),
        ),
        (doc.Column("Difference", "number"), lambda r: _signed(r["difference"], r["digits"] + 1)),
        (interval, lambda r: _signed(r["interval"], r["digits"] + 1, sign="")),
        (doc.Column("p", "number", "two-sided"), lambda r: _p_value(r["p_value"])),
        ("Test", lambda r: r["test"] or ABSENT),
        (VERDICT, lambda r: _verdict(r, "with Holm's correction too" if r["holm"] else "")),
    ]
    records = rows.assign(digits=digits).to_dict("records")
    return doc.tabulate("Agents--table", "Agents in both studies", columns, records, **LOOK)


def _p_value(p: float) -> doc.Cell:
    return doc.Cell(ABSENT if np.isnan(p) else f"{p:.2g}", p)


def _signed(value: float, digits: int = DIGITS, sign: str = "+") -> doc.Cell:
    """Return a difference with its sign."""
    return doc.Cell(ABSENT if np.isnan(value) else number_text(value, f"{sign}.{digits}f"), value)


@drawn
def beside(candidates: pd.DataFrame, case: str) -> Drawing:
    """Draw published means and ours of one case, side by side: one panel for each pair of
    distributions.

    Args:
      candidates: what `castronovo2016.with_published` returns.
      case: "accurate" or "inaccurate".
    """
    printed = cells()
    printed = printed[printed["case"] == case]
    experiments = list(dict.fromkeys(printed["experiment"]))
    width, height = NAMES + PANEL[0] * len(experiments), PANEL[1] + 0.75
    own = candidates[candidates["case"] == case]
    drawing = Drawing(Figure(figsize=(width, height)), own, wide=True)
    panels = drawing.figure.subplots(1, len(experiments), sharey=True, squeeze=False)[0]
    for axes, experiment in zip(panels, experiments, strict=True):
        rows = printed[printed["experiment"] == experiment]
        _panel(axes, rows, own[own["experiment"] == experiment], drawing)
        axes.set_title(experiment, fontsize=9.6, loc="left", pad=4)
        axes.set_xlabel("mean discounted return")
    drawing.margins(NAMES / width, 0.5, 1 - 0.55 / height, right=0.985, wspace=0.1)
    handles = [Line2D([], [], color=FAINT, alpha=0.6, linewidth=7, label="published, 95% interval")]
    for way in WAYS:
        look = _look(way) | {"linewidth": 1.2, "label": WAY_NAMES[way]}
        handles.append(Line2D([], [], color=look["markeredgecolor"], **look))
    place: Any = {"loc": "upper left", "bbox_to_anchor": (0.0, 1.0)}
    place |= {"columnspacing": 0.8, "handlelength": 1.5, "fontsize": 8.6}
    drawing.figure.legend(handles=handles, ncols=len(handles), **place)
    return drawing


def _look(way: str) -> dict[str, Any]:
    """Return the look of the symbol of a way."""
    marker, face, _ = WAYS[way]
    edge = INK if face == PAPER else face
    return {"marker": marker, "markersize": 5, "markerfacecolor": face, "markeredgecolor": edge}


def _panel(axes: Axes, printed: pd.DataFrame, own: pd.DataFrame, drawing: Drawing) -> None:
    """Draw one experiment: a row for each algorithm, the published interval as a band, our means
    below it.
    """
    for y, cell in enumerate(printed.to_dict("records")):
        half = max(cell["ci95"], 1e-9)
        band: Any = {"color": FAINT, "alpha": 0.35, "linewidth": 0}
        axes.barh(y + 0.22, 2 * half, 0.74, left=cell["mean"] - half, **band)
        axes.vlines(cell["mean"], y - 0.15, y + 0.59, colors=INK, linewidth=1.1)
        for row in own[own["algorithm"] == cell["algorithm"]].to_dict("records"):
            way, mean, ci95 = row["way"], row["mean"], row["ci95"]
            place, look = y - 0.05 + WAYS[way][2], _look(way)
            colour = look["markeredgecolor"]
            interval(axes, place, mean - ci95, mean + ci95, colors=colour, linewidth=1.2)
            gid = f"mark-{'-'.join(str(row[c]) for c in CELL)}-{way}".replace(" ", "-")
            axes.plot([mean], [place], gid=gid, linestyle="none", **look)
            who = _named(row["agent"], row["parameters"])
            drawing.titles[gid] = f"{who}, {WAY_NAMES[way]}: {score_text(mean, ci95, DIGITS)}"
    axes.set_yticks([y + 0.22 for y in range(len(printed))], list(printed["algorithm"]))
    axes.set_ylim(len(printed) - 0.25, -0.35)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
