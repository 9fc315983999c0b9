"""`jbrl compare` and `jbrl archive`: what is printed, the page, and bad input."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.base.errors import JbrlError
from jbrl.cli.evaluate import _short
from jbrl.report.comparison import BEST, SAME, WAY_NAMES, _way
from jbrl.study.file import Study, load_study
from jbrl.study.storage import files
from tests import kept
from tests.published_study import rows, sample, study
from tests.report.test_html import Page, ids_of
from tests.study.storage.test_store import HEADER, begun, opened, returns_of
from tests.study.storage.test_store import study as tiny
from tests.terminal import call, refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a whole study in which Soft-max on GC scores 41 as it is described, and BFS3 on
    Grid is too low.
    """
    out = tmp_path_factory.mktemp("study")
    returns, units = study()
    low = (returns["experiment"] == "Grid") & (returns["algorithm"] == "BFS3")
    returns.loc[low, "score"] -= 2
    returns = returns[(returns["experiment"] != "GC") | (returns["algorithm"] != "Soft-max")]
    parts = [
        rows("accurate", "GC", name, {"tau": 0.1}, sample(m, 1.8))
        for name, m in (("Soft-max", 41.0), ("Soft-max-published", 34.5))
    ]
    returns = pd.concat([returns, *parts], ignore_index=True)
    units = returns.drop(columns=["unit", "score"]).drop_duplicates().merge(units, how="left")
    times = {"latency_seconds": np.nan, "compile_seconds": 1.0, "device": "cpu", "n": 500}
    times |= {"status": "done", "reason": None, "oracle": False}
    units = units.assign(**times, id=[str(i) for i in range(len(units))], knowledge=None).fillna(
        {"online_seconds": 1e-6}
    )
    units.to_parquet(out / "units.parquet")
    returns.to_parquet(out / "returns.parquet")
    settings = {"name": "whole", "seed": 0, "n_mdps": 500, "horizon": 250, "discount": 0.95}
    (out / "study.json").write_text(json.dumps({"format": 1, "study": settings, "decimals": None}))
    return out


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "returns.csv"
    parts = [
        rows("accurate", "GC", "Random", {}, sample(31.0, 0.9, seed=99)),
        rows("accurate", "GC", "BEB", {"beta": 2.5}, sample(20.0, 1.0)),
    ]
    pd.concat(parts).to_csv(path, index=False)
    return path


def test_cells_are_printed_and_counted(folder):
    result = call("compare", folder)
    kept.compare("jbrl compare", {"printed": result.stdout, "said": result.stderr})
    assert re.split(r"\s{2,}", result.stdout.splitlines()[3]) == [
        *("accurate", "GC", "Soft-max", "tau=0.1", "34.73 ± 1.74", "34.50 ± 1.80"),
        *("-0.23", "3.54", "-0.2", "known defect"),
    ]


def test_csv_and_json_have_all_columns(folder):
    table = pd.read_csv(
        pd.io.common.StringIO(call("compare", folder, "--format", "csv").stdout),
        keep_default_na=False,
    )
    entries = json.loads(call("compare", folder, "--to", "published", "--format", "json").stdout)
    assert len(table) == len(entries) == 48
    assert list(table.columns) == list(entries[0])
    assert {"combined", "apart", "best", "explanation", "reference"} <= set(table.columns)
    assert entries[2]["reference"] == "docs/agents/soft-max.md"


def test_from_python(folder):
    comparison = jbrl.compare(folder)
    assert len(comparison.table) == 48
    assert (comparison.table["verdict"] == "differs").sum() == 1
    numbers = dict.fromkeys(("difference", "combined", "apart"), 0.12345)
    other = dataclasses.replace(comparison, table=comparison.table.assign(**numbers))
    assert _short(other).iloc[0][list(numbers)].tolist() == [0.123, 0.123, 0.1]


@pytest.mark.parametrize(
    ("way", "agent", "parameters", "strong"),
    [
        (SAME, "BEB", "{}", True),
        (SAME, "BEB", '{"beta": 2}', False),
        (SAME, "BOSS", "{}", False),
        (BEST, "BEB", "{}", False),
    ],
)
def test_the_way_that_decides_is_bold(way, agent, parameters, strong):
    played = {"way": way, "agent": agent, "parameters": parameters}
    cell = _way(
        {**played, "agrees": strong, "mean": 4.0, "ci95": 0.5}, {"agent": "BEB", "parameters": "{}"}
    )
    assert (cell.text, cell.strong) == ("4.00 ± 0.50", strong)
    assert cell.hint.startswith(WAY_NAMES[way]) and ("does not" in cell.hint) != strong


def test_the_page(folder, tmp_path):
    result = call("compare", folder, "--out", tmp_path / "deep" / "report")
    path = tmp_path / "deep" / "report" / "compare.html"
    assert result.stderr.splitlines()[-1] == str(path)
    text = path.read_text(encoding="utf-8")
    kept.compare_page("comparison", text, folder)
    page = Page(text)
    assert not [
        a
        for _, a in page.elements
        if any(str(v).startswith(("http", "//")) for k, v in a.items() if k in ("src", "href"))
    ]
    assert ids_of(page)
    assert len(pd.read_csv(path.parent / "compare.csv")) == 48
    assert len(text) < 400_000


def test_a_file_of_returns_has_cells(csv_file):
    result = call("compare", csv_file, "--html")
    assert (
        "1 of 48 published cells agree as described, 1 in no way, 46 are not played"
        in result.stderr
    )
    assert (csv_file.parent / "report" / "compare.html").is_file()


def test_two_studies(folder, csv_file, tmp_path, monkeypatch):
    result = call("compare", csv_file, "--to", folder, "--out", tmp_path)
    lines = [re.split(r"\s{2,}", line) for line in result.stdout.splitlines()]
    assert [line[-1] for line in lines[1:]] == ["agrees", "differs"] and {
        line[-3] for line in lines[1:]
    } == {"paired"}
    told = result.stderr.splitlines()
    assert told[0] == (
        "2 agents are in both (agrees: 1; differs: 1). By chance 0.1 would differ; with "
        "Holm's correction 1 do."
    )
    assert told[1].startswith(f"47 only in {folder}: ") and told[1].endswith(", …")
    page = (tmp_path / "compare.html").read_text(encoding="utf-8")
    for name in ("Experiment", "Agent", "Here", "There", "Difference", "± 95%", "p", "Test"):
        assert f">{name}<" in page[page.index("Agents in both") :]
    monkeypatch.setattr("jbrl.comparison._SHOWN", 47)
    assert call("compare", csv_file, "--to", folder).stderr.splitlines()[1][-1] != "…"
    same = call("compare", folder, "--to", folder)
    assert "(identical: 49)" in same.stderr


def test_archive(tmp_path):
    store, units = opened(tmp_path / "full")
    for unit in units:
        store.save(unit, HEADER, returns_of(unit))
    result = call("archive", tmp_path / "full", "--out", tmp_path / "kept", "--decimals", 3)
    assert result.stdout.split() == [
        str(tmp_path / "kept" / n) for n in ("study.json", "units.parquet", "returns.parquet")
    ]
    assert call("scores", tmp_path / "kept").stdout.count("done") == 3
    same = call("compare", tmp_path / "kept", "--to", tmp_path / "full")
    assert "3 agents are in both (identical: 3)" in same.stderr


def test_bad_input(folder, csv_file, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(call("compare", tmp_path / "empty"), "no results of a study here")
    refused(call("compare", folder, "--to", tmp_path / "publised"), "no results of a study here")
    refused(call("compare", Path(__file__)), "ends in .csv or .parquet")
    (tmp_path / "bad.csv").write_text("algorithm,score\nRandom,1\n")
    refused(
        call("compare", tmp_path / "bad.csv"),
        "no column experiment, parameters, seed, unit, prior, test",
    )
    (tmp_path / "bad.parquet").write_text("no such thing")
    refused(call("compare", tmp_path / "bad.parquet"), "bad.parquet: cannot be read")
    table = pd.read_csv(csv_file, keep_default_na=False)
    table.assign(prior="Grid").to_csv(tmp_path / "other.csv", index=False)
    refused(call("compare", tmp_path / "other.csv"), "none of the published cells has been played")
    refused(
        call("compare", tmp_path / "other.csv", "--to", csv_file), "experiment GC has prior Grid"
    )
    table.assign(algorithm="PSRL").to_csv(tmp_path / "psrl.csv", index=False)
    refused(call("compare", tmp_path / "psrl.csv", "--to", csv_file), "no agent is in both studies")
    table.assign(score=np.inf).to_csv(tmp_path / "inf.csv", index=False)
    refused(call("compare", tmp_path / "inf.csv"), "expected a finite number")
    (tmp_path / "file").write_text("")
    unwritten = call("compare", csv_file, "--out", tmp_path / "file")
    assert "the page cannot be written here" in unwritten.stderr


def test_studies_of_another_protocol_are_refused(tmp_path):
    store, units = opened(tmp_path / "short")
    refused(
        call("compare", tmp_path / "short", "--to", tmp_path / "short"),
        "no returns: not one unit of this study is done",
    )
    store.save(units[0], HEADER, returns_of(units[0]))
    refused(call("compare", tmp_path / "short"), "horizon is 3 in")
    begun(tmp_path / "impatient", tiny(discount=0.5))
    with pytest.raises(JbrlError, match=r"discount is 0\.95 in .*short and 0\.5 in .*impatient"):
        jbrl.compare(tmp_path / "short", tmp_path / "impatient")


def played(folder: Path, **experiment: object) -> Path:
    """Results of Random in one experiment of a study whose horizon is that of the published one."""
    tables = {
        "study": {"name": "x", "n_environments": 4},
        "experiments": [experiment],
        "agents": [{"algorithm": "Random"}],
    }
    begun(folder, load_study(tables))
    return folder


def test_experiments_of_another_length_are_refused(tmp_path):
    short = played(tmp_path / "short", name="GC", problem="GC", horizon=100)
    refused(
        call("compare", short),
        f"a lifetime of experiment GC is 100 steps in {short} and 250 steps in the published "
        "comparison",
    )
    long = played(tmp_path / "long", name="GC", problem="GC")
    refused(call("compare", long, "--to", short), "a lifetime of experiment GC is 250 steps in")
    assert call("compare", long).exit_code == 0
    few, many = (
        played(tmp_path / f"{n}", name="Chain", problem="Chain-10d", episodes=n) for n in (3, 5)
    )
    refused(call("compare", few, "--to", many), "a lifetime of experiment Chain is 3 episodes in")
    assert "(identical: 1)" in call("compare", few, "--to", few).stderr
    refused(call("compare", few), "none of the published cells has been played")


def test_results_that_do_not_say_how_long_lifetimes_are(tmp_path):
    """Those of the first versions: the horizon of the study is that of all experiments."""
    new, old = (
        played(tmp_path / "new", name="GC", problem="GC", horizon=100),
        played(tmp_path / "old", name="GC", problem="GC"),
    )
    manifest = json.loads((old / "study.json").read_text())
    manifest["experiments"] = [{"name": "GC", "prior": "GC", "test": "GC"}]
    (old / "study.json").write_bytes(files.pack_json(manifest))
    assert call("compare", old).exit_code == 0
    refused(call("compare", new, "--to", old), "a lifetime of experiment GC is 100 steps in")
    del manifest["study"]["horizon"]
    (old / "study.json").write_bytes(files.pack_json(manifest))
    assert call("compare", new, "--to", old).exit_code == 0, "nothing is known to differ"


def edited(folder: Path, weight: float) -> Path:
    """A study on a file of a problem whose name does not say that it was edited."""
    problem = {"name": "Mine", "n_states": 2, "n_actions": 2, "initial_state": 0}
    weights = [[[1, weight], [1, 1]]] * 2
    problem |= {"transition_weights": weights, "rewards": [[[0, 1], [0, 1]]] * 2}
    folder.mkdir()
    (folder / "mine.json").write_text(json.dumps(problem))
    tables = {
        "study": {"name": "one", "n_environments": 4, "horizon": 3},
        "experiments": [{"name": "mine", "prior": "mine.json", "test": "mine.json"}],
        "agents": [{"algorithm": "Random"}],
    }
    begun(folder / "out", Study(tables, folder=folder))
    return folder / "out"


def test_mdps_of_a_file_that_was_edited_are_not_paired(tmp_path):
    one, other = edited(tmp_path / "one", 1.0), edited(tmp_path / "other", 5.0)
    again = edited(tmp_path / "again", 1.0)
    same = call("compare", one, "--to", again, "--format", "json")
    assert json.loads(same.stdout)[0]["test"] == "paired"
    result = call("compare", one, "--to", other, "--format", "json", "--html")
    assert json.loads(result.stdout)[0]["test"] == "Welch"
    assert "Experiment mine: its test problem has the same name in both and is not" in result.stderr
    assert "MDPs cannot be paired" in (one / "report" / "compare.html").read_text()
