"""Time left of a run, by a clock that the test sets."""

import json
from pathlib import Path

import pytest

from jbrl.study.cost.remaining import TimeLeft
from jbrl.study.cost.report import UnitCost
from jbrl.study.cost.yardstick import busy_text


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def plays(left: TimeLeft, clock: Clock, id: str, compiling: float, other: float) -> None:
    clock.now += compiling + other
    left.finished(id, compiling)


def units(n: int, compiling: float = 4.0, deciding: float = 1.0) -> dict[str, UnitCost]:
    return {str(k): UnitCost(compiling=compiling, deciding=deciding) for k in range(n)}


def test_before_anything_is_done_it_is_what_was_expected() -> None:
    clock = Clock()
    left = TimeLeft(units(10), clock)
    assert left.seconds() == pytest.approx(50.0)
    clock.now += 3.0
    assert left.seconds() == pytest.approx(47.0)


def test_compiling_and_playing_are_corrected_apart() -> None:
    """Compiling takes five times as long as expected, all else as long: units that are left and
    need not be compiled take no longer.
    """
    clock = Clock()
    left = TimeLeft(units(10) | {"last": UnitCost(deciding=60.0)}, clock)
    for k in range(10):
        plays(left, clock, str(k), 20.0, 1.0)
    assert left.seconds() == pytest.approx(60.0, rel=0.01)


@pytest.mark.parametrize("times", [0.2, 1.0, 5.6])
def test_it_is_right_within_30_percent_after_a_fifth_of_the_work(times: float) -> None:
    """A machine that became busy, or idle, after the estimate was made."""
    clock = Clock()
    left = TimeLeft(units(60), clock)
    for k in range(59):
        plays(left, clock, str(k), 4 * times, times)
        if k >= 12:
            assert left.seconds() == pytest.approx(5 * times * (59 - k), rel=0.3)


def test_one_small_unit_does_not_decide_alone() -> None:
    clock = Clock()
    left = TimeLeft({"first": UnitCost(other=0.1)} | units(20), clock)
    plays(left, clock, "first", 0.0, 1.0)
    assert left.seconds() < 2 * 100.0  # ten times as long as expected


def test_units_of_other_processes_are_left_out() -> None:
    clock = Clock()
    left = TimeLeft(units(4), clock)
    left.skipped(["0", "1"])
    assert left.seconds() == pytest.approx(10.0)
    plays(left, clock, "2", 4.0, 1.0)
    plays(left, clock, "3", 4.0, 1.0)
    assert left.seconds() == 0.0


def test_a_unit_that_takes_longer_than_expected_leaves_no_negative_time() -> None:
    clock = Clock()
    left = TimeLeft(units(1), clock)
    clock.now += 1000.0
    assert left.seconds() == 0.0


def test_a_clock_that_is_set_back_changes_little() -> None:
    clock = Clock()
    left = TimeLeft(units(3), clock)
    clock.now -= 1000.0
    assert left.seconds() == pytest.approx(15.0)
    left.finished("0", 4.0)
    assert 0 <= left.seconds() <= 10.0


@pytest.mark.parametrize(
    ("load", "cores", "own", "text"),
    [
        (10.0, 2, 0.0, " while this machine is busy, load 10 on 2 cores"),
        (2.0, 2, 0.0, ""),
        (10.4, 2, 24.0, " while this machine is busy, load 10 on 2 cores"),
        (2.4, 2, 30.0, ""),  # half a core of it is this process
        (
            5.0,
            2,
            9999.0,
            " while this machine is busy, load 3 on 2 cores",
        ),  # which has no more than all
    ],
)
def test_a_busy_machine_is_named(load: float, cores: int, own: float, text: str) -> None:
    assert busy_text(load, cores, own) == text


# Units of quick.toml, run cold on two cores that other programs used too (load 12 to 15): seconds
# that compiling and all else were expected to take, that compiling took, and since the unit before.
RECORDED: list[list[float]] = json.loads(
    (Path(__file__).parent / "recorded_run.json").read_text(encoding="ascii")
)


@pytest.mark.parametrize("said", [1.0, 0.25], ids=["as said", "said before others came"])
def test_a_recorded_run_is_estimated_within_a_factor_of_two_throughout(said: float) -> None:
    """By the pace of all parts together it was six times too short after half of the units."""
    expected = {
        str(k): UnitCost(compiling=said * compiling, deciding=said * other)
        for k, (compiling, other, _, _) in enumerate(RECORDED)
    }
    clock, whole = Clock(), sum(row[3] for row in RECORDED)
    left, ends = TimeLeft(expected, clock), clock.now + whole
    worst = 1.0
    for k, (_, _, compiled, taken) in enumerate(RECORDED[:-10]):
        plays(left, clock, str(k), compiled, taken - compiled)
        worst = max(worst, (ends - clock.now) / left.seconds(), left.seconds() / (ends - clock.now))
    assert 900 < whole < 1000 and worst < 2.0
