"""The figures of an experiment, and the table and figures of the metrics that its environments and
its recorder count beside scores.

Adding one is writing one function: `@figure(id, title, caption, part)` on
`draw(section, styles) -> Drawing | str`.

Where there is nothing to draw the function returns the reason, in words that go on "…: "; "" where
the figure would not be missed.

Figures are drawn for print as for the page: symbols differ as well as colours, text is text. An
artist with a gid can be found in the SVG under that id; a title shows its numbers under the
pointer.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D

from jbrl.base.errors import JbrlError, nearest
from jbrl.base.schema import MetricFigure
from jbrl.report import axes as parts
from jbrl.report.axes import INK, ORACLE, Drawing, Floats, Styles, drawn, interval, rows_panel
from jbrl.report.content import Block, Cell, Column, Plot, table
from jbrl.report.sections import BASELINE, Section
from jbrl.report.text import ABSENT, MDPS, decimals_for, score_text, seconds_text, slug
from jbrl.stats.paired_bootstrap import RESAMPLES, draw_counts, pair, resampled
from jbrl.stats.paired_test import critical_value, fractions
from jbrl.stats.rank_stability import rank_stability, ranks_table
from jbrl.stats.table import half95

MANY_AGENTS = 50  # in one scatter plot: intervals would hide more than they show
ONE_ALGORITHM = "there is one algorithm only"
ONE_ENVIRONMENT = "agents have played one environment only"
STRIP = 0.08  # of the axes' height, for an oracle above the scale
SQUARE = 0.86  # side of a square that stands for all resamples
LEAST_SHARE = 0.001  # of the resamples, that is drawn
AGENT = ["algorithm", "setting"]  # columns that name an agent in the data of a figure
ZERO: Any = {"color": INK, "linewidth": 0.8}
Part = Literal["answer", "times", "scores"]  # of an experiment; all but the first are details
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

    `caption` is a template of `jbrl.report.text.Terms.say`; `part` is where the figure stands.
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
    "Mean return of every agent against what one decision takes a caller in Python who plays one "
    "lifetime, dispatch included: the median.",
    part="times",
)
def score_against_latency(section: Section, styles: Styles) -> Drawing | str:
    """Draw scores against the wait of a user of one agent; online time is the cost of an
    experiment.
    """
    if section.table["latency_seconds"].isna().all():
        reason = "it was not measured (`latency = true` in the study measures it)"
        return reason if len(section.competitors) else ""
    return _score_against(section, styles, "latency_seconds", "latency")


def _score_against(section: Section, styles: Styles, column: str, name: str) -> Drawing | str:
    """Draw means against a time on a logarithmic axis, with a place for 0."""
    rows = section.comparable
    timed = rows[(rows[column] >= 0) & np.isfinite(rows[column])]
    if timed.empty:
        return f"no agent has a known {name}" if len(section.competitors) else ""
    shown = [name for name in styles if name in set(timed["algorithm"])]
    data = timed[[*AGENT, column, "n", "mean", "std", "ci95", "best_of_algorithm"]]
    drawing, axes = parts.panel(3.27 + parts.legend_height(shown), data)
    crowded = len(timed) > MANY_AGENTS
    positions = parts.time_axis(axes, timed[column], timed["algorithm"], shown)
    axes.grid(axis="y")
    for best in (False, True):  # the best on top
        for index, row in timed[timed["best_of_algorithm"] == best].iterrows():
            style, x = styles[row["algorithm"]], positions[index]
            if best or not crowded:
                look = {"linewidth": 1.5} if best else {"linewidth": 1.0, "alpha": 0.35}
                low, high = row["mean"] - row["ci95"], row["mean"] + row["ci95"]
                interval(axes, x, low, high, upright=True, colors=style.colour, **look)
            title = f"{row['label']}: {section.score(row)}, {seconds_text(row[column])}"
            place, scale = (x, row["mean"]), 1.0 if best else 0.7
            gid = f"mark-{index}"
            drawing.mark(axes, place, style, gid, title, scale=scale, faint=not best)
    axes.set_xlabel(name)
    axes.set_ylabel(section.terms.mean)
    top = parts.legend(drawing.figure, shown, styles)
    beyond = _oracle_lines(axes, section)
    drawing.margins(parts.left_margin(axes, 0.1), 0.48, top / (1 + STRIP * beyond))
    notes = ["There being so many agents, only the best ones have bars."] if crowded else []
    drawing.note = " ".join([*notes, *section.left_out(timed, f"Not drawn, having no {name}")])
    return drawing


def _oracle_lines(axes: Axes, section: Section) -> int:
    """Draw a horizontal line for each oracle, with its score.

    A line that would squeeze everything else is drawn above the scale; the number of these is
    returned.
    """
    low, high = axes.get_ylim()
    reach = high + 0.45 * (high - low)
    beyond = 0
    for index, row in section.oracles.iloc[::-1].iterrows():
        text = f"{row['label']} {section.score(row)}"
        y, transform = row["mean"], axes.get_yaxis_transform()
        if y <= reach:
            low, high = min(low, y - 0.03 * (high - low)), max(high, y + 0.03 * (high - low))
        else:
            beyond += 1
            y, transform = 1 + STRIP * beyond, axes.transAxes
            text += " (above the scale)"
        look: Any = {"color": ORACLE, "linewidth": 1.1, "linestyle": (0, (5, 3))}
        line = Line2D([0, 1], [y, y], transform=transform, clip_on=False, **look)
        line.set_gid(f"reference-{index}")
        axes.add_artist(line)
        place: Any = {"xycoords": transform, "textcoords": "offset points"}
        place |= {"ha": "right", "va": "top"}
        axes.annotate(text, (1, y), (0, -3), color=ORACLE, fontsize=8.5, **place)
    axes.set_ylim(low, high)
    return beyond


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
        return ONE_ALGORITHM if len(rows) else ""
    if rows["difference"].isna().any():
        return "no test was made"
    columns = ["difference", "standard_error", "z", "p_value", "best", "tied"]
    drawing, axes = rows_panel(rows["label"], rows[[*AGENT, *columns]])
    axes.axvline(0, gid="zero", **ZERO)
    for y, (index, row) in enumerate(rows.iterrows()):
        style, width = styles[row["algorithm"]], critical_value("one") * row["standard_error"]
        x = row["difference"]
        interval(axes, y, x - width, x + width, colors=style.colour)
        verdict = "best" if row["best"] else "tied" if row["tied"] else "worse"
        title = f"{row['label']}: {x:+.{section.decimals}f}, Z = {row['z']:.2f}, {verdict}"
        full = verdict != "worse"
        drawing.mark(axes, (x, y), style, f"mark-{index}", title, full=full)
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
    who = ["algorithm", "parameters"]
    ends = (tuple(end[who].iloc[0]) for end in (zero, one))
    try:
        shares = fractions(section.returns_of(pd.concat([rows, one])), *ends)
    except JbrlError as error:
        return str(error)
    shares = shares.drop(columns="n")
    rows = rows.reset_index().merge(shares, on=who, suffixes=("", "_fraction")).set_index("index")
    data = rows[[*AGENT, "n", "fraction", "ci95_fraction"]]
    drawing, axes = rows_panel(rows["label"], data)
    axes.axvline(0, **ZERO)
    axes.axvline(1, color=ORACLE, linewidth=0.8, linestyle=(0, (5, 3)))
    for y, (index, row) in enumerate(rows.iterrows()):
        style, x, width = styles[row["algorithm"]], row["fraction"], row["ci95_fraction"]
        interval(axes, y, x - width, x + width, colors=style.colour)
        title = f"{row['label']}: {score_text(x, width, 3)}"
        drawing.mark(axes, (x, y), style, f"mark-{index}", title)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, -0.03), max(high, 1.03))
    axes.set_xlabel(f"fraction of the way from {BASELINE} to {one.iloc[0]['algorithm']}")
    return drawing


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
    return distributions(rows, samples, section.decimals, styles, section.rules.criterion)


def distributions(
    rows: pd.DataFrame, samples: Mapping[Hashable, Floats], decimals: int, styles: Styles, name: str
) -> Drawing:
    """Draw a histogram and a box of the sample of each agent in `rows`.

    Args:
      samples: by index of the rows, [N] each.
      name: of what they are samples of.
    """
    points = range(0, 101, 5)
    percentiles = np.array([np.percentile(samples[index], points) for index in rows.index])
    data = pd.DataFrame(percentiles, rows.index, [f"p{p}" for p in points])
    shown = pd.concat([rows[[*AGENT, "n", "mean", "std"]], data], axis=1)
    drawing, axes = rows_panel(rows["label"], shown, step=0.5)
    low, high = float(data["p0"].min()), float(data["p100"].max())
    edges = np.linspace(low, high, 41) if high > low else np.array([low - 0.5, low + 0.5])
    for y, (index, row) in enumerate(rows.iterrows()):
        style, sample, d = styles[row["algorithm"]], samples[index], decimals
        parts.histogram(axes, sample, edges, y, style.colour)
        parts.box(axes, sample, y + 0.22, style.colour)
        five, median, ninetyfive = np.percentile(sample, [5, 50, 95])
        score = score_text(row["mean"], row["ci95"], d)
        title = f"{row['label']}: mean {score}, median {median:.{d}f}, 5% to 95%: "
        title += f"{five:.{d}f} to {ninetyfive:.{d}f}"
        drawing.mark(axes, (row["mean"], y + 0.22), style, f"mark-{index}", title, scale=0.8)
    axes.set_xlabel(name)
    return drawing


@figure(
    "ranks",
    "How firm the ranks are",
    f"The best agent of each algorithm, ranked by its mean in each of {RESAMPLES:,} resamples of "
    "the {environments}. The area of a square is the share of resamples in which the agent has "
    "that rank; thin lines hold 95% of them. On the right, the share in which no other agent is "
    "better.",
    part="scores",
)
def ranks_under_resampling(section: Section, styles: Styles) -> Drawing | str:
    """Draw ranks with rows in the order of all environments, so that a firm order is a diagonal."""
    champions = section.champions.reset_index(drop=True)
    if len(champions) < 2:
        return ONE_ALGORITHM if len(champions) else ""
    try:
        [paired] = pair(section.returns_of(champions))
        stability = rank_stability([resampled(paired, _counts(len(paired.mdps)))])
    except JbrlError as error:
        return str(error)
    if stability.single:
        return ONE_ENVIRONMENT
    who = ["algorithm", "parameters"]
    rows = stability.parts[0].paired.agents.merge(champions, on=who, how="left")
    shares, table = stability.shares(), ranks_table([stability]).set_index(who)
    rank, agent = np.meshgrid(np.arange(1, len(rows) + 1), np.arange(len(rows)))
    data = rows.loc[agent.ravel(), AGENT].assign(rank=rank.ravel(), share=shares.ravel())
    data = data[data["share"] > 0].reset_index(drop=True)
    drawing, axes = rows_panel(rows["label"], data)
    for y, row in rows.iterrows():
        ranks = table.loc[(row["algorithm"], row["parameters"])]
        low, high, first = ranks["rank_lower"], ranks["rank_upper"], _share(ranks["first"])
        _squares(axes, y, shares[y], styles[row["algorithm"]].colour, f"mark-{y}")
        interval(axes, y, low, high, colors=INK, linewidth=0.8)
        place: Any = {"transform": axes.get_yaxis_transform(), "va": "center"}
        axes.text(1.01, y, first, fontsize=8.5, **place)
        drawing.titles[f"mark-{y}"] = (
            f"{row['label']}: rank {ranks['rank']}, 95%: {low} to {high}, first in {first}"
        )
    axes.set(xlim=(0.4, len(rows) + 0.6), xlabel="rank")
    axes.set_xticks(range(1, len(rows) + 1, math.ceil(len(rows) / 15)))
    drawing.figure.subplots_adjust(right=0.9)
    return drawing


@functools.lru_cache(maxsize=1)
def _counts(n: int) -> npt.NDArray[Any]:
    """Return the resamples of `n` environments, [R, n]: the same for experiments of that size."""
    counts = draw_counts(n, RESAMPLES, 0)
    counts.flags.writeable = False
    return counts


def _squares(axes: Axes, y: int, shares: Floats, colour: str, gid: str) -> None:
    """Draw a square for each rank of an agent, unless it is too small to be seen."""
    ranks = np.flatnonzero(shares >= LEAST_SHARE) + 1
    half = SQUARE / 2 * np.sqrt(shares[ranks - 1])
    left, right = ranks - half, ranks + half
    corners = np.array([[left, right, right, left], [y - half, y - half, y + half, y + half]])
    look: Any = {"facecolors": [to_rgba(colour, 0.75)], "edgecolors": colour, "linewidths": 0.5}
    axes.add_collection(PolyCollection(list(corners.transpose(2, 1, 0)), gid=gid, **look))


def _share(share: float) -> str:
    """Return a share in per cent; none is rounded to 0 or 1."""
    if 0 < share < 0.01:
        return "< 1%"
    return "> 99%" if 0.99 < share < 1 else f"{100 * share:.0f}%"


MetricsOfRow = Mapping[str, Floats]
CAPTION = "Mean over the {environments} of the best agent of each algorithm, with a 95% interval."


def metric_blocks(section: Section, styles: Styles) -> tuple[list[Block], dict[str, str]]:
    """Return the figures that the problem of an experiment brings, and the table of all metrics;
    why a figure is not drawn, by its title.
    """
    rows = pd.concat([section.champions, section.oracles])
    metrics = {index: section.metrics_of(row) for index, row in rows.iterrows()}
    rows = rows[[bool(metrics[index]) for index in rows.index]]
    blocks: list[Block] = []
    absent = {}
    for number, figure in enumerate(section.rules.figures, 1):
        samples = {index: _sample(figure, metrics[index]) for index in rows.index}
        reasons = [sample for sample in samples.values() if isinstance(sample, str)]
        known = {index: s for index, s in samples.items() if not isinstance(s, str)}
        if rows.empty or reasons:
            absent[figure.title] = reasons[0] if reasons else "its metric was not kept"
            continue
        drawing = _draw(figure, rows, known, styles)
        id = f"{section.id}--metric-{number}-{slug(figure.metric)}"
        caption = figure.caption or section.terms.say(CAPTION)
        blocks.append(Plot(id, figure.title, caption, drawing))
    return [*blocks, *_table(section, rows, metrics)], absent


def _sample(figure: MetricFigure, metrics: MetricsOfRow) -> Floats | str:
    """Return the metric of a figure in each lifetime, [N]; the reason where there is none."""
    for name in filter(None, (figure.metric, figure.per)):
        if name not in metrics:
            return f"there is no metric '{name}'{nearest(name, list(metrics))}"
    values = metrics[figure.metric]
    return values / np.maximum(metrics[figure.per], 1) if figure.per else values


@drawn
def _draw(
    figure: MetricFigure, rows: pd.DataFrame, samples: Mapping[Hashable, Floats], styles: Styles
) -> Drawing:
    """Draw means with intervals, or distributions; agents in the order of their scores."""
    means = [samples[index].mean() for index in rows.index]
    halves = [half95(samples[index]) for index in rows.index]
    rows = rows.assign(mean=means, ci95=halves, std=[samples[i].std() for i in rows.index])
    digits = decimals_for(halves)
    name = f"{figure.metric} per {figure.per.removesuffix('s')}" if figure.per else figure.metric
    name = name.replace("_", " ")
    if figure.kind == "distribution":
        return distributions(rows, samples, digits, styles, name)
    drawing, axes = rows_panel(rows["label"], rows[[*AGENT, "n", "mean", "ci95"]])
    for y, (index, row) in enumerate(rows.iterrows()):
        style, mean, half = styles[row["algorithm"]], row["mean"], row["ci95"]
        interval(axes, y, mean - half, mean + half, colors=style.colour)
        title = f"{row['label']}: {score_text(mean, half, digits)}"
        drawing.mark(axes, (mean, y), style, f"mark-{index}", title)
    axes.set_xlabel(name)
    return drawing


def _table(
    section: Section, rows: pd.DataFrame, metrics: Mapping[Hashable, MetricsOfRow]
) -> Iterator[Block]:
    """Yield the table of all metrics, but those that no agent has."""
    names = dict.fromkeys(
        name for index in rows.index for name, sample in metrics[index].items() if sample.any()
    )
    if not names:
        return
    lines = []
    for index, row in rows.iterrows():
        cells = [Cell(row["label"], algorithm=row["algorithm"])]
        for name in names:
            sample = metrics[index].get(name)
            if sample is None:
                cells.append(Cell(ABSENT, np.nan))
                continue
            half = half95(sample)
            mean = float(sample.mean())
            cells.append(Cell(score_text(mean, half, decimals_for([half])), mean))
        lines.append(cells)
    hint = section.terms.say("mean over the {environments} ± 95% interval")
    columns = ("Agent", *(Column(name.replace("_", " "), "number", hint) for name in names))
    title = "Metrics of the best agents"
    yield table(f"{section.id}--metrics", title, columns, lines, sortable=True)
