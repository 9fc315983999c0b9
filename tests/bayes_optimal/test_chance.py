"""The part of returns that is chance: it has the mean 0 and leaves little of their variance."""

import numpy as np
import pytest

import jbrl
from jbrl.bayes_optimal.lifetimes import Chance
from tests.bayes_optimal.exact import PRIORS, problem

DISCOUNT, HORIZON = 0.9, 5


def by_hand(mdps: object, states: np.ndarray, actions: np.ndarray) -> float:
    """Return the chance of one lifetime, transition by transition."""
    prior = np.asarray(mdps.concentrations, float)  # type: ignore[attr-defined]
    rewards = np.asarray(mdps.rewards, float)  # type: ignore[attr-defined]
    mean = prior / prior.sum(-1, keepdims=True)

    def value(x: int, left: int) -> float:
        if left == 0:
            return 0.0
        after = [value(y, left - 1) for y in range(len(prior))]
        return max(
            row @ (gain + DISCOUNT * np.array(after))
            for row, gain in zip(mean[x], rewards[x], strict=True)
        )

    counts, found = prior.copy(), 0.0
    for t, (x, u, y) in enumerate(zip(states[:-1], actions, states[1:], strict=True)):
        left = len(actions) - t - 1
        worth = rewards[x, u] + DISCOUNT * np.array([value(z, left) for z in range(len(prior))])
        row = counts[x, u] / counts[x, u].sum()
        found += DISCOUNT**t * (worth[y] - row @ worth)
        counts[x, u, y] += 1
    return found


@pytest.mark.parametrize("name", ["fractions", "zeros"])
def test_agrees_with_sums_by_hand(name: str) -> None:
    two = problem(PRIORS[name])
    played = jbrl.play(
        "Random", prior=two, n_environments=20, horizon=HORIZON, discount=DISCOUNT, record=True
    )
    kept = played.trajectories
    found = Chance(two.mdps, DISCOUNT, HORIZON).of(kept)
    for lane in range(20):
        expected = by_hand(two.mdps, kept["states"][lane], kept["actions"][lane])
        assert found[lane] == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_has_the_mean_0_and_most_of_the_variance() -> None:
    """4.5 standard errors; the seed is fixed."""
    played = jbrl.play("e-Greedy", prior="GDL", n_environments=2048, record=True)
    found = Chance(jbrl.problem("GDL").mdps, 0.95, 250).of(played.trajectories)
    assert abs(found.mean()) < 4.5 * found.std() / 2048**0.5
    assert (played.returns - found).var() < 0.25 * played.returns.var()
