"""The comparison with Jordan et al. 2020: the published tables and z-scores by hand."""

import numpy as np
import pandas as pd
import pytest

from experiments import jordan_ranking
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Episodes
from jbrl.problems.lookup import problem
from jbrl.stats.published import jordan2020


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


def test_what_does_not_belong_to_the_comparison_is_left_out_and_nothing_is_refused():
    table = pd.DataFrame(
        {"algorithm": ["AC", "Random"], "environment": ["Acrobot", "Acrobot"], "score": [1.0, 2.0]}
    )
    assert list(jordan2020.known(table)["algorithm"]) == ["AC"]
    with pytest.raises(JbrlError, match="no score of one of the algorithms Sarsa-lambda, "):
        jordan2020.known(table[1:])


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
