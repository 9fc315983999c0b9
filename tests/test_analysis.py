"""`jbrl.evaluate`, `jbrl.metrics` and `jbrl.subset`: what the commands compute, from Python."""

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.analysis import _study_table, samples_from
from jbrl.base.errors import JbrlError, JbrlWarning
from jbrl.stats.evaluation.ranking import evaluate
from jbrl.stats.evaluation.samples import samples_of
from jbrl.stats.subset.preparation import Preparation
from jbrl.stats.subset.problem import Search
from jbrl.study.file import load_study
from tests.study.storage.test_store import HEADER, opened, study
from tests.terminal import call, refused


@pytest.fixture(scope="module")
def table():
    """Scores of 24 algorithms on 4 environments, the last of which is the mean of the others."""
    scores = np.random.default_rng(0).normal(size=(24, 3))
    scores = np.column_stack([scores, scores.mean(axis=1)])
    rows = [(f"A{i:02}", f"E{j}", x) for i, row in enumerate(scores) for j, x in enumerate(row)]
    return pd.DataFrame(rows, columns=["algorithm", "environment", "score"])


def test_tables_in_memory_and_files_are_evaluated_alike(table, tmp_path):
    three = table[table["algorithm"] < "A03"]
    three.to_csv(tmp_path / "scores.csv", index=False)
    direct = evaluate(samples_of(three)).aggregate
    for source in (three, tmp_path / "scores.csv", [three]):
        pd.testing.assert_frame_equal(jbrl.evaluate(source).aggregate, direct)
    options = jbrl.EvaluateOptions(algorithms=["A00", "A01", "A02"])
    pd.testing.assert_frame_equal(jbrl.evaluate(table, options).aggregate, direct)
    with pytest.raises(JbrlError, match="table 1: no column environment"):
        jbrl.evaluate(three.drop(columns="environment"))
    with pytest.raises(JbrlError, match=r"take about .* minutes: expected at most 0"):
        jbrl.evaluate(three, jbrl.EvaluateOptions(minutes=0))


def test_agents_of_a_study_are_chosen_from_by_their_means_over_seeds(tmp_path):
    agents = [{"algorithm": "e-Greedy", "epsilon": [0, 0.5]}, {"algorithm": "Random"}]
    results = stored(tmp_path, agents, seed=[0, 1])
    table, references = _study_table(tmp_path)
    expected = results.scores.groupby("parameters", sort=False)["mean"].mean()
    assert references is None
    np.testing.assert_allclose(table["score"], expected, rtol=1e-12)
    with pytest.raises(JbrlError, match=r"^2 units fit .*: expected exactly one"):
        results.trajectories("GC", "Random")
    with pytest.raises(JbrlError, match=r"^0 units fit"):
        results.trajectories("GC", "Random", seed=2)
    next((tmp_path / "units").glob("*.npz")).unlink()
    with pytest.warns(JbrlWarning, match="1 of 6 units are not done: means are over the others"):
        _study_table(tmp_path)


@pytest.mark.parametrize(
    ("optimal", "kept"), [({"GC": 9, "GDL": 4}, ["GC", "GDL"]), ({"GC": 1}, ["GC", "GDL", "Grid"])]
)
def test_scores_of_a_study_are_per_cent_of_random_to_optimal(tmp_path, optimal, kept):
    """Where that is not known, a warning says so, and no environment is lost without a word."""
    eps = [k / 8 for k in range(6)]
    agents = [{"algorithm": "e-Greedy", "epsilon": eps}, {"algorithm": "Random"}]
    tables = {
        "study": {"name": "ends", "n_environments": 4, "horizon": 3},
        "experiments": [{"name": name, "problem": name} for name in ("GC", "GDL", "Grid")],
        "agents": [*agents, {"algorithm": "Optimal", "experiments": ["GC", "GDL"]}],
    }
    store, units = opened(tmp_path, load_study(tables))
    for number, unit in enumerate(units):
        means = {"Random": 1.0, "Optimal": float(optimal.get(unit.experiment, 0))}
        store.save(unit, HEADER, np.full(4, means.get(unit.algorithm, number % 7 + 0.5)))
    scores = jbrl.Results(tmp_path).scores
    played = scores[scores["algorithm"] != "Optimal"].groupby(["experiment", "parameters"])
    means = played["mean"].mean().unstack("experiment")[kept]
    names, outcome = "GC, GDL, Grid", "scores stay as they are"
    if len(kept) < 3:
        means = 100 * (means - 1) / (pd.Series(optimal)[kept] - 1)
        names, outcome = "Grid", "they are left out"
    with pytest.warns(JbrlWarning, match=f"Optimal .* than Random in {names}: {outcome}"):
        found = jbrl.subset(tmp_path, Search(1, "in-sample")).prepared
    assert found.environments == tuple(kept) and len(found.algorithms) == 7
    np.testing.assert_allclose(np.sort(found.normalised, 0), np.sort(means, 0), rtol=1e-12)


def test_a_score_that_is_no_number_is_named(tmp_path):
    store, units = opened(tmp_path, study())
    store.save(units[0], HEADER, np.array([1, 2, np.nan, 3]))
    with pytest.raises(JbrlError, match=r"row 3 \(experiment GC, algorithm e-Greedy, .* unit 2\)"):
        jbrl.Results(tmp_path).scores  # noqa: B018


def test_a_study_without_scores_says_why(tmp_path):
    store, units = opened(tmp_path, study([{"algorithm": "Random"}]))
    with pytest.raises(JbrlError, match=r"no scores: expected a unit that is done"):
        samples_from(tmp_path)
    for status, advice in (("missing", "run the study first"), ("failed", "says why units have")):
        if status == "failed":
            store.save(units[0], {**HEADER, "status": "failed", "reason": "?"}, np.zeros(0))
        refused(call("rank", tmp_path), advice)


def stored(folder, agents, **settings):
    """Results of a study of which each unit has scores of its own."""
    store, units = opened(folder, study(agents, **settings))
    for number, unit in enumerate(units):
        store.save(unit, HEADER, np.arange(4.0) + number**2)
    return jbrl.Results(folder)


def test_metrics_are_three_tables(table):
    seen = []
    found = jbrl.metrics(
        table[table["algorithm"] < "A02"], progress=lambda *told: seen.append(told)
    )
    assert list(found) == ["metrics", "profiles", "improvement"]
    assert set(found["metrics"]["metric"]) == {"mean", "median", "iqm", "optimality_gap"}
    assert seen[-1] == ("metrics", 3, 3)


def test_the_environment_that_is_the_mean_of_all_is_found(table):
    found = jbrl.subset(table, Search(size=1, criterion="in-sample"), Preparation(target="mean"))
    assert found.best.subset == ("E3",) and found.best.r2 == pytest.approx(1)


def test_results_are_read_as_their_folder_is():
    results = jbrl.load_results("bandits")
    options = jbrl.EvaluateOptions(algorithms=["Random", "e-Greedy"])
    one, other = (samples_from(source, options) for source in (results, results.store.folder))
    assert one.algorithms == other.algorithms and one.environments == other.environments
    assert all(map(np.array_equal, one.counts, other.counts))
