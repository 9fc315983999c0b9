"""Published results: read by name, whole, and described by what is written about them."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jbrl
from experiments.datasets import card, croissant
from jbrl import datasets
from jbrl.stats.brackets import known
from jbrl.study.file import load_study
from tests.docs.commands import problem_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", datasets.DATASETS)
def test_each_dataset_is_read(name):
    found = jbrl.load_results(name)
    table = found if isinstance(found, pd.DataFrame) else found.returns
    assert len(table) > 0


def test_card_and_metadata_describe_the_files():
    folder = ROOT / "experiments/published"
    assert json.loads((folder / datasets.METADATA).read_text(encoding="utf-8")) == croissant()
    assert (folder / "README.md").read_text(encoding="utf-8") == card()


def test_readers_of_croissant_find_checksums_and_know_the_formats():
    found = croissant()
    assert found["@context"]["md5"] == "cr:md5" and "sha256" not in found["@context"]
    assert found["version"] == jbrl.__version__
    formats = {one["encodingFormat"] for one in found["distribution"]}
    known = {"application/json", "application/x-parquet", "application/zip", "text/csv"}
    assert formats <= known | {"text/markdown"}


def test_the_card_says_how_each_was_made_and_each_time_is_that_of_the_files():
    rows = [line for line in card().splitlines() if line.startswith("| `")]
    assert len(rows) == len(datasets.DATASETS)
    for row in rows:
        command, made, hours = (cell.strip(" `") for cell in row.split(" | ")[2:5])
        for tool, script, *words in map(shlex.split, command.split("; ")):
            assert all((ROOT / one).exists() for one in (script, *words) if "experiments/" in one)
            if tool == "jbrl":
                assert problem_of([script, *words]) is None
                assert script != "run" or "--out" in words
            else:
                text = (ROOT / script).read_text(encoding="utf-8")
                assert all(f'"{word}"' in text for word in words if word.startswith("--"))
        assert "jax 0.10.2" in made and hours.rstrip(" |")
        place = ROOT / "experiments/published" / datasets.DATASETS[row[3:].split("`")[0]]
        for study in place.glob("study.json"):
            commits = re.findall(r'"commit": "(\w{9})', study.read_text(encoding="utf-8"))
            assert all(commit in made for commit in commits)
        if counted := re.search(r"`(.+)` .*: (\d+) units of", row.split(" | `")[0]):
            units = jbrl.load_results(counted[1]).units
            assert (units["status"] == "done").sum() == int(counted[2])
    units = jbrl.load_results("bandits").units
    seconds = units["offline_seconds"] + 250 * units["n"] * units["online_seconds"]
    hours = (seconds + units["compile_seconds"]).sum() / 3600
    assert f"{hours:.1f} h of 2 cores" in next(row for row in rows if "`bandits`" in row)


@pytest.mark.slow
def test_the_card_says_which_share_of_the_complete_study_is_kept():
    studies = (load_study(ROOT / f"experiments/{name}.toml") for name in ("paper", "paper-cpu"))
    complete, kept = ({unit.id for unit in study.units} for study in studies)
    text = f"{len(kept)} units (agent with parameters, prior, problem) of 500 MDPs"
    assert text in card() and len(jbrl.load_results("castronovo2016").units) == len(kept)
    assert f"; {len(complete & kept)} of them are of the {len(complete):,} of" in card()


def test_brackets_are_those_that_tables_of_scores_show():
    table = jbrl.load_results("brackets").set_index(["problem", "decisions"])
    assert table.index.is_unique and (table["lower"] <= table["upper"]).all()
    for one in known():
        row = table.loc[(one.problem, one.decisions)]
        assert (row["lower"], row["upper"], row["digest"]) == (one.lower, one.upper, one.digest)


def test_a_changed_or_missing_file_is_refused(tmp_path, monkeypatch):
    for name in ("tabular.csv", datasets.METADATA):
        shutil.copy(ROOT / "experiments/published" / name, tmp_path)
    monkeypatch.setattr(datasets, "FOLDERS", (tmp_path,))
    assert len(jbrl.load_results("tabular")) > 0
    with (tmp_path / "tabular.csv").open("a", encoding="utf-8") as file:
        file.write("\n")
    with pytest.raises(jbrl.JbrlError, match=r"tabular\.csv: not the published file"):
        jbrl.load_results("tabular")
    with pytest.raises(
        jbrl.JbrlError, match=r"agents\.parquet: cannot be read .* install jbrl again"
    ):
        jbrl.load_results("bsuite")
    with pytest.raises(jbrl.JbrlError, match="unknown dataset 'jordan'; did you mean 'jordan2020'"):
        jbrl.load_results("jordan")
    (tmp_path / datasets.METADATA).write_text("{", encoding="utf-8")
    with pytest.raises(jbrl.JbrlError, match=r"croissant\.json: not the published file"):
        jbrl.load_results("tabular")


@pytest.mark.parametrize("name", datasets.PRETRAINED)
def test_each_pretrained_policy_is_that_of_its_card(name):
    policy = jbrl.load_pretrained(name)
    folder = ROOT / "experiments/published/policies" / name
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith(f"# Policy: {policy.name} for {policy.problem.short_name}\n")
    scores = jbrl.load_results("pretrained")
    row = scores.query("experiment == @name").squeeze()
    assert (row["algorithm"], row["seed"]) == (policy.name, policy.seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", datasets.PRETRAINED)
def test_a_pretrained_policy_earns_what_is_published(name):
    policy, n = jbrl.load_pretrained(name), 2000
    player = policy.learned.strategy if policy.learned else policy.agent
    test, prior = name.removesuffix("-inaccurate"), policy.problem.short_name
    found = jbrl.play(player, test=test, prior=prior, n_environments=n, seed=7).returns
    published = jbrl.load_results("pretrained").query("experiment == @name").squeeze()
    error = np.hypot(published["error"], found.std() / np.sqrt(n))
    assert abs(found.mean() - published["mean"]) < 4.5 * error  # false in 1 of 20,000 runs for six


def test_an_unknown_policy_is_refused():
    with pytest.raises(jbrl.JbrlError, match="unknown policy 'Gc'; did you mean 'GC'"):
        jbrl.load_pretrained("Gc")
