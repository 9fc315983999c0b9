"""Winners from left to right, as the page lists them."""

import numpy as np

from jbrl.report import sections
from jbrl.report.content import Paragraph, Table
from jbrl.report.tables import winners
from tests.report.synthetic import study

# BEB is best, e-Greedy(0.1) tied with it, e-Greedy(0) and Random worse.
ONLINE = [1e-8, 2e-7, 3e-7, 4e-7, 1e-8]


def blocks_of(offline, online=ONLINE, returns=None):
    scores, played = study(experiments=[("GC", "GC", "GC")])
    scores = scores.assign(offline_seconds=offline, online_seconds=online)
    return winners(
        sections.sections(scores, played if returns is None else returns, ("Optimal",))[0]
    )


def texts(blocks):
    return [
        "".join(w if isinstance(w, str) else w.text for w in b.words)
        for b in blocks
        if isinstance(b, Paragraph)
    ]


def test_under_the_offline_bound_and_without_one():
    blocks = blocks_of([0.0, 0.0, 0.0, 2.0, 0.0])
    assert texts(blocks) == [
        (
            "With a bound on offline time just under the 2 s that BEB needs at least: (Random), "
            "(e-Greedy)."
        ),
        "With any offline time: (Random), (e-Greedy), (BEB, e-Greedy).",
    ]
    bounded, free = (b for b in blocks if isinstance(b, Table))
    assert [[cell.text for cell in row.cells] for row in free.rows] == [
        ["10 ns", "Random", ""],
        ["200 ns", "e-Greedy", ""],
        ["400 ns", "BEB", "e-Greedy"],
    ]
    assert [row.cells[1].text for row in bounded.rows] == ["Random", "e-Greedy"]
    assert bounded.id != free.id


def test_where_none_computes_offline_there_is_one_list():
    assert texts(blocks_of(0.0)) == [
        "As the bound on online time is loosened: (Random), (e-Greedy), (BEB, e-Greedy)."
    ]


def test_agents_without_times_do_not_take_part():
    assert texts(blocks_of(0.0, [1e-8, 2e-7, np.nan, 4e-7, 1e-8])) == [
        "As the bound on online time is loosened: (Random), (e-Greedy), (BEB)."
    ]
    assert blocks_of(np.nan) == []


def test_agents_that_cannot_be_paired_have_no_list():
    _, returns = study(experiments=[("GC", "GC", "GC")])
    assert blocks_of(0.0, returns=returns.iloc[1:]) == []
