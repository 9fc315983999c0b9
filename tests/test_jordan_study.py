"""The studies of the comparison with Jordan et al. 2020, how trials are spread, and `jbrl compare
DIR --to jordan2020`.
"""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jbrl
from experiments import jordan, jordan_kept, jordan_ranking
from jbrl.base.errors import JbrlError
from jbrl.comparison import _undefined
from jbrl.results import Results
from jbrl.stats.evaluation.ranking import Options, evaluate
from jbrl.stats.published import jordan2020
from jbrl.study.file import load_study
from jbrl.study.storage.archive import UNIT
from tests.study.storage.test_store import HEADER, opened
from tests.terminal import call, refused, succeeds

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.mark.parametrize(
    "name", ["jordan.toml", pytest.param("jordan-cpu.toml", marks=pytest.mark.slow)]
)
def test_studies_have_all_cells_with_the_published_lifetimes(name):
    units = load_study(EXPERIMENTS / name).units
    assert {(unit.experiment, unit.algorithm) for unit in units} == {
        (environment, algorithm)
        for environment in jordan2020.PROBLEMS.values()
        for algorithm in jordan2020.ALGORITHMS.values()
    }
    for unit in units:
        protocol = unit.protocol
        assert protocol.test.short_name == unit.experiment
        assert protocol.lifetime.episodes == jordan2020.episodes(unit.experiment)
        assert name != "jordan.toml" or protocol.n_environments == jordan2020.TRIALS
        assert 30 <= protocol.n_environments <= jordan2020.TRIALS


def test_trials_follow_the_width_and_the_root_of_the_cost():
    table = pd.DataFrame(
        [("a", 1.0, 0.1), ("a", 3.0, 0.1), ("b", 400.0, 0.1), ("c", 4.0, 0.2)],
        columns=["environment", "seconds", "width"],
    )
    trials = jordan.allocation(table, 100_000.0)
    assert trials["a"] == pytest.approx(10 * trials["b"], rel=0.1)
    assert trials["c"] == pytest.approx(2 * trials["a"], rel=0.1)
    spent = 4 * trials["a"] + 400 * trials["b"] + 4 * trials["c"]
    assert 0.9 * 100_000 < spent <= 100_000
    assert jordan.allocation(table, 1.0) == {"a": 30, "b": 30, "c": 30}
    assert jordan.allocation(table, 1e12) == {"a": 10_000, "b": 10_000, "c": 10_000}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Results of four lifetimes, beside them of Random, and of six with the same seed."""
    places = []
    for n, others in ((4, [{"algorithm": "Random"}]), (6, [])):
        study = {
            "study": {"name": "pilot", "n_environments": n},
            "experiments": [{"name": "Chain-10d", "problem": "Chain-10d"}],
            "agents": [{"algorithm": "Sarsa-lambda"}, *others],
        }
        places.append(tmp_path_factory.mktemp(f"played-{n}"))
        store = jbrl.run(study, places[-1], only="Sarsa", progress=False).store
        first, *rest = load_study(study).units
        for unit in rest:  # not played: that takes another program
            store.save(unit, store.result(first.id).header, np.zeros(n))
    return places


@pytest.mark.slow
def test_costs_are_read_from_a_pilot(played):
    trials, pieces = jordan_kept.of_results(played[0])
    table = jordan.costs(trials, pieces).set_index("algorithm")
    results = Results(played[0])
    scores = results.returns.query("algorithm == 'Sarsa-lambda'")["score"]
    assert list(table.index) == ["Sarsa-lambda"], "Random is none of the eleven"
    assert table.loc["Sarsa-lambda", "width"] == pytest.approx(scores.std() / 191)
    id = next(u["id"] for u in results.manifest["units"] if u["algorithm"] == "Sarsa-lambda")
    header = results.store.result(id).header
    steps = np.mean(-scores) * 100 + 100  # a step of an episode costs 1, the last one nothing
    seconds = header["online_seconds"] * header["machine"]["cores"] * steps
    assert table.loc["Sarsa-lambda", "seconds"] == pytest.approx(seconds, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("few", [2, 5])
def test_cells_with_too_few_trials_are_guessed(played, few, monkeypatch):
    monkeypatch.setattr(jordan, "FEW", few)
    table = jordan.read(played[0]).set_index(["environment", "algorithm"])
    guessed = jordan.rough().set_index(["environment", "algorithm"])
    assert len(table) == 165
    assert (table[["seconds", "width", "compile"]] > 0).all(axis=None)
    known = jordan.costs(*jordan_kept.of_results(played[0])).iloc[0]
    cell, other = (("Chain-10d", "Sarsa-lambda"), ("Chain-10d", "AC"))
    assert table.loc[cell, "width"] == known["width"]
    assert (table.loc[cell, "seconds"] == known["seconds"]) == (few == 2)
    scale = known["seconds"] / guessed.loc[cell, "seconds"] if few == 2 else 1
    assert table.loc[other, "seconds"] == pytest.approx(scale * guessed.loc[other, "seconds"])
    alone = ("CartPole", "AC")
    assert table.loc[alone, "seconds"] == pytest.approx(guessed.loc[alone, "seconds"])


def test_pieces_are_added_and_trials_are_counted_once(played, tmp_path):
    assert jordan_kept.keep([played[0]], tmp_path).to_numpy().tolist() == [[4]]
    first = jordan_kept.trials(tmp_path)
    counts = jordan_kept.keep(played[::-1], tmp_path)
    assert counts.loc["Chain-10d", "Sarsa-lambda"] == 6
    kept, pieces = jordan_kept.trials(tmp_path), jordan_kept.pieces(tmp_path)
    assert list(kept["unit"]) == list(range(6))
    pd.testing.assert_frame_equal(kept.head(4), first)
    assert list(pieces["trials"]) == [6]
    results = Results(played[1])
    np.testing.assert_array_equal(
        kept["drawn_alpha"],
        results.metrics("Chain-10d", "Sarsa-lambda")["drawn_alpha"].astype(np.float32),
    )
    kept.assign(score=0.0).to_parquet(tmp_path / "trials.parquet", index=False)
    with pytest.raises(JbrlError, match="lifetime 0: kept with a score of 0, now -"):
        jordan_kept.keep([played[0]], tmp_path)


@pytest.mark.slow
def test_trials_are_kept_under_the_problem_of_their_experiment(tmp_path):
    """Whatever the experiment is called, and with further episodes or without."""
    study = {
        "study": {"name": "names", "n_environments": 2},
        "experiments": [
            {"name": "Chain-10d", "problem": "Chain-10s"},
            {"name": "a chain", "problem": "with_end(Chain-10d)"},
        ],
        "agents": [{"algorithm": "Sarsa-lambda", "learning_episodes": 100}],
    }
    results = jbrl.run(study, tmp_path, progress=False)
    scores = results.returns.groupby("experiment")["score"].apply(list)
    trials, pieces = jordan_kept.of_results(tmp_path)
    by_environment = trials.groupby("environment")["score"].apply(list)
    assert by_environment.to_dict() == {
        "Chain-10d": scores["a chain"],
        "Chain-10s": scores["Chain-10d"],
    }
    assert list(pieces["environment"]) == ["Chain-10d", "Chain-10s"]


@pytest.fixture(scope="module")
def several():
    """Three algorithms on four environments, one of which only two of them have played."""
    rng = np.random.default_rng(5)
    names = ("Sarsa-lambda", "Sarsa-lambda-s", "PPO-linear")
    places = ("Chain-10d", "MountainCar", "Acrobot")
    cells = {
        (a, e): rng.normal(i + j, 1, 60) for i, a in enumerate(names) for j, e in enumerate(places)
    }
    cells |= {(a, "CartPole"): rng.normal(size=60) for a in names[:2]}
    parts = [
        pd.DataFrame({"algorithm": a, "environment": e, "score": values})
        for (a, e), values in cells.items()
    ]
    return pd.concat(parts, ignore_index=True)


def test_aggregate_is_of_environments_that_all_have_played(several):
    samples = jordan_ranking.shared_samples(several)
    assert samples.environments == ("Chain-10d", "MountainCar", "Acrobot")
    same = samples.same.sum(axis=(0, 2))
    assert list(same) == [5, 3, 3]  # the scaled algorithm is the plain one on the chain
    evaluation = evaluate(samples, ("pbp", "pbp-t"), Options())
    table = jordan_ranking.compare_aggregate(evaluation)
    assert list(table.columns) == list(jordan_ranking.AGGREGATE)
    row = table[(table["method"] == "pbp-t") & (table["algorithm"] == "PPO-linear")].iloc[0]
    assert row["published"] == pytest.approx(0.0508, abs=5e-5)
    assert row["published_rank"] == 11
    assert "aggregate of 3 algorithms on 3 environments" in next(jordan_ranking.facts(samples))


def test_moves_repeat_the_evaluation_with_one_thing_changed(several):
    table = jordan_ranking.moves(several, ("pbp-t",))
    assert list(table.columns) == list(jordan_ranking.MOVES)
    samples = jordan_ranking.shared_samples(several)
    plain = evaluate(samples, ("pbp-t",)).aggregate.set_index("algorithm")
    by = table.set_index(["change", "value", "algorithm"])
    for name in samples.algorithms:
        for key in (("delta", 0.05, name), ("trials", 60, name)):
            assert by.loc[key, "lower"] == plain.loc[name, "lower"]
        assert by.loc[("delta", 0.01, name), "score"] == plain.loc[name, "score"]
        wide, narrow = (by.loc[("delta", d, name), ["lower", "upper"]] for d in (0.01, 0.5))
        assert wide["lower"] <= narrow["lower"]
        assert narrow["upper"] <= wide["upper"]
    # 1 % of 60 trials is one, which has no interval
    assert list(table.loc[table["change"] == "trials", "value"].unique()) == [2, 6, 18, 60]
    rest = several[several["environment"] != "Acrobot"]
    without = evaluate(jordan_ranking.shared_samples(rest), ("pbp-t",)).aggregate
    assert (
        by.loc[("without", "Acrobot", "PPO-linear"), "score"]
        == (without.set_index("algorithm").loc["PPO-linear", "score"])
    )
    assert set(table.loc[table["change"] == "without", "value"]) == set(samples.environments)


def test_no_ranking_without_an_environment_of_two_algorithms():
    table = pd.DataFrame({"algorithm": ["AC"], "environment": ["Acrobot"], "score": [1.0]})
    with pytest.raises(JbrlError, match="no environment that two algorithms"):
        jordan_ranking.moves(table)


KNOWN = Path(__file__).parents[1] / "experiments" / "evaluation" / "resimulated.parquet"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The first 40 trials of three algorithms on three environments."""
    table = pd.read_parquet(KNOWN)
    table = table[
        table["algorithm"].isin(["ac-normal", "q-parl2", "ppo"])
        & table["environment"].isin(["chain10d", "chain10s", "mountaincar"])
    ]
    path = tmp_path_factory.mktemp("small") / "scores.parquet"
    table.groupby(["algorithm", "environment"]).head(40).to_parquet(path)
    return path


def test_all_cells_that_were_simulated_before_agree():
    """An earlier simulation by another program: 99 cells, of which 75 have samples of their own."""
    result = succeeds("compare", KNOWN, "--to", "jordan2020", "--format", "csv")
    cells = pd.read_csv(io.StringIO(result.stdout))
    assert len(cells) == 165
    assert (cells["verdict"] == "agrees").sum() == 99
    assert cells["z"].abs().max() < 3
    assert "99 of 165 cells within 3.5 standard errors of the published mean, 0 beyond" in (
        result.stderr
    )


def test_cells_are_printed_and_written(small, tmp_path):
    result = succeeds("compare", small, "--to", "jordan2020", "--out", tmp_path / "out")
    assert re.search(r"^Chain-10d +AC +40 ", result.stdout, re.MULTILINE)
    assert result.stderr.splitlines()[-1] == str(tmp_path / "out" / "compare.csv")
    assert len(pd.read_csv(tmp_path / "out" / "compare.csv")) == 165


STUDY = {
    "study": {"name": "two", "n_environments": 3, "seed": 1},
    "experiments": [
        {"name": "a chain", "problem": "Chain-10d", "n_environments": 4},
        {"name": "other", "problem": "Chain-10s", "episodes": 5},
    ],
    "agents": [
        {"algorithm": "Sarsa-lambda"},
        {"algorithm": "Random"},
        {"algorithm": "Sarsa-Parl2", "experiments": ["a chain"]},
    ],
}


def results_of(study: dict, folder: Path) -> None:
    """Results of all units of a study: numbers of its own for each lifetime."""
    store, units = opened(folder, load_study(study))
    for number, unit in enumerate(units):
        store.save(unit, HEADER, np.arange(unit.protocol.n_environments) - 200.0 - number)


def test_rows_of_the_comparison_are_kept_and_counted_anew():
    names = {"algorithm": ["Random", "Sarsa-lambda"], "environment": ["Chain-10d"] * 2}
    found = jordan2020.known(pd.DataFrame({**names, "score": [1.0, 2.0]}))
    assert found.reset_index().to_dict("records") == [
        {"index": 0, "algorithm": "Sarsa-lambda", "environment": "Chain-10d", "score": 2.0}
    ]


def test_experiments_are_known_by_their_problem(tmp_path):
    """And each may have its own number of environments; those of others are left out."""
    beyond = {"name": "no part of it", "problem": "DeepSea", "episodes": 5}
    study = {**STUDY, "experiments": [STUDY["experiments"][0], beyond]}
    results_of(study, tmp_path)
    result = succeeds("compare", tmp_path, "--to", "jordan2020", "--format", "json")
    entries = json.loads(result.stdout)
    played = {(row["environment"], row["algorithm"]): row for row in entries if row["n"]}
    assert {key: row["n"] for key, row in played.items()} == {
        ("Chain-10d", "Sarsa-lambda"): 4,
        ("Chain-10d", "Sarsa-Parl2"): 4,
    }
    returns = jbrl.Results(tmp_path).returns.query("algorithm == 'Sarsa-Parl2'")["score"]
    assert played["Chain-10d", "Sarsa-Parl2"]["mean"] == pytest.approx(returns.mean())


@pytest.mark.parametrize(("cells", "more"), [(10, ""), (11, ", and 1 more cells")])
def test_cells_with_one_trial_of_nan_are_named(cells, more):
    table = pd.DataFrame({"algorithm": ["AC"] * cells, "environment": "x", "undefined": 1, "n": 4})
    table = pd.concat([table, table.assign(undefined=0)])
    [words] = jordan2020._undefined_words(table)
    assert words.startswith(f"{cells} of {8 * cells} trials with NaN")
    assert words.endswith("; " + ", ".join(["AC on x 1 of 4"] * 10) + more)
    assert not [*jordan2020._undefined_words(table[table["undefined"] == 0])]


@pytest.mark.parametrize(
    ("metrics", "undefined"),
    [
        ({"skipped_updates": [0, 1, 2, 0], "undefined_steps": [0, 0, 0, 1]}, [0, 1, 1, 1]),
        ({"undefined_steps": [0, 1]}, [0, 1]),
        ({"regret": [0, 1]}, None),
    ],
)
def test_one_update_or_step_makes_a_trial_of_nan(metrics, undefined):
    results = object.__new__(Results)
    kept: Any = {name: np.array(values) for name, values in metrics.items()}
    results.store = SimpleNamespace(metrics=lambda _: kept)  # type: ignore[assignment]
    found = results.undefined("id")
    assert found is undefined is None or found.tolist() == undefined


def test_trials_of_nan_are_those_of_their_unit():
    met = {"a": np.array([False, True, True]), "b": None}
    units = [{**dict.fromkeys(UNIT, name), "id": name} for name in met]
    table = pd.DataFrame(units).loc[[0, 0, 1, 0]].assign(unit=[2, 0, 1, 1])
    results: Any = SimpleNamespace(returns=table, undefined=met.get, manifest={"units": units})
    (found,) = _undefined(results).values()
    np.testing.assert_array_equal(found, [1, 0, np.nan, 1])
    results.undefined = {"a": None, "b": None}.get
    assert _undefined(results) == {}


@pytest.mark.slow
def test_trials_with_nan_are_counted(tmp_path):
    """Steps of a billion overflow on all trials of one cell; an archive has no counts."""
    file = tmp_path / "large.toml"
    file.write_text(
        '[study]\nname = "large"\nn_environments = 2\n'
        '[[experiments]]\nname = "Chain-10d"\nproblem = "Chain-10d"\n'
        '[[experiments]]\nname = "Chain-10s"\nproblem = "Chain-10s"\n'
        '[[agents]]\nalgorithm = "Sarsa-lambda"\nalpha_low = 1e9\nalpha_high = 1e9\n'
        'experiments = ["Chain-10d"]\n'
        '[[agents]]\nalgorithm = "Sarsa-Parl2"\nexperiments = ["Chain-10s"]\n'
    )
    results = jbrl.run(file, tmp_path / "out", progress=False)
    arguments = ("--to", "jordan2020", "--format", "csv")
    result = call("compare", tmp_path / "out", *arguments)
    cells = pd.read_csv(io.StringIO(result.stdout)).set_index(["environment", "algorithm"])
    assert list(cells.columns[-2:]) == ["undefined", "verdict"]
    assert cells.loc[("Chain-10d", "Sarsa-lambda"), "undefined"] == 2
    assert cells["undefined"].sum() == 2
    words = " ".join(result.stderr.split())
    assert "2 of 4 trials with NaN" in words and "Sarsa-lambda on Chain-10d 2 of 2" in words
    for command in (("scores", tmp_path / "out"), ("run", file, "--out", tmp_path / "out")):
        words = " ".join(call(*command).stderr.split())
        assert words.count("lifetimes with NaN") == 1
        assert "note: Chain-10d/Sarsa-lambda seed 0: 2 of 2 lifetimes with NaN" in words
    results.archive(tmp_path / "kept")
    assert "NaN" not in call("scores", tmp_path / "kept").stderr
    result = call("compare", tmp_path / "kept", *arguments)
    assert "undefined" not in pd.read_csv(io.StringIO(result.stdout))
    assert "NaN" not in result.stderr


def test_bad_input_is_refused_in_one_sentence(tmp_path):
    results_of({**STUDY, "agents": STUDY["agents"][:1]}, tmp_path / "short")
    said = "a lifetime of experiment other is 5 episodes, and 100 episodes in the published"
    refused(call("compare", tmp_path / "short", "--to", "jordan2020"), said)
    twice = {**STUDY, "experiments": STUDY["experiments"][:1]}
    twice["agents"] = [{"algorithm": "Sarsa-lambda", "epsilon_high": [0.05, 0.1]}]
    results_of(twice, tmp_path / "twice")
    said = "2 settings of Sarsa-lambda in experiment a chain: expected one"
    refused(call("compare", tmp_path / "twice", "--to", "jordan2020"), said)
    refused(call("compare", tmp_path / "none", "--to", "jordan2020"))
    with pytest.raises(JbrlError, match="no score of one of the algorithms"):
        other = tmp_path / "other.csv"
        other.write_text("algorithm,environment,score\nA,X,1\n")
        from jbrl.comparison import jordan2020_scores

        jordan2020_scores(other)
