"""The tables of docs/jordan.md are those of the trials that are kept."""

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import jordan_kept, jordan_published
from jbrl.stats.published import jordan2020

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "jordan.md").read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def trials():
    return jordan_kept.trials()


def test_the_table_of_other_agents_is_that_of_the_kept_trials(trials, tmp_path: Path) -> None:
    jordan_published.main(["--tables", "--out", str(tmp_path)])
    kept = ROOT / "docs" / "_static" / "jordan" / "beside.md"
    assert (tmp_path / "beside.md").read_text() == kept.read_text()


def test_pieces_account_for_all_trials(trials):
    by = trials.groupby(["environment", "algorithm", "seed"])
    pieces = jordan_kept.pieces().set_index(["environment", "algorithm", "seed"])
    assert pieces["trials"].sort_index().equals(by.size().rename("trials").sort_index())
    assert (by["unit"].max() + 1 == by.size()).all(), "the first lifetimes, without gaps"
    assert np.isfinite(trials["score"]).all()


def test_what_it_takes_is_what_the_page_says():
    pieces = jordan_kept.pieces()
    sarsa = pieces[pieces["algorithm"] == "Sarsa-lambda"].set_index("environment")
    for problem in ("Gridworld-10d", "Gridworld-10s"):
        row = sarsa.loc[problem]
        compiling = f"{row['compile_seconds']:.1f}" if row["compile_seconds"] else "shared"
        assert (
            f"| Sarsa-lambda, {problem}, {row['trials']:,} trials | "
            f"{row['seconds']:.1f} | {compiling} |"
        ) in PAGE
    for name, chosen, trials in (
        ("the eight discrete environments, 1,000 trials each", jordan2020.DISCRETE, 1000),
        ("MountainCar, 300 trials each", ["MountainCar"], 300),
    ):
        rows = pieces[pieces["environment"].isin(chosen)]
        assert (rows["trials"] == trials).all() and len(rows) == 11 * len(chosen)
        playing, compiling = rows["seconds"].sum(), rows["compile_seconds"].sum()
        assert f"| all eleven, {name} | {playing:.0f} | {compiling:.0f} |" in PAGE


def test_the_smaller_study_takes_what_the_page_says():
    study = tomllib.loads((ROOT / "experiments" / "jordan-cpu.toml").read_text(encoding="utf-8"))
    counts = {each["name"]: each["n_environments"] for each in study["experiments"]}
    by = jordan_kept.pieces().groupby(["environment", "algorithm"])[["seconds", "trials"]].sum()
    wanted = by.index.get_level_values("environment").map(counts)
    hours = (by["seconds"] / by["trials"] * wanted).sum() / 3600
    assert f"come to {hours:.1f} hours of one core" in PAGE


def test_cells_beyond_are_those_that_the_page_explains(trials):
    cells = jordan2020.compare_cells(jordan2020.known(trials))
    far = cells[cells["verdict"] == jordan2020.DIFFERS]
    assert len(far) == 2 and "Two cells are beyond 3.5" in PAGE
    for row in far.itertuples():
        numbers = f"{row.mean:.1f} ".replace("-", "−")
        assert f"{row.algorithm} on {row.environment} ({numbers}" in PAGE


def test_other_agents_are_as_the_page_says(trials):
    played = jordan_published.jbrl.Results(jordan_published.BESIDE)
    assert (played.scores["status"] == "done").all()
    mean = played.scores.set_index(["algorithm", "experiment"])["mean"]
    width = played.scores.set_index(["algorithm", "experiment"])["ci95"]
    for environment, best in (("Chain-10d", 8), ("Chain-50d", 48), ("Gridworld-5d", 8)):
        assert -1.25 * best < mean["e-Greedy", environment] < -best
    assert -1.25 * 18 < mean["e-Greedy", "Gridworld-10d"] < -18
    scores = trials.groupby(["environment", "algorithm"])["score"]
    theirs = scores.mean() + 1.96 * scores.sem()
    for environment in mean["e-Greedy"].index:
        ours = mean["e-Greedy", environment] - width["e-Greedy", environment]
        assert (ours > theirs[environment].max()) == (environment != "Chain-10s"), environment


def test_final_policies_are_as_the_page_says():
    kept = pd.read_parquet(jordan_published.END)
    means = kept.groupby(["algorithm", "environment"])[["life", "end"]].mean()
    discrete = [name for name in kept["environment"].unique() if name in jordan2020.DISCRETE]
    assert len(discrete) == 8
    end = means["end"].unstack()[discrete]
    life = means["life"].unstack()[discrete]
    greedy = ["Sarsa-lambda", "Sarsa-lambda-s", "Q-lambda", "Q-lambda-s"]
    assert (end.loc[greedy] < life.loc[greedy]).all(axis=None)
    actors = ["AC", "AC-s", "AC-Parl2", "PPO-linear"]
    assert (end.loc[actors] > life.loc[actors]).all(axis=None)
    large = ["Gridworld-10d", "Gridworld-10s", "MountainCar", "CartPole"]
    assert (means["end"].unstack()[large].idxmax() == "AC-Parl2").all()


def test_differences_of_end_and_life_on_cart_pole_are_as_the_page_says():
    kept = pd.read_parquet(jordan_published.END)
    rows = kept[kept["environment"] == "CartPole"]
    by = (rows["end"] - rows["life"]).groupby(rows["algorithm"])
    assert (by.size().drop("PPO-linear") == 32).all()
    mean, width = by.mean(), jordan_published.HALF_WIDTH * by.sem()
    far = mean.index[mean.abs() > width]
    assert sorted(far) == ["AC", "AC-Parl2", "AC-s", "NAC-TD", "PPO-linear", "Q-Parl2"]
    assert len(mean) - len(far) == 5
    for name in far:
        number = f"{mean[name]:.0f}".replace("-", "−")
        assert f"{number} ± {width[name]:.0f} for {name}" in PAGE


def test_lives_of_the_study_of_ends_are_those_of_the_kept_trials(trials):
    kept = pd.read_parquet(jordan_published.END)
    both = kept.merge(trials[trials["seed"] == 2020], on=["environment", "algorithm", "unit"])
    assert len(both) == len(kept)
    # the kept trials of NAC-TD are of its version 2: one has another score, as the page says
    other = both[(both["life"] - both["score"]).abs() > 1e-2]
    assert other[["environment", "algorithm", "unit"]].to_numpy().tolist() == [
        ["CartPole", "NAC-TD", 20]
    ]
