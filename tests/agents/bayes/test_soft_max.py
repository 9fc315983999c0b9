"""Soft-max against its twin, its probabilities, and its two limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins import agents as twins
from jbrl import play
from jbrl.agents.bayes.mean_model import EpsilonGreedy, SoftMax, boltzmann
from jbrl.mdp import incremental
from jbrl.problems.lookup import problem
from tests.reference.trajectories import decisions, disagreements


@pytest.mark.slow
@pytest.mark.parametrize("tau", [0.5, 5.0])
def test_its_twin_decides_alike(tau):
    for _, steps in decisions(SoftMax(tau), "UGC", "GC"):
        assert disagreements(steps, twins.SoftMax(problem("UGC").mdps, tau)) == []


def plan_of(*values):
    """A plan of one state in which the actions have these values."""
    values = jnp.array([values], jnp.float32)
    return jax.jit(incremental.solve)(jnp.ones((1, values.size, 1)), values, jnp.float32(0))


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("values", "tau", "expected"),
    [
        ((0.0, np.log(2), np.log(5)), 1.0, (1 / 8, 2 / 8, 5 / 8)),
        ((3.0, 3.0 + 2 * np.log(3)), 2.0, (1 / 4, 3 / 4)),
        ((-700.0, -700.0, -800.0), 1.0, (0.5, 0.5, 0)),
        ((200.0, 199.0, 200.0), 1e-3, (0.5, 0, 0.5)),
        ((200.0, 199.9999, 100.0), 1e-6, (0.5, 0.5, 0)),  # as close as float32 can tell
        ((200.0, 100.0, 0.0), 1e6, (1 / 3, 1 / 3, 1 / 3)),
        ((0.0, 0.0), 1e-6, (0.5, 0.5)),
        ((4.0,), 1.0, (1,)),
    ],
)
def test_probabilities(values, tau, expected):
    np.testing.assert_allclose(boltzmann(plan_of(*values), jnp.int32(0), tau), expected, atol=7e-5)


@pytest.mark.slow
def test_cold_it_is_greedy():
    cold, greedy = (
        play(agent, prior="GC", n_environments=500).returns
        for agent in (SoftMax(1e-6), EpsilonGreedy(0.0))
    )
    # The same but for how ties are broken. Paired Z-test, false-alarm rate 1e-4.
    difference = cold - greedy
    assert abs(difference.mean()) < 3.9 * difference.std(ddof=1) / np.sqrt(500)
