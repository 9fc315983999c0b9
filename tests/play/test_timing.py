"""Clocks measure the work of a call, all of it and nothing else."""

import time
from typing import Any

import jax
import numpy as np
import pytest

import jbrl
from jbrl.play import timing
from jbrl.play.protocol import Chunk, played


class Clock:
    """Stands still but for the work of `Later`s, during a quarter of which a processor works."""

    now = 0.0


class Later:
    """Result that has been dispatched: it is there some seconds after somebody waits for it."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def wait(self) -> None:
        self.clock.now += self.seconds
        self.seconds = 0.0


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()

    def wait(tree: Any) -> Any:
        for leaf in jax.tree.leaves(tree):
            leaf.wait()
        return tree

    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(time, "process_time", lambda: clock.now / 4)
    monkeypatch.setattr(jax, "block_until_ready", wait)
    return clock


def test_a_call_is_timed_until_its_results_are_there(clock):
    result = Later(clock, 3.0)
    assert timing.timed(lambda: result) == (result, 3.0)


def test_work_on_the_arguments_is_not_part_of_a_call(clock):
    argument, result = Later(clock, 50.0), Later(clock, 2.0)
    found, seconds = timing.timed(lambda given: [given, result], argument)
    assert found == [argument, result]
    assert seconds == 2.0


def test_a_clock_that_is_set_back_gives_no_negative_time(clock):
    clock.now = 5.0
    assert timing.since(7.0) == 0.0
    assert timing.since(4.0) == 1.0


def test_online_seconds_are_per_decision_over_all_chunks():
    """30 decisions in 6 seconds and 10 in 2: a fifth of a second each."""
    parts = [Chunk(0, np.zeros(3), None, 6.0, 30), Chunk(3, np.zeros(1), None, 2.0, 10)]
    facts = {"offline_seconds": 0.0, "latency_seconds": None, "compile_seconds": 0.0}
    facts |= {"device": "cpu", "batch": 3}
    assert played(parts, **facts).online_seconds == pytest.approx(0.2)


class Repeated:
    """A call that takes the next of some times."""

    def __init__(self, clock: Clock, seconds: list[float]) -> None:
        self.clock, self.seconds, self.calls = clock, seconds, 0

    def __call__(self) -> Later:
        self.calls += 1
        return Later(self.clock, self.seconds[self.calls - 1])


def test_a_brief_call_is_repeated(clock):
    """One repetition of five is disturbed: the median is that of the others."""
    call = Repeated(clock, [0.002, 0.004, 0.003, 0.012, 0.005])
    _, took = timing.timed_repeatedly(call)
    assert call.calls == 5
    assert took == pytest.approx((0.004, 0.002, 0.001))


@pytest.mark.parametrize(
    ("seconds", "calls"), [([1.0], 1), ([0.03], 1), ([0.02, 0.02], 2), ([0.01, 0.035], 2)]
)
def test_a_long_call_is_made_once_and_repetitions_end_in_time(clock, seconds, calls):
    call = Repeated(clock, [*seconds, 9.0])
    _, took = timing.timed_repeatedly(call)
    assert call.calls == calls
    assert took.seconds == pytest.approx(np.median(seconds))
    assert np.isnan(took.spread) == (calls == 1)
    assert (timing.known(took.spread) is None) == (calls == 1)


def test_times_and_spreads_of_a_study(tmp_path, monkeypatch):
    """Random learns nothing before it acts; e-Greedy plans, which is repeated, as is playing."""
    monkeypatch.setattr(timing, "BRIEF", 60.0)  # a busy machine takes long for a brief call
    study = {
        "study": {"name": "times", "n_mdps": 30, "horizon": 20},
        "experiments": [{"name": "GC", "prior": "GC", "test": "GC"}],
        "agents": [{"algorithm": "Random"}, {"algorithm": "e-Greedy"}],
    }
    scores = jbrl.run(study, tmp_path).scores.set_index("algorithm")
    assert scores.loc["Random", "offline_seconds"] == 0
    assert scores.loc["Random", "offline_seconds_spread"] == 0
    assert scores.loc["e-Greedy", "offline_seconds"] > 0
    spreads = scores[["offline_seconds_spread", "online_seconds_spread"]]
    assert (spreads >= 0).all(axis=None), "unknown ones would be NaN"
    assert (scores["online_processor_seconds"] > 0).all()
    assert scores["offline_processor_seconds"].notna().tolist() == [False, True]
    # per decision, of which there are 600: calls are brief, and other work delays some
    assert (spreads["online_seconds_spread"] < scores["online_seconds"] * 100).all()


class Drifting:
    """A program on a machine that becomes slower with every call."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.calls = clock, 0

    def __call__(self, work: Later) -> Later:
        self.calls += 1
        return Later(self.clock, work.seconds * 1.1**self.calls)


class Given(Later):
    """An argument: it is there."""

    def wait(self) -> None:
        pass


def test_calls_of_one_program_are_timed_in_turns(clock):
    """The second call takes twice as long as the first, whatever the machine does meanwhile."""
    turns, program = timing.Turns(), Drifting(clock)
    first, second = Given(clock, 0.0005), Given(clock, 0.001)
    _, one = turns.timed(program, first)
    _, two = turns.timed(program, second)
    assert two.seconds == pytest.approx(2 * 1.1 * one.seconds)
    assert program.calls == 5 + 1 + 2 * 5
    _, same = turns.timed(program, first)
    assert same.seconds == pytest.approx(1.1 * one.seconds)
    other = Drifting(clock)
    _, fresh = turns.timed(other, first)
    assert other.calls == 5 and fresh.seconds < one.seconds * 1.01


@pytest.mark.parametrize(("first", "second", "calls"), [(0.0005, 1.0, 1), (0.0, 0.0, 1 + 2 * 5)])
def test_long_calls_are_not_timed_in_turns_which_end_where_the_clock_stands_still(
    clock, first, second, calls
):
    turns, program = timing.Turns(), Drifting(clock)
    turns.timed(program, Given(clock, first))
    before = program.calls
    _, took = turns.timed(program, Given(clock, second))
    assert program.calls == before + calls
    assert np.isnan(took.spread) if second else took.seconds == 0
