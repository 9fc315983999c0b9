"""Clocks measure the work of a call, all of it and nothing else."""

import time
from typing import Any

import jax
import numpy as np
import pytest

from jbrl.runner.play import timing
from jbrl.runner.play.protocol import Chunk, played


class Clock:
    """Stands still but for the work of `Later`s."""

    now = 0.0


class Later:
    """What has been dispatched: it is there some seconds after somebody waits for it."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def wait(self) -> None:
        self.clock.now += self.seconds
        self.seconds = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    def wait(tree: Any) -> Any:
        for leaf in jax.tree.leaves(tree):
            leaf.wait()
        return tree

    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(jax, "block_until_ready", wait)
    return clock


def test_a_call_is_timed_until_its_results_are_there(clock: Clock) -> None:
    result = Later(clock, 3.0)
    assert timing.timed(lambda: result) == (result, 3.0)


def test_work_on_the_arguments_is_not_part_of_a_call(clock: Clock) -> None:
    argument, result = Later(clock, 50.0), Later(clock, 2.0)
    found, seconds = timing.timed(lambda given: [given, result], argument)
    assert found == [argument, result]
    assert seconds == 2.0


def test_a_clock_that_is_set_back_gives_no_negative_time(clock: Clock) -> None:
    clock.now = 5.0
    assert timing.since(7.0) == 0.0
    assert timing.since(4.0) == 1.0


def test_online_seconds_are_per_decision_over_all_chunks() -> None:
    """30 decisions in 6 seconds and 10 in 2: a fifth of a second each."""
    parts = [Chunk(0, np.zeros(3), None, 6.0, 30), Chunk(3, np.zeros(1), None, 2.0, 10)]
    facts = {
        "offline_seconds": 0.0,
        "latency_seconds": None,
        "compile_seconds": 0.0,
        "device": "cpu",
        "batch": 3,
    }
    assert played(parts, **facts).online_seconds == pytest.approx(0.2)
