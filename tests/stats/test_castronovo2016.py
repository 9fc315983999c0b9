"""Published numbers of Castronovo et al. 2016 and Jordan et al. 2020 as they are packaged, and
verdicts on cells: analytic cases, and studies whose means are known.
"""

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import jordan_ranking
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Episodes
from jbrl.problems.lookup import problem
from jbrl.problems.problem import PROBLEMS
from jbrl.stats import two_studies
from jbrl.stats.published import castronovo2016, jordan2020
from jbrl.stats.published.castronovo2016 import (
    CELL,
    DEFECT,
    EXPLANATION,
    MISPRINT,
    PROTOCOL,
    verdicts,
    with_published,
)
from tests.published_study import rows, sample, study

ROOT = Path(__file__).parents[2]
ALGORITHMS = ["Random", "e-Greedy", "Soft-max", "OPPS-DS", "BAMCP", "BFS3", "SBOSS", "BEB"]
# The bold cells of Figs 9 and 13.
BEST = ["OPPS-DS", "BAMCP", "OPPS-DS", "OPPS-DS", "OPPS-DS", "OPPS-DS"]


def verdict(returns, case="accurate", experiment="GC", algorithm="Random"):
    """The row of one cell."""
    table = castronovo2016.verdicts(with_published(two_studies.played(returns, returns)))
    return table.set_index(list(CELL)).loc[case, experiment, algorithm]


def random(mean, half_width, **options):
    """Returns of Random on GC."""
    scores = sample(mean, half_width, **options)
    return rows("accurate", "GC", "Random", {}, scores, seed=options.get("seed", 0))


@pytest.fixture(scope="module")
def everything():
    returns, units = study()
    return two_studies.played(returns, units)


def test_the_published_means_agree_with_themselves(everything):
    table = verdicts(with_published(everything))
    assert list(table["verdict"]) == ["agrees"] * 48
    np.testing.assert_allclose(table["difference"], 0, atol=1e-12)
    np.testing.assert_allclose(table["combined"], 2 * table["published_ci95"], atol=1e-9)
    counts = castronovo2016.counts(table)
    others = ["known defect", "misprint", "agrees, other parameters", "differs", "not played"]
    assert list(counts) == ["agrees", *others, "in all", "cells"]
    assert list(counts.values()) == [48, 0, 0, 0, 0, 0, 48, 48]


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("shift", "agree"), [(1.99, 48), slow(-1.99, 48), slow(2.01, 2), (-2.01, 2)]
)
def test_means_agree_up_to_the_sum_of_both_half_widths(shift, agree):
    """Both half-widths are equal. Soft-max on Grid is 0 ± 0 whatever the shift."""
    returns, units = study(shift)
    table = castronovo2016.verdicts(with_published(two_studies.played(returns, units)))
    assert castronovo2016.counts(table)["agrees"] == agree
    told = table[table["published_ci95"] > 0]
    np.testing.assert_allclose(told["apart"], shift * 1.96 / np.sqrt(2), rtol=1e-9)


def test_a_difference_of_exactly_the_sum_agrees():
    assert verdict(random(31.12 + 0.9 + 0.5, 0.5))["verdict"] == "agrees"


@pytest.mark.parametrize(("mean", "expected"), [(0, ("agrees", 0)), (1, ("differs", np.inf))])
def test_zero_and_zero_agree_and_any_other_mean_does_not(mean, expected):
    returns = rows("accurate", "Grid", "Soft-max", {"tau": 0.05}, np.full(10, float(mean)))
    cell = verdict(returns, experiment="Grid", algorithm="Soft-max")
    assert (cell["verdict"], cell["apart"]) == expected


def softmax(*, described, as_published):
    scores = {
        "Soft-max": sample(described, 1.8),
        "Soft-max-published": sample(as_published, 1.8, seed=1),
    }
    return pd.concat([rows("accurate", "GC", name, {"tau": 0.1}, x) for name, x in scores.items()])


@pytest.mark.parametrize(
    ("described", "as_published", "expected", "agent"),
    [
        (34.7, 34.7, "agrees", "Soft-max"),
        (41.2, 34.5, "known defect", "Soft-max-published"),
        (41.2, 30.0, "differs", "Soft-max-published"),
        (39.0, 45.0, "differs", "Soft-max"),
    ],
)
def test_the_first_way_that_agrees_decides_else_the_nearest(
    described, as_published, expected, agent
):
    cell = verdict(softmax(described=described, as_published=as_published), algorithm="Soft-max")
    assert (cell["verdict"], cell["agent"]) == (expected, agent)
    assert bool(cell["explanation"]) == bool(cell["reference"]) == (expected == "known defect")
    # what the program computes is no setting of the algorithm
    np.testing.assert_allclose(cell["best"], described)


def test_a_formula_is_a_way_of_opps_and_the_reversed_one_its_misprint():
    parts = [
        rows("accurate", "GC", "Formula", {"formula": f}, sample(m, 1.8))
        for f, m in (("Q2/Q0", 29.2), ("Q0/Q2", 40.7))
    ]
    parts += [
        rows("accurate", "GC", "OPPS-DS", {"space": s, "budget": 50}, sample(m, 1.8))
        for s, m in (("F2", 40.0), ("F3", 41.0))
    ]
    cell = verdict(pd.concat(parts), algorithm="OPPS-DS")
    assert (cell["verdict"], cell["parameters"]) == ("misprint", '{"formula": "Q0/Q2"}')
    assert cell["best"] == pytest.approx(41.0)
    assert json.loads(cell["best_parameters"])["space"] == "F3"


def test_a_smaller_budget_is_asked_last_and_told():
    def bamcp(simulations, depth=15, returns=(6.2, 0.3)):
        setting = {"simulations": simulations, "depth": depth}
        return rows("accurate", "Grid", "BAMCP", setting, sample(*returns))

    cheap = [bamcp(9000), bamcp(500), bamcp(9999, 25)]
    for parts, expected in (
        (cheap, ("agrees, other parameters", "9,000 simulations instead of 25,000")),
        ([*cheap, bamcp(25_000, returns=(6.3, 0.3))], ("agrees", "")),
        ([bamcp(1, returns=(0.5, 0.1))], ("differs", "1 simulations instead of 25,000")),
    ):
        cell = verdict(pd.concat(parts), experiment="Grid", algorithm="BAMCP")
        assert (cell["verdict"], cell["explanation"]) == expected


def test_every_parameter_of_a_search_is_a_budget_and_the_greatest_product_is_taken():
    settings = [
        dict(zip(("trajectories", "samples", "depth"), v, strict=True))
        for v in ((50, 15, 15), (500, 2, 15), (500, 15, 100))
    ]
    parts = [rows("accurate", "Grid", "BFS3", setting, sample(3.4, 0.2)) for setting in settings]
    cell = verdict(pd.concat(parts), experiment="Grid", algorithm="BFS3")
    assert cell["explanation"] == "2 samples instead of 15, depth 15 instead of 50"
    only = verdict(parts[0], experiment="Grid", algorithm="BFS3")
    assert only["explanation"] == "50 trajectories instead of 500, depth 15 instead of 50"


def test_a_greater_budget_does_not_stand_in():
    more = rows("accurate", "GC", "BAMCP", {"simulations": 5000, "depth": 15}, sample(35.6, 1.3))
    assert verdict(more, algorithm="BAMCP")["verdict"] == "not played"


def test_only_printed_parameters_count_and_they_must_be_equal():
    def sboss(epsilon):
        setting = {"epsilon": epsilon, "delta": 7.0, "max_samples": 1024}
        return rows("accurate", "GC", "SBOSS", setting, sample(35.9, 1.8))

    assert verdict(sboss(0.001), algorithm="SBOSS")["verdict"] == "agrees"
    cell = verdict(sboss(0.01), algorithm="SBOSS")
    assert (cell["verdict"], cell["n"], cell["agent"]) == ("not played", 0, "")
    assert cell["best"] == pytest.approx(35.9) and np.isnan(cell["mean"])


@pytest.mark.parametrize("prior", ["UGC", "uniform(GC)"])
def test_experiments_are_known_by_their_distributions_not_by_name(prior):
    returns = rows("inaccurate", "GC", "Random", {}, sample(31.7, 1.0))
    returns = returns.assign(experiment="whatever", prior=prior)
    assert verdict(returns, case="inaccurate")["verdict"] == "agrees"


def test_seeds_are_taken_together():
    parts = [random(mean, 1.0, n=50, seed=s) for s, mean in ((0, 30.0), (1, 32.0))]
    cell = verdict(pd.concat(parts))
    assert (cell["n"], cell["mean"]) == (100, pytest.approx(31.0))


def test_candidates_stand_in_order_with_the_best_setting_last():
    parts = [
        softmax(described=41.2, as_published=34.5),
        rows("accurate", "GC", "Soft-max", {"tau": 0.05}, sample(42.0, 1.8)),
    ]
    returns = pd.concat(parts)
    ways = with_published(two_studies.played(returns, returns))
    assert tuple(ways.columns) == castronovo2016.CANDIDATES
    assert list(ways["way"]) == ["same parameters", "defect", "our best"]
    assert list(ways["agrees"]) == [False, True, False]
    assert ways["mean"].iloc[-1] == pytest.approx(42.0)


def test_nothing_to_compare_is_refused():
    one = rows("accurate", "GC", "Random", {}, np.ones(3)).assign(prior="Grid")
    message = r"none of the published cells has been played.*found Random in GC"
    with pytest.raises(JbrlError, match=message):
        with_published(two_studies.played(one, one))
    with pytest.raises(JbrlError, match="not one unit of this study is done"):
        two_studies.played(one.iloc[:0], one)
    with pytest.raises(JbrlError, match="no column prior"):
        two_studies.played(one, one.drop(columns="prior"))


@pytest.mark.parametrize("field", ["horizon", "discount"])
def test_another_protocol_is_refused(field):
    message = rf"{field} is 0\.9 in here and .* in there: .*--set study\.{field}="
    with pytest.raises(JbrlError, match=message):
        two_studies.check_protocol({field: 0.9}, PROTOCOL, "here", "there")
    two_studies.check_protocol({}, PROTOCOL, "here", "there")
    two_studies.check_protocol(dict(PROTOCOL), PROTOCOL, "here", "there")


def test_a_pair_may_be_played_in_several_experiments_and_the_most_mdps_decide():
    """Two experiments have the prior and the test distribution of one pair."""
    few, many = (random(mean, 1.0, n=n) for mean, n in ((29.0, 60), (31.2, 500)))
    greedy = rows("accurate", "GC", "e-Greedy", {"epsilon": 0.0}, sample(40.6, 3.0, n=60))
    parts = [frame.assign(experiment="GC-60") for frame in (few, greedy)]
    returns = pd.concat([*parts, many])
    cell = verdict(returns)
    assert (cell["played_in"], cell["n"]) == ("GC", 500)
    assert cell["mean"] == pytest.approx(31.2)
    other = verdict(returns, algorithm="e-Greedy")
    assert (other["played_in"], other["n"], other["verdict"]) == ("GC-60", 60, "agrees")


def test_there_are_eight_algorithms_in_each_of_six_experiments():
    cells = castronovo2016.cells()
    groups = cells.groupby(["case", "experiment"], sort=False)
    assert [list(rows["algorithm"]) for _, rows in groups] == [ALGORITHMS] * 6
    assert list(groups.groups) == [
        (case, e) for case in ("accurate", "inaccurate") for e in ("GC", "GDL", "Grid")
    ]
    assert [rows.loc[rows["mean"].idxmax(), "algorithm"] for _, rows in groups] == BEST
    assert set(cells["experiment"]) <= set(PROBLEMS)


@pytest.mark.parametrize(
    ("algorithm", "printed", "expected"),
    [
        ("Random", "", {}),
        ("e-Greedy", "epsilon=0.1", {"epsilon": 0.1}),
        ("BAMCP", "K=2500;depth=15", {"simulations": 2500, "depth": 15}),
        ("BFS3", "K=500;C=15;depth=50", {"trajectories": 500, "samples": 15, "depth": 50}),
        ("SBOSS", "epsilon=1e-06;delta=0.0001", {"epsilon": 1e-6, "delta": 1e-4}),
        ("OPPS-DS", "max(Q0(x,u),|Q2(x,u)|)", {"formula": "max(Q0,|Q2|)"}),
    ],
)
def test_parameters_have_the_names_of_our_agents(algorithm, printed, expected):
    values = castronovo2016.parameters(algorithm, printed)
    assert values == expected
    assert [type(v) for v in values.values()] == [type(v) for v in expected.values()]


def test_every_cell_can_be_played_and_has_at_most_one_note_of_a_kind():
    for cell in castronovo2016.cells().to_dict("records"):
        AGENTS[cell["agent"]].agent(**json.loads(cell["parameters"]))
        kinds = [note["kind"] for note in castronovo2016.notes_on(cell)]
        assert len(kinds) == len(set(kinds)), cell


def test_notes_are_about_cells_and_agents_and_pages_that_there_are():
    cells = castronovo2016.cells()
    for note in castronovo2016.notes().to_dict("records"):
        mine = cells
        for column in CELL:
            mine = mine[mine[column] == note[column]] if note[column] else mine
        assert len(mine), note
        assert note["kind"] in (DEFECT, MISPRINT, EXPLANATION)
        assert note["explanation"]
        assert (ROOT / note["reference"].split("#")[0]).is_file(), note["reference"]
        if note["kind"] != EXPLANATION:
            AGENTS[note["played"]].agent(**json.loads(note["parameters"] or "{}"))


def test_notes_on_a_cell_are_those_of_its_algorithm_and_experiment():
    cell = {"case": "accurate", "experiment": "GC", "algorithm": "OPPS-DS"}
    (note,) = castronovo2016.notes_on(cell)
    assert note["kind"] == MISPRINT
    note["kind"] = "changed"
    assert castronovo2016.notes_on(cell)[0]["kind"] == MISPRINT
    assert castronovo2016.notes_on({**cell, "experiment": "GDL"}) == []
    (note,) = castronovo2016.notes_on({**cell, "algorithm": "BEB"})
    assert note["played"] == "BEB-published"


def test_tables_are_copies_and_their_sources_are_told():
    for table in (castronovo2016.cells, castronovo2016.notes, castronovo2016.program):
        changed = table()
        changed["case"] = "neither"
        assert not (table()["case"] == "neither").any()
    folder = resources.files("jbrl.stats.published")
    told = folder.joinpath("README.md").read_text(encoding="utf-8")
    assert all(f"`{file.name}`" in told for file in folder.iterdir() if file.name.endswith(".csv"))


def scores(cells):
    """A score table from {(algorithm, environment): scores}."""
    parts = [
        pd.DataFrame({"algorithm": a, "environment": e, "score": np.asarray(values, float)})
        for (a, e), values in cells.items()
    ]
    return jordan2020.known(pd.concat(parts, ignore_index=True))


def test_published_names_are_those_of_the_registers():
    assert set(jordan2020.ALGORITHMS.values()) <= set(AGENTS)
    for name in jordan2020.PROBLEMS.values():
        lifetime = problem(name).lifetime
        assert isinstance(lifetime, Episodes)
        assert lifetime.episodes == jordan2020.episodes(name)


def test_published_tables_are_whole():
    cells = jordan2020.cells()
    assert len(cells) == 165
    assert list(cells["environment"].unique()) == list(jordan2020.PROBLEMS.values())
    assert (cells.groupby("environment").size() == 11).all()
    assert ((cells["lower"] <= cells["mean"]) & (cells["mean"] <= cells["upper"])).all()
    table = jordan_ranking.aggregate()
    assert list(table.groupby("method", sort=False).size()) == [11, 11, 11]
    assert (table["lower"] <= table["score"]).all()
    assert (table["score"] <= table["upper"]).all()
    misprinted = table[(table["printed"] - table["score"]).abs() > 5.1e-5]
    assert set(misprinted["algorithm"]) == {"Q-Parl2"}


def test_z_allows_for_rounding():
    """AC on Chain-10d is printed as -32.2. Four trials with mean -35.2 and standard deviation 2
    have an error of 2 √(1/4 + 1/10,000) = 1.0002; 2.95 of the difference are beyond rounding.
    """
    deviations = np.array([-1, -1, 1, 1]) * np.sqrt(3)
    trials = {
        ("AC", "Chain-10d"): -35.2 + deviations,
        ("AC", "Chain-10s"): -55.0 + deviations * 0,
        ("nactd", "chain10d"): [-89.68] * 3,
        ("PPO-linear", "Chain-10d"): [-38.0],
    }
    cells = jordan2020.compare_cells(scores(trials)).set_index(["environment", "algorithm"])
    row = cells.loc["Chain-10d", "AC"]
    assert (row["published"], row["n"], row["verdict"]) == (-32.2, 4, "agrees")
    assert row["error"] == pytest.approx(2 * np.sqrt(0.2501))
    assert row["z"] == pytest.approx(-2.95 / (2 * np.sqrt(0.2501)))
    assert cells.loc[("Chain-10s", "AC"), "verdict"] == "differs"  # a constant that is not printed
    within = cells.loc["Chain-10d", "NAC-TD"]  # -89.7 to one decimal, without any spread
    assert (within["z"], within["verdict"]) == (0, "agrees")
    assert cells.loc[("Chain-10d", "PPO-linear"), "verdict"] == "one trial"
    assert (cells["verdict"] == "not played").sum() == 161
    assert jordan2020.in_words(cells).splitlines() == [
        "2 of 165 cells within 3.5 standard errors of the published mean, 1 beyond, 161 not played"
    ]  # a constant is infinitely far away


def test_z_of_the_same_distribution_is_standard_normal():
    """Means of 165 cells drawn around the published ones: the root mean square of z lies within
    1 ± 0.25, outside which it lies with probability below 1e-5 (chi-square, 165 degrees).
    """
    rng = np.random.default_rng(3)
    published = jordan2020.cells()
    spread = 0.2 * published["mean"].abs() + 20
    centre = published["mean"] + rng.normal(size=165) * spread / np.sqrt(jordan2020.TRIALS)
    cells = {
        (row.algorithm, row.environment): rng.normal(centre[i], spread[i], 100)
        for i, row in enumerate(published.itertuples())
    }
    table = jordan2020.compare_cells(scores(cells))
    assert 0.75 < np.sqrt((table["z"] ** 2).mean()) < 1.25
    words = jordan2020.in_words(table).splitlines()
    assert words[0].startswith(f"{(table['verdict'] == 'agrees').sum()} of 165 cells within 3.5")
    rms, most = np.sqrt((table["z"] ** 2).mean()), table["z"].abs().max()
    assert words[1:] == [
        f"differences beyond rounding: {rms:.2f} standard errors in the root mean square, at most "
        f"{most:.2f}"
    ]


def test_cells_with_nan_are_named_only_where_there_are_some():
    table = scores({("AC", "Chain-10d"): [1, 2, 3], ("ppo", "mountaincar"): [1, 2]})
    assert "NaN" not in jordan2020.in_words(jordan2020.compare_cells(table))
    for values, expected in [([0, 0, 0, 0, 0], 0), ([1, 0, 1, 0, 0], 2)]:
        cells = jordan2020.compare_cells(table.assign(undefined=np.array(values, float)))
        assert cells["undefined"].sum() == expected
        words = jordan2020.in_words(cells)
        assert ("2 of 5 trials with NaN" in words) == (expected == 2)
    assert "AC on Chain-10d 2 of 3" in words and "MountainCar" not in words
    unknown = jordan2020.compare_cells(table.assign(undefined=[0, 0, 1, np.nan, np.nan]))
    assert unknown.set_index(["algorithm", "environment"])["undefined"].isna().sum() == 1
