"""The front page: one screen, its table is that of the kept scores, and links lead somewhere."""

import re

import pandas as pd
import pytest

import jbrl
from experiments import paper_cpu
from jbrl.stats.brackets import find
from tests.docs.commands import PAGES, ROOT

README = ROOT / "README.md"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def parts():
    """Experiments of the kept study by name, with the best setting of each and those tied."""
    return {part.name: part.done for part in paper_cpu.described(jbrl.Results(paper_cpu.KEPT))}


def tops(done: pd.DataFrame) -> pd.DataFrame:
    """Return the best setting of each algorithm, and whether one of its settings is tied."""
    found = done.loc[done.groupby("algorithm")["mean"].idxmax()].set_index("algorithm")
    tied = done[done["tied"]].groupby("algorithm").size()
    return found.assign(tied=found.index.isin(tied.index) & ~found["best"]).sort_values(
        "mean", ascending=False
    )


def rows() -> list[list[str]]:
    lines = re.findall(r"^\| (.*) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_the_front_page_fits_one_screen_and_answers_first():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 75 and max(map(len, lines)) <= 100
    assert "?" in lines[2] + lines[3] and "BEB" in "".join(lines[:16])


def test_its_table_has_the_best_algorithms_of_the_kept_scores_and_those_tied(parts):
    header, *table = (row for row in rows() if len(row) == 5 and not row[0].startswith("--"))
    assert header[2:] == ["GC", "GDL", "Grid"]
    prior, seen = "", []
    for row in table:
        prior = row[0] or prior
        seen.append((prior, row[1]))
        for name, cell in zip(header[2:], row[2:], strict=True):
            found = tops(parts[name if prior == "accurate" else f"{name}-inaccurate"])
            means = found["mean"]
            if row[1] == "best":
                (first,) = found.index[found["best"]]
                assert cell == f"{first} {means[first]:.2f}"
            elif row[1] == "tied with it":
                tied = list(found.index[found["tied"]])
                scored = [f"{one} {means[one]:.2f}" for one in tied]
                assert cell == ", ".join(tied if len(tied) > 2 else scored or ["none"])
            elif row[1] == "Bayes-optimal":
                bracket = find(name, 0.95, 250)
                assert cell == f"{bracket.lower:.2f} to {bracket.upper:.2f}"
            else:
                assert row[1] == "Optimal, Random"
                assert cell == f"{means['Optimal']:.2f}, {means['Random']:.2f}"
    reference = (("accurate", "Bayes-optimal"), ("accurate", "Optimal, Random"))
    assert seen == [
        *(("accurate", "best"), ("accurate", "tied with it"), *reference),
        *(("uniform", "best"), ("uniform", "tied with it")),
    ]


def test_its_advice_is_that_of_the_kept_scores_and_times(parts):
    text = " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", README.read_text("utf-8")).split())
    assert "With an accurate prior and two minutes to train, take DPT" in text
    assert "it is tied with the best everywhere" in text
    assert "With two seconds to search, take OPPS-DS on GDL and Grid; on GC take DPT" in text
    assert "take BEB on GC, OPPS-DS on GDL and Grid" in text
    assert "is tied with the best on GDL only" in text
    assert "a hundred to twenty thousand times as long" in text
    advised = {"GC": "BEB", "GDL": "OPPS-DS", "Grid": "OPPS-DS"}
    ratios = []
    for name, done in parts.items():
        winning = done[done["best"] | done["tied"]]
        names = set(winning["algorithm"])
        accurate = not name.endswith("-inaccurate")
        assert accurate or not names & {"ANN", "BeliefPPO", "RL2", "DPT"}
        if accurate:
            least = winning.groupby("algorithm")["offline_seconds"].min()
            assert least["DPT"] < 135 and least["DPT"] < least["BeliefPPO"]
            assert name != "GC" or least["DPT"] < 2
        first = winning[winning["algorithm"] == advised[name.removesuffix("-inaccurate")]]
        assert first["offline_seconds"].min() < 2
        found = tops(done)
        assert bool(names & {"BAMCP", "BFS3"}) is (name == "GDL")
        search = found.loc[["BAMCP", "BFS3"]].sort_values("mean").iloc[-1]
        (best,) = found.index[found["best"]]
        ratios.append(search["online_seconds"] / found.loc[best, "online_seconds"])
        if name.startswith("GC"):
            assert first["offline_seconds"].min() < 0.001
    assert 90 < min(ratios) < 110 and 15_000 < max(ratios) < 20_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link, picture in LINK.findall(text):
        target = (link or picture).split("#")[0]
        if target and not re.match(r"https?:|mailto:", target):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_sweep_on_its_page_uses_public_names_only():
    script = (ROOT / "experiments" / "sweep.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    assert "python experiments/sweep.py" in page
    imported = re.findall(r"^(?:import|from) (jbrl\S*)", script + page, re.MULTILINE)
    assert set(imported) == {"jbrl", "jbrl.agents"}
