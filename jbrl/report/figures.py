"""The figures of a report.

Adding one is writing one function: `@figure(id, title, caption, part)` on
`draw(section, styles) -> Drawing | str`.

Where there is nothing to draw the function returns the reason, in words that go on "…: "; "" where
the figure would not be missed.

Figures are drawn for print as for the page: symbols differ as well as colours, text is text. An
artist with a gid can be found in the SVG under that id; a title shows its numbers under the
pointer.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from jbrl.base.errors import JbrlError
from jbrl.report.axes import (
    STRIP,
    WIDTH,
    box,
    histogram,
    interval,
    left_margin,
    legend,
    legend_height,
    mark,
    reference_lines,
    rows_figure,
    time_axis,
)
from jbrl.report.style import INK, ORACLE, PAPER, Style, drawn
from jbrl.report.tables import Section
from jbrl.report.terms import MDPS
from jbrl.report.text import score_text, seconds_text
from jbrl.stats.paired_test import critical_value, fractions

CROWD = 50  # agents in one scatter plot from which on intervals hide more than they show
BASELINE = "Random"  # the score of 0
LONELY = "there is one algorithm only"
WHO = ["algorithm", "setting"]  # columns that name an agent in the data of a figure
Styles = Mapping[str, Style]
Part = Literal["answer", "times", "scores"]  # of an experiment; all but the first are details


@dataclasses.dataclass
class Drawing:
    """A figure, the texts of its marks under the pointer (by gid), an addition to its caption, and
    the numbers that it shows.
    """

    figure: Figure
    data: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)  # one row per mark or area
    titles: dict[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""
    svg: str = ""  # of the page, where it is drawn already; the figure is an empty one then
    wide: bool = False  # needs the width of a page


Draw = Callable[[Section, Styles], Drawing | str]


@dataclasses.dataclass(frozen=True)
class Kind:
    """One line of the register of figures."""

    id: str
    title: str
    caption: str  # a template of `Terms.say`
    draw: Draw
    part: Part


FIGURES: list[Kind] = []


def figure(id: str, title: str, caption: str, part: Part) -> Callable[[Draw], Draw]:
    """List a function as a figure that every experiment of a report gets.

    `caption` is a template of `jbrl.report.terms.Terms.say`; `part` is where the figure stands.
    """

    def register(function: Draw) -> Draw:
        draw = drawn(function)
        FIGURES.append(Kind(id, title, caption, draw, part))
        return draw

    return register


@figure(
    "online",
    "Score against online time",
    "Mean return of every agent against its mean computation time per decision, amortised over "
    "the {environments} played at once. Bars are 95% intervals of the mean. The best agent of "
    "each algorithm is drawn full, the others faint. {Figures} 7 and 11 of the paper.",
    part="times",
)
def score_against_online_time(section: Section, styles: Styles) -> Drawing | str:
    """Draw Figs 7 and 11 of Castronovo et al. 2016."""
    return _score_against(section, styles, "online_seconds", "online time per decision")


@figure(
    "offline",
    "Score against offline time",
    "Mean return of every agent against what it computed before its first decision (compilation "
    "apart). Agents that compute nothing offline stand side by side at\u00a00. {Figures} 6 and 10 "
    "of the paper.",
    part="times",
)
def score_against_offline_time(section: Section, styles: Styles) -> Drawing | str:
    """Draw Figs 6 and 10 of Castronovo et al. 2016."""
    return _score_against(section, styles, "offline_seconds", "offline time")


@figure(
    "latency",
    "Score against latency",
    "Mean return of every agent against the time that one decision takes when a single "
    "{environment} is played.",
    part="times",
)
def score_against_latency(section: Section, styles: Styles) -> Drawing | str:
    """Draw scores against the wait of a user of one agent; online time is the cost of an
    experiment.
    """
    if section.table["latency_seconds"].isna().all():
        return (
            "it was not measured (`latency = true` in the study measures it)"
            if len(section.competitors)
            else ""
        )
    return _score_against(section, styles, "latency_seconds", "latency")


@figure(
    "difference",
    "Difference from the best",
    "Mean over the {environments} of (agent − best agent), for the best agent of each algorithm. "
    f"Bars reach {critical_value('one'):.3f} standard errors of the paired difference: an agent "
    "whose bar touches zero is tied with the best (full symbol), the others are worse (hollow).",
    part="scores",
)
def difference_from_the_best(section: Section, styles: Styles) -> Drawing | str:
    """Draw the paired test as a picture: bars end where the one-sided test at 95% rejects."""
    rows = section.champions
    if len(rows) < 2:
        return LONELY if len(rows) else ""
    if rows["difference"].isna().any():
        return "no test was made"
    drawn, axes = rows_figure(rows)
    drawing = Drawing(
        drawn, rows[[*WHO, "difference", "standard_error", "z", "p_value", "best", "tied"]]
    )
    axes.axvline(0, color=INK, linewidth=0.8, gid="zero")
    for y, (index, row) in enumerate(rows.iterrows()):
        style, width = styles[row["algorithm"]], critical_value("one") * row["standard_error"]
        if math.isfinite(width):
            axes.hlines(
                y,
                row["difference"] - width,
                row["difference"] + width,
                colors=style.colour,
                linewidth=1.6,
            )
        whole = row["best"] or row["tied"]
        mark(
            axes,
            row["difference"],
            y,
            style,
            f"mark-{index}",
            face=style.colour if whole else PAPER,
        )
        verdict = "best" if row["best"] else ("tied" if row["tied"] else "worse")
        drawing.titles[f"mark-{index}"] = (
            f"{row['label']}: {row['difference']:+.{section.decimals}f}, Z = {row['z']:.2f}, "
            f"{verdict}"
        )
    axes.set_xlabel("difference of mean returns")
    return drawing


@figure(
    "fraction",
    "Score as a fraction of the optimum",
    "Of the way from Random (0) to the oracle, which knows the {environment} (1), how far does "
    "the best agent of each algorithm come? Bars are 95% intervals with the error of all three "
    "means, which were played on the same {environments}.",
    part="scores",
)
def fraction_of_the_optimum(section: Section, styles: Styles) -> Drawing | str:
    """Draw scores as fractions of the optimum, which makes experiments with different rewards
    comparable.
    """
    rows = section.champions
    zero, one = rows[rows["algorithm"] == BASELINE], section.oracles.head(1)
    # few other environments have a known optimum
    if rows.empty or (one.empty and section.terms is not MDPS):
        return ""
    if zero.empty or one.empty:
        return f"the experiment has no {'oracle' if one.empty else BASELINE}"
    try:
        found = fractions(
            section.returns_of(pd.concat([rows, one])), *(_who(r.iloc[0]) for r in (zero, one))
        )
    except JbrlError as error:
        return str(error)
    rows = (
        rows.reset_index()
        .merge(found.drop(columns="n"), on=["algorithm", "parameters"], suffixes=("", "_fraction"))
        .set_index("index")
    )
    drawn, axes = rows_figure(rows)
    drawing = Drawing(drawn, rows[[*WHO, "n", "fraction", "ci95_fraction"]])
    for x in (0, 1):
        axes.axvline(
            x,
            color=INK if x == 0 else ORACLE,
            linewidth=0.8,
            linestyle="-" if x == 0 else (0, (5, 3)),
        )
    for y, (index, row) in enumerate(rows.iterrows()):
        style, width = styles[row["algorithm"]], row["ci95_fraction"]
        if math.isfinite(width):
            axes.hlines(
                y,
                row["fraction"] - width,
                row["fraction"] + width,
                colors=style.colour,
                linewidth=1.6,
            )
        mark(axes, row["fraction"], y, style, f"mark-{index}")
        drawing.titles[f"mark-{index}"] = f"{row['label']}: {score_text(row['fraction'], width, 3)}"
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, -0.03), max(high, 1.03))
    axes.set_xlabel(f"fraction of the way from {BASELINE} to {one.iloc[0]['algorithm']}")
    return drawing


def _who(row: pd.Series) -> tuple[str, str]:
    return row["algorithm"], row["parameters"]


@figure(
    "distribution",
    "Distribution of returns",
    "{Scores} over the {environments}, of the best agent of each algorithm. Outline: histogram, "
    "each to its own height. Box: middle half; line in it: median; whiskers: 5% to 95%; symbol: "
    "mean.",
    part="scores",
)
def distribution_of_returns(section: Section, styles: Styles) -> Drawing | str:
    """Draw the spread, most of which comes from the environments; means also hide that some agents
    never find the reward.
    """
    rows = pd.concat([section.oracles, section.champions])
    samples = {index: section.sample(row) for index, row in rows.iterrows()}
    rows = rows[[samples[index].size > 0 for index in rows.index]]
    if rows.empty:
        return "there are no returns" if len(section.done) else ""
    drawn, axes = rows_figure(rows, step=0.5)
    drawing = Drawing(drawn, _distributions(rows, samples))
    everything = np.concatenate([samples[index] for index in rows.index])
    low, high = float(everything.min()), float(everything.max())
    edges = np.linspace(low, high, 41) if high > low else np.array([low - 0.5, low + 0.5])
    for y, (index, row) in enumerate(rows.iterrows()):
        style, sample = styles[row["algorithm"]], samples[index]
        histogram(axes, sample, edges, y, style.colour)
        box(axes, sample, y + 0.22, style.colour)
        mark(axes, row["mean"], y + 0.22, style, f"mark-{index}", scale=0.8)
        five, median, ninetyfive = np.percentile(sample, [5, 50, 95])
        d = section.decimals
        drawing.titles[f"mark-{index}"] = (
            f"{row['label']}: mean {section.score(row)}, median {median:.{d}f}, 5% to 95%: "
            f"{five:.{d}f} to {ninetyfive:.{d}f}"
        )
    axes.set_xlabel(section.rules.criterion)
    return drawing


def _distributions(rows: pd.DataFrame, samples: Mapping[Hashable, np.ndarray]) -> pd.DataFrame:
    """Return percentiles of the returns of each agent: 0, 5, …, 100."""
    points = range(0, 101, 5)
    found = np.array([np.percentile(samples[index], points) for index in rows.index])
    return pd.concat(
        [
            rows[[*WHO, "n", "mean", "std"]],
            pd.DataFrame(found, rows.index, [f"p{p}" for p in points]),
        ],
        axis=1,
    )


def _score_against(section: Section, styles: Styles, column: str, name: str) -> Drawing | str:
    """Draw means against a time on a logarithmic axis, with a place for 0."""
    rows = section.comparable
    timed = rows[(rows[column] >= 0) & np.isfinite(rows[column])]
    if timed.empty:
        return f"no agent has a known {name}" if len(section.competitors) else ""
    shown = [name for name in styles if name in set(timed["algorithm"])]
    drawn = Figure(figsize=(WIDTH, 3.27 + legend_height(shown)))
    drawing = Drawing(drawn, timed[[*WHO, column, "n", "mean", "std", "ci95", "best_of_algorithm"]])
    axes = drawn.subplots()
    crowded = len(timed) > CROWD
    positions = time_axis(axes, timed[column], timed["algorithm"], shown)
    axes.grid(axis="y")
    for best in (False, True):  # the best on top
        for index, row in timed[timed["best_of_algorithm"] == best].iterrows():
            gid, style = f"mark-{index}", styles[row["algorithm"]]
            if best or not crowded:
                interval(
                    axes, positions[index], row["mean"], row["ci95"], style.colour, faint=not best
                )
            mark(
                axes,
                positions[index],
                row["mean"],
                style,
                gid,
                scale=1.0 if best else 0.7,
                faint=not best,
            )
            drawing.titles[gid] = (
                f"{row['label']}: {section.score(row)}, {seconds_text(row[column])}"
            )
    axes.set_xlabel(name)
    axes.set_ylabel(section.terms.mean)
    top = legend(drawing.figure, shown, styles)
    beyond = reference_lines(axes, section)
    left, bottom = left_margin(axes, 0.1), 0.48 / drawn.get_figheight()
    drawing.figure.subplots_adjust(
        left=left, right=0.965, bottom=bottom, top=top / (1 + STRIP * beyond)
    )
    notes = ["There being so many agents, only the best ones have bars."] if crowded else []
    drawing.note = " ".join([*notes, *section.left_out(timed, f"Not drawn, having no {name}")])
    return drawing
