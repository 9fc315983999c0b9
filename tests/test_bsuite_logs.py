"""Logs in results of a study: read, scored, exported; and results without any."""

from pathlib import Path

import numpy as np
import pytest

import jbrl
from jbrl.base.bsuite_sweep import logged_episodes
from jbrl.base.errors import JbrlError
from jbrl.bsuite_logs import export, id_of, logs_of, read_places
from jbrl.results import Results
from jbrl.stats.bsuite import scores


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Results:
    """Random in two settings of one program, two lifetimes each."""
    names = [f"bsuite/discounting_chain/{index}" for index in (0, 3)]
    study = {
        "study": {"name": "small", "n_environments": 2},
        "experiments": [{"name": name, "test": name} for name in names],
        "agents": [{"algorithm": "Random"}],
    }
    return jbrl.run(study, tmp_path_factory.mktemp("bsuite") / "out")


@pytest.mark.slow
def test_each_lifetime_of_a_setting_is_a_run(results):
    logs = logs_of(results)
    keys = [(run.agent, run.bsuite_id, run.number) for run in logs.runs]
    ids = ("discounting_chain/0", "discounting_chain/3")
    assert keys == [("Random", i, number) for i in ids for number in (0, 1)]
    for run in logs.runs:
        assert tuple(run.columns["episode"].astype(int)) == logged_episodes(1000)
        np.testing.assert_array_equal(run.columns["steps"], 100 * run.columns["episode"])


def test_random_play_has_its_known_score(results):
    """Random play has 0.2: one of five chains pays 0.1 more, regret 0.08 with sd 0.04 an episode.

    4,000 episodes: a standard error of 10 · 0.04 / √4000 = 0.0063; 5 of them fail 6e-7 of the time.
    """
    table = scores.summary(logs_of(results), intervals=True)
    assert table["score"].item() == pytest.approx(0.2, abs=5 * 0.0063)
    assert table["runs"].item() == 2
    assert not table["finished"].item()  # 18 settings are missing


def test_exported_files_hold_the_same(results, tmp_path):
    logs = logs_of(results)
    paths = export(logs, tmp_path / "files")
    name = "bsuite_id_-_discounting_chain-3.csv"
    assert tmp_path / "files" / "run-1" / name in paths
    again = read_places(
        [f"Random={tmp_path / 'files' / 'run-0'}", f"Random={tmp_path}/files/run-1"]
    )
    assert again.agents == ["Random"]
    for run in logs.runs:
        other = next(
            one for one in again.runs if (one.bsuite_id, one.number) == (run.bsuite_id, run.number)
        )
        for column, values in run.columns.items():
            np.testing.assert_array_equal(values, other.columns[column])


def test_a_folder_of_results_is_a_place(results):
    logs = read_places([f"R={results.store.folder}"])
    assert logs.agents == ["R"] and len(logs.runs) == 4


def test_results_of_other_problems_have_no_logs(tmp_path):
    study = {
        "study": {"name": "other", "n_environments": 1},
        "experiments": [{"name": "sea", "test": "DeepSea", "episodes": 2}],
        "agents": [{"algorithm": "Random"}],
    }
    other = Results(Path(jbrl.run(study, tmp_path / "out").store.folder))
    with pytest.raises(JbrlError, match="no logs of bsuite: expected finished units of problems"):
        logs_of(other)


def test_names_of_problems():
    assert id_of("bsuite/catch/3") == id_of("catch/3") == "catch/3"
    assert id_of("bsuite/catch/20") is None and id_of("GC") is None
