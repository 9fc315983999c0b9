"""`jbrl compare DIR --to jordan2020`: what is printed and written, and what is refused."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.base.errors import JbrlError
from jbrl.study.file import load_study
from tests.study.storage.test_store import HEADER, opened
from tests.terminal import call

KNOWN = Path(__file__).parents[1] / "experiments" / "evaluation" / "resimulated.parquet"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 40 trials of three algorithms on three environments."""
    table = pd.read_parquet(KNOWN)
    table = table[
        table["algorithm"].isin(["ac-normal", "q-parl2", "ppo"])
        & table["environment"].isin(["chain10d", "chain10s", "mountaincar"])
    ]
    path = tmp_path_factory.mktemp("small") / "scores.parquet"
    table.groupby(["algorithm", "environment"]).head(40).to_parquet(path)
    return path


def test_all_cells_that_were_simulated_before_agree() -> None:
    """An earlier simulation by another program: 99 cells, of which 75 have samples of their own."""
    result = call("compare", KNOWN, "--to", "jordan2020", "--format", "csv")
    assert result.exit_code == 0
    cells = pd.read_csv(io.StringIO(result.stdout))
    assert len(cells) == 165
    assert (cells["verdict"] == "agrees").sum() == 99
    assert cells["z"].abs().max() < 3
    assert "99 of 165 cells within 3.5 standard errors of the published mean, 0 beyond" in (
        result.stderr
    )


def test_cells_are_printed_and_written(small: Path, tmp_path: Path) -> None:
    result = call("compare", small, "--to", "jordan2020", "--out", tmp_path / "out")
    assert result.exit_code == 0
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


def test_experiments_are_known_by_their_problem(tmp_path: Path) -> None:
    """And each may have its own number of environments."""
    study = {**STUDY, "experiments": STUDY["experiments"][:1]}
    results_of(study, tmp_path)
    result = call("compare", tmp_path, "--to", "jordan2020", "--format", "json")
    assert result.exit_code == 0
    entries = json.loads(result.stdout)
    played = {(row["environment"], row["algorithm"]): row for row in entries if row["n"]}
    assert {key: row["n"] for key, row in played.items()} == {
        ("Chain-10d", "Sarsa-lambda"): 4,
        ("Chain-10d", "Sarsa-Parl2"): 4,
    }
    returns = jbrl.Results(tmp_path).returns.query("algorithm == 'Sarsa-Parl2'")["score"]
    assert played["Chain-10d", "Sarsa-Parl2"]["mean"] == pytest.approx(returns.mean())


@pytest.mark.slow
def test_trials_with_nan_are_counted(tmp_path: Path) -> None:
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


def test_bad_input_is_refused_in_one_sentence(tmp_path: Path) -> None:
    results_of({**STUDY, "agents": STUDY["agents"][:1]}, tmp_path / "short")
    result = call("compare", tmp_path / "short", "--to", "jordan2020")
    assert result.exit_code == 2
    assert "a lifetime of experiment other is 5 episodes, and 100 episodes in the published" in (
        " ".join(result.stderr.split())
    )
    twice = {**STUDY, "experiments": STUDY["experiments"][:1]}
    twice["agents"] = [{"algorithm": "Sarsa-lambda", "epsilon_high": [0.05, 0.1]}]
    results_of(twice, tmp_path / "twice")
    result = call("compare", tmp_path / "twice", "--to", "jordan2020")
    assert result.exit_code == 2
    assert "2 settings of Sarsa-lambda in experiment a chain: expected one" in (
        " ".join(result.stderr.split())
    )
    result = call("compare", tmp_path / "none", "--to", "jordan2020")
    assert result.exit_code == 2
    with pytest.raises(JbrlError, match="no score of one of the algorithms"):
        other = tmp_path / "other.csv"
        other.write_text("algorithm,environment,score\nA,X,1\n")
        from jbrl.comparison import jordan2020_scores

        jordan2020_scores(other)
