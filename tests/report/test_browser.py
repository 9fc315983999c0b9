"""The page in a browser: figures are drawn, and a click on a heading sorts. Skipped where there is no Chromium."""

import html
import json
import re
import shutil
import subprocess

import pytest

from jbrl.report.html import write_report
from tests.report.synthetic import MANIFEST, study

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--window-size=1400,1000", "--virtual-time-budget=2000"),
)
PROBE = """
<script>
const size = (e) => { const b = e.getBoundingClientRect(); return Math.min(b.width, b.height); };
const figures = {};
for (const plot of document.querySelectorAll("svg.plot")) {
  const painted = (e) => size(e) > 0 && getComputedStyle(e).fill !== "none";
  const shapes = [...plot.querySelectorAll("path, use")].filter(painted).length;
  figures[plot.id] = { size: size(plot), marks: [...plot.querySelectorAll(".mark")].map(size), shapes };
}
const table = document.querySelector("#gc--agents");
const column = (name) => [...table.tHead.rows[0].cells].findIndex((h) => h.textContent.trim() === name);
const values = (name) => [...table.tBodies[0].rows].map((row) => row.cells[column(name)].textContent.trim());
const click = (name) => { table.tHead.rows[0].cells[column(name)].querySelector("button").click(); return values(name); };
const sorted = { before: values("Online"), score: click("Score"), again: click("Score"), first: click("Online") };
Object.assign(sorted, { online: click("Online"), agent: click("Agent") });
const symbols = [...document.querySelectorAll("svg.symbol")].map(size);
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const found = document.createElement("pre");
found.id = "found";
found.textContent = JSON.stringify({ figures, sorted, symbols, wide, errors: window.errors });
document.body.append(found);
</script>
"""
LISTEN = "<script>window.errors = []; window.onerror = (message) => { window.errors.push(message); };</script>"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a script in the page sees of it."""
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    folder = tmp_path_factory.mktemp("browser")
    scores, returns = study()
    scores["offline_seconds"] = scores["algorithm"].map({"BEB": 2.0}).fillna(0.0)
    scores["latency_seconds"] = 200 * scores["online_seconds"]
    page = write_report(scores, returns, MANIFEST, folder)
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("<head>", f"<head>{LISTEN}").replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', dumped, flags=re.S).group(1)))


def test_nothing_goes_wrong(found):
    assert found["errors"] == []
    assert found["wide"] == 0  # the page is no wider than the window


def test_every_figure_is_drawn(found):
    kinds = ("online", "offline", "latency", "difference", "fraction", "distribution", "bounds", "ranks")
    assert list(found["figures"]) == [f"{experiment}--{kind}" for experiment in ("gc", "gc-inaccurate") for kind in kinds]
    for id, figure in found["figures"].items():
        assert figure["size"] > 100, id
        assert figure["shapes"] >= 3, id
        assert all(mark > 2 for mark in figure["marks"]), id
    assert [len(found["figures"][f"gc--{kind}"]["marks"]) for kind in kinds] == [4, 4, 4, 3, 3, 4, 0, 3]


def test_symbols_in_tables_are_drawn(found):
    assert len(found["symbols"]) > 20
    assert min(found["symbols"]) > 3


def test_a_click_on_a_heading_sorts(found):
    tables = found["sorted"]
    means = [float(text.split(" ")[0]) for text in tables["score"]]
    assert means == sorted(means, reverse=True)
    assert tables["again"] == tables["score"][::-1]
    assert tables["online"] != tables["before"]
    assert [text.split(" ")[0] for text in tables["online"]] == ["100", "200", "300", "400", "500"]
    assert [text.split(" ")[0] for text in tables["agent"]] == ["BEB", "e-Greedy", "e-Greedy", "Optimal", "Random"]
