"""The page about searches says what the table says, in a page that stands alone."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from jbrl.report.strategies import LISTED
from jbrl.report.study import write_report
from tests.report.synthetic import MANIFEST, study
from tests.report.test_html import Page

# what it has to say stands on the other page
LITTLE = study(n=4, experiments=[("GC", "GC", "GC")], agents=[("Random", {})])


def searched(seeds=(0,)):
    """Two searches on GC and one on UGC; the strategies of each by decreasing pulls."""
    parts = []
    for prior, budget, arms in (("GC", 100, 3), ("GC", 1000, 14), ("UGC", 100, 3)):
        for seed in seeds:
            pulls = np.sort(
                np.random.default_rng(budget + seed).multinomial(budget, [1 / arms] * arms)
            )[::-1]
            names = ["<Q0>", *(f"|Q{i}|+{budget}" for i in range(1, arms))]
            named = {
                "prior": prior,
                "algorithm": "OPPS-DS",
                "parameters": json.dumps({"budget": budget, "space": "F3"}),
                "seed": seed,
            }
            table = {
                "strategy": names,
                "pulls": pulls,
                "mean": 40.0 - np.arange(arms),
                "std": 5.0,
                "ci95": 0.5,
            }
            flags = {"discarded": np.arange(arms) == 2, "chosen": np.arange(arms) == 0}
            parts.append(
                pd.DataFrame(
                    {
                        **named,
                        **table,
                        **flags,
                        "consumed": budget,
                        "simulated": budget + 7,
                        "offline_seconds": 0.25,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_report(*LITTLE, MANIFEST, folder, searched())
    return folder


def test_each_prior_has_its_searches_and_their_best_strategies(out):
    page = Page((out / "strategies.html").read_text(encoding="utf-8"))
    text = " ".join("".join(page.text).split())
    assert "Prior GC" in text and "Prior UGC" in text
    cells = [cell.strip() for cell in page.cells]
    assert [cells.count(f"OPPS-DS (budget = {budget})") for budget in (100, 1000)] == [2, 1]
    most = str(searched().query("parameters.str.contains('1000')")["pulls"].max())
    assert most in cells and "40.00 ± 0.50" in cells and "7.0%" in cells and "250 ms" in cells
    # each search once, the surest of each prior beside its figure
    assert cells.count("chosen") == cells.count("discarded") == 3 and cells.count("<Q0>") == 3 + 3
    assert "|Q13|+1000" not in cells  # ten are listed


def test_the_figure_shows_what_the_table_lists(out):
    text = (out / "strategies.html").read_text(encoding="utf-8")
    figure = re.search(r'<svg class="plot" id="gc--arms".*?</svg>', text, flags=re.S).group()
    assert figure.count('class="mark"') == LISTED
    assert f"<caption><div>The {LISTED} tried most of 14" in text
    assert text.count("<table") == text.count("<caption>") == 2 + 3


@pytest.mark.slow
def test_a_training_is_shown_by_stretches_in_order(tmp_path):
    names = [f"to lifetime {64 * (n + 1):,}" for n in range(14)]
    trained = searched().query("parameters.str.contains('1000')")
    trained = trained.assign(strategy=names, algorithm="BeliefPPO", chosen=np.arange(14) == 13)
    write_report(*study(), MANIFEST, tmp_path, trained)
    text = (tmp_path / "strategies.html").read_text(encoding="utf-8")
    assert f"<caption><div>{LISTED} of 14 stretches of it" in text
    listed = [name for name in names if f'<th scope="row">{name}' in text]
    assert len(listed) == LISTED and listed[-1] == names[-1]
    places = [text.index(f'<th scope="row">{name}') for name in listed]
    assert places == sorted(places)


def test_strategies_without_a_pull_are_neither_drawn_nor_listed(tmp_path):
    never = searched().assign(pulls=lambda rows: rows["pulls"].where(rows["chosen"], 0))
    write_report(*LITTLE, MANIFEST, tmp_path, never)
    text = (tmp_path / "strategies.html").read_text(encoding="utf-8")
    assert "The 1 tried most of 14" in text
    assert "|Q1|" not in text


def test_ids_are_different_and_nothing_is_loaded(out):
    text = (out / "strategies.html").read_text(encoding="utf-8")
    ids = [attributes["id"] for _, attributes in Page(text).elements if "id" in attributes]
    assert len(ids) == len(set(ids)) > 2
    assert "http://" not in text.replace("http://www.w3.org", "") and "src=" not in text


def test_the_report_leads_there(out):
    assert 'href="strategies.html"' in (out / "index.html").read_text(encoding="utf-8")


def test_seeds_are_named_where_there_are_several(tmp_path):
    write_report(*LITTLE, MANIFEST, tmp_path, searched(seeds=(0, 1)))
    assert "OPPS-DS (budget = 100, seed 1)" in (tmp_path / "strategies.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("strategies", [None, searched().iloc[:0]])
def test_without_searches_there_is_no_such_page(tmp_path, strategies):
    write_report(*LITTLE, MANIFEST, tmp_path, strategies)
    assert not (tmp_path / "strategies.html").exists()
    assert "strategies.html" not in (tmp_path / "index.html").read_text(encoding="utf-8")
