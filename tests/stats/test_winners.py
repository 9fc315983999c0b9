"""Winners from left to right: studies whose winners are known."""

import numpy as np
import pandas as pd
import pytest

from jbrl.stats import agreement, published, winners
from tests.published_study import NAMES, rows, sample, study

N = 200


def contest(levels, case="accurate", experiment="GC"):
    """(played, returns): agents (name, mean, online seconds, offline seconds) with the same noise
    on every MDP.
    """
    noise = sample(0.0, 1.0, n=N)
    parts = [rows(case, experiment, name, {}, mean + noise) for name, mean, *_ in levels]
    first = pd.concat([part.iloc[:1] for part in parts])
    units = first.assign(
        online_seconds=[on for _, _, on, _ in levels], offline_seconds=[off for *_, off in levels]
    )
    returns = pd.concat(parts)
    return agreement.played(returns, units), returns


LEVELS = [
    ("Random", 1.0, 1e-8, 0.0),
    ("SBOSS", 2.0, 1e-7, 0.0),
    ("SBOSS-published", 1.0, 1e-9, 0.0),
    ("e-Greedy", 3.0, 1e-6, 0.0),
    ("BEB", 3.0, 2e-6, 0.0),
    ("BEB-published", 4.0, 3e-6, 0.0),
    ("OPPS-DS", 9.0, 1e-9, 10.0),
    ("Formula", 9.0, 1e-9, 0.0),
    ("BAMCP", 9.0, 1e-9, 10.0),
]


@pytest.fixture(scope="module")
def steps():
    found = winners.with_published(*contest(LEVELS))
    return found[(found["case"] == "accurate") & (found["experiment"] == "GC")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("paper", ["Random", "SBOSS", "BEB e-Greedy", "BEB BFS3 e-Greedy"]),
        # what costs as much offline as OPPS-DS is out
        ("as described", ["Random", "SBOSS", "e-Greedy", "BEB e-Greedy"]),
        ("as published", ["SBOSS", "Random SBOSS", "e-Greedy", "BEB"]),
    ],
)
def test_winners(steps, source, expected):
    mine = steps[steps["source"] == source]
    assert [" ".join(sorted(names)) for names in mine["algorithms"]] == expected
    assert list(mine["place"]) == list(range(1, len(expected) + 1))


def test_bounds_are_the_times_from_which_on_they_win(steps):
    np.testing.assert_array_equal(
        steps.loc[steps["source"] == "as described", "bound"], [1e-8, 1e-7, 1e-6, 2e-6]
    )
    assert steps.loc[steps["source"] == "paper", "bound"].isna().all()


def test_in_words(steps):
    told = winners.in_words(steps).set_index("source")["winners"]
    assert told["paper"] == "(Random), (SBOSS), (BEB, e-Greedy), (BEB, BFS3, e-Greedy)"
    assert told["as described"] == "(Random), (SBOSS), (e-Greedy), (BEB, e-Greedy)"


def test_experiments_that_were_not_played_have_the_papers_list_only():
    found = winners.with_published(*contest(LEVELS[:1] + LEVELS[3:4]))
    sources = {
        key: list(dict.fromkeys(rows["source"]))
        for key, rows in found.groupby(["case", "experiment"], sort=False)
    }
    assert sources.pop(("accurate", "GC")) == ["paper", "as described", "as published"]
    assert list(sources.values()) == [["paper"]] * 5


def test_without_a_search_there_is_no_bound_on_offline_time():
    found = winners.with_published(*contest([*LEVELS[:1], ("BAMCP", 9.0, 1e-3, 10.0)]))
    assert list(found.loc[found["source"] == "as described", "algorithms"]) == [
        ("Random",),
        ("BAMCP",),
    ]


def test_agents_whose_times_are_not_known_do_not_take_part():
    found = winners.with_published(*contest([*LEVELS[:4], ("BEB", 5.0, np.nan, 0.0)]))
    assert not any(
        "BEB" in names for names in found.loc[found["source"] == "as described", "algorithms"]
    )


def test_all_experiments_of_a_whole_study():
    returns, units = study()
    found = winners.in_words(winners.with_published(agreement.played(returns, units), returns))
    assert list(found["source"]) == ["paper", "as described", "as published"] * 6
    printed = [
        ", ".join(f"({', '.join(names)})" for names in rows["algorithms"]) for _, rows in _lists()
    ]
    assert list(found.loc[found["source"] == "paper", "winners"]) == printed


def _lists():
    return published.winners_by_bound().groupby(["case", "experiment"], sort=False)


def test_of_two_experiments_of_a_pair_that_with_the_most_agents_counts():
    """The other one has fewer MDPs, which cannot all be paired."""
    returns, units = study()
    pair = ["accurate", "GC"]
    mine = returns["experiment"] == NAMES[*pair]
    few = returns[mine & (returns["algorithm"] == "BEB") & (returns["unit"] < 60)]
    beside = [
        frame.assign(experiment="GC-60")
        for frame in (
            few,
            units[(units["experiment"] == NAMES[*pair]) & (units["algorithm"] == "BEB")],
        )
    ]
    told = (pd.concat([returns, beside[0]]), pd.concat([units, beside[1]]))
    lists = [
        winners.in_words(winners.with_published(agreement.played(*tables), tables[0]))
        for tables in ((returns, units), told)
    ]
    pd.testing.assert_frame_equal(*lists)
