"""Results say what they are in few words, as HTML and as figures; bars show in notebooks only."""

import subprocess
import sys
import types
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

import jbrl
from jbrl import plot
from jbrl.base import notebook
from jbrl.base.errors import JbrlError
from jbrl.play.protocol import Played
from jbrl.problems.lookup import problem
from jbrl.report import sections
from jbrl.report.axes import styles
from tests.report import synthetic


@pytest.fixture
def shell(monkeypatch):
    """A notebook that keeps what it is shown."""
    kept = []

    class Handle:
        def update(self, content):
            kept.append(content)

    def display(content, display_id):
        kept.append(content)
        return Handle()

    ipython = types.ModuleType("IPython")
    ipython.version_info = (9, 0)  # Matplotlib reads it
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    shown = types.ModuleType("IPython.display")
    shown.HTML, shown.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return kept


def played(returns, **facts):
    rest = {"device": "cpu", "batch": 1, "decisions": 1, "metrics": {}, "compile_seconds": 0.1}
    rest |= {"offline_seconds": 0.0, "online_seconds": 1.25e-7, "latency_seconds": None}
    return Played(returns=np.asarray(returns, np.float64), trajectories=None, **rest | facts)


def test_what_was_played_is_told_without_its_arrays():
    found = played(np.arange(500.0), metrics={"regret": np.full(500, 2.5)})
    assert repr(found) == (
        "<Played: lifetimes 500, mean score 249.5 (standard error 6.5), offline 0 s, "
        "per decision 125 ns, device cpu>"
    )
    page = found._repr_html_()
    assert "<td>mean 2.5</td>" in page and page.count("<rect") == notebook.BINS
    assert page.count('y="0.0" width="9.0" height="70.0"/>') == 20  # of 17 returns, not of 16
    assert "standard error" not in repr(played([1.0]))
    ends = played([1.23456, 2.34567])._repr_html_()
    assert ">1.235</text>" in ends and ">2.346</text>" in ends


def test_problems_are_told_without_their_arrays():
    text = "<DirichletProblem GC: observations Discrete(5) and 3 actions>"
    assert repr(problem("GC")) == text
    assert "DeepSea(size=4)" in repr(problem("DeepSea(size=4)"))


def test_results_are_a_table_and_a_figure_for_a_notebook(tmp_path, shell):
    study = {
        "study": {"name": "Two & two", "n_environments": 4, "horizon": 16},
        "experiments": [{"name": "<GC>", "prior": "GC", "test": "GC"}],
        "agents": [{"algorithm": "Random"}, {"algorithm": "Q-learning"}],
    }
    results = jbrl.run(study, tmp_path)
    assert "<code>2/2 units</code>" in shell[-1]
    assert "0/2 units" in shell[0]
    page = results._repr_html_()
    assert "&lt;GC&gt;" in page and "Two &amp; two" in page and "<svg" in page
    assert page.count("<tr>") == 3
    count = len(shell)
    jbrl.run(study, tmp_path, progress=False)
    assert len(shell) == count
    jbrl.play("Random", prior="GC", n_environments=4, horizon=5)
    assert "compiling" in shell[count] and 'value="4" max="4"' in shell[-1]


def test_a_bar_shows_nothing_outside_and_little_inside(shell, monkeypatch):
    times = iter([0.0, 0.1, 0.3, 0.31, 9.0])
    clock = types.SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(notebook, "time", clock)
    bar = notebook.Bar()
    for done in (0, 1, 2, 3):
        bar.update("a<b", done, 3)
    assert [text.split('"')[1] for text in shell] == ["0", "2", "3"]  # 1 came too soon
    assert "a&lt;b" in shell[0]
    sys.modules["IPython"].get_ipython = lambda: None
    assert not notebook.running()
    notebook.Bar().update("unseen", 1, 1)
    assert len(shell) == 3


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (4.12e-7, "412 ns"), (2e-5, "20 µs"), (0.5, "500 ms")]
)
def test_durations_are_written_in_their_unit(seconds, text):
    assert notebook.duration(seconds) == text


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
    assert plot.svg(SMALL.sections()[1]).count('id="mark-') == 4  # the best settings alone


def test_winners_follow_the_bound_on_online_time():
    """Random is the fastest; e-Greedy comes next, then BEB, with which e-Greedy is tied."""
    axes = plot.winners(SMALL)
    assert labels(axes) == ["Random", "e-Greedy", "BEB"]
    spans = [(round(p.get_y() + 0.3), p.get_hatch()) for p in axes.patches]
    assert (0, None) in spans and (2, None) in spans and (1, plot.HATCH) in spans
    best = [p for p in axes.patches if p.get_hatch() is None]
    assert axes.xaxis.get_ticklabels()[0].get_text().split()[1] in ("ns", "µs", "ms")
    ends = sorted((p.get_x(), p.get_x() + p.get_width()) for p in best)
    assert all(a[1] == pytest.approx(b[0]) for a, b in pairwise(ends))
    assert min(p.get_width() for p in axes.patches) > 0


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
        (lambda: plot.times(SMALL, time="cpu"), "expected 'online', 'offline' or 'latency'"),
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
        "import sys; from tests.test_notebook import SMALL; from jbrl import plot;"
        "plot.scores(SMALL); assert 'matplotlib.pyplot' not in sys.modules;"
        "import matplotlib.pyplot as plt; axes = plot.scores(SMALL); assert plt.gca() is axes"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"MPLBACKEND": "agg"})
