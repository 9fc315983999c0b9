"""Limits that assume a range only: how often they fail, with means far from normal, too."""

from collections.abc import Callable

import numpy as np
import pytest

from jbrl.bayes_optimal.limits import lower_limit, upper_margin, upper_margin_by_moment

Draw = Callable[[np.random.Generator], np.ndarray]
N, RUNS, CONFIDENCE = 300, 400, 0.9
MOST_MISSES = 62  # of 400 at 10 %: more occur once in 4,000 tests where limits are exact


def rare(chance: float) -> Draw:
    return lambda generator: (generator.random(N) < chance) / chance


LAWS: dict[
    str, tuple[Draw, float, float]
] = {  # draws, the mean, the greatest value; the least is 0
    "rare": (rare(1e-3), 1.0, 1e3),
    "rarer": (rare(1e-5), 1.0, 1e5),
    "frequent": (rare(0.3), 1.0, 1 / 0.3),
    "heavy": (lambda g: np.minimum(g.pareto(1.1, N), 50.0), (1 - 51**-0.1) / 0.1, 50.0),
    "even": (lambda g: g.random(N), 0.5, 1.0),
    "constant": (lambda _: np.full(N, 0.7), 0.7, 1.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_limits_fail_as_seldom_as_they_say(name: str) -> None:
    """Below and above, of a law and of its mirror image, where a rare event is a catastrophe."""
    draw, mean, most = LAWS[name]
    generator = np.random.default_rng(2)
    misses = np.zeros(4, int)
    for _ in range(RUNS):
        x = draw(generator)
        spread = float(x.std(ddof=1))
        misses += [
            lower_limit(x, 0.0, CONFIDENCE) > mean,
            lower_limit(-x, -most, CONFIDENCE) > -mean,
            x.mean() + upper_margin(N, spread, most, CONFIDENCE) < mean,
            x.mean() + upper_margin_by_moment(N, float((x**2).mean()) + most * mean, CONFIDENCE)
            < mean,
        ]
    assert (misses <= MOST_MISSES).all()


def test_limits_are_near_the_mean_of_ordinary_samples() -> None:
    """Student's limits are 1.96 standard errors away."""
    x = np.random.default_rng(4).random(20_000)
    error = x.std() / len(x) ** 0.5
    assert x.mean() - lower_limit(x, 0.0, 0.975) < 2.9 * error
    assert x.mean() - lower_limit(x, -100.0, 0.975) < 13 * error  # 100 ln(40) / N is 9 of them
    assert upper_margin(len(x), float(x.std()), 1.0, 0.975) < 3.3 * error
    assert lower_limit(np.array([3.0, 3.0]), 2.0, 0.975) == 2.0
