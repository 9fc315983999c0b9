"""The front page: one screen, its table is that of the kept scores, and links lead somewhere."""

import re
from pathlib import Path

import pytest

from jbrl.comparison import read
from tests.docs.commands import PAGES, ROOT

README = ROOT / "README.md"
COMPETITORS = ("BAMCP", "BEB", "BFS3", "OPPS-DS", "Random", "SBOSS", "Soft-max", "e-Greedy")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def best():
    """Greatest mean of each algorithm in each experiment."""
    played = read(ROOT / "experiments" / "published" / "paper-cpu").played
    return played.groupby(["experiment", "algorithm"])["mean"].max()


def rows() -> list[list[str]]:
    lines = re.findall(r"^\| (.*) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_the_front_page_fits_one_screen_and_answers_first() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 75 and max(map(len, lines)) <= 100
    assert "?" in lines[2] + lines[3] and "BEB" in "".join(lines[:16])


def test_its_table_has_the_best_algorithms_of_the_kept_scores(best) -> None:
    header, *table = (row for row in rows() if len(row) == 5 and not row[0].startswith("--"))
    assert header[2:] == ["GC", "GDL", "Grid"]
    prior = ""
    for row in table:
        prior = row[0] or prior
        for name, cell in zip(header[2:], row[2:], strict=True):
            means = best[name if prior == "accurate" else f"{name}-inaccurate"]
            if row[1] == "best":
                first = means[[a for a in means.index if a in COMPETITORS]].idxmax()
                assert cell == f"{first} {means[first]:.2f}"
            else:
                assert cell == f"{means['Optimal']:.2f}, {means['Random']:.2f}"
    for name in {name for name, _ in best.index}:
        search = best[name][["BAMCP", "BFS3"]].max()
        assert search < best[name][["BEB", "OPPS-DS"]].max()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link, picture in LINK.findall(text):
        target = (link or picture).split("#")[0]
        if target and not re.match(r"https?:|mailto:", target):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_gallery_shows_figures_with_a_text_for_each() -> None:
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    figures = re.findall(r"!\[([^\]]+)\]\((_static/[^)]+)\)", text)
    assert len(figures) >= 10
    assert all(len(words) > 20 for words, _ in figures)


def test_the_sweep_on_its_page_is_the_script_and_uses_public_names_only() -> None:
    script = (ROOT / "experiments" / "sweep.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "one-program.md").read_text(encoding="utf-8")
    assert f"```python\n{script}```\n" in page
    assert re.findall(r"^(?:import|from) (jbrl\S*)", script, re.MULTILINE) == ["jbrl"]
