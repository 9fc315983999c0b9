"""How many brackets are false, over problems whose value is known by induction over beliefs."""

import numpy as np
import pytest

import jbrl
from jbrl.bayes_optimal import bracket, plan
from jbrl.problems.problem import DirichletProblem
from tests.bayes_optimal.exact import exact, problem

DISCOUNT, HORIZON = 0.9, 5


def some_problem(number: int) -> DirichletProblem:
    """Two states and two actions, of one of four kinds: ordinary, with an outcome that is rare and
    pays or costs very much, with rewards that differ by orders of magnitude, with rows that are
    nearly certain.
    """
    generator = np.random.default_rng(number)
    shape = (2, 2, 2)
    weights, rewards = generator.choice([0.5, 1.0, 2.0], shape), generator.normal(size=shape)
    kind = number % 4
    if kind == 1:
        chance = 10.0 ** -generator.integers(2, 7)
        weights[0, 1], rewards[0, 1] = (1, chance), (0, generator.choice([-1, 1]) / chance)
    elif kind == 2:
        rewards *= 10.0 ** generator.uniform(-2, 4, shape)
    elif kind == 3:
        weights = generator.choice([0.01, 0.02, 3.0], shape)
    return problem((weights, rewards))


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits hold for any number of MDPs; ends that assume more than a range are not tried."""
    monkeypatch.setattr(plan, "USUAL_MDPS", 256)
    monkeypatch.setattr(bracket, "TRIAL", 64)
    monkeypatch.setattr(bracket, "hide", lambda *_: None)


def misses(numbers: range) -> int:
    """Count the brackets that miss the value by more than rounding, all of them certified."""
    missed = 0
    for number in numbers:
        one = some_problem(number)
        found = jbrl.bound(
            one, discount=DISCOUNT, horizon=HORIZON, decisions=1, seed=number, played=2048
        )
        value = exact(one.mdps, DISCOUNT, HORIZON)
        slack = 1e-5 * max(1.0, abs(value))
        assert found.lower <= found.upper
        assert found.certified
        missed += not found.lower - slack <= value <= found.upper + slack
    return missed


def test_few_brackets_are_false() -> None:
    """One of each kind. Two misses of 4 at 95 % occur once in 70 runs; seeds are fixed."""
    assert misses(range(4)) <= 1


@pytest.mark.slow
def test_brackets_are_false_as_seldom_as_they_say() -> None:
    """More than 21 misses of 240 at 95 % occur once in 300 runs; seeds are fixed."""
    assert misses(range(4, 244)) <= 21
