"""Figures of scores say what is not finished, without colour, within the page."""

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg

from jbrl.base.bsuite_sweep import TAGS
from jbrl.report.bsuite import score_figures as figures
from jbrl.report.style import PAPER, styles
from jbrl.stats.bsuite import scores
from jbrl.stats.bsuite.logs import merged
from tests.report.bsuite.logs import EXPERIMENTS_SHOWN, some


def test_the_radar_tells_five_agents_apart_without_colour():
    names = [f"agent {k}" for k in range(5)]
    rows = [
        {"agent": a, "tag": tag, "score": 0.1 + 0.15 * k, "experiments": 1, "of": 1}
        for k, a in enumerate(names)
        for tag in TAGS
    ]
    table = pd.DataFrame(rows).assign(finished=True)
    table.loc[0, "finished"] = False
    drawing = figures.radar(table, styles(names))
    axes = drawing.figure.axes[0]
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) == len(TAGS) + 1]
    dashes = {str(line._unscaled_dash_pattern) for line in lines}
    assert len(lines) == len(dashes) == 5
    marks = [line for line in axes.get_lines() if len(line.get_xdata()) == 1]
    assert len({mark.get_marker() for mark in marks}) == 5
    hollow = [m for m in marks if m.get_markerfacecolor() == PAPER]
    assert [mark.get_gid() for mark in hollow] == ["radar-0-basic"]
    canvas = FigureCanvasAgg(drawing.figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    for text in axes.texts:
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0 and box.x1 <= width and box.y1 <= height, text.get_text()


def test_small_scores_are_drawn_at_the_floor_and_given_as_they_are():
    tags = scores.tag_scores(some("scores_a")).assign(score=0.01)
    drawing = figures.radar(tags, styles(["scores_a"]))
    line = next(line for line in drawing.figure.axes[0].get_lines() if len(line.get_xdata()) > 1)
    assert set(line.get_ydata()) == {figures.FLOOR}
    assert set(drawing.data["score"]) == {0.01}


def test_bars_are_hatched_where_they_are_not_finished():
    table = scores.summary(merged([some("scores_a"), some("scores_partial")]))
    drawing = figures.bars(table)
    whole, partial = drawing.figure.axes
    assert {bar.get_hatch() for bar in whole.patches} == {None}
    assert {bar.get_hatch() for bar in partial.patches} == {figures.HATCH}
    assert len(whole.patches) == len(EXPERIMENTS_SHOWN)
