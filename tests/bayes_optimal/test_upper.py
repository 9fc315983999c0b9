"""A budget holds, whatever the speed of the machine, and what is left is used: with fake clocks."""

import math

import numpy as np
import pytest

from jbrl.bayes_optimal import upper
from jbrl.bayes_optimal.look_ahead import Replication
from jbrl.bayes_optimal.plan import REPLICATIONS
from jbrl.bayes_optimal.upper import Race, Way, fitting, lowest

BUDGET, SHALLOW, DEEPEST = 60.0, 4, 24


class Machine:
    """A clock that replications move on, and relaxations whose ends are known."""

    def __init__(self, patch: pytest.MonkeyPatch, pace: float) -> None:
        self.now, self.pace = 0.0, pace
        patch.setattr(upper, "clock", lambda: self.now)

    def left(self) -> float:
        return BUDGET - self.now

    def kind(self, number: int, value: float, each: float, rate: float = 0.9) -> upper.Kind:
        """Return relaxations whose ends fall from 20 towards a value, 1.4 times as much to do for
        each decision.
        """

        def kind(decisions: int) -> Way:
            def seconds(n_mdps: int) -> float:
                return 1e-3 * 1.4**decisions + n_mdps * (each + 1e-7 * 1.4**decisions)

            def replication(n_mdps: int, seed: np.random.SeedSequence) -> Replication:
                self.now += self.pace * seconds(n_mdps)
                return Replication(value + (20 - value) * rate**decisions, 20.0, 0.0, 0.0, 0.0)

            return Way(
                number,
                f"{number}-{decisions}",
                decisions,
                1024,
                8192,
                2**17,
                seconds,
                replication,
                lambda some, n_mdps: 50 / math.sqrt(n_mdps * len(some)),
                {},
            )

        return kind

    def race(self, value: float = 5.0, other: float = 19.0, rate: float = 0.9) -> tuple[Way, int]:
        kinds = [self.kind(0, 8.0, 1e-7), self.kind(1, value, 1e-5)]
        kinds += [self.kind(2, other, 1e-6, rate)]

        def trial(way: Way, n_mdps: int) -> Replication:
            return way.replication(n_mdps, np.random.SeedSequence(0))

        return Race(kinds[0], lambda *_: kinds[1:], SHALLOW, DEEPEST, trial, self.left).choose()


@pytest.mark.parametrize("pace", [0.2, 1.0, 6.0])
def test_a_budget_holds_and_is_used(pace, monkeypatch):
    machine = Machine(monkeypatch, pace)
    way, n_mdps = machine.race()
    for seed in np.random.SeedSequence(1).spawn(REPLICATIONS):
        way.replication(n_mdps, seed)
    assert way.kind == 1
    assert 0.6 * BUDGET <= machine.now <= BUDGET


def test_faster_machines_look_further_ahead(monkeypatch):
    depths = [Machine(monkeypatch, pace).race()[0].decisions for pace in (0.2, 6.0)]
    assert depths[0] > depths[1] > SHALLOW
    assert Machine(monkeypatch, 1e-6).race()[0].decisions == DEEPEST


def test_a_trial_is_of_a_part_of_the_usual_mdps_and_its_end_has_the_margin(monkeypatch):
    way, tried = Machine(monkeypatch, 1.0).kind(0, 8.0, 1e-7)(4), []

    def trial(one: Way, n_mdps: int) -> Replication:
        tried.append(n_mdps)
        return one.replication(n_mdps, np.random.SeedSequence(0))

    assert lowest([way], trial) is way
    assert tried == [max(1024, 8192 // upper.TRIED)]
    assert upper._end(way, 3.0, trial(way, 1), 1024) == 3 + 50 / math.sqrt(4 * 1024)


@pytest.mark.parametrize(
    ("value", "other", "rate", "chosen"),
    [(5.2, 5.0, 0.9, 2), (4.8, 5.0, 0.9, 1), (5.2, 11.3, 0.8, 1)],
)
def test_of_promising_relaxations_that_of_the_lowest_end_in_a_trial_is_chosen(
    value, other, rate, chosen, monkeypatch
):
    """The last one falls less than its first run promises."""
    assert Machine(monkeypatch, 1.0).race(value, other, rate)[0].kind == chosen


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_relaxation_whose_end_is_not_finite_is_not_chosen(value, monkeypatch):
    machine = Machine(monkeypatch, 1.0)
    assert machine.race(value)[0].kind == 0
    ways = [machine.kind(number, one, 1e-5)(4) for number, one in enumerate((value, 8.0))]
    trial = lambda way, n_mdps: way.replication(n_mdps, np.random.SeedSequence(0))  # noqa: E731
    assert lowest(ways, trial).kind == 1


def test_little_time_is_spent_on_the_least_there_is(monkeypatch):
    machine = Machine(monkeypatch, 1.0)
    machine.now = BUDGET
    way, n_mdps = machine.race()
    assert (way.decisions, n_mdps, machine.now) == (SHALLOW, way.least, BUDGET)
    machine = Machine(monkeypatch, 2e4)
    way, n_mdps = machine.race()
    assert (way.kind, way.decisions, n_mdps) == (0, SHALLOW, way.least)


def test_as_many_mdps_as_fit(monkeypatch):
    way = Machine(monkeypatch, 1.0).kind(0, 8.0, 1e-5)(4)
    assert fitting(way, 2.0, 1.999 * way.seconds(way.least)) == 0
    assert fitting(way, 2.0, 2.001 * way.seconds(5 * 1024)) == 5 * 1024
    assert fitting(way, 2.0, 1e9) == way.most
