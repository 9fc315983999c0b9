"""What people read: tables within 100 columns, parameters as columns, durations, words about a unit
that gives no news for long.
"""

import json
import re
import threading
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest

from jbrl.cli.output import _aligned, duration
from jbrl.cli.progress import Watchdog
from jbrl.stats.table import parameter_columns
from tests.terminal import call, rows

KEPT = Path(__file__).parents[1] / "experiments" / "published" / "paper-cpu"


@pytest.mark.parametrize("table", ["ranks", "pairs", "orders"])
def test_rank_stays_within_100_columns_and_keeps_every_agent(table: str) -> None:
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
    plain, wide = rows(command, KEPT), rows(command, KEPT, "--parameter-columns")
    for before, after in islice(zip(plain, wide, strict=True), 2_000):
        assert "parameters" not in after
        for name, value in json.loads(before["parameters"] or "{}").items():
            assert after[name] == str(value)


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


class Heard:
    """Listener of a watchdog, which keeps what it hears and knows when that is enough."""

    def __init__(self, enough: int) -> None:
        self.reports: list[tuple[str, float]] = []
        self._wanted, self.enough = enough, threading.Event()

    def __call__(self, label: str, seconds: float) -> None:
        self.reports.append((label, seconds))
        if len(self.reports) == self._wanted:
            self.enough.set()


def test_a_unit_without_news_is_spoken_of_at_intervals_that_double() -> None:
    heard = Heard(3)
    with Watchdog(heard, first=0.05) as watchdog:
        watchdog.news("GC/SBOSS")
        assert heard.enough.wait(20)
    assert {label for label, _ in heard.reports} == {"GC/SBOSS"}
    first, second, third = (seconds for _, seconds in heard.reports[:3])
    assert first >= 0.05 and second >= first + 0.1 and third >= second + 0.2


def test_a_unit_with_news_or_at_its_end_is_not_spoken_of() -> None:
    heard = Heard(1)
    with Watchdog(heard, first=60.0) as watchdog:
        watchdog.news("GC/SBOSS")
    with Watchdog(heard, first=0.02) as watchdog:
        watchdog.news("GC/SBOSS")
        watchdog.news(None)
        assert not heard.enough.wait(0.2)
    assert not heard.reports
