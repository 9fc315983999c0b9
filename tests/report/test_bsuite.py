"""The report of bsuite logs: everything is there, self-contained, and the LaTeX page compiles;
figures say what is not finished, without colour, within the page.
"""

import math
import re
import shutil
import subprocess
from itertools import pairwise

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from jbrl.base.bsuite_sweep import EXPERIMENTS, TAGS
from jbrl.report import bsuite
from jbrl.report import bsuite_figures as figures
from jbrl.report.axes import PAPER, styles
from jbrl.report.bsuite import document, write_report
from jbrl.stats.bsuite import curves, scores
from jbrl.stats.bsuite.logs import Logs, merged
from tests import kept
from tests.report.test_html import Page, ids_of
from tests.stats.bsuite_cases import golden

DETAILS = {
    "catch": ("score", "learning", "seeds"),
    "bandit-noise": ("score", "learning", "average", "seeds"),
    "deep-sea": ("score", "learning", "linear", "logarithmic", "seeds"),
    "memory-len": ("score", "learning", "scale", "seeds"),
    "discounting-chain": ("score", "learning", "average", "seeds"),
}
SHOWN = tuple(name.replace("-", "_") for name in DETAILS)


def some(name: str, experiments: tuple[str, ...] = SHOWN) -> Logs:
    runs = (run for run in golden(name).runs if run.experiment.name in experiments)
    return Logs(tuple(runs))


@pytest.fixture(scope="module")
def logs():
    return merged([some("scores_a"), some("scores_partial")])


@pytest.fixture(scope="module")
def report(tmp_path_factory, logs):
    out = tmp_path_factory.mktemp("report")
    assert write_report(logs, out, latex=True) == [out / "index.html", out / "latex" / "report.tex"]
    return out


def test_the_page_has_every_figure_and_loads_nothing(report):
    source = (report / "index.html").read_text(encoding="utf-8")
    kept.compare_page("bsuite", source)
    page = Page(source)
    ids = ids_of(page)
    wanted = ["radar", "tags", "bars"]
    wanted += [f"{name}-{kind}" for name, kinds in DETAILS.items() for kind in kinds]
    drawn = [f"tags-tag-{k}-{tag}" for k in "01" for tag in TAGS]
    drawn += [f"{name}-score-score-{k}" for name in DETAILS for k in "01"]
    assert {*wanted, *drawn} <= ids
    assert not [tag for tag, a in page.elements if a.get("src") or tag == "link"]
    for link in (a["href"] for tag, a in page.elements if tag == "a"):
        target = link.removeprefix("#")
        assert target in ids if link.startswith("#") else (report / link).is_file(), link
    for name in wanted:
        for ending in ("csv", "svg", "png"):
            assert (report / "figures" / f"{name}.{ending}").stat().st_size > 50


@pytest.mark.parametrize(("most", "crowded"), [(1, True), (2, False)])
def test_more_agents_than_a_radar_tells_apart_are_announced(monkeypatch, most, crowded):
    monkeypatch.setattr(bsuite, "CROWD", most)
    few = merged([some("scores_a", ("catch",)), some("scores_partial", ("catch",))])
    assert ("hide each other" in str(document(few))) == crowded


def test_every_experiment_has_a_text_a_rule_and_a_title_of_its_own(report):
    for experiment in EXPERIMENTS.values():
        assert len(bsuite.text(experiment)) > 100 and bsuite.rule(experiment)
        assert str(len(experiment.settings)) in bsuite.facts(experiment)
    assert len({bsuite.title(experiment) for experiment in EXPERIMENTS.values()}) == 23
    text = (report / "index.html").read_text(encoding="utf-8")
    assert "Agent scores_partial: " in text and "runs are not finished" in text
    for name in SHOWN:
        assert bsuite.rule(EXPERIMENTS[name]).split("<")[0][:60] in text
    assert "NaN" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert "$" not in re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.S)


def test_tables_beside_the_page(report):
    beside = [*report.glob("*.csv"), report / "latex" / "report.tex"]
    kept.compare("tables of bsuite", {file.name: file.read_text("utf-8") for file in beside})
    data = pd.read_csv(report / "figures" / "catch-learning.csv")
    assert len(data) == 2 * 49


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex")
def test_latex_compiles_to_one_page(report):
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    folder = report / "latex"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "(1 page," in done.stdout
    assert "scores\\_partial" in (folder / "report.tex").read_text(encoding="utf-8")


def test_a_score_that_is_not_known_is_said():
    logs = some("scores_partial", ("mnist_noise",))
    table = next(b for b in document(logs).chapters[0].blocks if getattr(b, "id", "") == "scores")
    assert table.rows[0].cells[1].text == "–"
    assert not curves.final_regrets(logs, "mnist_noise")["finished"].all()


def test_the_verdict_by_hand():
    def verdict(**scores):
        rows = [(agent, *pair) for agent, pairs in scores.items() for pair in pairs.items()]
        parts = bsuite._verdict(pd.DataFrame(rows, columns=["agent", "tag", "score"]))
        return "".join(getattr(part, "text", part) for part in parts)

    one = {"memory": 0.25, "noise": 0.75, "credit_assignment": 0.5, "scale": math.nan}
    assert verdict(a=one) == "a does best in noise (0.75) and worst in memory (0.25)."
    assert verdict(a={"noise": math.nan}) == "No score is known."
    found = verdict(a=one, b={"noise": 0.1, "credit_assignment": 0.6, "memory": 0.2})
    assert found == "Highest tag scores: b in credit assignment; a in memory and noise."


@pytest.mark.parametrize(("unknown", "more"), [(0, ""), (2, ", not finished in 2")])
def test_differences_are_counted(unknown, more):
    difference, p_value = [0.2, -0.1, 0.3, 0.1, -0.2, 0.0], [0.01] * 3 + [0.5] * 3
    rows = pd.DataFrame({"difference": difference, "p_value": p_value})
    rows["differs"] = rows["p_value"] < 0.05
    rows.loc[6 - unknown :, "p_value"] = math.nan
    rows[["agent", "other", "bsuite_env"]] = "a", "b", "catch"
    chapter = str(bsuite._differences(rows))
    counts = "better in 2 experiments, worse in 1, no sure difference in"
    assert f"'{counts} {3 - unknown}{more}'" in chapter


def test_notices_that_are_too_many_are_counted():
    texts = [f"file {k}" for k in range(bsuite.MOST_NOTICES + 2)]
    for n, more in ((0, []), (1, ["1 more of that kind."]), (2, ["2 more of that kind."])):
        logs = Logs((), tuple(texts[: bsuite.MOST_NOTICES + n]))
        shown = [paragraph.words[0] for paragraph in bsuite._notices(logs)]
        assert shown[bsuite.MOST_NOTICES :] == more and shown[0] == "File 0."


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


def test_bars_are_hatched_where_they_are_not_finished(logs):
    whole, partial = figures.bars(scores.summary(logs)).figure.axes
    assert {bar.get_hatch() for bar in whole.patches} == {None}
    assert {bar.get_hatch() for bar in partial.patches} == {figures.parts.HATCH}
    assert len(whole.patches) == len(SHOWN)
    places = sorted(bar.get_x() for bar in whole.patches)
    assert all(b - a > 0.99 for a, b in pairwise(places)), "bars stand side by side"


def test_axes_of_regret_begin_at_0():
    final = pd.DataFrame({"agent": "a", "level": [1.0, 3, 10], "mean": [5.0, 6, 7]})
    final = final.assign(ci95=0.5, finished=True)
    for draw in (figures.scaling, figures.average):
        axes = draw(final, EXPERIMENTS["memory_len"], styles(["a"])).figure.axes[0]
        assert axes.get_ylim()[0] == 0 and axes.get_ylim()[1] > 7


def test_panels_name_their_axes_once():
    logs = some("scores_a", ("catch",))
    rows = curves.returns(logs, "catch")
    drawing = figures.raw_lines(rows, EXPERIMENTS["catch"], styles(logs.agents), "average return")
    labels = [axes.get_xlabel() for axes in drawing.figure.axes]
    assert [*labels, drawing.figure.get_supxlabel()] == ["", "episode"]


@pytest.mark.parametrize(
    ("name", "at_first", "totals"),
    [
        ("bandit", 0.5, [2.75]),
        ("discounting_chain", 0.08, [0.2]),
        ("deep_sea", 0.99, [5, 10, 15, 20, 25]),
        ("bandit_noise", 0.5, []),
        ("catch", 1.6, []),
    ],
)
def test_the_best_learner_is_a_line_where_it_is_known_and_not_0(name, at_first, totals):
    experiment = EXPERIMENTS[name]
    level = 10.0 if name == "deep_sea" else 1.0
    rows = {"agent": "a", "level": level, "episode": [1, 100], "mean": 0.05, "ci95": 0.01}
    table = pd.DataFrame(rows)
    if experiment.wrapper or name in ("deep_sea", "discounting_chain"):
        drawing = figures.by_level(table, experiment)
    else:
        drawing = figures.learning(table, experiment, styles(["a"]))
    lines = [line.get_ydata() for line in drawing.figure.axes[0].get_lines()]
    ends = sorted(y[-1] * experiment.episodes for y in lines if len(y) > 100)
    assert ends == pytest.approx(totals)
    assert all(y[0] == pytest.approx(at_first) for y in lines if len(y) > 100)
