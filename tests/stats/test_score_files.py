"""Score tables in files and in memory: what is read, what is refused, and parts of them."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jbrl.base.errors import JbrlError
from jbrl.stats.score_files import read_companion, read_score_table
from jbrl.stats.score_table import check_score_table, from_arrays, restrict, together
from tests.stats.tables import SCORES

HEAD = "algorithm,environment,score\n"


def written(folder: Path, text: str, name: str = "scores.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet"])
def test_every_format_gives_the_same_rows(tmp_path, name):
    path = tmp_path / name
    extra = SCORES.assign(seed=1)[["seed", "score", "environment", "algorithm"]]
    if name.endswith("parquet"):
        extra.to_parquet(path)
    else:
        extra.to_csv(path, index=False, sep="\t" if name.endswith("tsv") else ",")
    scores = read_score_table(path)
    assert list(scores.columns) == ["algorithm", "environment", "score"]
    assert scores["score"].dtype == np.float64
    pd.testing.assert_frame_equal(scores, SCORES, check_dtype=False, check_exact=True)


def test_several_files_mapped_and_joined_columns(tmp_path):
    first = written(tmp_path, "agent,parameters,task,return\nA,1,x,3\nA,2,x,4\n", "1.csv")
    second = written(tmp_path, "task,return,agent,parameters\nx,5,A,1\n", "2.csv")
    columns = {"algorithm": ("agent", "parameters"), "environment": "task", "score": "return"}
    scores = read_score_table([first, second], columns=columns)
    assert scores["algorithm"].tolist() == ["A 1", "A 2", "A 1"]
    assert scores["score"].tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    "text", ["algorithm, environment, score\nA, x, 1\n", "algorithm, x\nA, 1\n"]
)
def test_spaces_behind_commas_are_no_part_of_names(tmp_path, text):
    assert read_score_table(written(tmp_path, text)).to_numpy().tolist() == [["A", "x", 1.0]]


def test_decimals_are_read_exactly(tmp_path):
    values = np.random.default_rng(0).standard_normal(2000)
    path = written(tmp_path, HEAD + "".join(f"A,x,{v!r}\n" for v in values.tolist()))
    assert (read_score_table(path)["score"].to_numpy() == values).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "algorithm,environment,Return\nA,x,1\n",
            "scores.csv … no column 'score' … (known: Return, algorithm, environment)",
        ),
        (
            "algorithm,enviroment,score\nA,x,1\n",
            "no column 'environment' … did you mean 'enviroment'?",
        ),
        (HEAD, "scores.csv … no rows"),
        ("", "scores.csv … cannot be read as a score table"),
        (
            HEAD + "A,x,1\nB,y,fast\n",
            "row 2 (algorithm B, environment y) … score = 'fast' … finite number",
        ),
        (
            HEAD + "A,x,1\nB,y,nan\nB,y,\n",
            "row 2 (algorithm B, environment y) … score = 'nan' … (and 1 more)",
        ),
        (HEAD + "A,x,inf\n", "row 1 (algorithm A, environment x) … score = 'inf'"),
        (HEAD + "A,x,1\n,x,1\n", "row 2 … column 'algorithm' is empty"),
        (HEAD + "A,x,1\nA,  ,1\n", "row 2 … column 'environment' is empty"),
        (
            "agent,environment,score\nA,x,1\n",
            "no column 'algorithm' … --algorithm-column NAME … --columns algorithm=NAME",
        ),
        (
            "".join(f"c{k}," for k in range(900)) + "x\n" + "1," * 900 + "1\n",
            "no column 'algorithm' … and 801 more",
        ),
        (HEAD + "A,x,1\nA,x,1,2,3\n", "scores.csv … line 3"),
        (HEAD + "A,1,x,1\nA,2,x,2\n", "scores.csv … more fields than its header"),
        ("algorithm,environment,score,score\nA,x,1,2\n", "2 columns are called 'score'"),
        ("algorithm,x,y,x\nA,1,2,3\n", "2 columns are called 'x'"),  # of a wide table
        (",algorithm,x\n0,A,1\n", "a column has no name: expected that of an environment"),
        ("algorithm;environment;score\nA;x;1\n", "separated by ';': expected commas"),
        ("algorithm\tenvironment\tscore\nA\tx\t1\n", r"separated by '\t': expected commas"),
        (HEAD + "A,x,1\x00\n", r"score = '1\x00': expected"),
        (HEAD + f"{'A' * 999},x,{'1' * 999}x\n", f"(algorithm {'A' * 79}…, … = '{'1' * 78}…:"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path, text, words):
    with pytest.raises(JbrlError) as caught:
        read_score_table(written(tmp_path, text))
    for part in words.split(" … "):
        assert part in str(caught.value)


def test_a_table_without_a_column_names_the_option_that_maps_another(tmp_path):
    path = written(tmp_path, "Algorithm,environment,seed,score\nA,x,0,1\n")
    with pytest.raises(JbrlError, match=r"--algorithm-column NAME.*did you mean 'Algorithm'"):
        read_score_table(path, trials=True)


def test_a_file_that_is_not_there_or_of_another_kind(tmp_path):
    for name in ("none.csv", "none.parquet"):
        message = f"{name}: cannot be read as a score table: No such file"
        with pytest.raises(JbrlError, match=message):
            read_score_table(tmp_path / name)
    with pytest.raises(JbrlError, match=r"cannot be read as a score table"):
        read_score_table(written(tmp_path, "not parquet", "x.parquet"))
    with pytest.raises(JbrlError, match=r"expected a file ending in \.csv"):
        read_score_table(written(tmp_path, "", "x.txt"))
    path = tmp_path / "of Excel.csv"
    path.write_text(HEAD + "A,x,1\n", encoding="utf-16")
    with pytest.raises(JbrlError, match="a score table: not a text file in UTF-8"):
        read_score_table(path)
    with pytest.raises(JbrlError, match="no file given"):
        read_score_table([])


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    """Spreadsheets write one."""
    for name, text in (
        ("a.csv", HEAD + "A,x,1\nB,x,2\n"),
        ("b.csv", '"algorithm","environment","score"\n"A","x",1\n"B","x",2\n'),
        ("wide.csv", "algorithm,x\nA,1\nB,2\n"),
        ("c.json", '{"environments": ["x"], "scores": {"A": [[1]], "B": [[2]]}}'),
    ):
        path = tmp_path / name
        path.write_bytes(b"\xef\xbb\xbf" + text.encode())
        scores = read_score_table(path)
        assert scores.to_numpy().tolist() == [["A", "x", 1.0], ["B", "x", 2.0]]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.xz", "t.parquet", "t.npz", "t.json"])
def test_a_cut_file_a_pipe_and_a_folder_are_refused(tmp_path, name):
    path = tmp_path / name
    if name.endswith("z") and ".csv" in name:
        SCORES.to_csv(path, index=False)
    elif name.endswith("parquet"):
        SCORES.to_parquet(path)
    else:
        path.write_bytes(b'{"A": [[1, 2], [3')
    for cut in (9, path.stat().st_size // 2):
        path.write_bytes(path.read_bytes()[:-cut])
        with pytest.raises(JbrlError, match=rf"{name}: "):
            read_score_table(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(JbrlError, match="it is a pipe or a device: expected a file"):
        read_score_table(path)
    with pytest.raises(JbrlError, match="it is a pipe or a device: expected a file"):
        read_companion(path, ["algorithm"])
    path.unlink()
    path.mkdir()
    with pytest.raises(JbrlError, match="it is a folder: expected a file"):
        read_score_table(path)


def test_missing_scores_may_be_left_out(tmp_path):
    path = written(tmp_path, HEAD + "A,x,1\nA,y,\nA,z,-\nA,x,NaN\n")
    assert read_score_table(path, missing=True)["environment"].tolist() == ["x"]
    with pytest.raises(JbrlError, match=r"row 3 .*'soon'"):
        read_score_table(written(tmp_path, HEAD + "A,x,1\nA,y,\nA,z,soon\n"), missing=True)
    with pytest.raises(JbrlError, match="all 1 scores are missing"):
        read_score_table(written(tmp_path, HEAD + "A,x,\n"), missing=True)


def test_mappings_that_are_not_accepted(tmp_path):
    message = "unknown column 'scores' to be mapped; did you mean 'score'"
    with pytest.raises(JbrlError, match=message):
        read_score_table(tmp_path / "x.csv", columns={"scores": "a"})
    with pytest.raises(JbrlError, match="expected one column"):
        read_score_table(tmp_path / "x.csv", columns={"score": ("a", "b")})


def test_companion_files(tmp_path):
    bounds = written(tmp_path, "low,environment,high\n0,1.0,1\n", "bounds.csv")
    [row] = read_companion(bounds, ["environment"], ["low", "high"]).to_numpy().tolist()
    assert row == ["1.0", 0.0, 1.0]
    pairs = written(tmp_path, "environment,algorithm,algorithm\nx,A,B\n", "pairs.csv")
    [row] = read_companion(pairs, ["environment", "algorithm", "algorithm"]).to_numpy().tolist()
    assert row == ["x", "A", "B"]
    with pytest.raises(JbrlError, match=r"bounds\.json: .* expected a file ending in .*\.pq$"):
        read_companion(written(tmp_path, "{}", "bounds.json"), ["environment"], ["low", "high"])
    with pytest.raises(JbrlError, match=r"bounds\.csv: no column 'top'"):
        read_companion(bounds, ["environment"], ["top"])
    with pytest.raises(JbrlError, match=r"row 1 \(x\): low = 'none': expected a finite number"):
        read_companion(written(tmp_path, "environment,low\nx,none\n"), ["environment"], ["low"])
    with pytest.raises(JbrlError, match="no rows"):
        read_companion(written(tmp_path, "environment,low\n"), ["environment"], ["low"])


def test_wide_tables_are_read_by_their_columns(tmp_path):
    path = written(tmp_path, "algorithm,seed,x,y\nA,0,1,2\nB,0,3,\nA,1,5,6\nB,1,7,8\n")
    scores = read_score_table(path)
    cells = {
        key: rows["score"].tolist() for key, rows in scores.groupby(["algorithm", "environment"])
    }
    assert cells == {("A", "x"): [1, 5], ("A", "y"): [2, 6], ("B", "x"): [3, 7], ("B", "y"): [8]}
    with pytest.raises(JbrlError, match=r"'soon'"):
        read_score_table(written(tmp_path, "algorithm,x\nA,soon\n"))


def test_arrays_of_runs_by_environments(tmp_path):
    arrays = {"A": np.array([[1.0, 2.0], [3.0, np.nan]]), "B": np.array([[5.0, 6.0]])}
    stored = from_arrays(arrays, ["x", "y"])
    labels = ["".join(pair) for pair in stored.iloc[:, :2].to_numpy()]
    assert labels == ["Ax", "Ay", "Ax", "Bx", "By"]
    assert stored["score"].tolist() == [1.0, 2.0, 3.0, 5.0, 6.0]
    np.savez(tmp_path / "t.npz", environments=np.array(["x", "y"]), **arrays)
    text = '{"environments": ["x", "y"], "scores": {"A": [[1, 2], [3, NaN]], "B": [[5, 6]]}}'
    for path in (tmp_path / "t.npz", written(tmp_path, text, "t.json")):
        pd.testing.assert_frame_equal(read_score_table(path), stored)
    plain = read_score_table(written(tmp_path, '{"A": [[1, 2]]}', "p.json"))
    assert plain["environment"].tolist() == ["environment 1", "environment 2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "expected an object"),
        ('{"A": [[1]], "B": [[2]], "A": [[3]]}', "'A' occurs twice: expected each name once"),
        ('{"environments": ["x", "x"], "scores": {"A": [[1, 2]]}}', "'x' is named twice"),
        ('{"environments": "xy", "scores": {"A": [[1, 2]]}}', "'xy': expected a list of names"),
        ("{}", "no arrays"),
        ('{"A": [1, 2]}', r"'A': an array of shape \(2,\): expected \[runs, environments\]"),
        ('{"A": [[1, 2]], "B": [[1]]}', r"'B': .*with 2 environments"),
        ('{"A": [[1], [2, 3]]}', "'A': expected numbers, as many in each row"),
        ('{"A": [[1, 2]], "B": [[null, null]]}', "algorithm 'B' has no score at all"),
        ("{", "cannot be read as arrays"),
    ],
)
def test_arrays_that_are_not_accepted(tmp_path, text, message):
    with pytest.raises(JbrlError, match=message):
        read_score_table(written(tmp_path, text, "a.json"))


def test_imaginary_parts_are_not_dropped(tmp_path):
    np.savez(tmp_path / "a.npz", A=np.array([[1 + 2j]]), B=np.ones((1, 1)))
    with pytest.raises(JbrlError, match="'A': expected numbers"):
        read_score_table(tmp_path / "a.npz")


def test_trials_that_occur_twice_are_refused(tmp_path):
    head = "algorithm,environment,unit,seed,score\n"
    one = written(tmp_path, head + "A,x,0,0,1\nA,x,1,0,1\n", "1.csv")
    two = written(tmp_path, head + "A,x,1,0,1\nA,x,2,0,1\n", "2.csv")
    other = written(tmp_path, head + "A,x,1,7,1\n", "3.csv")
    read = [(path.name, read_score_table(path, trials=True)) for path in (one, two, other)]
    assert len(together([read[0], read[2]])) == 3
    message = r"1\.csv, 2\.csv: algorithm A, environment x, unit 1, seed 0 occurs twice"
    with pytest.raises(JbrlError, match=message):
        together(read)
    plain = [(name, part[["algorithm", "environment", "score"]]) for name, part in read[:1]]
    with pytest.raises(JbrlError, match=r"1\.csv: has the same rows as 1\.csv"):
        together([*plain, *plain])


def test_seeds_that_occur_twice_are_refused_where_each_is_one_trial(tmp_path):
    head = "algorithm,environment,seed,score\n"
    rows = "A,x,0,1\nA,x,1,2\n"
    copied = written(tmp_path, head + rows + rows, "copied.csv")
    with pytest.raises(JbrlError, match=r"copied\.csv: rows 1 and 3 are the same, seed 0 included"):
        read_score_table(copied, trials=True)
    assert len(read_score_table(copied)) == 4

    def read(name: str, rows: str) -> tuple[str, pd.DataFrame]:
        return name, read_score_table(written(tmp_path, head + rows, name), trials=True)

    one, two = read("1.csv", rows), read("2.csv", "A,x,1,2\nA,x,2,2\n")
    message = r"1\.csv, 2\.csv: algorithm A, environment x, seed 1 occurs twice:"
    with pytest.raises(JbrlError, match=message):
        together([one, two])
    episodes = read("3.csv", "A,x,1,2\nA,x,1,3\n")  # several trials of one seed
    assert len(together([one, episodes])) == 4


def test_seeds_that_occur_twice_are_refused_in_wide_tables(tmp_path):
    head = "algorithm,seed,x,y\n"
    copied = written(tmp_path, head + "A,1,.1,.2\nA,1,.1,.2\n", "copied.csv")
    with pytest.raises(JbrlError, match=r"copied\.csv: rows 1 and 2 are the same, seed 1 included"):
        read_score_table(copied, trials=True)
    wide = written(tmp_path, head + "A,1,.1,\nA,2,,.2\n", "wide.csv")
    both = [(name, read_score_table(wide, trials=True)) for name in ("1.csv", "2.csv")]
    assert both[0][1]["seed"].tolist() == ["1", "2"]
    with pytest.raises(JbrlError, match=r"algorithm A, environment x, seed 1 occurs twice"):
        together(both)


def test_trials_of_parquet_are_those_of_their_rows(tmp_path):
    """Part of a table of pandas keeps the numbers of its rows."""
    table = pd.DataFrame({"algorithm": "A", "environment": "x", "unit": range(6), "score": 1.0})
    table.tail(3).to_parquet(tmp_path / "t.parquet")
    read = read_score_table(tmp_path / "t.parquet", trials=True)
    assert read["unit"].tolist() == ["3", "4", "5"]


def test_endings_may_be_upper_case(tmp_path):
    path = written(tmp_path, "algorithm\tenvironment\tscore\nA\tx\t1\n", "T.TSV")
    assert read_score_table(path)["score"].tolist() == [1.0]


def test_a_table_in_memory_obeys_the_same_rules():
    pd.testing.assert_frame_equal(check_score_table(SCORES), SCORES, check_dtype=False)
    with pytest.raises(JbrlError, match="score table: no column 'score'"):
        check_score_table(SCORES.drop(columns="score"))
    with pytest.raises(JbrlError, match=r"mine: row 2 .*score = nan"):
        check_score_table(SCORES.assign(score=[1.0, np.nan, 2.0, 3.0]), name="mine")


def test_restricting_keeps_the_order_of_the_names():
    assert restrict(SCORES, algorithms=["1.10", "A"])["algorithm"].tolist() == ["1.10", "A"]
    assert restrict(SCORES, environments=["y"])["algorithm"].tolist() == ["NA", "1.10"]
    with pytest.raises(JbrlError, match=r"--environments: unknown environment 'z' \(known: x, y\)"):
        restrict(SCORES, environments=["z"])
