"""Tables for people: rank within 100 columns, parameters as columns, help without type noise."""

import csv
import io
import json
import re
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from jbrl.cli.app import app
from jbrl.cli.output import _aligned, duration
from jbrl.stats.table import parameter_columns

KEPT = Path(__file__).parents[1] / "experiments" / "published" / "paper-cpu"


def call(*arguments: object, **settings: object) -> Result:
    result = CliRunner().invoke(
        app, [str(a) for a in arguments], catch_exceptions=False, **settings
    )
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("table", ["ranks", "pairs", "orders"])
def test_rank_stays_within_100_columns_and_keeps_every_agent(table: str) -> None:
    options = ("--experiment", "GC", "--experiment", "Grid", "--resamples", 20, "--table", table)
    narrow = call("rank", KEPT, *options).stdout
    assert max(map(len, narrow.splitlines())) <= 100
    assert narrow.startswith("GC, 500 environments\n") and "\n\nGrid, 500" in narrow
    rows = pd.DataFrame(json.loads(call("rank", KEPT, *options, "--format", "json").stdout))
    if table == "ranks":
        shown = re.findall(r"^(\d+) \[(\d+), (\d+)\]", narrow, re.MULTILINE)
        rows = rows[rows["experiment"] != "(all)"]
        wanted = rows[["rank", "rank_lower", "rank_upper"]].astype(str)
        assert shown[: len(wanted)] == list(wanted.itertuples(index=False, name=None))
    assert max(map(len, call("rank", KEPT, *options, "--wide").stdout.splitlines())) > 100 or (
        table == "orders"
    )


def test_long_texts_continue_on_the_next_line() -> None:
    table = pd.DataFrame({"agent": ["a long name of an agent " * 3], "mean": [1.5]})
    assert len(_aligned(table)) == 2
    lines = _aligned(table, 40)
    assert max(map(len, lines)) <= 40 and len(lines) > 2
    words = " ".join(line.removesuffix("1.5").strip() for line in lines[1:]).split()
    assert words == table["agent"][0].split()
    assert [line.split()[-1] for line in lines[:2]] == ["mean", "1.5"]


def test_parameters_become_columns() -> None:
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
def test_parameter_columns_on_request(command: str) -> None:
    plain = csv.DictReader(io.StringIO(call(command, KEPT, "--format", "csv").stdout))
    wide = csv.DictReader(
        io.StringIO(call(command, KEPT, "--parameter-columns", "--format", "csv").stdout)
    )
    for before, after in islice(zip(plain, wide, strict=True), 2_000):
        assert "parameters" not in after
        for name, value in json.loads(before["parameters"] or "{}").items():
            assert after[name] == str(value)


def every_command(command: object, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    children = getattr(command, "commands", {})
    below = [found for name, c in children.items() for found in every_command(c, (*words, name))]
    return [words, *below]


@pytest.mark.parametrize("words", every_command(get_command(app)), ids=" ".join)
def test_help_names_a_type_only_where_a_value_follows(words: tuple[str, ...]) -> None:
    text = call(*words, "--help", env={"COLUMNS": "100"}).stdout
    assert "--help" in text and "<bool>" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.44, "0.4 s"),
        (9.99, "10.0 s"),
        (12.4, "12 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.6, "1 h 0 min"),
        (18_600, "5 h 10 min"),
        (172_799, "47 h 59 min"),
        (1_047_600, "12 d 3 h"),
    ],
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text
