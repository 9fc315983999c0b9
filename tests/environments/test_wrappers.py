"""Noise and scale on rewards, and what they leave alone; a finite MDP as an environment; the
distribution of what is drawn.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jbrl.environments.acrobot import Acrobot
from jbrl.environments.bsuite_tasks import Bandit, Catch
from jbrl.environments.cartpole import CartPole
from jbrl.environments.environment import (
    RewardNoise,
    RewardScale,
    Tabular,
    as_arrays,
    check_environment,
    drawn,
    unwrapped,
)
from jbrl.environments.mountain_car import MountainCar
from jbrl.environments.pinball import Pinball
from jbrl.environments.spec import Discrete, Steps
from jbrl.environments.walks import Chain, Gridworld
from jbrl.mdp.mdp import MDP
from jbrl.problems.lookup import problem
from tests.environments.playing import (
    LANES,
    lane,
    lifetimes,
    on_host,
    some_actions,
    together,
    uniforms,
)

N = 20_000


def rewards(environment, n=N):
    environment = as_arrays(environment)
    keys = jax.random.split(jax.random.key(3), n)

    def one(key):
        state, _ = environment.reset(key)
        after, step = environment.step(key, state, jnp.int32(4))
        return step.reward, environment.metrics(after)["total_regret"]

    return on_host(jax.jit(jax.vmap(one))(keys))


def test_noise_is_normal_and_has_the_scale_that_is_said():
    """Kolmogorov-Smirnov test, false-alarm rate 1e-4."""
    plain, regret = rewards(Bandit(mapping_seed=3))
    noisy, noisy_regret = rewards(RewardNoise(Bandit(mapping_seed=3), 3.0))
    assert stats.kstest((noisy - plain) / 3, "norm").pvalue > 1e-4
    np.testing.assert_array_equal(noisy_regret, regret)  # metrics are without noise


def test_noise_on_noise_is_drawn_apart():
    """Kolmogorov-Smirnov test, false-alarm rate 1e-4; of one draw it would have twice the scale."""
    plain, _ = rewards(Bandit(mapping_seed=3))
    once = RewardNoise(Bandit(mapping_seed=3), 1.0)
    twice, _ = rewards(RewardNoise(RewardScale(once, 1.0), 1.0))
    assert stats.kstest((twice - plain) / np.sqrt(2), "norm").pvalue > 1e-4
    inner, _ = rewards(once)
    assert abs(np.corrcoef(inner - plain, twice - inner)[0, 1]) < 4 / np.sqrt(N)


def test_scale_multiplies_and_metrics_are_not_scaled():
    plain, regret = rewards(Bandit(mapping_seed=3), 4)
    scaled, scaled_regret = rewards(RewardScale(Bandit(mapping_seed=3), 30.0), 4)
    np.testing.assert_array_equal(scaled, plain * np.float32(30))
    np.testing.assert_array_equal(scaled_regret, regret)


def logs(environment):
    lanes, keys = lifetimes(environment)
    actions = some_actions(3)[:, :200]
    return on_host(together(lanes, keys, actions))[1]


def test_observations_ends_and_metrics_are_those_of_the_environment():
    plain, noisy = logs(Catch()), logs(RewardNoise(RewardScale(Catch(), 2.0), 0.5))
    for a, b in (
        (plain.step.observation, noisy.step.observation),
        (plain.step.terminated, noisy.step.terminated),
        (plain.metrics["total_regret"], noisy.metrics["total_regret"]),
    ):
        np.testing.assert_array_equal(a, b)
    noise = (noisy.step.reward - 2 * plain.step.reward) / 0.5
    assert (noise != 0).all()  # rewards of 0 in the middle of an episode get noise too
    assert len(np.unique(noise.round(5))) > 0.99 * noise.size
    alike = np.corrcoef(lane(noise, 0), lane(noise, 1))[0, 1]
    assert abs(alike) < 5 / np.sqrt(200)  # false-alarm rate below 1e-6


def test_neutral_wrappers_change_no_bit():
    plain, wrapped = logs(Catch()), logs(RewardNoise(RewardScale(Catch(), 1.0), 0.0))
    np.testing.assert_array_equal(plain.step.reward, wrapped.step.reward)


def test_wrapped_environments_are_perturbed():
    environment = RewardScale(Chain(stochastic=True), 2.0)
    one = drawn(as_arrays(environment), jax.random.key(1))
    assert float(one.environment.slip) > 0
    assert unwrapped(RewardNoise(environment)) is environment.environment


S, A = 4, 3


def table(initial_state):
    rng = np.random.default_rng(0)
    transitions = rng.random((S, A, S)) * (rng.random((S, A, S)) < 0.6) + np.eye(S)[:, None]
    transitions /= transitions.sum(-1, keepdims=True)
    rewards = rng.normal(size=(S, A, S))
    return jax.jit(Tabular.of)(
        MDP(
            jnp.asarray(transitions, jnp.float32),
            jnp.asarray(rewards, jnp.float32),
            jnp.int32(initial_state),
        )
    )


@pytest.mark.parametrize("initial_state", [2, -1])
def test_every_step_is_that_of_a_slow_twin(initial_state):
    environment = table(initial_state)
    check_environment(environment, "table")
    assert environment.spec.observation == Discrete(S)
    assert environment.spec.actions == Discrete(A)
    assert isinstance(environment.lifetime, Steps)
    lanes = jax.tree.map(lambda leaf: np.stack([leaf] * LANES), environment)
    actions = some_actions(A, steps=1000)
    first, log = on_host(together(lanes, jax.random.split(jax.random.key(1), LANES), actions))
    cdf, rewards = np.asarray(environment.cdf), np.asarray(environment.mdp.rewards)
    for i in range(LANES):
        played = lane(log, i)
        x = int(uniforms(first[i])[0] * S) if initial_state < 0 else initial_state
        states = [x]
        for u, noise in zip(actions[i], uniforms(played.words)[:, 0], strict=True):
            x = int(np.searchsorted(cdf[x, u], np.float32(noise), side="right"))
            states.append(x)
        np.testing.assert_array_equal(played.before, states[:-1])
        np.testing.assert_array_equal(played.step.observation, states[1:])
        np.testing.assert_array_equal(
            played.step.reward, rewards[states[:-1], actions[i], states[1:]]
        )
        assert not played.step.terminated.any()
        assert not played.step.truncated.any()


def test_first_state_is_uniform_where_none_is_given():
    """Chi-square test, false-alarm rate 1e-4."""
    environment = table(-1)
    states = jax.jit(jax.vmap(lambda key: environment.reset(key)[0]))(
        jax.random.split(jax.random.key(2), 10_000)
    )
    assert stats.chisquare(np.bincount(np.asarray(states), minlength=S)).pvalue > 1e-4


DRAWS = 5000
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
    keys = jax.random.split(jax.random.key(4), DRAWS)
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
    keys = jax.random.split(jax.random.key(5), DRAWS)
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
