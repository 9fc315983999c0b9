"""Figures of results as axes: what they show is in the tables, and what cannot be drawn is said."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from jbrl import plot
from jbrl.base.errors import JbrlError
from jbrl.report import sections
from jbrl.report.style import styles
from tests.report import synthetic


class Small:
    """The synthetic study: BEB is best, e-Greedy (0.1) tied with it, Optimal an oracle."""

    def __init__(self, scores=None, returns=None):
        given = synthetic.study() if scores is None else (scores, returns)
        self._sections = sections.sections(*given, ["Optimal"])

    def sections(self):
        return self._sections


SMALL = Small()


def labels(axes):
    return [label.get_text().replace("\n", " ") for label in axes.get_yticklabels()]


def test_scores_are_those_of_the_table_with_their_intervals():
    axes = plot.scores(SMALL)
    assert isinstance(axes, Axes)
    best = ["Optimal", "BEB (β = 2.5, bonus = visits)", "e-Greedy (ε = 0.1)", "Random"]
    assert labels(axes) == best
    table = SMALL.sections()[0].table.set_index("label")
    rows = table.loc[labels(axes)]
    np.testing.assert_allclose([line.get_xdata()[0] for line in axes.lines], rows["mean"])
    ends = [c.get_segments()[0][:, 0] for c in axes.collections]
    expected = np.stack([rows["mean"] - rows["ci95"], rows["mean"] + rows["ci95"]], 1)
    np.testing.assert_allclose(ends, expected)
    assert len(labels(plot.scores(SMALL, "GC, inaccurate", agents="all"))) == 5


def test_winners_follow_the_bound_on_online_time():
    """Random is the fastest; e-Greedy comes next, then BEB, with which e-Greedy is tied."""
    axes = plot.winners(SMALL)
    assert labels(axes) == ["Random", "e-Greedy", "BEB"]
    spans = [(round(p.get_y() + 0.3), p.get_hatch()) for p in axes.patches]
    assert (0, None) in spans and (2, None) in spans and (1, plot.HATCH) in spans
    best = [p for p in axes.patches if p.get_hatch() is None]
    ends = sorted((p.get_x(), p.get_x() + p.get_width()) for p in best)
    assert all(a[1] == pytest.approx(b[0]) for a, b in pairwise(ends))


@pytest.mark.parametrize("draw", [plot.times, plot.distribution, plot.difference])
def test_figures_of_the_report_are_axes(draw):
    axes = draw(SMALL, "GC")
    assert isinstance(axes, Axes) and axes.get_xlabel()


def test_returns_of_one_agent_are_a_histogram():
    class Played:
        returns = np.arange(40.0)

    axes = plot.returns(Played, bins=4)
    assert [p.get_height() for p in axes.patches] == [10] * 4
    assert axes.lines[0].get_xdata()[0] == 19.5


def test_what_cannot_be_drawn_is_said():
    for call, message in [
        (lambda: plot.scores(SMALL, "GCC"), "experiment = 'GCC': no such experiment; did you mean"),
        (lambda: plot.scores(SMALL, agents="worst"), "expected 'best' or 'all'"),
        (lambda: plot.times(SMALL, time="cpu"), "expected 'online', 'offline', 'latency'"),
        (lambda: plot.times(SMALL, time="latency"), "experiment 'GC': it was not measured"),
    ]:
        with pytest.raises(JbrlError, match=message.split(";")[0]):
            call()
    scores, returns = synthetic.study()
    nothing = scores.assign(status="missing", mean=np.nan, ci95=np.nan, n=0)
    empty = Small(nothing, returns.iloc[:0])
    for draw in (plot.scores, plot.winners, plot.distribution):
        with pytest.raises(JbrlError, match="experiment 'GC'"):
            draw(empty)


def test_a_page_gets_the_figure_as_svg():
    section = SMALL.sections()[0]
    text = plot.svg(section)
    assert text.startswith("<svg") and "BEB" in text
    assert styles(pd.Series(["Random"]))["Random"].colour in text


def test_pyplot_shows_figures_where_it_is_in_use_only():
    code = (
        "import sys; from tests.test_plot import SMALL; from jbrl import plot;"
        "plot.scores(SMALL); assert 'matplotlib.pyplot' not in sys.modules;"
        "import matplotlib.pyplot as plt; axes = plot.scores(SMALL); assert plt.gca() is axes"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"MPLBACKEND": "agg"})
