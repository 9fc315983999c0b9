"""Tables agree with the frames they are made from."""

import io
import math

import numpy as np
import pandas as pd
import pytest

from jbrl.base.errors import JbrlError
from jbrl.report import markdown, sections, tables
from tests.report.synthetic import study, undo


@pytest.fixture(scope="module")
def whole():
    return study()


@pytest.fixture(scope="module")
def parts(whole):
    return sections.sections(*whole, ["Optimal"])


def test_sections_keep_order_and_sort_agents(parts):
    assert [(s.name, s.id, s.prior, s.test, s.note) for s in parts] == [
        ("GC", "gc", "GC", "GC", ""),
        ("GC, inaccurate", "gc-inaccurate", "UGC", "GC", ""),
    ]
    assert list(parts[0].table["label"]) == [
        "Optimal",
        "BEB (β = 2.5, bonus = visits)",
        "e-Greedy (ε = 0.1)",
        "e-Greedy (ε = 0)",
        "Random",
    ]


def test_marks(parts):
    table = parts[0].table
    assert list(table["oracle"]) == [True, False, False, False, False]
    assert list(table["best_of_algorithm"]) == [False, True, True, False, True]
    assert list(table["best"]) == [False, True, False, False, False]
    assert list(table["tied"]) == [False, False, True, False, False]
    # d = 0.2 ∓ 1 over 40 MDPs: Z = 0.2 √39
    assert table["z"].iloc[2] == pytest.approx(0.2 * math.sqrt(39), rel=1e-9)
    assert np.isnan(table["z"].iloc[0])


def test_numbers_are_those_of_the_scores(whole, parts):
    scores, _ = whole
    found = pd.concat([s.table for s in parts])
    both = found.merge(
        scores, on=["experiment", "algorithm", "parameters"], suffixes=("", "_given")
    )
    assert len(both) == len(scores)
    for column in ("n", "mean", "std", "ci95", "online_seconds", "compile_seconds"):
        assert (both[column] == both[f"{column}_given"]).all(), column


def test_units_not_done_come_last_and_do_not_compete(whole):
    scores, returns = undo(*undo(*whole, "BEB", "failed"), "Optimal")
    section = sections.sections(scores, returns, ["Optimal"])[0]
    # as the study names them
    assert list(section.table["status"]) == ["done", "done", "done", "failed", "missing"]
    assert section.competitors["label"].iloc[0] == "e-Greedy (ε = 0.1)"
    assert section.competitors["best"].iloc[0]
    assert section.oracles.empty
    assert not section.table["best"].iloc[3:].any()
    assert section.note == ""


def test_nothing_done(whole):
    scores, returns = whole
    for algorithm in ("Random", "e-Greedy", "BEB", "Optimal"):
        scores, returns = undo(scores, returns, algorithm)
    section = sections.sections(scores, returns, ["Optimal"])[0]
    assert section.done.empty
    assert section.champions.empty
    assert "missing" in "".join(tables._scores_markdown(section))


def test_other_mdps_are_refused_with_the_reason_but_the_rest_is_shown(whole):
    scores, returns = whole
    cut = returns[(returns["algorithm"] != "Random") | (returns["unit"] != 7)]
    section = sections.sections(scores, cut, ["Optimal"])[0]
    assert "not played on the same environments" in section.note
    assert "seed 0, unit 7" in section.note
    assert section.competitors["best"].iloc[0]
    assert not section.table["tied"].any()


def test_oracles_need_not_be_paired(whole):
    scores, returns = whole
    cut = returns[(returns["algorithm"] != "Optimal") | (returns["unit"] != 7)]
    assert sections.sections(scores, cut, ["Optimal"])[0].note == ""


def test_returns_of_a_finished_unit_are_missing(whole):
    scores, returns = whole
    section = sections.sections(scores, returns[returns["algorithm"] != "BEB"], ["Optimal"])[0]
    assert "no returns of BEB" in section.note
    assert section.competitors["label"].iloc[0].startswith("BEB")


def test_csv_can_be_read_back(parts, tmp_path):
    tables.write_tables(parts, tmp_path)
    found = pd.read_csv(tmp_path / "scores.csv")
    given = pd.concat([s.table for s in parts], ignore_index=True)
    assert list(found.columns) == [*sections.SCORES, *sections.MARKS]
    for column in ("experiment", "parameters", "tied", "best"):
        assert list(found[column]) == list(given[column]), column
    for column in ("mean", "ci95", "online_seconds", "z"):
        np.testing.assert_allclose(found[column], given[column], rtol=1e-15, err_msg=column)
    summary = pd.read_csv(tmp_path / "summary.csv")
    assert list(summary["algorithm"]) == ["BEB", "e-Greedy", "Random", "Optimal"] * 2
    assert list(summary.loc[summary["best"], "algorithm"]) == ["BEB", "BEB"]


def test_markdown(parts):
    lines = markdown.table(tables.overview(parts)).splitlines()
    small = ("prior GC → test GC", "prior UGC → test GC")
    assert lines[0] == f"| Algorithm | GC<br>{small[0]} | GC, inaccurate<br>{small[1]} |"
    assert lines[2].startswith("| BEB | **40.00 ± 3.83** (β = 2.5, bonus = visits) |")
    assert lines[3].startswith("| e-Greedy | ≈ 39.80")
    names = ["| BEB", "| e-Greedy", "| Random", "| *Optimal* (sees the true MDP)"]
    assert [line.split(" | ")[0] for line in lines[2:]] == names
    title, drawn, agents = tables._scores_markdown(parts[1])
    assert (title, drawn) == ("## GC, inaccurate", "Prior UGC, test GC.")
    assert "| **Random** |" in agents and "| e-Greedy (ε = 0) |" in agents
    tied = next(line for line in agents.splitlines() if "**e-Greedy (ε = 0.1)**" in line)
    assert "| ≈ tied |" in tied and "800 ns" in agents


def test_markdown_tables_survive_any_name():
    scores, returns = study(experiments=[("a|b\n*c*", "GC", "GC")])
    rows = markdown.table(tables.overview(sections.sections(scores, returns))).splitlines()
    assert all(row.replace("\\|", "").count("|") == 3 for row in rows)
    assert "a\\|b \\*c\\*" in rows[0]


def test_single_mdp():
    section = sections.sections(*study(n=1), ["Optimal"])[0]
    assert section.score(section.table.iloc[0]).count("±") == 0
    assert section.competitors["tied"].sum() == 3  # nothing can be told apart


def test_single_algorithm():
    section = sections.sections(*study(agents=[("Random", {})]))[0]
    assert list(section.table["best"]) == [True]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s, r: (s.drop(columns="prior"), r), "scores: no column prior"),
        (lambda s, r: (s, r.drop(columns="unit")), "returns: no column unit"),
        (lambda s, r: (s.iloc[:0], r), "scores: no rows"),
        (
            lambda s, r: (pd.concat([s, s.iloc[[1]]]), r),
            r"two rows for e-Greedy \{\"epsilon\": 0.0\} in experiment GC",
        ),
        (lambda s, r: (s.assign(mean=np.nan), r), "is done but its mean is nan"),
        (lambda s, r: (s, r.assign(score=np.nan)), "row 1 .*expected a finite number"),
    ],
)
def test_bad_input(whole, spoil, message):
    with pytest.raises(JbrlError, match=message):
        sections.sections(*spoil(*whole))


def test_reads_back_from_csv_as_well(whole):
    # Frames that went through a file have text where numbers are missing.
    scores, returns = undo(*whole, "BEB")
    again = pd.read_csv(io.StringIO(scores.to_csv(index=False)))
    section = sections.sections(again, returns, ["Optimal"])[0]
    assert list(section.table["status"]) == ["done"] * 4 + ["missing"]
