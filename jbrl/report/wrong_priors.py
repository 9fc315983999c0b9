"""The chapter about wrong priors: curves of the share of its value that each algorithm keeps."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jbrl.report import content as doc
from jbrl.report.axes import DASHED, INK, WIDTH, Drawing, Styles, drawn, legend, line_look
from jbrl.report.sections import BASELINE, Section
from jbrl.stats.wrong_priors import kept, wrongness

TITLE = "What a wrong prior costs"
INTRODUCTION = (
    "Problems stay, what agents are told becomes wrong, by degrees: 0 is the right prior, and the "
    "uniform prior of degree 1 is the inaccurate case of Castronovo et al. 2016."
)
CAPTION = (
    "Score with a wrong prior, as a share of the score of the same agent with the right one, on "
    "the same problems, with 95% intervals, against the degree. Of each algorithm the agent that "
    "is best with the right prior."
)


def chapters(parts: Sequence[Section], styles: Styles) -> list[doc.Chapter]:
    """Return the chapter, none where no experiment has a wrong prior of some degree."""
    told = [part for part in parts if wrongness(part.prior, part.test)]
    if not any("degree=" in part.prior for part in told):
        return []
    played = [part.returns.assign(prior=part.prior, test=part.test) for part in told]
    table = best(kept(pd.concat(played, ignore_index=True)))
    if table.empty:
        return []
    plot = doc.Plot("Wrong--share", TITLE, CAPTION, curves(table, styles))
    return [doc.Chapter("Wrong", TITLE, (doc.Paragraph((INTRODUCTION,)), plot))]


def best(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the agent of each algorithm and test that is best with the right prior."""
    table = table[table["share"].notna() & (table["algorithm"] != BASELINE)]
    greatest = table.groupby(["test", "algorithm"])["right"].transform("max")
    first = table[table["right"] == greatest].drop_duplicates(["test", "algorithm"])
    return table.merge(first[["test", "algorithm", "parameters"]])


@drawn
def curves(table: pd.DataFrame, styles: Styles) -> Drawing:
    """Draw a row of panels for each test distribution, a panel for each kind of wrong prior.

    Args:
      table: rows of `best`; a column `bound` holds shares that a theorem grants, where known.
    """
    tests, kinds = (list(dict.fromkeys(table[name])) for name in ("test", "kind"))
    names = [name for name in styles if name in set(table["algorithm"])]
    size = (1.3 * WIDTH, 0.7 + 1.75 * len(tests))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(tests), len(kinds), squeeze=False, sharey="row")
    for row, test in zip(panels, tests, strict=True):
        for panel, kind in zip(row, kinds, strict=True):
            own = table[(table["test"] == test) & (table["kind"] == kind)]
            _panel(panel, own, names, styles)
            panel.set_title(f"{test}, {kind}", fontsize=8.6, loc="left", pad=3)
    figure.supxlabel("degree", fontsize=9.6), figure.supylabel("share kept", fontsize=9.6)
    engine = figure.get_layout_engine()
    top = legend(figure, names, styles, lines=True)
    if engine is not None:
        engine.set(rect=(0, 0, 1, top))  # type: ignore[call-arg]
    return Drawing(figure, table, wide=True)


def _panel(axes: Axes, rows: pd.DataFrame, names: Sequence[str], styles: Styles) -> None:
    """Draw the lines of a panel; degrees stand side by side, whatever their distance."""
    degrees = sorted(set(rows["degree"]))
    for k, name in enumerate(names):
        own = rows[rows["algorithm"] == name]
        x = np.searchsorted(degrees, own["degree"]) + 0.08 * (k - (len(names) - 1) / 2)
        look = line_look(styles[name], k) | {"linewidth": 1.0, "markersize": 3.5}
        axes.errorbar(x, own["share"], own["ci95"], elinewidth=0.8, **look)
    if "bound" in rows:
        granted = rows.groupby("degree")["bound"].max()
        axes.plot(range(len(degrees)), granted[degrees], color=INK, linestyle=DASHED, linewidth=0.9)
    axes.axhline(1, color=INK, linewidth=0.5)
    axes.set_xticks(range(len(degrees)), [f"{d:g}" for d in degrees], fontsize=7, rotation=45)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(axis="y")
