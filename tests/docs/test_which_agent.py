"""docs/which-agent.md and docs/choose.md say what the kept results say."""

import json

import numpy as np
import pandas as pd
import pytest

import jbrl
from experiments import features, price_of_time
from jbrl.agents.complete import plain_parameters
from jbrl.base.schema import AGENT
from jbrl.stats.time_bounds import Contest
from jbrl.study import portfolio
from jbrl.study.file import load_study

ROOT = price_of_time.ROOT
PAGE = price_of_time.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def contests():
    return price_of_time.contests(jbrl.Results(price_of_time.KEPT).sections())


@pytest.fixture(scope="module")
def everywhere(contests):
    results = jbrl.Results(price_of_time.paper_cpu.KEPT)
    return contests | price_of_time.compared(results.sections())


def test_the_table_is_that_of_the_kept_scores(everywhere):
    first, last = price_of_time.MARKS
    assert PAGE.split(first)[1].split(last)[0].strip() == price_of_time.table(everywhere).strip()


@pytest.fixture(scope="module")
def explained():
    return features.both()


def test_the_table_of_features_is_that_of_the_kept_scores(explained):
    first, last = features.MARKS
    assert PAGE.split(first)[1].split(last)[0].strip() == features.rows_of(explained).strip()


def test_what_the_page_says_of_features(explained):
    words = " ".join(PAGE.split())
    tied = explained[explained["behind"] <= 2 * explained["error"]]
    problems = explained["problem"].nunique()
    assert f"e-Greedy is bold on {(tied['agent'] == 'e-Greedy').sum()} of {problems}" in words
    lost = features.lost(explained)
    alone = {name: share for name, share in lost.items() if name in features.AGENTS}
    best = min(alone, key=alone.__getitem__)
    for share, text in (
        (lost["best on average"], "best on average there, loses {:.1f} %"),
        (lost["by the nearest features"], "where features are nearest loses {:.1f} %"),
        (alone[best], f"in hindsight, {best.replace(' ', ' with ')} everywhere loses {{:.1f}} %"),
    ):
        assert text.format(100 * share) in words
    shares = 100 * explained.set_index(["problem", "agent"])["share"].loc["GDL-inaccurate"]
    others = shares.drop("OPPS-DS")
    assert f"goes {shares['OPPS-DS']:.0f} % of the way and the others {others.max():.0f} %" in words


def test_what_is_lost_is_counted_on_other_families():
    """By hand: A is better by 0.2 on both problems of one family, B by 0.4 on those of another;
    chosen by the other family, each loses what it lies behind.
    """
    shares = {
        "X(n=1)": (0.5, 0.3),
        "X": (0.5, 0.3),
        "Y(n=1)": (0.1, 0.5),
        "Y-inaccurate": (0.1, 0.5),
    }
    table = pd.DataFrame(
        {"problem": problem, "agent": agent, "share": share}
        | dict.fromkeys(features.SHOWN, 1.0 + place)
        for place, (problem, both) in enumerate(shares.items())
        for agent, share in zip("AB", both, strict=True)
    )
    lost = features.lost(table)
    assert lost["best on average"] == pytest.approx((0.2 + 0.2 + 0.4 + 0.4) / 4)
    assert lost["by the nearest features"] == pytest.approx(0.3)
    assert (lost["A"], lost["B"]) == (pytest.approx(0.2), pytest.approx(0.1))


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
    assert "OPPS-DS and DPT, after seconds, are among the best on ten of 16" in words
    assert "BeliefPPO on eight, BEB on 14 and e-Greedy on 13" in words
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
    trained = units.query("algorithm in ('DPT', 'OPPS-DS')")["offline_seconds"]
    assert "after seconds" in words and trained.max() < 60
    grids = [one["latency"].max() for name, one in maps.items() if name.startswith("Grid")]
    assert {round(1e3 * latency, 2) for latency in grids} == {0.27} and "on Grid (0.27 ms)" in words
    for name in ("BeliefPPO", "DPT"):
        seconds = units.query(f"algorithm == '{name}'")["offline_seconds"]
        assert f"of {name} took {seconds.min():.0f} to {seconds.max():.0f} s" in words
    one = jbrl.load_results("prior-trained").units
    one = one.query("experiment == 'GC' and algorithm == 'BeliefPPO'")
    (idle,) = one[one["parameters"].str.contains('"budget": 81920,')]["offline_seconds"]
    assert f"on GC takes [{idle:.0f} s](trained.md)" in words


def test_what_the_page_says_of_choices_by_features(everywhere):
    words = " ".join(PAGE.split())
    lost = [
        features.lost(price_of_time.shares(everywhere, limit)) for limit in price_of_time.OFFLINE
    ]
    for rule, text in (
        ("best on average", "loses {} % of the way from acting at random to knowing the MDP with "
         "nothing before, {} % with 15 s and {} % with 5 min"),
        ("by the nearest features", "by the nearest features {}, {} and {} %"),
        ("BEB", "BEB everywhere, in hindsight, {}, {} and {} %"),
    ):  # fmt: skip
        assert text.format(*(f"{100 * one[rule]:.1f}" for one in lost)) in words
    bounds = {"online": price_of_time.LATENCY, "offline": price_of_time.OFFLINE[-1]}
    ends = [contest.winners(bounds).algorithms for contest in everywhere.values()]
    tied = {name: sum(name in winners for winners in ends) for name in sum(ends, ())}
    often = {name: n for name, n in tied.items() if n > 1}
    assert often == {"BEB": 18, "e-Greedy": 14, "OPPS-DS": 14, "DPT": 13, "BeliefPPO": 10}
    assert (
        f"BEB on 18 of {len(ends)}, OPPS-DS and e-Greedy on 14, DPT on 13, BeliefPPO on 10" in words
    )
    # Look-ahead is of the brackets
    assert {*portfolio.FAVOURED, portfolio.SOONEST} == {*often, "Look-ahead"}


def test_units_of_the_complete_comparison_are_counted_by_their_parameters():
    units = jbrl.Results(price_of_time.paper_cpu.KEPT).units

    def key(experiment, algorithm, values):
        own = {name: value for name, value in values.items() if not name.startswith("max_")}
        return experiment, algorithm, json.dumps(own, sort_keys=True)

    kept = {
        key(one, name, json.loads(values))
        for one, name, values in zip(*(units[c] for c in AGENT), strict=True)
    }
    complete = load_study(ROOT / "experiments/paper.toml").units
    both = {key(u.experiment, u.algorithm, plain_parameters(u.agent)) for u in complete} & kept
    text = f"{len(units)} units, {len(both)} of them of [the complete one](studies.md), whose"
    assert f"{text} {len(complete)} would take months" in " ".join(PAGE.split())


def test_winners_change_only_where_an_agent_comes_in():
    """By hand: B beats A by 1 on each MDP and needs 2 s before; C ties with B at 50 times the
    latency.
    """
    noise = np.random.default_rng(0).normal(size=(3, 100))
    columns = {"experiment": "E", "algorithm": ["A", "B", "C"], "parameters": "{}", "seed": 0}
    columns |= {"offline_seconds": [0.0, 2.0, 0.0], "online_seconds": [1e-5, 1e-5, 5e-4]}
    scores = pd.DataFrame(columns)
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


def test_what_the_page_of_choices_says_of_those_that_are_kept():
    rows = pd.read_csv(ROOT / "benchmarks/results/choose.csv")
    words = " ".join((ROOT / "docs/choose.md").read_text(encoding="utf-8").split())
    assert len(rows) == 40 and rows["within"].all() and "All 40 choices are within epsilon" in words
    assert rows["load"].max() < 4 and "with loads of 0 to 4" in words
    early = (rows["tried"] < rows["candidates"]).sum()
    assert f"in {early} the budget ended before all candidates were tried" in words
    share = (rows["loop_p99_us"] / rows["online"].map({"2ms": 2000, "400us": 400})).max()
    assert f"the 99th percentile is at most {share:.2f} of the limit" in words
    for given, text in (
        (rows["seconds"], "A choice takes {:g} to {:g} s"),
        (rows["loop_median_us"], "a decision takes {:g} to {:g} µs"),
    ):
        assert text.format(given.min(), given.max()) in words
    ratio = rows["study_seconds"] / rows["seconds"]
    assert f"takes {ratio.min():.1f} to {ratio.max():.0f} times as long" in words
