"""What people read: tables within 100 columns, parameters as columns, durations, words about a unit
that gives no news for long; a study of episodes through every command.
"""

import dataclasses
import json
import re
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest

import jbrl
from jbrl.cli import output
from jbrl.cli.output import _aligned, duration
from jbrl.cli.progress import _strategy
from jbrl.cli.rank import _without_needless_columns
from jbrl.cli.results import lines
from jbrl.report.text import Rules, rules_of
from jbrl.stats.table import parameter_columns
from jbrl.study.status import Status, Waiting, Worker
from tests import kept
from tests.report import synthetic
from tests.report.test_chapters import searched
from tests.terminal import call, refused, rows, succeeds
from tests.test_cli import COLUMNS

KEPT = Path(__file__).parents[1] / "experiments" / "published" / "paper-cpu"


@pytest.mark.parametrize("table", ["ranks", "pairs", "orders"])
def test_rank_stays_within_100_columns_and_keeps_every_agent(table):
    options = ("--experiment", "GC", "--experiment", "Grid", "--resamples", 20, "--table", table)
    narrow = call("rank", KEPT, *options).stdout
    assert max(map(len, narrow.splitlines())) <= 100
    assert narrow.startswith("GC, 500 environments\n") and "\n\nGrid, 500" in narrow
    if table == "ranks":
        ends = ("rank", "rank_lower", "rank_upper")
        ranks = rows("rank", KEPT, *options)
        wanted = [tuple(r[e] for e in ends) for r in ranks if r["experiment"] != "(all)"]
        shown = re.findall(r"^(\d+) \[(\d+), (\d+)\]", narrow, re.MULTILINE)
        assert shown[: len(wanted)] == wanted
    if table != "orders":
        wide = call("rank", KEPT, *options, "--wide").stdout
        assert max(map(len, wide.splitlines())) > 100


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """An archive of numbers: a unit has failed, one is missing, two searches have run."""
    folder = tmp_path_factory.mktemp("archive")
    scores, returns = synthetic.undo(*synthetic.study(), "BEB", "failed", "GC, inaccurate")
    scores, returns = synthetic.undo(scores, returns, "Optimal")
    numbers = {"offline_seconds_spread": 0.25, "online_processor_seconds": 2e-7, "knowledge": None}
    units = scores.drop(columns=["mean", "std", "ci95"]).assign(**numbers)
    units["reason"] = units["status"].map({"failed": "no\nmemory"})
    units = units.assign(id=[f"u{k}" for k in units.index], oracle=units["algorithm"] == "Optimal")
    units.to_parquet(folder / "units.parquet")
    places = units[["experiment", "prior", "test"]].drop_duplicates()
    returns.merge(places, "left").to_parquet(folder / "returns.parquet")
    tried = searched(seeds=(0, 1)).drop(columns="ci95").assign(algorithm="BEB")
    tried.to_parquet(folder / "strategies.parquet")
    (folder / "study.json").write_text(json.dumps(synthetic.MANIFEST))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        *("scores", "scores --format md", "scores --format json", "scores --parameter-columns"),
        *("returns --parameter-columns", "strategies --top 2", "strategies --format md"),
        *(
            f"rank --resamples 50 {more}"
            for more in ("", "--format csv", "--all --seed 1", "--wide")
        ),
        *(f"rank --resamples 50 --table {more}" for more in ("pairs --level 0.5", "orders")),
        "rank --resamples 50 --table pairs --all --experiment GC --format md",
    ],
)
def test_what_commands_print_about_a_study_is_the_kept_text(archive, command):
    name, *options = command.split()
    done = call(name, archive, *options)
    kept.compare(f"jbrl {command}", {"out": done.stdout, "err": done.stderr}, archive)


def test_scores_stay_within_100_columns_and_name_what_is_left_out():
    printed = call("scores", KEPT)
    lines = printed.stdout.splitlines()
    assert max(map(len, lines)) <= 100 and len(lines) > 634
    assert {"algorithm", "parameters", "mean", "ci95", "offline", "online"} <= {*lines[0].split()}
    assert (
        "note: no place for compile" in printed.stderr and "--format csv has all" in printed.stderr
    )


def test_strategies_stay_within_the_columns_of_the_terminal(archive, monkeypatch):
    for module in ("output", "results"):
        monkeypatch.setattr(f"jbrl.cli.{module}.terminal_width", lambda: 80)
    printed = call("strategies", archive)
    assert max(map(len, printed.stdout.splitlines())) <= 80
    assert "note: no place for simulated, consumed" in printed.stderr


def test_long_texts_continue_on_the_next_line():
    table = pd.DataFrame({"agent": ["a long name of an agent " * 3], "mean": [1.5]})
    assert len(_aligned(table)) == 2
    lines = _aligned(table, 40)
    assert max(map(len, lines)) <= 40 and len(lines) > 2
    words = " ".join(line.removesuffix("1.5").strip() for line in lines[1:]).split()
    assert words == table["agent"][0].split()
    assert [line.split()[-1] for line in lines[:2]] == ["mean", "1.5"]


def test_a_name_without_gaps_leaves_other_columns_in_sight():
    name = "a" * 119 + "b"
    wide = pd.DataFrame({"agent": [name, "x y " * 30], "mean": [1.5, 2.5]})
    for table in (_aligned(wide), output.aligned([["agent", "mean"], [name, "1.5"]])):
        assert max(map(len, table)) < 50 and table[1].split() == ["a" * 40, "1.5"]
        assert table[3].strip() == "a" * 39 + "b"
    assert output.aligned([["agent", ""], ["", ""], ["x", "2"]]) == ["agent", "", "x      2"]


def test_what_is_absent_is_a_dash_and_a_name_is_none():
    table = pd.DataFrame({"algorithm": ["nan", "None", None], "mean": [1.5, float("nan"), 2]})
    found = [line.split() for line in _aligned(table)[1:]]
    assert found == [["nan", "1.5"], ["None", "–"], ["–", "2"]]


def test_a_mean_has_digits_that_show_its_interval(capsys):
    table = pd.DataFrame({"mean": [1e6 + 0.25, -12.5, float("nan")], "ci95": [0.5, 0.5, 0.1]})
    assert [line.split()[0] for line in _aligned(table)[1:]] == ["1000000.2", "-12.5", "–"]
    output.print_table(table * 10, "md")
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[1] for line in lines] == ["10000002", "-125", "|"]


def test_parameters_become_columns():
    table = pd.DataFrame(
        {
            "algorithm": ["A", "A", "B", "C"],
            "parameters": ['{"k": 3}', '{"k": 1, "seed": 0.5}', '{"e": {"uniform": [0, 1]}}', ""],
            "seed": [0, 0, 0, 1],
        }
    )
    found = parameter_columns(table)
    assert list(found.columns) == ["algorithm", "k", "parameter_seed", "e", "seed"]
    assert found["k"].tolist() == [3, 1, None, None]
    assert found["parameter_seed"].tolist() == [None, 0.5, None, None]
    assert found["e"].tolist() == [None, None, '{"uniform": [0, 1]}', None]
    assert list(table.columns) == ["algorithm", "parameters", "seed"]


@pytest.mark.parametrize("command", ["scores", pytest.param("returns", marks=pytest.mark.slow)])
def test_parameter_columns_on_request(command):
    plain, wide = rows(command, KEPT), rows(command, KEPT, "--parameter-columns")
    for before, after in islice(zip(plain, wide, strict=True), 2_000):
        assert "parameters" not in after
        for name, value in json.loads(before["parameters"] or "{}").items():
            assert after[name] == str(value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(0.44, "0.4 s"), (9.99, "10.0 s"), (12.4, "12 s"), (59.6, "1 min 0 s")],
        *[(200, "3 min 20 s"), (3599.6, "1 h 0 min"), (18_600, "5 h 10 min")],
        *[(172_799, "47 h 59 min"), (1_047_600, "12 d 3 h")],
    ],
)
def test_durations_in_words(seconds, text):
    assert duration(seconds) == text


STUDY = """
[study]
name = "residents"
n_environments = 20
episodes = 3

[[experiments]]
name = "Chain-10d"
problem = "Chain-10d"

[[experiments]]
name = "Grid"
problem = "Gridworld-5d"

[[agents]]
algorithm = "Random"
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("episodes")
    (folder / "study.toml").write_text(STUDY)
    result = succeeds("run", folder / "study.toml", "--out", folder / "out")
    assert "MDP" not in result.output
    return folder / "out"


@pytest.mark.slow
def test_the_manifest_says_how_experiments_are_played_and_scored(out):
    expected = Rules("mean return per episode", "3 episodes")
    assert rules_of(jbrl.Results(out).manifest) == {"Chain-10d": expected, "Grid": expected}
    # it is the same study still
    assert call("run", out.parent / "study.toml", "--out", out).exit_code == 0


def test_scores_say_what_they_are(out):
    table = [line.split("  ") for line in call("scores", out).stdout.splitlines()]
    header, first = ([text.strip() for text in row if text] for row in table[:2])
    assert header[:5] == ["experiment", "test", "algorithm", "n", "mean"]
    assert first[:4] == ["Chain-10d", "Chain-10d", "Random", "20"]
    wide = call("scores", out, "--format", "md").stdout
    assert "| mean return per episode | 3 episodes |" in wide.splitlines()[2]
    assert ",".join(rows("scores", out)[0]) == COLUMNS
    returns = rows("returns", out)
    assert len(returns) == 2 * 20 and all(-200 <= float(r["score"]) <= -8 for r in returns[:20])


def test_the_page_speaks_of_environments(out, tmp_path):
    assert call("report", out, "--out", tmp_path, "--html", "--markdown").exit_code == 0
    for page in ("index.html", "markdown/report.md"):
        text = (tmp_path / page).read_text().replace("</span><span>", ", ")
        for words in ("3 episodes in each", "20 environments each, ", "lifetimes of 3 episodes"):
            assert words in text
        assert "MDP" not in text and "discount" not in text.replace("are not discounted", "")


def test_an_archive_keeps_the_rules(out, tmp_path):
    assert call("archive", out, "--out", tmp_path / "kept").exit_code == 0
    kept, whole = (jbrl.Results(folder).manifest for folder in (tmp_path / "kept", out))
    assert rules_of(kept) == rules_of(whole)
    assert call("scores", tmp_path / "kept").stdout == call("scores", out).stdout


def test_what_makes_no_sense_is_refused_in_one_sentence(out):
    for command, words in (
        (("compare", out), "none of the published cells has been played"),
        (("rank", out), "Random {} stands alone"),
        (("evaluate", out), "at least two"),
        (("show", "Chain-10d", "--json"), "it has no JSON form"),
    ):
        refused(call(*command), words)


def test_status_counts_lifetimes(out, tmp_path):
    assert call("status", out).stdout == "residents: 2 of 2 units done\n"
    worker = Worker(
        "host", 1, None, 5.0, 0.0, True, "Grid/Random seed 0", 4, 20, None, ("x",), None
    )
    status = Status("residents", 2, 1, {}, 1, 0, [worker], [], {}, None, None, False)
    words = "Grid/Random seed 0: 4/20 lifetimes (process 1 on host, for 5.0 s)"
    assert lines(status, tmp_path)[1] == f"  running  {words}"
    for n, more in ((20, []), (22, ["  failed   … and 2 more"])):
        failed = dataclasses.replace(status, failed={f"unit {i}": "why\nwhere" for i in range(n)})
        listed = [line for line in lines(failed, tmp_path) if line.startswith("  failed")]
        assert listed == [f"  failed   unit {i}: why" for i in range(20)] + more
    known = {"seconds_left": 90.0, "left": ("x", "y", "z"), "task": "7_1"}
    for change, text in (
        ({"unit": None}, "running  between two units"),
        ({"search": (1000, 2000)}, "running  Grid/Random seed 0: search 1,000/2,000"),
        ({"n": 0}, "running  Grid/Random seed 0: begins"),
        (known, "4/20 lifetimes (task 7_1 on host, for 5.0 s, 2 units to come, about 1 min 30 s"),
        ({"alive": False, "silent": 7200.0}, "lost     process 1 on host: no heartbeat for 2 h"),
    ):
        one = dataclasses.replace(worker, **change)
        (line,) = (
            line
            for line in lines(dataclasses.replace(status, workers=[one]), tmp_path)
            if line.startswith(("  running", "  lost"))
        )
        assert text in line
    queued = dataclasses.replace(
        status,
        workers=[],
        waiting=[Waiting("Priority", ("1_1", "1_2"), ("x",))],
        ended={"2_1": "TIMEOUT", "2_2": "TIMEOUT"},
        unheard=True,
        work_left=120.0,
    )
    first, *text = lines(queued, tmp_path)
    assert first == "residents: 1 of 2 units done, 1 left, about 2 min 0 s of work"
    assert text[0] == "  waiting  2 tasks, 1 unit (Priority)"
    assert text[1] == "  ended    TIMEOUT before the units were done: 2 tasks 2_1 2_2"
    assert text[2].startswith("SLURM cannot be asked") and len(text) == 3
    idle = dataclasses.replace(queued, waiting=[], ended={}, unheard=False, failed={"a": "b"})
    assert lines(idle, tmp_path)[-1].endswith("goes on and tries again what failed.")
    soon = dataclasses.replace(queued, seconds_left=60.0)
    assert lines(soon, tmp_path)[0].endswith("about 1 min 0 s to go")


def test_what_was_found_is_said_in_a_few_words():
    for strategy, text in (
        ({"weights": 1234, "parameters": {}}, "1,234 weights in 2 s"),
        ({"parameters": {"formula": "Q0/Q2"}}, "Q0/Q2 in 2 s"),
        ({"parameters": {"w0": 0.12345, "w1": -1}}, "w0=0.123, w1=-1 in 2 s"),
    ):
        assert _strategy({"strategy": strategy, "seconds": 2.0}) == text


@pytest.mark.parametrize(
    ("settings", "failed", "left"),
    [
        (["a", "a"], [0, 0], []),
        (["a", "b"], [0, 0], ["parameters"]),
        (["a", "a"], [0, 1], ["failed"]),
        (["a", "b"], [0, 1], ["parameters", "failed"]),
    ],
)
def test_columns_that_say_nothing_are_left_out(settings, failed, left):
    table = pd.DataFrame({"algorithm": "BEB", "parameters": settings, "failed": failed})
    assert list(_without_needless_columns(table)) == ["algorithm", *left]


@pytest.mark.slow
def test_agents_that_only_some_experiments_have(tmp_path):
    """A mixed study is ranked experiment by experiment, where nothing else can be done."""
    tables = {
        "study": {"name": "mixed", "n_environments": 5, "horizon": 20},
        "experiments": [{"name": "GC", "problem": "GC"}, {"name": "Chain", "problem": "Chain-10d"}],
        "agents": [
            {"algorithm": "Random"},
            {"algorithm": "Sarsa", "experiments": ["GC"]},
            {"algorithm": "Q-learning", "experiments": ["Chain"]},
        ],
    }
    jbrl.run(tables, tmp_path)
    result = call("rank", tmp_path, "--resamples", 10, "--format", "json")
    assert {row["experiment"] for row in json.loads(result.stdout)} == {"GC", "Chain"}
    assert (
        "there are no ranks over all experiments: rank: 1 agents have scores in all 2 experiments"
        in result.stderr
    )


def test_json_has_neither_nan_nor_infinity(capsys):
    ends = [1.5, float("nan"), float("inf"), -float("inf")]
    output.print_table(pd.DataFrame({"x": ends}), "json")
    read = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert read == [{"x": 1.5}, *[{"x": None}] * 3]


@pytest.mark.parametrize(
    ("between", "quiet", "said"), [(0, False, 3), (1e9, False, 0), (0, True, 0)]
)
def test_where_there_is_no_terminal_progress_is_a_line_now_and_then(
    between, quiet, said, monkeypatch, capsys
):
    monkeypatch.setattr(output, "SECONDS_BETWEEN_LINES", between)
    with output.progress_bars(quiet=quiet) as show:
        for done in range(3):
            show("draws", 1000 * done, 2000, "left")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"draws: {n} of 2,000 left" for n in ("0", "1,000", "2,000")][:said]
