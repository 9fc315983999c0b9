"""docs/which-agent.md says what the kept scores say of the price of time."""

import numpy as np
import pandas as pd
import pytest

import jbrl
from experiments import price_of_time
from jbrl.stats.time_bounds import Contest

PAGE = price_of_time.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def contests():
    return price_of_time.contests(jbrl.Results(price_of_time.KEPT).sections())


def test_the_table_is_that_of_the_kept_scores(contests):
    first, last = price_of_time.MARKS
    assert PAGE.split(first)[1].split(last)[0].strip() == price_of_time.table(contests).strip()


def test_the_figure_has_a_panel_for_each_problem(contests):
    drawing = price_of_time.figure(contests)
    titles = [axes.get_title() for axes in drawing.figure.axes]
    assert titles == list(contests)
    assert all(axes.patches for axes in drawing.figure.axes)


def test_what_the_page_says_of_the_price_of_time(contests):
    words = " ".join(PAGE.split())
    ends = [
        contest.winners({"online": 1, "offline": 1e3}).algorithms for contest in contests.values()
    ]
    tied = {name: sum(name in winners for winners in ends) for name in sum(ends, ())}
    assert tied == {"BEB": 14, "e-Greedy": 13, "OPPS-DS": 10, "DPT": 10, "BeliefPPO": 8}
    assert "BEB is among the best on 14, e-Greedy on 13" in words
    assert (
        "tied with the best on eight more" in words
        and "the best on ten, BeliefPPO on eight" in words
    )
    without = {
        name: winners for name, winners in zip(contests, ends, strict=True) if "BEB" not in winners
    }
    assert without == {
        "GC(n_states=5)": ("DPT",),
        "GDL(length=6)": ("DPT", "e-Greedy", "BeliefPPO"),
    }
    maps = {name: price_of_time.regions(contest) for name, contest in contests.items()}
    assert not any("BAMCP" in winners for one in maps.values() for winners in one["winners"])
    least, most = maps["GC(n_states=5)"]["latency"].unique()
    assert round(1e3 * most, 1) == 0.2 and 1.5 < most / least < 2.5
    units = jbrl.load_results("price-of-time").units
    for name in ("BeliefPPO", "DPT"):
        seconds = units.query(f"algorithm == '{name}'")["offline_seconds"]
        assert f"of {name} took {seconds.min():.0f} to {seconds.max():.0f} s" in words
    one = jbrl.load_results("prior-trained").units
    one = one.query("experiment == 'GC' and algorithm == 'BeliefPPO'")
    (idle,) = one[one["parameters"].str.contains('"budget": 81920,')]["offline_seconds"]
    assert f"on GC takes [{idle:.0f} s](trained.md)" in words


def test_winners_change_only_where_an_agent_comes_in():
    """By hand: B beats A by 1 on each MDP and needs 2 s before; C ties with B at 50 times the
    latency.
    """
    noise = np.random.default_rng(0).normal(size=(3, 100))
    scores = pd.DataFrame(
        {
            "experiment": "E",
            "algorithm": ["A", "B", "C"],
            "parameters": "{}",
            "seed": 0,
            "offline_seconds": [0.0, 2.0, 0.0],
            "online_seconds": [1e-5, 1e-5, 5e-4],
        }
    )
    returns = [
        {"experiment": "E", "algorithm": name, "parameters": "{}", "seed": 0, "unit": unit,
         "score": level + 0.1 * noise[row, unit]}
        for row, (name, level) in enumerate((("A", 0.0), ("B", 1.0), ("C", 1.0)))
        for unit in range(100)
    ]  # fmt: skip
    found = price_of_time.regions(Contest(scores, pd.DataFrame(returns)))
    sets = {(row.latency, row.offline): set(row.winners) for row in found.itertuples()}
    assert sets == {
        (1e-5, 0.0): {"A"},
        (5e-4, 0.0): {"C"},
        (1e-5, 2.0): {"B"},
        (5e-4, 2.0): {"B", "C"},
    }
