"""Metrics that the environments and the recorder of an experiment count beside its scores: a table,
and the figures that its problem brings.
"""

from collections.abc import Hashable, Iterator, Mapping

import numpy as np
import pandas as pd

from jbrl.base.errors import nearest
from jbrl.base.schema import MetricFigure
from jbrl.report.axes import Drawing, Floats, Styles, interval, rows_figure
from jbrl.report.content import Block, Cell, Column, Plot, table
from jbrl.report.figures import AGENT, distributions
from jbrl.report.sections import Section
from jbrl.report.style import drawn
from jbrl.report.text import ABSENT, decimals_for, score_text, slug
from jbrl.stats.table import factor95

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
    halves = [_half(samples[index]) for index in rows.index]
    rows = rows.assign(mean=means, ci95=halves, std=[samples[i].std() for i in rows.index])
    digits = decimals_for(halves)
    name = f"{figure.metric} per {figure.per.removesuffix('s')}" if figure.per else figure.metric
    name = name.replace("_", " ")
    if figure.kind == "distribution":
        return distributions(rows, samples, digits, styles, name)
    canvas, axes = rows_figure(rows["label"])
    drawing = Drawing(canvas, rows[[*AGENT, "n", "mean", "ci95"]])
    for y, (index, row) in enumerate(rows.iterrows()):
        style, mean, half = styles[row["algorithm"]], row["mean"], row["ci95"]
        interval(axes, y, mean - half, mean + half, colors=style.colour)
        title = f"{row['label']}: {score_text(mean, half, digits)}"
        drawing.mark(axes, (mean, y), style, f"mark-{index}", title)
    axes.set_xlabel(name)
    return drawing


def _half(sample: Floats) -> float:
    """Return the half-width of the 95% interval of a mean, NaN for a single value."""
    n = len(sample)
    return float(factor95(n) * sample.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan


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
            half = _half(sample)
            mean = float(sample.mean())
            cells.append(Cell(score_text(mean, half, decimals_for([half])), mean))
        lines.append(cells)
    hint = section.terms.say("mean over the {environments} ± 95% interval")
    columns = ("Agent", *(Column(name.replace("_", " "), "number", hint) for name in names))
    title = "Metrics of the best agents"
    yield table(f"{section.id}--metrics", title, columns, lines, sortable=True)
