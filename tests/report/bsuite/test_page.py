"""The report of bsuite logs: everything is there, self-contained, and the LaTeX page compiles."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from jbrl.base.bsuite_sweep import EXPERIMENTS
from jbrl.report.bsuite import words
from jbrl.report.bsuite.page import document, write_report
from jbrl.stats.bsuite import curves, scores
from jbrl.stats.bsuite.logs import merged
from tests.report.bsuite.logs import EXPERIMENTS_SHOWN, some

DETAILS = {
    "catch": ("score", "learning", "seeds"),
    "bandit-noise": ("score", "learning", "average", "seeds"),
    "deep-sea": ("score", "learning", "linear", "logarithmic", "seeds"),
    "memory-len": ("score", "learning", "scale", "seeds"),
    "discounting-chain": ("score", "learning", "average", "seeds"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report")
    logs = merged([some("scores_a"), some("scores_partial")])
    paths = write_report(logs, out, latex=True)
    assert paths == [out / "index.html", out / "latex" / "report.tex"]
    return out


class Page(HTMLParser):
    """Ids, links and what is loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        found = dict(attributes)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        elif found.get("src") or (tag == "link" and found.get("href")):
            self.loaded.append(tag)


def test_the_page_has_every_figure_and_loads_nothing(report):
    page = Page((report / "index.html").read_text(encoding="utf-8"))
    wanted = ["radar", "tags", "bars"]
    wanted += [f"{name}-{kind}" for name, kinds in DETAILS.items() for kind in kinds]
    assert set(wanted) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not page.loaded
    for link in page.links:
        target = link.removeprefix("#")
        assert target in page.ids if link.startswith("#") else (report / link).is_file(), link
    for name in wanted:
        for ending in ("csv", "svg", "png"):
            assert (report / "figures" / f"{name}.{ending}").stat().st_size > 50


def test_the_page_says_what_is_not_finished_and_each_text(report):
    text = (report / "index.html").read_text(encoding="utf-8")
    assert "Agent scores_partial: " in text and "runs are not finished" in text
    for name in EXPERIMENTS_SHOWN:
        assert words.rule(EXPERIMENTS[name]).split("<")[0][:60] in text
    assert "NaN" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert "$" not in re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.S)


def test_tables_beside_the_page(report):
    found = pd.read_csv(report / "scores.csv")
    assert len(found) == 2 * len(EXPERIMENTS_SHOWN)
    assert list(found.columns) == [*scores.COLUMNS, *scores.INTERVAL]
    assert len(pd.read_csv(report / "tags.csv")) == 14
    assert len(pd.read_csv(report / "tests.csv")) == 5
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


def test_a_score_that_is_not_known_is_said(tmp_path):
    logs = some("scores_partial", ("mnist_noise",))
    report = document(logs)
    cell = report.chapters[0].blocks[-3].rows[0].cells[1]
    assert cell.text == "–"
    data = curves.final_regrets(logs, "mnist_noise")
    assert not data["finished"].all()
