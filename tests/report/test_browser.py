"""The page in a browser: figures are drawn, and a click on a heading sorts.

Skipped where there is no Chromium.
"""

import html
import json
import re
import shutil
import subprocess

import pytest

from jbrl.report.chapters import write_report
from tests.report.synthetic import MANIFEST, study
from tests.report.test_chapters import searched

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-extensions"),
    *("--window-size=1400,1000", "--virtual-time-budget=2000"),
)
KINDS = (
    *("choice", "online", "offline", "latency"),
    *("difference", "fraction", "distribution", "ranks"),
)
PROBE = """
<script>
for (const part of document.querySelectorAll("details")) part.open = true;
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
"""  # noqa: E501
LISTEN = (
    "<script>window.errors = []; window.onerror = (message) => { window.errors.push(message); "
    "};</script>"
)


# As a frame of the outer page: it says where things are before and after all details are shown.
FRAME = """
<script>
addEventListener("load", () => {
  const right = (e) => e.getBoundingClientRect().right;
  const main = document.querySelector("main");
  const inner = right(main) - parseFloat(getComputedStyle(main).paddingRight);
  const closed = Math.min(...[...document.querySelectorAll("details svg.plot")].map((e) =>
    e.checkVisibility({ contentVisibilityAuto: true, opacityProperty: true })
      ? e.getBoundingClientRect().height : 0));
  const height = document.documentElement.scrollHeight;
  for (const part of document.querySelectorAll("details")) part.open = true;
  const opened = document.documentElement.scrollHeight;
  const beyond = {};
  for (const table of document.querySelectorAll("table")) {
    const box = table.parentElement;
    beyond[table.id || table.caption.textContent] = Math.max(right(table) - inner, box.scrollWidth - box.clientWidth);
  }
  const texts = [...document.querySelectorAll("svg.plot text")].filter((e) => e.textContent.trim());
  const blank = [...document.querySelectorAll(".figures")].map((e) => right(e) - right(e.lastElementChild));
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const smallest = Math.min(...texts.map((e) => Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b)
    * parseFloat(getComputedStyle(e).fontSize)));
  const cells = Math.min(...[...document.querySelectorAll("td, th, figcaption, small")].map((e) =>
    parseFloat(getComputedStyle(e).fontSize)));
  parent.postMessage({ name: window.name, closed, height, opened, beyond, blank, wide, smallest, cells }, "*");
});
</script>
"""  # noqa: E501
OUTER = """<!DOCTYPE html>
<body><script>
const found = {};
addEventListener("message", ({ data }) => {
  found[data.name] = data;
  if (Object.keys(found).length < document.querySelectorAll("iframe").length) return;
  const shown = document.createElement("pre");
  shown.id = "found";
  shown.textContent = JSON.stringify(found);
  document.body.append(shown);
});
</script>
FRAMES
</body>
"""
WIDTHS = {"1400": 1400, "800": 800, "390": 390, "paper": 718, "strategies": 1400}  # pixels; A4
SIX = [
    (f"{test}{'' if accurate else '-inaccurate'}", test if accurate else f"U{test}", test)
    for accurate in (True, False)
    for test in ("GC", "GDL", "Grid")
]
TWELVE = [
    *(("Random", {}), ("Optimal", {}), ("BEB", {"beta": 2.0}), ("BEB", {"beta": 8.0})),
    *(("e-Greedy", {"epsilon": 0.0}), ("Soft-max", {"tau": 0.05}), ("PSRL", {"period": 5})),
    *(("VDBE-e-Greedy", {"sigma": 1.0}), ("BAMCP", {"simulations": 50, "depth": 15})),
    ("OPPS-DS", {"budget": 10000, "space": "F3"}),
    ("SBOSS", {"delta": 1.0, "epsilon": 0.1, "max_samples": 1024}),
    ("SBOSS-published", {"delta": 7.0, "epsilon": 0.1, "max_samples": 1024}),
    ("BOSS", {"known": 5, "max_models": 16, "sampled": 5}),
    ("BFS3", {"depth": 15, "samples": 2, "trajectories": 1}),
]


pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")


def timed(**settings):
    """Return (scores, returns, manifest) of a study with offline times and latencies."""
    scores, returns = study(**settings)
    scores["offline_seconds"] = scores["algorithm"].map({"BEB": 2.0}).fillna(0.0)
    scores["latency_seconds"] = 200 * scores["online_seconds"]
    return scores, returns, MANIFEST


def measured(page):
    """Return the object that a page writes into its element `found`."""
    profile = f"--user-data-dir={page.parent / 'profile'}"
    command = [CHROMIUM, *FLAGS, profile, "--dump-dom", page.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    shown = re.search(r'<pre id="found">(.*?)</pre>', dumped, flags=re.S).group(1)
    return json.loads(html.unescape(shown))


@pytest.fixture(scope="module", params=[2, pytest.param(6, marks=pytest.mark.slow)])
def experiments(request):
    """Return the number of experiments in the study of the page."""
    return request.param


@pytest.fixture(scope="module")
def frames(tmp_path_factory, experiments):
    """Measures of the page of a study of some experiments and twelve algorithms, by width."""
    folder = tmp_path_factory.mktemp("frames")
    write_report(*timed(n=4, experiments=SIX[:experiments], agents=TWELVE), folder, searched())
    for name in ("index", "strategies"):
        page = (folder / f"{name}.html").read_text(encoding="utf-8")
        page = page.replace("</body>", f"{FRAME}</body>")
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    page = (folder / "index.html").read_text(encoding="utf-8")
    paper = page.replace("@media print", "@media all").replace("@media screen", "@media speech")
    (folder / "paper.html").write_text(paper, encoding="utf-8")
    shown = "".join(
        f'<iframe name="{name}" style="width:{width}px;height:900px;border:0" '
        f'src="{name if name in ("paper", "strategies") else "index"}.html"></iframe>'
        for name, width in WIDTHS.items()
    )
    outer = folder / "outer.html"
    outer.write_text(OUTER.replace("FRAMES", shown), encoding="utf-8")
    return measured(outer)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("width", list(WIDTHS))
def test_the_page_is_no_wider_than_the_window(frames, width):
    assert frames[width]["wide"] == 0


@pytest.mark.parametrize("width", ["1400", "paper", "strategies"])
def test_no_column_of_a_table_is_cut_off(frames, experiments, width):
    assert len(frames[width]["beyond"]) == (5 if width == "strategies" else 2 + 4 * experiments)
    assert {id: by for id, by in frames[width]["beyond"].items() if by > 1} == {}


def test_figures_fill_their_lines(frames):
    assert max(frames["1400"]["blank"]) <= 1


@pytest.mark.parametrize(("width", "least"), [("1400", 10), ("800", 10), ("390", 9)])
def test_text_is_legible(frames, width, least):
    assert frames[width]["smallest"] >= least  # pixels, in figures
    assert frames[width]["cells"] >= 11


def test_details_are_hidden_on_the_screen_and_printed_on_paper(frames):
    assert frames["1400"]["closed"] == 0
    assert frames["paper"]["closed"] > 100


def test_the_page_is_short_until_details_are_asked_for(frames):
    assert frames["1400"]["height"] < 0.4 * frames["1400"]["opened"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Observations of the page by a script in it."""
    page = write_report(*timed(), tmp_path_factory.mktemp("browser"))
    text = page.read_text(encoding="utf-8").replace("<head>", f"<head>{LISTEN}")
    page.write_text(text.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    return measured(page)


def test_nothing_goes_wrong(found):
    assert found["errors"] == []
    assert found["wide"] == 0  # the page is no wider than the window


def test_every_figure_is_drawn(found):
    expected = [f"{name}--{kind}" for name in ("gc", "gc-inaccurate") for kind in KINDS]
    assert list(found["figures"]) == expected
    for id, figure in found["figures"].items():
        assert figure["size"] > 100, id
        assert figure["shapes"] >= 3, id
        assert all(mark > 2 for mark in figure["marks"]), id
    marks = [len(found["figures"][f"gc--{kind}"]["marks"]) for kind in KINDS]
    assert marks == [0, *(4, 4, 4), *(3, 3, 4, 3)]


def test_symbols_in_tables_are_drawn(found):
    assert len(found["symbols"]) > 20
    assert min(found["symbols"]) > 3


def test_a_click_on_a_heading_sorts(found):
    tables = found["sorted"]
    means = [float(text.split(" ")[0]) for text in tables["score"]]
    assert means == sorted(means, reverse=True)
    assert tables["again"] == tables["score"][::-1]
    assert tables["online"] != tables["before"]
    first_words = [[t.split(" ")[0] for t in tables[key]] for key in ("online", "agent")]
    assert first_words[0] == ["100", "200", "300", "400", "500"]
    assert first_words[1] == ["BEB", "e-Greedy", "e-Greedy", "Optimal", "Random"]
