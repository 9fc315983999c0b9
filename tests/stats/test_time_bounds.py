"""The best within time bounds, by hand, and times that a measurement does not tell apart."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jbrl.base.errors import JbrlError
from jbrl.stats.paired_test import paired_z, rejected
from jbrl.stats.time_bounds import (
    Contest,
    bounds_grid,
    least_offline,
    merged,
    resolved,
    winners_by_bound,
    winners_map,
)
from tests.stats.tables import returns_of

WAVE = np.tile([-1.0, 1.0], 20)
MDPS = np.linspace(0, 10, 40)
# Means 5, 6, 7, 7 less a hair, 9; what differs is significant except C against B(2).
LEVELS = {
    ("A", "{}"): MDPS,
    ("B", "1"): MDPS + 1,
    ("B", "2"): MDPS + 2,
    ("C", "{}"): MDPS + 1.99 + WAVE,
    ("D", "{}"): MDPS + 4,
}
OFFLINE = [0.0, 0.0, 0.0, 0.0, 60.0]
ONLINE = [1e-6, 2e-6, 4e-6, 3e-6, 1e-6]


def contest(levels=LEVELS, offline=OFFLINE, online=ONLINE, **options):
    agents = pd.DataFrame(levels.keys(), columns=["algorithm", "parameters"]).assign(
        experiment="GC"
    )
    return Contest(
        agents.assign(offline_seconds=offline, online_seconds=online), returns_of(levels), **options
    )


def test_by_hand():
    agents = contest()
    assert agents.winners({}).algorithms == ("D",)
    assert agents.winners({"offline": 59.9}).algorithms == ("B", "C")
    assert agents.winners({"offline": 60}).algorithms == ("D",)
    assert agents.winners({"offline": 1, "online": 3.9e-6}).algorithms == ("C",)
    assert agents.winners({"offline": 1, "online": 2e-6}).algorithms == ("B",)
    assert agents.winners({"online": 2e-6}).algorithms == ("D",)
    assert agents.winners({"longest": 59}).algorithms == ("B", "C")
    assert agents.winners({"online": 1e-9}).algorithms == ()
    best = list(agents.winners({"offline": 1}).agents)
    assert agents.scores["parameters"].iloc[best].tolist() == ["2", "{}"]


def test_winners_succeed_one_another_from_left_to_right():
    rows = winners_by_bound(contest(), "online", {"offline": 1})
    assert rows["bound"].tolist() == [1e-6, 2e-6, 3e-6, 4e-6]
    assert rows["algorithms"].tolist() == [("A",), ("B",), ("C",), ("B", "C")]
    assert winners_by_bound(contest())["algorithms"].tolist() == [("D",)]
    assert winners_by_bound(contest(), "online", {"offline": -1}).empty


def test_a_user_s_own_feature():
    def decisions_for_the_price_of_one(scores):
        return 250 * scores["online_seconds"]

    np.testing.assert_allclose(
        contest().times(decisions_for_the_price_of_one), 250 * np.array(ONLINE)
    )


def test_one_and_two_sided_and_holm():
    # Z = 1.8 against the best for both others: p = 0.036 one-sided, 0.072 two-sided; Holm asks
    # 0.025 of the first of two.
    near = {"a": MDPS, "b": MDPS - 1.8 / np.sqrt(39) + WAVE, "c": MDPS - 1.8 / np.sqrt(39) - WAVE}
    levels = {(name, "{}"): scores for name, scores in near.items()}
    times = {"offline": [0.0] * 3, "online": [1e-6] * 3}
    z = paired_z(near["a"], near["b"], sided="one").z
    assert z == pytest.approx(1.8)
    assert contest(levels, **times).winners({}).algorithms == ("a",)
    assert contest(levels, **times, sided="two").winners({}).algorithms == ("a", "b", "c")
    assert contest(levels, **times, correction="holm").winners({}).algorithms == ("a", "b", "c")


def test_holm_by_hand():
    # Holm 1979: p = .01 <= .05/4, .013 <= .05/3, .03 > .05/2, then no more.
    assert rejected([0.03, 0.01, 0.013, 0.04], 0.05, "holm") == [False, True, True, False]
    assert rejected([0.03, 0.01, 0.013, 0.06], 0.05) == [True, True, True, False]
    assert rejected([], 0.05, "holm") == []


def test_a_single_mdp_tells_nothing_apart():
    levels = {("A", "{}"): [1.0], ("B", "{}"): [2.0]}
    assert contest(levels, [0.0, 0.0], [1e-6, 1e-6]).winners({}).algorithms == ("B", "A")


AGENTS = st.lists(
    st.tuples(
        st.sampled_from("ABC"),
        st.integers(0, 3),
        st.integers(0, 3),
        st.lists(st.integers(-3, 3), min_size=5, max_size=5),
    ),
    min_size=1,
    max_size=7,
)


@pytest.mark.slow
@given(agents=AGENTS, x=st.integers(0, 3), y=st.integers(0, 3))
def test_the_same_as_searching_all_agents(agents, x, y):
    levels = {
        (name, str(i)): [float(v) for v in scores] for i, (name, _, _, scores) in enumerate(agents)
    }
    tested = contest(
        levels, [float(o) for _, o, _, _ in agents], [float(o) for _, _, o, _ in agents]
    )
    left = [i for i, (_, offline, online, _) in enumerate(agents) if offline <= y and online <= x]
    best = {}
    for i in left:
        name, scores = agents[i][0], agents[i][3]
        if name not in best or sum(scores) > sum(agents[best[name]][3]):
            best[name] = i
    champions = sorted(best.values(), key=lambda i: (-sum(agents[i][3]), i))
    expected = [
        agents[i][0]
        for i in champions
        if i == champions[0]
        or not paired_z(agents[champions[0]][3], agents[i][3], sided="one").different
    ]
    assert tested.winners({"online": x, "offline": y}).algorithms == tuple(expected)


def test_the_map_is_the_winners_of_each_point():
    agents = winners_map(contest(), points=12)
    assert len(agents) == 144
    for row in agents.itertuples():
        assert row.algorithms == contest().winners({"online": row.x, "offline": row.y}).algorithms
    assert set(agents["algorithms"]) >= {("B", "C"), ("D",)}
    assert set("".join(agents["algorithms"].sum())) <= set("ABCD")


def test_bounds_reach_below_and_above_all_positive_times():
    grid = bounds_grid(np.array([0.0, 1e-3, 10.0]), 30)
    assert grid[0] < 1e-3 and grid[-1] > 10 and len(grid) == 30
    np.testing.assert_allclose(np.diff(np.log(grid)), np.log(grid[1] / grid[0]))
    assert bounds_grid(np.zeros(2), 3)[1] == pytest.approx(1)


def test_the_grid_shows_what_lies_below_positive_times_where_some_are_zero():
    positive, zeros = (bounds_grid(np.array([least, 1.0, 100.0]), 30) for least in (0.5, 0.0))
    assert zeros[0] < 10**-0.4 and positive[0] > 0.3


def test_the_algorithm_that_needs_most_time_offline():
    assert least_offline(contest()) == ("D", 60.0)
    assert least_offline(contest(offline=[0.0, 5.0, 1.0, 0.0, 0.5])) == ("B", 1.0)
    assert least_offline(contest(offline=[0.0] * 5)) is None


def test_what_is_refused():
    with pytest.raises(JbrlError, match="unknown feature 'ofline'; did you mean 'offline'"):
        contest().times("ofline")
    with pytest.raises(JbrlError, match="no column 'latency_seconds'"):
        contest().times("latency")
    with pytest.raises(JbrlError, match="no online time of B 1, and 1 more"):
        contest(online=[1e-6, np.nan, 4e-6, None, 1e-6]).times("online")
    with pytest.raises(JbrlError, match="correction = 'bonferroni'"):
        contest(correction="bonferroni")
    message = r"D \{\} \(39 environments\) and A \{\} \(40 environments\) were not played on the"
    with pytest.raises(JbrlError, match=message):
        contest(LEVELS | {("D", "{}"): MDPS[:39]})
    returns = returns_of(LEVELS)
    with pytest.raises(JbrlError, match="no returns of C"):
        Contest(contest().scores, returns[returns["algorithm"] != "C"])


@pytest.mark.parametrize(
    ("seconds", "spreads", "expected"),
    [
        ([1.09e-7, 1.1e-7, 1.97e-7], 0.0, [1.1e-7, 1.1e-7, 2e-7]),  # two digits
        ([1.97e-7, 1.09e-7, 1.1e-7], 0.0, [2e-7, 1.1e-7, 1.1e-7]),  # in any order
        ([1.0e-7, 1.4e-7, 1.9e-7], [5e-8, 0.0, 0.0], [1e-7, 1e-7, 1.9e-7]),  # within a spread
        ([1.0e-7, 1.4e-7, 1.9e-7], [0.0, 5e-8, 0.0], [1e-7, 1e-7, 1.9e-7]),  # of either
        ([1.0e-7, 1.4e-7, 1.9e-7], 5e-8, [1e-7, 1e-7, 1.9e-7]),  # no chains: the least counts
        ([0.0, 0.0], 0.0, [0.0, 0.0]),
        ([], 0.0, []),
    ],
)
def test_ties(seconds, spreads, expected):
    spread = np.broadcast_to(spreads, len(seconds))
    assert merged(np.array(seconds, float), spread) == pytest.approx(expected)


def test_what_the_dispatch_of_a_call_takes_is_no_offline_time():
    # 2.7, 0.43 and 0.29 ms were measured for one program that trains nothing but a table
    offline = [0.43e-3, 0.29e-3, 2.7e-3, 3.5e-3]
    times = resolved(pd.DataFrame({"offline_seconds": offline, "online_seconds": 1e-7}))
    assert list(times["offline_seconds"]) == [0.0, 0.0, 2.7e-3, 2.7e-3]
    assert list(times["online_seconds"]) == [1e-7] * 4


def test_spreads_are_used_where_they_are_known():
    scores = pd.DataFrame({"online_seconds": [1e-7, 1.3e-7, 2e-7, 2.3e-7], "offline_seconds": 0.0})
    scores["online_seconds_spread"] = [4e-8, np.nan, np.nan, np.nan]
    assert list(resolved(scores)["online_seconds"]) == [1e-7, 1e-7, 2e-7, 2.3e-7]
