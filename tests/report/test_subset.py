"""The page about a subset stands alone and says what the search found."""

import collections
import dataclasses
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from jbrl.report.html import render
from jbrl.report.subset import (
    FIGURES,
    _in_sample,
    alike,
    choices,
    document,
    environments,
    write_report,
)
from jbrl.stats.subset.fit import Folds
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.study import study
from jbrl.stats.subset.transform import transform_of
from tests import kept
from tests.report.test_html import Page, ids_of
from tests.stats.subset.tables import matrix, table_of


@pytest.fixture(scope="module")
def made():
    from jbrl.stats.subset.preparation import Preparation, prepare

    names = ["<b>A", "B & C", "C", "D", "E"]
    prepared = prepare(table_of(matrix(30, m=16, n=5), names), Preparation(target="mean"))
    told = []
    numbers = {"bootstrap": 200, "seeds": 3, "parts": 2, "resamples": 4}
    found = study(
        prepared,
        Search(1, "kfold", Folds(4), min_rows=6),
        **numbers,
        progress=lambda *n: told.append(n),
    )
    return found, told


def test_progress_ends_with_all_done(made):
    _, told = made
    assert told[-1] == (9, 9) and [done for done, _ in told] == sorted(done for done, _ in told)


def test_all_that_was_found_is_the_kept_text(made):
    parts = {}
    for field in dataclasses.fields(made[0]):
        value = getattr(made[0], field.name)
        parts[field.name] = value.to_csv() if isinstance(value, pd.DataFrame) else str(value)
    kept.compare("study of a subset", parts)


@pytest.fixture(scope="module")
def text(made):
    return render(document(made[0], "A <title> & more", ["search.json"]))


def test_page_stands_alone(text):
    page = Page(text)
    kept.compare_page("subset", text)
    assert not re.search(r"@import|url\((?!#)|https?://", text.replace("http://www.w3.org", ""))
    assert all(re.fullmatch(r"[\w-]+", id) for id in ids_of(page))
    assert "A &lt;title&gt; &amp; more" in text and "<title> &" not in text and "<b>A" not in text
    assert "mathdefault" not in text
    for title, _ in FIGURES.values():
        assert title in page.text


def test_page_says_what_was_found(made, text):
    found, _ = made
    page = Page(text)
    place = page.cells.index("Slope")
    assert page.cells[place - 3 : place + 2] == ["Environment", "R²", "N", "Slope", "Intercept"]
    first = found.singles.iloc[0]
    shown = [first["environment"], f"{first['r2']:#.4g}", str(first["n"]), f"{first['slope']:#.4g}"]
    assert page.cells[place + 2 : place + 6] == shown
    assert "<dt>intercept</dt><dd>no</dd>" in text
    text = "".join(page.text)
    best = found.outcome.best
    assert f"{best.coefficients[0]:.6f}" in text
    assert f"{100 * best.cv_r2:.1f}% in cross-validation" in text
    assert "Estimates are off by" not in text, "scores are no logarithms"
    losses = best.loss, found.outcome.next[0].loss
    assert found.outcome.margin == pytest.approx((losses[1] - losses[0]) / losses[1])
    assert f"{100 * found.outcome.margin:.2f}% below that of the runner-up" in text
    assert f"such a subset explains {100 * found.parts.honest_r2:.1f}% of the variance" in text
    assert text.index("left out of the choice") < text.index("in cross-validation")
    assert f"parts of the algorithms, it wins {found.parts.winners[best.subset]} times" in text
    assert f"in sample, it wins {found.resamples.winners[best.subset]} times" in text
    assert found.resamples.repeats == 4


def test_sentences_about_other_fits(made):
    """Scores that are logarithms; a negative weight, and an estimate without cross-validation."""
    found, outcome = made[0], made[0].outcome

    def said(transform, **changes):
        best = dataclasses.replace(outcome.best, **changes)
        target = transform_of(transform, np.ones(3))
        prepared = dataclasses.replace(outcome.prepared, target_transform=target)
        other = dataclasses.replace(outcome, best=best, prepared=prepared)
        return _in_sample(dataclasses.replace(found, outcome=other))

    logs = said("log10", r2=0.75, cv_r2=0.5, relative_error=4.04, coefficients=np.array([0.5]))
    assert "explains 75.0% of the variance over 16 algorithms, 50.0% in cross-valid" in logs
    assert "too good. Estimates are off by 4.0% on average. The order of the" in logs
    plain = said("identity", cv_r2=math.nan, coefficients=np.array([0.5, -0.1]))
    end = "over 16 algorithms; these are the best of many and too good. The order of the algorithms"
    assert f"{end} is not weakly preserved by construction (a weight is negative)." in plain


def test_what_lies_beyond_the_axis_is_said(made):
    for r2, said in ((-0.5, ""), (-0.51, "Values below −0.5 are drawn at −0.5.")):
        table = made[0].environments.assign(cv_r2_intercept=r2)
        assert environments(dataclasses.replace(made[0], environments=table)).note == said


def test_files(made, tmp_path):
    path = write_report(made[0], "scores", tmp_path / "deep" / "folder")
    beside = {p.name for p in path.parent.iterdir()}
    tables = ("environments", "single-environments", "sizes", "correlations")
    assert beside == {"index.html", "search.json", "model.json", *(f"{t}.csv" for t in tables)}
    tables = {file.name: file.read_text() for file in sorted(path.parent.glob("*.csv"))}
    kept.compare("tables of a subset", tables)
    assert json.loads((path.parent / "search.json").read_text())["best"]["subset"] == list(
        made[0].outcome.best.subset
    )
    assert len(pd.read_csv(path.parent / "environments.csv")) == 5
    first, *others = made[0].model.transforms  # a function of one's own is in no file
    model = dataclasses.replace(first, name="custom"), *others
    model = dataclasses.replace(made[0].model, transforms=model)
    path = write_report(dataclasses.replace(made[0], model=model), "scores", tmp_path / "own")
    assert {p.name for p in path.parent.iterdir()} == beside - {"model.json"}


def test_choices_of_other_folds_are_drawn_where_there_are_any(made):
    for found, bars in ((made[0], 2), (dataclasses.replace(made[0], seeds=None), 1)):
        axes = choices(found).figure.axes[0]
        assert len(axes.containers) == bars and axes.get_xlim() == (0, 1)


def test_long_names_leave_figures_whole(made):
    """Of environments such as `GDL(length=2), uniform prior`."""
    found = made[0]
    long = {name: f"{name} {'of an environment ' * 4}" for name in found.correlations}
    parts = collections.Counter({(long["C"],): 2, (long["D"],): 1})
    table = found.correlations.rename(index=long, columns=long)
    found = dataclasses.replace(
        found, parts=dataclasses.replace(found.parts, winners=parts), correlations=table
    )
    for draw in (choices, FIGURES["correlation"][1]):
        figure = draw(found).figure
        figure.draw_without_rendering()
        sheet, whole = figure.bbox, figure.get_tightbbox()
        ends = np.array([whole.x0, whole.y0, -whole.x1, -whole.y1]) * figure.dpi
        assert (ends >= np.array([sheet.x0, sheet.y0, -sheet.x1, -sheet.y1]) - 1).all(), draw


def test_sizes_grow_and_errors_in_sample_fall(made):
    sizes = made[0].sizes
    assert list(sizes["size"]) == [1, 2, 3]
    assert (np.diff(sizes["mse"]) <= 0).all()


def test_environments_that_are_alike_stand_together():
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 1, (2, 50))
    table = pd.DataFrame(
        {"a": x, "b": y, "c": x + 0.01 * rng.normal(0, 1, 50), "d": y + 0.01 * rng.normal(0, 1, 50)}
    )
    order = list(alike(table.corr()))
    assert abs(order.index(0) - order.index(2)) == 1 and abs(order.index(1) - order.index(3)) == 1
