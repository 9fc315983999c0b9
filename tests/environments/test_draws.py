"""Draws of each lifetime or episode have their distribution, and published problems their
lifetimes.
"""

import jax
import numpy as np
import pytest
from scipy import stats

from jbrl.environments.acrobot import Acrobot
from jbrl.environments.cartpole import CartPole
from jbrl.environments.environment import as_arrays, drawn
from jbrl.environments.mountain_car import MountainCar
from jbrl.environments.pinball import Pinball
from jbrl.environments.walks import Chain, Gridworld
from jbrl.problems.lookup import problem

N = 5000
LINKS = ("mass_1", "length_1", "mass_2", "length_2")
CART = {"pole_mass": (0.025, 0.25), "half_length": (0.1, 1.0), "cart_mass": (0.1, 5.0)}
BALL = {"ball": (0.018, 0.022), "target_radius": (0.036, 0.044), "force": (0.1, 0.3)}
draw = jax.jit(jax.vmap(drawn, in_axes=(None, 0)))


def uniform(values, low, high):
    """Kolmogorov-Smirnov test, false-alarm rate 1e-4."""
    values = np.asarray(values, np.float64)
    assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 1e-4
    edge = 1e-4 * (high - low)
    assert low - edge <= values.min() <= values.max() <= high + edge


@pytest.mark.parametrize(
    ("environment", "ranges", "fixed"),
    [
        (Acrobot(), dict.fromkeys(LINKS, (0.8, 1.2)) | {"gravity": (8, 10)}, None),
        (CartPole(), CART | {"gravity": (8, 10)}, CartPole(spread=0.0, gravity=5.0)),
        (MountainCar(), {"force": (0.0008, 0.0012)}, MountainCar(spread=0.0)),
        (Pinball(), BALL | {"noise": (0, 0.25)}, None),
        (Chain(stochastic=True), {"slip": (0, 0.25)}, Chain(slip=0.5)),
        (Gridworld(stochastic=True), {"slip": (0, 0.25)}, Gridworld(slip=0.5)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_physics_are_drawn_uniformly_where_they_are_drawn(environment, ranges, fixed):
    keys = jax.random.split(jax.random.key(4), N)
    found = draw(as_arrays(environment), keys)
    for name, (low, high) in ranges.items():
        uniform(getattr(found, name), low, high)
    if isinstance(environment, Pinball):
        uniform(np.log10(np.asarray(found.friction, np.float64)), -3, -1)
    if fixed is not None:
        for name in ranges:
            assert set(np.asarray(getattr(draw(as_arrays(fixed), keys), name))) == {
                np.float32(getattr(fixed, name))
            }


def first_observations(environment):
    keys = jax.random.split(jax.random.key(5), N)
    return np.asarray(jax.jit(jax.vmap(as_arrays(environment).reset))(keys)[1], np.float64)


def test_random_starts_have_their_distributions():
    """Kolmogorov-Smirnov tests, false-alarm rate 1e-4 each."""
    position, velocity = first_observations(MountainCar(random_start=True)).T
    uniform(position, -0.6, -0.4)
    assert not velocity.any()
    x, y, *velocities = first_observations(Pinball(random_start=True)).T
    for place, middle in ((x, 0.2), (y, 0.9)):
        assert stats.kstest(place, stats.norm(middle, 0.02).cdf).pvalue > 1e-4
    assert not np.any(velocities)


@pytest.mark.parametrize(
    ("name", "episodes", "max_steps"),
    [("Acrobot", 500, 2001), ("CartPole", 100, 1000), ("MountainCar", 100, 5000)],
)
def test_problems_have_the_published_lifetimes(name, episodes, max_steps):
    found = problem(name)
    assert (found.lifetime.episodes, found.environment.max_steps) == (episodes, max_steps)
