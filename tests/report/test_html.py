"""The page stands alone, says what the tables say, and lets no name break it."""

import io
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pandas as pd
import pytest

from jbrl.report.chapters import write_report
from jbrl.stats.table import oracles_of
from tests import kept
from tests.report.synthetic import MANIFEST, study, undo

ONE = [("GC", "GC", "GC")]
VOID = {"meta", "br", "path", "circle", "rect", "use", "line", "img", "link", "input"}


class Page(HTMLParser):
    """Elements with their attributes, ids, the text by class of cell, and whether tags match."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.stack, self.cells, self.text = [], [], [], []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.stack.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] not in ("style", "script"):
            self.text.append(data)
        if {"td", "th"} & set(self.stack) and "title" not in self.stack:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "deep" / "folder"
    path = write_report(*study(), MANIFEST, out)
    return path, path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(written):
    return Page(written[1])


@pytest.mark.slow
def test_files(written):
    path, text = written
    assert path.name == "index.html"
    tables = {f"{name}.{form}" for name in ("scores", "summary") for form in ("csv", "md")}
    assert {p.name for p in path.parent.iterdir()} == {"index.html", *tables}
    assert len(text) < 180_000


def ids_of(page):
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    return set(ids)


def test_the_page_is_the_kept_one(written):
    path, text = written
    kept.compare_page("study", text)
    beside = {file.name: file.read_text("utf-8") for file in sorted(path.parent.glob("s*.*"))}
    kept.compare("tables of a study", beside)


def test_stands_alone(written, page):
    _, text = written
    assert not re.search(r"@import|url\((?!#)|https?://", text)
    assert {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object", "embed"} == set()
    keys = ("src", "href", "xlink:href", "action")
    targets = {a[k] for _, a in page.elements for k in keys if k in a}
    beside = {"summary.csv", "summary.md", "scores.csv", "scores.md"}
    assert {t for t in targets if not t.startswith(("#", "data:text/csv;"))} == beside
    assert {t[1:] for t in targets if t.startswith("#")} <= ids_of(page)
    assert "<code>latency = true</code>" in text
    assert "`" not in re.sub(r"<(style|script).*?</\1>", "", text, flags=re.S)


def test_figures_of_every_experiment_hand_out_their_numbers(written, page):
    plots = [a["id"] for tag, a in page.elements if tag == "svg" and a.get("class") == "plot"]
    kinds = ["choice", "online", "offline", "difference", "fraction", "distribution", "ranks"]
    assert plots == [f"{s}--{k}" for s in ("gc", "gc-inaccurate") for k in kinds]
    links = {a["download"]: a["href"] for _, a in page.elements if "download" in a}
    assert list(links) == [f"{plot}.csv" for plot in plots]
    assert re.findall(r"<a [^>]*download=[^>]*>([^<]*)</a>", written[1]) == list(links)
    kind, _, text = links["gc--online.csv"].partition(",")
    assert kind == "data:text/csv;charset=utf-8"
    table = pd.read_csv(io.StringIO(unquote(text))).set_index(["algorithm", "setting"])
    scores = study(experiments=ONE)[0].set_index("algorithm")
    beb = table.loc[("BEB", "β = 2.5, bonus = visits")]
    assert beb["online_seconds"] == scores.loc["BEB", "online_seconds"]
    assert sorted(table["mean"]) == sorted(scores.drop("Optimal")["mean"])


def test_nothing_done_yet(tmp_path):
    scores, returns = study(experiments=ONE)
    for algorithm in ("Random", "e-Greedy", "BEB", "Optimal"):
        scores, returns = undo(scores, returns, algorithm)
    text = write_report(scores, returns, MANIFEST, tmp_path).read_text(encoding="utf-8")
    assert "5 of 5 units" in " ".join(Page(text).text)


@pytest.mark.parametrize("n", [1, 2])
def test_few_mdps_and_one_algorithm(tmp_path, n):
    scores, returns = study(n=n, experiments=ONE, agents=[("Random", {})])
    text = write_report(scores, returns, {}, tmp_path).read_text(encoding="utf-8")
    words = " ".join("".join(Page(text).text).split())
    assert "is best with" not in words
    assert "so that there is nothing to compare it with" in words
    assert "Difference from the best is not drawn: there is one algorithm only." in words


def test_names_cannot_break_the_page(tmp_path):
    evil = "<script>alert(1)</script>\"'&<!--"
    experiments = [(evil, evil, "GC"), ("%s {{ 7*7 }}", "GC", "GC")]
    scores, returns = study(
        n=3, experiments=experiments, agents=[(evil, {evil: evil}), ("Random", {})]
    )
    manifest = {
        "study": {"name": evil, evil: [evil], "seed": [3, 4]},
        "oracles": [],
        "machine": {"processor": evil},
    }
    text = write_report(scores, returns, manifest, tmp_path).read_text(encoding="utf-8")
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert "alert(1)" in " ".join(page.text)
    assert "seeds 3 and 4" in page.text
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "{{ 7*7 }}" in " ".join(page.text)
    ids_of(page)


def test_experiments_named_like_parts_of_the_page(tmp_path):
    experiments = [(name, "GC", "GC") for name in ("summary", "a", "a online")]
    whole = study(experiments=experiments, agents=[("Random", {})])
    ids_of(Page(write_report(*whole, MANIFEST, tmp_path).read_text(encoding="utf-8")))


def test_oracles_are_known_from_the_list_and_from_the_units():
    units = [{"algorithm": "Optimal", "oracle": True}, {"algorithm": "Random", "oracle": False}]
    assert oracles_of({"oracles": ["A"], "units": units}) == {"A", "Optimal"}
    assert oracles_of({}) == set()
    assert oracles_of({"oracles": None, "units": None}) == set()


def test_devices_and_latencies_have_columns_where_they_have_something_to_say(written, tmp_path):
    assert ">Device<" not in written[1] and ">Latency<" not in written[1]
    scores, returns = study(experiments=ONE, agents=[("Random", {}), ("BEB", {"beta": 2.5})])
    scores = scores.assign(device=["cpu", "gpu"], latency_seconds=2e-4)
    text = write_report(scores, returns, MANIFEST, tmp_path).read_text(encoding="utf-8")
    assert ">Device<" in text and ">Latency<" in text and "200 µs" in text
