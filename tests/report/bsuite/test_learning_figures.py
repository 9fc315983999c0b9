"""Figures of learning share the names of their axes."""

from jbrl.base.bsuite_sweep import EXPERIMENTS
from jbrl.report.bsuite import learning_figures as figures
from jbrl.report.style import styles
from jbrl.stats.bsuite import curves
from tests.report.bsuite.logs import some


def test_panels_name_their_axes_once():
    logs = some("scores_a", ("catch",))
    rows = curves.returns(logs, "catch")
    drawing = figures.raw_lines(rows, EXPERIMENTS["catch"], styles(logs.agents), "average return")
    labels = [axes.get_xlabel() for axes in drawing.figure.axes]
    assert [*labels, drawing.figure.get_supxlabel()] == ["", "episode"]
