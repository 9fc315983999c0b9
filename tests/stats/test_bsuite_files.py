"""Logs as the original writes them: read, refused, written."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jbrl.base.bsuite_sweep import SWEEP
from jbrl.base.errors import JbrlError
from jbrl.bsuite_logs import export, read_places, write_table
from jbrl.stats.bsuite import scores
from jbrl.stats.bsuite.logs import Logs, logs_of_table, merged, read_file, read_folder, write_folder
from tests.stats.bsuite_cases import golden, made_up, whole

CATCH = "steps,episode,total_return,episode_len,episode_return,total_regret"
ROWS = ("9,1,-1.0,9,-1.0,2.0", "18,2,0.0,9,1.0,2.0", "27,3,-1.0,9,-1.0,4.0")


def write(folder: Path, name: str, *lines: str, end: str = "\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(("\n".join(lines) + end).encode())
    return path


def catch(folder: Path, *rows: str, index: int | str = 0, end: str = "\n") -> Path:
    return write(folder, f"bsuite_id_-_catch-{index}.csv", CATCH, *rows, end=end)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("logs") / "dqn"
    write_folder(golden("scores_a").runs, place)
    return place


def test_all_468_files_come_back_as_they_were(folder):
    assert len(list(folder.iterdir())) == 468
    logs = read_folder(folder, "dqn")
    assert not logs.problems and not logs.notes
    runs = {run.bsuite_id: run for run in logs.runs}
    for run in golden("scores_a").runs:
        again = runs[run.bsuite_id]
        assert set(again.columns) == set(run.columns)
        for name, values in run.columns.items():
            np.testing.assert_array_equal(again.columns[name], values)


def test_a_folder_of_468_files_is_scored_in_seconds(folder):
    """The limit is 5 s of one core; it takes about 0.5 s."""
    start = time.process_time()
    assert len(scores.summary(read_folder(folder, "dqn"))) == 23
    assert time.process_time() - start < 5


def test_files_are_what_the_loader_of_the_original_reads(folder):
    """It globs the name, takes the id from it and reads columns by their names with pandas."""
    path = folder / "bsuite_id_-_cartpole_swingup-3.csv"
    text = path.read_bytes()
    assert text.startswith(
        b"steps,episode,total_return,episode_len,episode_return,"
        b"raw_return,total_upright,best_episode\n"
    )
    assert text.endswith(b"\n") and b"\r" not in text
    table = pd.read_csv(path)
    assert str(table["episode"].dtype) == str(table["total_upright"].dtype) == "int64"
    assert str(table["raw_return"].dtype) == "float64"


def test_numbers_are_written_in_full(tmp_path):
    run = made_up("x", "catch/0", 1 / 3)
    write_folder([run], tmp_path)
    again = read_file(tmp_path / "bsuite_id_-_catch-0.csv", "x")
    assert again.columns["total_regret"].tolist() == run.columns["total_regret"].tolist()


def test_nothing_is_overwritten(tmp_path):
    write_folder([made_up("x", "catch/0", 1.0)], tmp_path)
    with pytest.raises(JbrlError, match=r"catch-0\.csv: exists already"):
        write_folder([made_up("x", "catch/0", 1.0)], tmp_path)


def test_other_line_ends_columns_and_orders_are_read(tmp_path):
    head = "wall_time,total_regret,episode_return,episode_len,total_return,episode,steps"
    path = write(tmp_path, "bsuite_id_-_catch-4.csv", head, "x,2.0,-1.0,9,-1.0,1,9", end="\r\n")
    run = read_file(path, "x")
    assert run.bsuite_id == "catch/4" and run.columns["total_regret"].tolist() == [2.0]
    assert not run.truncated


def test_empty_lines_at_the_end_do_not_count(tmp_path):
    run = read_file(catch(tmp_path, *ROWS, "", ""), "x")
    assert run.episodes == 3 and not run.truncated


# ---- what is cut off ----


@pytest.mark.parametrize("cut", ["36,4,-2.0,9,-1.0,6.", "36,4", "3"])
def test_a_last_line_without_end_is_left_out_and_flagged(tmp_path, cut):
    path = catch(tmp_path, *ROWS, cut, end="")
    logs = read_folder(tmp_path, "x")
    assert logs.runs[0].truncated and logs.runs[0].episodes == 3
    assert logs.notes == (
        f"{path}: row 4 is cut off (no line end follows) and is left out: catch/0 counts up to "
        f"episode 3",
    )
    assert not logs.problems
    assert not scores.summary(logs)["finished"].item()


# ---- what is refused, with file and row ----


REFUSED = [
    (
        "catch-0",
        ("steps,episode", "9,1"),
        "no column total_return, episode_len, episode_return, total_regret (found: steps, episode)"
        " … a log of catch has steps, episode",
    ),
    ("catch-0", ("",), "no column steps"),
    ("catch-1", (CATCH,), "no rows: expected one per logged episode"),
    *(
        ("catch-0", (CATCH, ROWS[0], f"18,2,0.0,9,1.0,{value}"), f"row 2: total_regret = {shown}: ")
        for value, shown in (("nan", "'nan'"), ("", "''"), ("inf", "inf"), ("two", "'two'"))
    ),
    ("catch-0", (CATCH, ROWS[0], ROWS[2], ROWS[1]), "row 3: episode = 2 after 3: rows out of"),
    ("catch-1", (CATCH, ROWS[0], ROWS[0]), "row 2: episode = 1 after 1: rows out of order"),
    ("catch-2", (CATCH, ROWS[1], "9,3,-1.0,9,-1.0,4.0"), "row 2: steps = 9 after 18: rows out of"),
    ("catch-0", (CATCH, ROWS[0], "18,2,0.0", ROWS[2]), "row 2: 3 fields: expected 6, as in the"),
    ("catch-20", (CATCH, *ROWS), "id 'catch/20': index '20': expected 0 to 19"),
    ("catsh-0", (CATCH, *ROWS), "id 'catsh/0': unknown experiment 'catsh'; did you mean 'catch'?"),
    ("catch", (CATCH,), "the name holds no"),
]


@pytest.mark.parametrize(("name", "lines", "words"), REFUSED)
def test_files_that_are_refused(tmp_path, name, lines, words):
    path = write(tmp_path, f"bsuite_id_-_{name}.csv", *lines)
    with pytest.raises(JbrlError) as error:
        read_file(path, "x")
    first, *others = words.split(" … ")
    message = str(error.value)
    assert message.startswith(f"{path}: {first}") and "\n" not in message
    assert all(word in message for word in others)


def test_two_files_of_one_id(tmp_path):
    catch(tmp_path, *ROWS)
    second = catch(tmp_path, *ROWS, index="00")
    logs = read_folder(tmp_path, "x")
    assert len(logs.runs) == 1
    assert logs.problems == (
        f"{second}: a second file of catch/0 beside bsuite_id_-_catch-0.csv: expected one per id",
    )


def test_a_file_that_cannot_be_used_leaves_the_others(tmp_path):
    catch(tmp_path, *ROWS)
    bad = catch(tmp_path, ROWS[0], "18,2,0.0,9,1.0,nan", index=1)
    logs = read_folder(tmp_path, "x")
    assert [run.bsuite_id for run in logs.runs] == ["catch/0"]
    assert logs.problems == (f"{bad}: row 2: total_regret = 'nan': expected a finite number",)


def test_a_folder_without_logs(tmp_path):
    with pytest.raises(JbrlError, match="no logs: expected files named bsuite_id_-_"):
        read_folder(tmp_path, "x")
    with pytest.raises(JbrlError, match="no such folder or file"):
        read_places([str(tmp_path / "nothing")])


# ---- places ----


def test_agents_and_runs_are_folders_in_folders(tmp_path):
    write_folder(whole("x", "catch", [[1.0] * 20]).runs, tmp_path / "all" / "DQN")
    for number in (2, 10, 1):
        rates = [[number / 10] * 20]
        write_folder(whole("x", "catch", rates).runs, tmp_path / "all" / "Random" / f"run-{number}")
    logs = read_places([str(tmp_path / "all")])
    assert logs.agents == ["DQN", "Random"]
    first = [run for run in logs.runs if run.bsuite_id == "catch/0" and run.agent == "Random"]
    assert [run.number for run in first] == [0, 1, 2]
    assert [run.columns["total_regret"][0] for run in first] == [0.1, 0.2, 1.0]


def test_a_name_given_twice_is_one_agent_run_twice(folder, tmp_path):
    other = tmp_path / "other"
    write_folder(golden("scores_b").runs, other)
    logs = read_places([f"A={folder}", f"A={other}"])
    assert logs.agents == ["A"] and {run.number for run in logs.runs} == {0, 1}
    with pytest.raises(JbrlError, match="given twice"):
        read_places([f"A={folder}", f"B={folder}"])


def test_one_name_for_two_agents_is_refused(tmp_path):
    logs = merged([whole("x", "catch", [[1.0] * 20]), whole("y", "catch", [[1.0] * 20])])
    write_table(logs, tmp_path / "both.csv")
    with pytest.raises(JbrlError, match="has 2 agents: expected one to be named"):
        read_places([f"A={tmp_path / 'both.csv'}"])


@pytest.mark.first_case_quick
@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_tables_hold_what_folders_hold(tmp_path, ending):
    logs = merged([golden("scores_a"), golden("scores_b")])
    path = tmp_path / f"rows.{ending}"
    write_table(logs, path)
    again = read_places([str(path)])
    assert again.agents == logs.agents
    ours, theirs = scores.summary(again), scores.summary(logs)
    np.testing.assert_array_equal(ours["score"], theirs["score"])


def test_tables_that_cannot_be_used(tmp_path):
    table = golden("scores_deep_sea_edge").table
    with pytest.raises(JbrlError, match=r"rows\.txt: expected a file ending in \.csv"):
        write_table(golden("scores_deep_sea_edge"), tmp_path / "rows.txt")
    with pytest.raises(JbrlError, match="mine: no column 'bsuite_id'"):
        logs_of_table(table.drop(columns="bsuite_id"), name="mine")
    with pytest.raises(JbrlError, match=r"mine: id 'deep_sea/30': index '30'"):
        logs_of_table(table.replace({"bsuite_id": "deep_sea/3"}, "deep_sea/30"), name="mine")
    with pytest.raises(JbrlError, match=r"mine: deep_sea/0: row 2: episode = 1 after 2"):
        first = table[table["bsuite_id"] == "deep_sea/0"].iloc[[1, 0]]
        logs_of_table(first, name="mine")
    (tmp_path / "text.csv").write_text('a,"b\n1')
    with pytest.raises(JbrlError, match=r"text\.csv: "):
        read_places([str(tmp_path / "text.csv")])


def test_export_has_a_folder_for_each_agent_and_run(tmp_path):
    logs = merged(
        [whole("x/1", "catch", [[1.0] * 20, [0.5] * 20]), whole("y", "bandit", [[0.1] * 20])]
    )
    paths = export(logs, tmp_path)
    places = {path.parent.relative_to(tmp_path).as_posix() for path in paths}
    assert places == {"x_1/run-0", "x_1/run-1", "y"}
    again = read_places([str(tmp_path)])
    assert sorted(again.agents) == ["x_1", "y"] and len(again.runs) == 60
    clash = Logs(tuple(made_up(name, "catch/0", 1.0) for name in ("a/b", "a_b")))
    with pytest.raises(JbrlError, match="two agents would share a folder"):
        export(clash, tmp_path / "clash")


def test_the_table_has_every_row():
    table = golden("scores_a").table
    assert len(table) == sum(49 if SWEEP[i].experiment.episodes == 10_000 else 36 for i in SWEEP)
    assert list(table.columns[:4]) == ["agent", "run", "bsuite_id", "steps"]
