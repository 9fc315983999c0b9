"""The studies of the comparison with Jordan et al. 2020, and how trials are spread."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jbrl.analysis.published import jordan2020
from jbrl.runner.study.study import load_study

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("jordan_script", EXPERIMENTS / "jordan.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["jordan.toml", "jordan-cpu.toml"])
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


def test_trials_follow_the_width_and_the_root_of_the_cost(script):
    table = pd.DataFrame(
        [("a", 1.0, 0.1), ("a", 3.0, 0.1), ("b", 400.0, 0.1), ("c", 4.0, 0.2)],
        columns=["environment", "seconds", "width"],
    )
    found = script.allocation(table, 100_000.0)
    assert found["a"] == pytest.approx(10 * found["b"], rel=0.1)
    assert found["c"] == pytest.approx(2 * found["a"], rel=0.1)
    spent = 4 * found["a"] + 400 * found["b"] + 4 * found["c"]
    assert 0.9 * 100_000 < spent <= 100_000
    assert script.allocation(table, 1.0) == {"a": 30, "b": 30, "c": 30}
    assert script.allocation(table, 1e12) == {"a": 10_000, "b": 10_000, "c": 10_000}


def test_costs_are_read_from_a_pilot(script, tmp_path):
    import jbrl

    study = {
        "study": {"name": "pilot", "n_environments": 4},
        "experiments": [{"name": "Chain-10d", "problem": "Chain-10d"}],
        "agents": [{"algorithm": "Q-learning"}, {"algorithm": "Random"}],
    }
    results = jbrl.run(study, tmp_path, progress=False)
    table = script.costs(results).set_index("algorithm")
    scores = results.returns.query("algorithm == 'Random'")["score"]
    assert table.loc["Random", "width"] == pytest.approx(scores.std() / 191)
    header = results.scores.set_index("algorithm").loc["Random"]
    steps = np.mean(-scores) * 100 + 100  # a step of an episode costs 1, the last one nothing
    assert table.loc["Random", "seconds"] == pytest.approx(
        header["online_seconds"] * steps, rel=1e-3
    )
