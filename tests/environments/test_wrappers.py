"""Noise and scale on rewards, and what they leave alone."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from jbrl.environments.bsuite_tasks import Bandit, Catch
from jbrl.environments.environment import as_arrays, drawn
from jbrl.environments.walks import Chain
from jbrl.environments.wrappers import RewardNoise, RewardScale, unwrapped
from tests.environments.playing import lane, lifetimes, on_host, some_actions, together

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
