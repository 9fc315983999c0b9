"""Known brackets of Bayes-optimal values, and shares of them."""

import importlib.util
import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import jbrl
from jbrl.cli.app import app
from jbrl.stats.brackets import (
    Bracket,
    find,
    known,
    of_experiments,
    share,
    share_text,
    with_digests,
    with_shares,
)

ROOT = Path(__file__).parents[2]
TWO = Bracket("two", "", 0.9, 5, 3, 4.0, 5.0, 6.0)


def test_kept_brackets_are_of_the_problems_that_they_name() -> None:
    assert {"GC", "GDL"} <= {bracket.problem for bracket in known()}
    for bracket in known():
        assert jbrl.problem(bracket.problem).digest == bracket.digest
        assert bracket.lower <= bracket.upper <= bracket.clairvoyant * 1.01


def test_the_table_and_the_page_are_made_of_the_kept_files() -> None:
    path = ROOT / "experiments/bounds/collect.py"
    spec = importlib.util.spec_from_file_location("collect", path)
    assert spec is not None and spec.loader is not None
    collect = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(collect)
    kept = {one["problem"]: one for one in collect.narrowest()}
    assert {b.problem: (b.lower, b.upper) for b in known()} == {
        name: (one["lower"], one["upper"]) for name, one in kept.items()
    }
    assert collect.rows() in (ROOT / "docs/bounds.md").read_text()
    for file in (ROOT / "experiments/bounds").glob("*.json"):
        entries = json.loads(file.read_text())
        assert entries["lower"] <= entries["upper"]
        assert file == collect.file(entries["problem"], entries["decisions"])


def test_no_agent_of_the_published_comparison_earns_more_than_the_upper_end() -> None:
    """At 3.5 standard errors 500 means give a false alarm at most once in nine times, and only if
    all of them are at the upper end, which the best agents on GDL alone are near.
    """
    scores = jbrl.Results(ROOT / "experiments/published/paper-cpu").scores
    scores = scores[(scores["status"] == "done") & (scores["algorithm"] != "Optimal")]
    error = scores["std"] / scores["n"] ** 0.5
    ends = scores["test"].map({bracket.problem: bracket.upper for bracket in known()})
    assert ends.notna().sum() > 300
    assert not (scores["mean"] - 3.5 * error > ends).any()


def test_shares_by_hand() -> None:
    assert share(4.0, 0.5, TWO) == pytest.approx((3.5 / 5, 4.5 / 4))
    assert share(4.0, np.nan, TWO) == pytest.approx((0.8, 1.0))
    assert share(-1.0, 0.5, TWO) == pytest.approx((-1.5 / 4, -0.5 / 5))
    assert np.isnan(share(np.nan, 0.1, TWO)).all()
    assert share_text((0.894, 1.002)) == "89–100 %"
    assert share_text((np.nan, np.nan)) == ""


def test_columns_appear_where_a_bracket_is_known() -> None:
    columns = {"experiment": ["a", "b"], "algorithm": "Known", "mean": [4.0, 1.0]}
    scores = pd.DataFrame(columns | {"ci95": [0.5, 0.1], "seed": 0})
    assert with_shares(scores, {}) is scores
    table = with_shares(scores, {"a": TWO})
    assert list(table.columns)[2:] == ["mean", "ci95", "share_low", "share_high", "seed"]
    assert table["share_low"].tolist() == pytest.approx([0.7, np.nan], nan_ok=True)
    assert with_shares(scores, {"a": TWO}, ["Known"])["share_low"].isna().all()


def test_experiments_are_found_by_test_discount_and_horizon() -> None:
    study = {"discount": 0.95, "horizon": 250}
    experiments = [
        {"name": "right", "prior": "GDL", "test": "GDL"},
        {"name": "wrong prior", "prior": "UGDL", "test": "GDL"},
        {"name": "short", "test": "GDL", "horizon": 10},
        {"name": "other", "test": "two.json"},
    ]
    brackets = of_experiments({"study": study, "experiments": experiments})
    assert brackets == {"right": find("GDL", 0.95, 250), "wrong prior": find("GDL", 0.95, 250)}
    assert of_experiments({"study": {}, "experiments": experiments[:1]}) == {}


def test_a_problem_is_known_by_its_digest_whatever_its_name() -> None:
    names = ["GC(n_states=5,n_actions=3)", "GC", "GDL"]
    digests = [jbrl.problem(names[0]).digest, "that of another problem", None]
    experiments = [{"name": str(n), "test": name} for n, name in enumerate(names)]
    manifest = {"study": {"discount": 0.95, "horizon": 250}, "experiments": experiments}
    units = pd.DataFrame({"experiment": ["0", "1", "2"], "test_digest": digests})
    brackets = of_experiments(with_digests(manifest, units))
    assert brackets == {"0": find("GC", 0.95, 250), "2": find("GDL", 0.95, 250)}


def test_the_command_gives_no_share_of_an_agent_that_is_shown_the_mdp() -> None:
    folder = str(ROOT / "experiments/published/paper-cpu")
    result = CliRunner().invoke(app, ["scores", folder, "--format", "csv"])
    table = pd.read_csv(io.StringIO(result.stdout))
    shown = table["algorithm"] == "Optimal"
    assert shown.any()
    assert table.loc[shown, "share_low"].isna().all()
    assert table.loc[~shown, "share_low"].notna().any()
