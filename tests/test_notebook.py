"""Results say what they are in few words and as HTML; bars show in notebooks only."""

import sys
import types

import numpy as np
import pytest

import jbrl
from jbrl.base import notebook
from jbrl.play.protocol import Played
from jbrl.problems.lookup import problem


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
    assert "standard error" not in repr(played([1.0]))


def test_problems_are_told_without_their_arrays():
    text = "<DirichletProblem GC: observations Discrete(5) and 3 actions>"
    assert repr(problem("GC")) == text
    assert "DeepSea(size=4)" in repr(problem("DeepSea(size=4)"))


def test_results_are_a_table_and_a_figure_for_a_notebook(tmp_path, shell):
    study = {
        "study": {"name": "Two & two", "n_environments": 4, "horizon": 5},
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
