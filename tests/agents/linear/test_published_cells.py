"""Mean returns of the complete algorithms beside those of Jordan et al. 2020, Appendix I: means of
10,000 lifetimes, printed to 0.1.
"""

import numpy as np
import pytest

import jbrl

pytestmark = pytest.mark.slow

# environment: lifetimes played here, published mean of each algorithm
PUBLISHED = {
    "Chain-10d": (400, {"Sarsa-lambda": -27.9}),
    "Chain-10s": (
        400,
        {
            "Sarsa-lambda": -35.1,
            "Sarsa-Parl2": -12.8,
            "Q-lambda": -34.9,
            "Q-Parl2": -12.7,
            "AC": -36.9,
            "AC-Parl2": -22.6,
            "NAC-TD": -75.2,
            "PPO-linear": -43.8,
        },
    ),
    "Gridworld-5s": (
        400,
        {
            "Sarsa-lambda": -61.5,
            "Sarsa-Parl2": -17.0,
            "Q-lambda": -61.5,
            "Q-Parl2": -17.1,
            "AC": -67.6,
            "AC-Parl2": -37.2,
            "NAC-TD": -125.4,
            "PPO-linear": -57.2,
        },
    ),
    "MountainCar": (
        60,
        {
            "Sarsa-lambda": -2769.1,
            "Sarsa-lambda-s": -1024.2,
            "Sarsa-Parl2": -843.2,
            "Q-lambda": -2779.3,
            "Q-lambda-s": -1197.3,
            "Q-Parl2": -1269.3,
            "AC": -2477.1,
            "AC-s": -966.0,
            "AC-Parl2": -791.6,
            "NAC-TD": -2489.3,
            "PPO-linear": -3026.3,
        },
    ),
}
CELLS = [
    (name, test, n, mean) for test, (n, means) in PUBLISHED.items() for name, mean in means.items()
]


@pytest.mark.parametrize(("name", "test", "n", "published"), CELLS)
def test_means_are_the_published_ones(name, test, n, published):
    """Within 3.5 standard errors and the rounding: false-alarm rate 5e-4 each; one fixed seed."""
    scores = jbrl.play(name, test=test, n_environments=n, seed=11).returns
    error = scores.std(ddof=1) * (1 / n + 1 / 10_000) ** 0.5
    assert abs(scores.mean() - published) < 3.5 * error + 0.05


@pytest.mark.parametrize("name", ["Sarsa-lambda", "Q-lambda", "AC"])
def test_with_discrete_states_scaled_step_sizes_are_plain_ones(name):
    """Jordan et al. 2020 use the same scores for both."""
    plain, scaled = (
        jbrl.play(found, test="Chain-10s", n_environments=20, episodes=5).returns
        for found in (name, f"{name}-s")
    )
    np.testing.assert_array_equal(plain, scaled)
