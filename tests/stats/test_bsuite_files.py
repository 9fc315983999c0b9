"""Logs as the original writes them: read, refused, written."""

import os
import re
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
from tests.faults.cases import full
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
def folder(tmp_path_factory):
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


def test_texts_in_quotes_beside_the_columns_of_the_log_are_read(tmp_path):
    rows = [f'{row},"a,b\u2028""c""\x0cd\n"' for row in ROWS]
    run = read_file(write(tmp_path, "bsuite_id_-_catch-0.csv", f"{CATCH},note", *rows), "x")
    assert run.episodes == 3 and not run.truncated


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
    ("catch-0", (CATCH + ",note", ROWS[0] + ',"a'), "row 1: no CSV: unexpected end of data"),
    ("catch-20", (CATCH, *ROWS), "id 'catch/20': index '20': expected 0 to 19"),
    ("catsh-0", (CATCH, *ROWS), "id 'catsh/0': unknown experiment 'catsh'; did you mean 'catch'?"),
    ("catch", (CATCH,), "the name holds no"),
    ("catch-\N{ARABIC-INDIC DIGIT THREE}", (CATCH,), "the name holds no"),
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
    write_folder(whole("x", "catch", [[1.0] * 20]).runs, tmp_path / "all" / "m\N{SUPERSCRIPT TWO}")
    assert len(read_places([str(tmp_path / "all")]).agents) == 3  # a digit that is no number
    first = [run for run in logs.runs if run.bsuite_id == "catch/0" and run.agent == "Random"]
    assert [run.number for run in first] == [0, 1, 2]
    assert [run.columns["total_regret"][0] for run in first] == [0.1, 0.2, 1.0]


def test_hidden_folders_are_not_looked_at(tmp_path):
    for place in ("DQN", "DQN/.ipynb_checkpoints"):
        write_folder(whole("x", "catch", [[1.0] * 20]).runs, tmp_path / place)
    assert len(read_places([str(tmp_path / "DQN")]).runs) == 20


@pytest.mark.parametrize("other", ["run-1", "x/y/run-0"])
def test_logs_that_would_not_be_read_are_refused(tmp_path, other):
    for place in ("DQN", f"DQN/{other}"):
        write_folder(whole("x", "catch", [[1.0] * 20]).runs, tmp_path / "all" / place)
    with pytest.raises(JbrlError, match=rf"DQN/{other}: has logs, and so has .*DQN: expected"):
        read_places([str(tmp_path / "all")])


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
    with pytest.raises(JbrlError, match=r"no/a\.csv: cannot be written: Cannot save file"):
        write_table(golden("scores_deep_sea_edge"), tmp_path / "no" / "a.csv")
    with pytest.raises(JbrlError, match=r"mine: id 'deep_sea/30': index '30'"):
        logs_of_table(table.replace({"bsuite_id": "deep_sea/3"}, "deep_sea/30"), name="mine")
    with pytest.raises(JbrlError, match=r"mine: deep_sea/0: row 2: episode = 1 after 2"):
        first = table[table["bsuite_id"] == "deep_sea/0"].iloc[[1, 0]]
        logs_of_table(first, name="mine")
    (tmp_path / "semi.csv").write_text("agent;run;bsuite_id\nA;0;catch/0\n")
    with pytest.raises(JbrlError, match="its columns are separated by ';': expected commas"):
        read_places([str(tmp_path / "semi.csv")])
    (tmp_path / "text.csv").write_text('a,"b\n1')
    with pytest.raises(JbrlError, match=r"text\.csv: "):
        read_places([str(tmp_path / "text.csv")])


def blank(column, value, row=1):
    """Change one cell of a small table of two agents."""

    def change(table: pd.DataFrame) -> pd.DataFrame:
        table = table.astype({column: object})
        table.loc[row, column] = value
        return table

    return change


UNUSABLE = {
    "agent": (blank("agent", ""), "row 2: column 'agent' is empty: expected a name"),
    "spaces": (blank("agent", "  "), "row 2: column 'agent' is empty: expected a name"),
    "id": (blank("bsuite_id", None, row=7), "row 8: column 'bsuite_id' is empty"),
    "run": (blank("run", ""), "row 2: run = '': expected a whole number, 0 or more"),
    "part of a run": (blank("run", 1.7), "row 2: run = '1.7': expected a whole number"),
    "negative run": (blank("run", -1), "row 2: run = '-1': expected a whole number"),
    "no number": (blank("episode", "two", row=7), "row 8: episode = 'two': expected a finite"),
    "far": (blank("episode", 1e23, row=5), "row 6: episode = 1e+23: expected a whole number from"),
    "part": (blank("episode", 1.5), "row 2: episode = 1.5: expected a whole number from 1 to"),
    "order": (blank("episode", 1, row=8), "row 9: episode = 1 after 2: rows out of order"),
    "nothing": (lambda table: table.iloc[:0], "no rows: expected one per logged episode"),
    "all blank": (lambda table: table.iloc[:0].assign(run=[]), "no rows: expected one"),
    "twice": (lambda table: pd.concat([table, table[["run"]]], axis=1), "'run' occurs twice"),
    "lacking": (lambda table: table.drop(columns="steps"), "catch/0: no column steps (found"),
}


@pytest.mark.parametrize("case", UNUSABLE)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_no_row_of_a_table_is_lost_without_a_word(tmp_path, case, ending):
    change, message = UNUSABLE[case]
    runs = [made_up(agent, "catch/0", 1.0, episodes=6) for agent in ("NA", "1.10")]
    table = change(Logs(tuple(runs)).table[["agent", "run", "bsuite_id", *CATCH.split(",")]])
    if ending == "parquet":
        with pytest.raises(JbrlError, match=f"mine: .*{re.escape(message)}"):
            logs_of_table(table, name="mine")
        return
    path = tmp_path / "mine.csv"
    table.to_csv(path, index=False)
    with pytest.raises(JbrlError, match=re.escape(message.replace("'run' occ", "occ"))):
        read_places([str(path)])


@pytest.mark.parametrize("names", [("NA",), ("NA", "1.10"), ("null", "None", "nan", "é")])
def test_agents_may_be_called_anything(tmp_path, names):
    runs = [made_up(name, "catch/0", 1.0, number=1, episodes=3) for name in names]
    path = tmp_path / "mine.csv"
    write_table(Logs(tuple(runs)), path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as spreadsheets write it
    again = read_places([str(path)])
    assert again.agents == list(names) and {run.number for run in again.runs} == {1}


@pytest.mark.parametrize(
    ("ending", "begin"), [("csv", b"agent"), ("csv.gz", b"\x1f\x8b"), ("parquet", b"PAR1")]
)
def test_a_table_that_was_cut_off_is_refused(tmp_path, ending, begin):
    """At each of its last bytes: a number that lost its last digit is a number."""
    path = tmp_path / f"mine.{ending}"
    write_table(whole("x", "catch", [[1.0] * 20]), path)
    content = path.read_bytes()
    assert content.startswith(begin)
    for cut in (1, 2, 3, 9, len(content) // 2):
        path.write_bytes(content[:-cut])
        with pytest.raises(JbrlError, match=r"mine\.[a-z.]+: "):
            read_places([str(path)])


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_a_table_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch, ending):
    path = tmp_path / f"mine.{ending}"
    write_table(whole("x", "catch", [[1.0] * 20]), path)
    before = path.read_bytes()

    monkeypatch.setattr(os, "fsync", full)
    for write in (write_table, export):
        with pytest.raises(JbrlError, match=r"cannot be written.*No space left"):
            write(whole("y", "catch", [[0.5] * 20]), path if write is write_table else tmp_path)
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == before


def test_a_pipe_that_is_called_like_a_log_is_no_log(tmp_path):
    catch(tmp_path, *ROWS)
    os.mkfifo(tmp_path / "bsuite_id_-_catch-1.csv")
    logs = read_folder(tmp_path, "x")
    assert len(logs.runs) == 1
    assert "catch-1.csv: cannot be read: it is a pipe or a device" in logs.problems[0]


def test_a_byte_order_mark_is_no_part_of_a_header(tmp_path):
    path = catch(tmp_path, *ROWS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_file(path, "x").episodes == 3


def test_thousands_of_columns_are_not_all_named(tmp_path):
    names = [f"column {k}" for k in range(50_000)]
    path = write(tmp_path, "bsuite_id_-_catch-0.csv", ",".join(names), "1")
    with pytest.raises(JbrlError, match=r"column 99 and 49,900 more\)") as error:
        read_file(path, "x")
    assert len(str(error.value)) < 3000
    with pytest.raises(JbrlError, match="and 49,900 more"):
        logs_of_table(pd.DataFrame([range(50_000)], columns=names))


def test_no_agent_is_exported_outside_of_its_folder(tmp_path):
    names = ["..", ".", "...", ".hidden", "../x", "a", "/b", "学习", "हिन्दी"]
    logs = Logs(tuple(made_up(name, "catch/0", 1.0, episodes=3) for name in names))
    paths = export(logs, tmp_path / "to")
    inner = [path.relative_to(tmp_path / "to").parts[0] for path in paths]
    assert inner == ["__", "_", "___", "_hidden", "___x", "a", "_b", "学习", "हिन्दी"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["to"]


def test_export_has_a_folder_for_each_agent_and_run(tmp_path):
    logs = merged(
        [whole("x/1", "catch", [[1.0] * 20, [0.5] * 20]), whole("y", "bandit", [[0.1] * 20])]
    )
    paths = export(logs, tmp_path)
    places = {path.parent.relative_to(tmp_path).as_posix() for path in paths}
    assert places == {"x_1/run-0", "x_1/run-1", "y"}
    again = read_places([str(tmp_path)])
    assert sorted(again.agents) == ["x_1", "y"] and len(again.runs) == 60
    (tmp_path / "x_1").rename(tmp_path / "x")  # as if it were the only agent
    alone = read_places([str(tmp_path / "x")])
    assert alone.agents == ["x"] and {run.number for run in alone.runs} == {0, 1}
    clash = Logs(tuple(made_up(name, "catch/0", 1.0) for name in ("a/b", "a_b")))
    with pytest.raises(JbrlError, match="two agents would share a folder"):
        export(clash, tmp_path / "clash")


def test_the_table_has_every_row():
    table = golden("scores_a").table
    assert len(table) == sum(49 if SWEEP[i].experiment.episodes == 10_000 else 36 for i in SWEEP)
    assert list(table.columns[:4]) == ["agent", "run", "bsuite_id", "steps"]
