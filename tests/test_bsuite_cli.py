"""`jbrl bsuite`, lists of its problems, and logs in results: what is printed and written, and what
is refused.
"""

import io
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import Result

import jbrl
from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, logged_episodes
from jbrl.base.errors import JbrlError
from jbrl.bsuite_logs import export, id_of, logs_of, read_places
from jbrl.report import bsuite as report
from jbrl.results import Results
from jbrl.stats.bsuite import scores
from jbrl.stats.bsuite.logs import write_folder
from jbrl.study.storage.files import pack_json
from tests import kept, terminal
from tests.stats.bsuite_cases import golden, whole
from tests.terminal import refused


def call(*arguments: object) -> Result:
    return terminal.call("bsuite", *arguments)


def table(done: Result) -> pd.DataFrame:
    assert done.exit_code == 0, done.output
    return pd.read_csv(io.StringIO(done.stdout), keep_default_na=False, na_values=[""])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("bsuite")
    write_folder(golden("scores_a").runs, place / "A")
    write_folder(golden("scores_partial").runs, place / "P")
    write_folder(whole("c", "catch", [[0.4] * 20]).runs, place / "C")
    return place


@pytest.mark.parametrize(
    "command",
    [
        *("score", "score --table tags --intervals", "score --table settings --format md"),
        *("score --table tests", "score --version 0.3.5 --format csv", "import"),
        *("table", "table --of settings --version 0.3.5"),
    ],
)
def test_what_commands_print_is_the_kept_text(folder, command):
    name, *options = command.split()
    done = call(name, *(folder / agent for agent in "APC"), *options)
    kept.compare(f"jbrl bsuite {command}", {"out": done.stdout, "err": done.stderr}, folder)


@pytest.mark.parametrize("latex", [False, True])
def test_report_writes_latex_where_it_is_asked_for(folder, monkeypatch, tmp_path, latex):
    def written(logs: object, out: Path, release: str, *, latex: bool = False) -> list[str]:
        return [out.name, release, str(latex)]

    monkeypatch.setattr(report, "write_report", written)
    done = call("report", folder / "C", "--out", tmp_path / "page", *["--latex"] * latex)
    assert done.stdout.split()[::2] == ["page", str(latex)], done.output


def test_names_neither_break_lines_nor_are_read_as_markdown(folder):
    done = call("score", f"<b>*A*\nB|={folder / 'C'}", f"P={folder / 'P'}", "--format", "md")
    assert all(line.startswith(("note: ", "error: ")) for line in done.stderr.splitlines())
    assert "error: agent <b>*A* B|: no logs of bandit" in done.stderr
    rows = done.stdout.splitlines()
    assert rows[2 + list(EXPERIMENTS).index("catch")].startswith(
        r"| \<b\>\*A\* B\| | catch | 0.75 |"
    )
    assert all(row.startswith("| ") and row.endswith(" |") for row in rows)


def test_several_runs_get_intervals(folder, tmp_path):
    write_folder(whole("c", "catch", [[0.8] * 20]).runs, tmp_path)
    found = table(call("score", f"C={folder / 'C'}", f"C={tmp_path}", "--format", "csv"))
    assert found["runs"].tolist() == [2]
    assert found["lower"].item() < found["score"].item() < found["upper"].item()
    one = table(call("score", folder / "C", "--intervals", "--format", "csv"))
    assert one["runs"].tolist() == [1] and one["lower"].item() == one["upper"].item()
    place = tmp_path / "second.csv"
    assert call("import", f"C={folder / 'C'}", "--to", place).exit_code == 0
    kept = pd.read_csv(place).assign(run=1)  # a single run, whatever its number
    kept.to_csv(place, index=False)
    assert "lower" not in table(call("score", place, "--format", "csv"))


def test_bad_files_are_named_and_the_others_are_scored(folder, tmp_path):
    shutil.copytree(folder / "C", tmp_path / "C")
    bad = tmp_path / "C" / "bsuite_id_-_catch-3.csv"
    bad.write_text("steps,episode\n9,1\n")
    done = call("score", tmp_path / "C", "--format", "csv")
    assert done.exit_code == 2
    assert f"error: {bad}: no column total_return" in done.stderr
    assert "note: agent C: settings are missing: catch has 19 of 20" in done.stderr
    assert done.stdout.splitlines()[1].startswith("C,catch,0.7499999")


def test_an_agent_without_an_experiment(folder):
    done = call("score", folder / "A", folder / "C", "--format", "csv")
    assert done.exit_code == 2
    found = pd.read_csv(io.StringIO(done.stdout))
    assert found[found["agent"] == "C"]["score"].notna().sum() == 1
    sentences = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1
    assert sentences[0].startswith("error: agent C: no logs of bandit, bandit_noise")


def test_folders_without_anything_usable(tmp_path):
    refused(call("score", tmp_path), f"{tmp_path}: no logs")
    (tmp_path / "bsuite_id_-_catch-0.csv").write_text("nothing\n")
    refused(call("score", tmp_path), "no column steps")


def test_table_goes_into_evaluate(folder, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(call("table", folder / "A", f"B={folder / 'A'}/../C").stdout)
    assert call("table", folder / "A", "--of", "settings").stdout.count("\n") == 469
    shown = pd.read_csv(path)
    assert list(shown.columns) == ["algorithm", "environment", "score"]
    best = terminal.rows("evaluate", path, "--environments", "catch")[0]
    assert (best["method"], best["algorithm"]) == ("pbp", "B")


def test_import_says_what_is_there_and_makes_one_file(folder, tmp_path):
    path = tmp_path / "all.parquet"
    found = table(call("import", folder / "A", "--to", path, "--format", "csv"))
    assert found["settings"].sum() == len(SWEEP) and len(found) == len(EXPERIMENTS)
    assert found["settings"].equals(found["of"])
    partial = table(call("import", folder / "P", "--to", tmp_path / "p.csv", "--format", "csv"))
    assert (partial["fewest_episodes"] < partial["most_episodes"]).any()
    again = table(call("score", path, "--format", "csv"))
    assert again.equals(table(call("score", folder / "A", "--format", "csv")))


def test_export_writes_files_that_are_read_again(folder, tmp_path):
    done = call("export", folder / "C", "--to", tmp_path / "out")
    assert done.exit_code == 0 and done.stdout == f"{tmp_path / 'out'}: 20 files\n"
    for path in (folder / "C").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    refused(call("export", folder / "C", "--to", tmp_path / "out"), "exists already")


def test_every_id_has_a_line():
    result = terminal.call("list", "problems", "--suite", "bsuite")
    assert result.exit_code == 0
    head, *lines = result.output.splitlines()
    assert head.split() == ["experiment", "index", "settings", "episodes", "tags"]
    assert len(lines) == 468
    assert [tuple(line.split()[:2]) for line in lines] == [tuple(n.split("/")) for n in SWEEP]
    said = {tuple(line.split()[:2]): line for line in lines}
    assert "noise_scale=10, mapping_seed=3" in said["bandit_noise", "19"]
    assert "10,000" in said["deep_sea", "20"]
    assert "scale, credit_assignment" in said["catch_scale", "0"]


def test_other_suites_and_kinds_are_refused():
    for arguments, message in (
        (("list", "problems", "--suite", "bsuit"), "unknown suite; did you mean 'bsuite'?"),
        (("list", "agents", "--suite", "bsuite"), "expected 'jbrl list problems --suite bsuite'"),
        (("show", "bsuite/catch/20"), "index = 20: expected an integer from 0 to 19"),
    ):
        terminal.refused(terminal.call(*arguments), message)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
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


def test_agents_of_two_studies_are_named_by_the_parameters_in_which_they_differ(results, tmp_path):
    other = shutil.copytree(results.store.folder, tmp_path / "other")
    manifest = Results(other).manifest
    units = [unit | {"parameters": '{"epsilon": 0.5}'} for unit in manifest["units"]]
    (other / "study.json").write_bytes(pack_json(manifest | {"units": units}))
    logs = read_places([str(results.store.folder), str(other)])
    assert logs.agents == ["Random", "Random(ε = 0.5)"]


def test_results_of_other_problems_have_no_logs(tmp_path):
    study = {
        "study": {"name": "other", "n_environments": 20},
        "experiments": [{"name": "chain", "test": "Chain-10d", "episodes": 3}],
        "agents": [{"algorithm": "Random"}],
    }
    other = Results(Path(jbrl.run(study, tmp_path / "out").store.folder))
    with pytest.raises(JbrlError, match="no logs of bsuite: expected finished units of problems"):
        logs_of(other)


def test_names_of_problems():
    assert id_of("bsuite/catch/3") == id_of("catch/3") == "catch/3"
    assert id_of("bsuite/catch/20") is None and id_of("GC") is None
