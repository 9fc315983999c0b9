"""A problem of one file brings its own score and figures, and its metrics reach the report."""

import re
from pathlib import Path

import numpy as np
import pytest

import jbrl
from jbrl.base.schema import MetricFigure
from jbrl.report.axes import styles
from jbrl.report.figures import metric_blocks
from jbrl.report.sections import sections
from jbrl.report.text import Rules, rules_of
from tests.report.synthetic import study

TIGER = Path(__file__).parents[2] / "docs" / "examples" / "tiger.py"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    tables = {
        "study": {"name": "doors", "n_environments": 8},
        "experiments": [{"name": "Tiger", "problem": "tiger:Tiger", "episodes": 20}],
        "agents": [{"algorithm": "Random"}],
    }
    out = tmp_path_factory.mktemp("tiger")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TIGER.parent)
        return jbrl.run(tables, out, progress=False)


def test_the_score_is_that_of_the_environment(results):
    [rules] = rules_of(results.manifest).values()
    assert (rules.criterion, rules.lifetime) == ("share of treasures", "20 episodes")
    counted = results.metrics("Tiger", "Random")
    scores = results.returns.query("algorithm == 'Random'")["score"]
    np.testing.assert_allclose(scores, counted["treasures"] / counted["episodes"])


def test_the_report_shows_its_figures_and_a_table_of_its_metrics(results):
    page = results.report(form="markdown").read_text(encoding="utf-8")
    chapter = page.split('<a id="tiger"></a>')[1].split('<a id="Settings"></a>')[0]
    assert "Score: share of treasures." in chapter
    assert "How often an agent listens before it opens a door." in chapter
    assert chapter.index("### Patience") < chapter.index("### Treasures")
    assert "figures/tiger--metric-1-listened.svg" in chapter
    counted = results.metrics("Tiger", "Random")
    table = chapter.split("### Metrics of the best agents")[1]
    row = next(line for line in table.splitlines() if "| Random |" in line)
    means = [float(mean) for mean in re.findall(r"\| ([\d.]+)", row)]
    expected = [counted[name].mean() for name in ("episodes", "listened", "treasures")]
    assert means == pytest.approx(expected, rel=0.02)


def section_of(*figures):
    scores, returns = study(experiments=[("GC", "GC", "GC")])
    counts = {"episodes": np.full(40, 4.0), "hits": np.arange(40.0), "misses": np.zeros(40)}
    rules = {"GC": Rules(figures=figures)}
    return sections(scores, returns, ["Optimal"], rules, metrics=lambda *_: counts)[0]


def test_figures_are_means_of_lifetimes_with_their_intervals():
    figure = MetricFigure(metric="hits", per="episodes", title="Hits")
    section = section_of(figure)
    [plot, table], absent = metric_blocks(section, styles(section.table["algorithm"]))
    hits = np.arange(40.0) / 4
    assert plot.drawing.data["mean"].tolist() == pytest.approx([hits.mean()] * 4)
    half = 2.0227 * hits.std(ddof=1) / np.sqrt(40)  # Student's factor
    assert plot.drawing.data["ci95"].tolist() == pytest.approx([half] * 4, rel=1e-3)
    assert plot.drawing.figure.axes[0].get_xlabel() == "hits per episode"
    assert [c.text for c in table.columns] == ["Agent", "episodes", "hits"]  # nobody misses
    assert absent == {}


def test_a_metric_that_nobody_counts_is_said():
    section = section_of(MetricFigure(metric="hit", title="Hits"))
    _, absent = metric_blocks(section, styles(section.table["algorithm"]))
    assert absent == {
        "Hits": "there is no metric 'hit'; did you mean 'hits'? (known: episodes, hits, misses)"
    }
