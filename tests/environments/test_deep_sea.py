"""Deep sea: the original's maps and trajectories, a slow twin, and the values that are known."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from scipy import stats

from jbrl.environments.bsuite_tasks import DeepSea, DeepSeaState, action_mapping
from jbrl.environments.environment import as_arrays
from jbrl.environments.spec import LowerTriangle
from jbrl.mdp.sampling import standard_normal
from tests.environments.playing import (
    LANES,
    SHORT,
    episodes,
    lane,
    lifetimes,
    on_host,
    play,
    replay,
    stacked,
    together,
)

GOLDEN = np.load(Path(__file__).parent / "data" / "deep_sea.npz")
CASES = json.loads(str(GOLDEN["cases"]))
N = 10
STEP = jax.jit(lambda sea, key, state, action: sea.step(key, state, action))


@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_cells_on_and_below_the_diagonal_are_numbered_row_by_row(size):
    triangle = LowerTriangle(size)
    indices = triangle.indices()
    assert len(indices) == triangle.count == len(set(indices.tolist()))
    assert (indices % size <= indices // size).all() and (np.diff(indices) > 0).all()
    numbers = triangle.numbers(np.append(indices, -1).astype(np.int32))
    np.testing.assert_array_equal(numbers, [*range(triangle.count), -1])


def test_every_reachable_cell_is_reached_and_no_other():
    sea = DeepSea(size=4, randomize_actions=False)
    seen = set()
    for path in range(2**3):
        row = column = 0
        for depth in range(4):
            seen.add(row * 4 + column)
            action = jnp.int32(path >> depth & 1)
            state = DeepSeaState(jnp.int32(row), jnp.int32(column), jnp.bool_(0), jnp.bool_(0))
            after, _ = STEP(sea, jax.random.key(0), state, action)
            row, column = int(after.row), int(after.column)
    assert sorted(seen) == sea.spec.observation.reachable.indices().tolist()


def unpacked(bits, n):
    return np.unpackbits(bits, count=n * n).reshape(n, n)


def test_maps_are_those_of_the_original():
    for n in range(10, 51, 2):
        np.testing.assert_array_equal(DeepSea(n).mapping, unpacked(GOLDEN[f"mapping_{n}"], n))


@jax.jit
def retrace(environment, words, actions, first):
    """Follow recorded actions; a step before a first observation is a reset."""

    def step(carry, inputs):
        state, bad, found = carry
        words, action, reset = inputs
        key = jax.random.wrap_key_data(words)
        after, step = environment.step(key, state, action)
        metrics = environment.metrics(after)
        begun, observation = environment.reset(key)
        state = jax.tree.map(lambda new, old: jnp.where(reset, new, old), begun, after)
        ended = step.terminated & ~reset
        bad = bad + jnp.where(ended, metrics["total_bad_episodes"], 0.0)
        found = found + jnp.where(ended, metrics["denoised_return"], 0.0)
        seen = jnp.where(reset, observation, step.observation)
        return (state, bad, found), (seen, step.reward, ended, bad, found)

    start = environment.reset(jax.random.key(0))[0], jnp.float32(0), jnp.float32(0)
    return lax.scan(step, start, (words, actions, first))[1]


def words_of(draws):
    """The words of uint32 whose `uniforms` are the given numbers; 1/2 where there is none."""
    return (np.floor(np.where(np.isnan(draws), 0.5, draws) * 2**24).astype(np.uint32)) << 8


@pytest.mark.parametrize("i", range(len(CASES)))
def test_trajectories_are_those_of_the_original(i):
    case, prefix = CASES[i], f"c{i}_"
    recorded = {k.removeprefix(prefix): GOLDEN[k] for k in GOLDEN if k.startswith(prefix)}
    stochastic, seed = not case["deterministic"], case["mapping_seed"]
    environment = DeepSea(case["size"], stochastic=stochastic, mapping_seed=seed)
    np.testing.assert_array_equal(environment.mapping, unpacked(recorded["mapping"], case["size"]))
    draws = recorded["uniform_draw"], stats.norm.cdf(recorded["noise_std_normal"])
    words = np.stack([words_of(numbers) for numbers in draws], 1)
    first = recorded["step_type"][1:] == 0
    outcome = retrace(as_arrays(environment), words, recorded["actions"].astype(np.int32), first)
    observation, reward, ended, bad, found = map(np.asarray, outcome)
    np.testing.assert_array_equal(observation, recorded["observation"][1:])
    np.testing.assert_array_equal(ended, recorded["step_type"][1:] == 2)
    # noise: 24 bits of a uniform number
    np.testing.assert_allclose(reward[~first], recorded["reward"][~first], atol=2e-5)
    exact = ~first & np.isnan(recorded["noise_std_normal"])
    np.testing.assert_allclose(reward[exact], recorded["reward"][exact], rtol=1e-6)
    np.testing.assert_array_equal(bad, recorded["info_total_bad_episodes"][1:])
    # The original counts the treasure at once, which is at the last step.
    np.testing.assert_array_equal(found, recorded["info_denoised_return"][1:])
    assert (recorded["observation"][0], recorded["step_type"][0]) == (0, 0)


class Twin:
    """The rules in plain Python."""

    def __init__(self, mapping, stochastic):
        self.mapping, self.n, self.stochastic = mapping, len(mapping), stochastic

    def reset(self, uniforms):
        self.row, self.column = 0, 0

    def observation(self):
        return -1 if self.row == self.n else self.row * self.n + self.column

    def step(self, uniforms, action):
        n, reward = self.n, 0.0
        right = action == self.mapping[self.row, self.column]
        if self.column == n - 1 and right:
            reward += 1
        if self.stochastic and self.row == n - 1 and self.column in (0, n - 1):
            reward += stats.norm.ppf(uniforms[1] + 2**-25)
        if right:
            if np.float32(uniforms[0]) > np.float32(1 / n) or not self.stochastic:
                self.column = min(self.column + 1, n - 1)
            reward -= 0.01 / n
        else:
            self.column = max(self.column - 1, 0)
        self.row += 1
        return reward, self.row == n


@pytest.mark.parametrize(
    "settings", [{}, {"stochastic": True, "mapping_seed": 7}, {"randomize_actions": False}], ids=str
)
def test_every_step_is_that_of_a_slow_twin(settings):
    environment = DeepSea(N, **settings)
    _, actions, first, log = play(environment, steps=SHORT)
    seed, drawn = environment.mapping_seed, environment.randomize_actions
    mapping = action_mapping(N, seed) if drawn else np.ones((N, N))
    for i in range(LANES):
        replay(Twin(mapping, environment.stochastic), actions[i], first[i], lane(log, i))


def best(environment, seed=1):
    """Logs of LANES lifetimes in which every action is the one that goes right."""
    lanes, keys = lifetimes(environment, seed)
    actions = np.zeros((LANES, SHORT), np.int32)
    place = np.arange(SHORT) % N  # on the diagonal of the deterministic game
    actions[:] = environment.mapping[place, place]
    return on_host(together(lanes, keys, actions)[1])


def test_best_return_is_that_of_the_paper():
    log = best(DeepSea(N))
    for i in range(LANES):
        played = lane(log, i)
        lengths, returns, ends = episodes(played)
        assert set(lengths) == {N}
        np.testing.assert_allclose(returns, 0.99, rtol=1e-6)
        assert played.metrics["denoised_return"][ends].all()
        assert not played.metrics["total_bad_episodes"].any()


def test_best_mean_return_of_the_stochastic_game_is_that_of_the_paper():
    """(1 - 1/N)^(N - 1) - 0.01, mean of 440 episodes: 4.5 standard errors, false-alarm rate
    below 1e-5.
    """
    log = best(DeepSea(N, stochastic=True, randomize_actions=False))
    returns = np.concatenate([episodes(lane(log, i))[1] for i in range(LANES)])
    assert len(returns) == LANES * 110
    error = returns.std(ddof=1) / np.sqrt(len(returns))
    assert abs(returns.mean() - ((1 - 1 / N) ** (N - 1) - 0.01)) < 4.5 * error


def test_noise_is_standard_normal():
    """Kolmogorov-Smirnov test, false-alarm rate 1e-4."""
    environment = as_arrays(DeepSea(N, stochastic=True, randomize_actions=False))
    state = DeepSeaState(np.int32(N - 1), np.int32(0), np.bool_(True), np.bool_(False))
    keys = jax.random.split(jax.random.key(6), 20_000)
    rewards = jax.jit(jax.vmap(lambda key: environment.step(key, state, np.int32(0))[1].reward))(
        keys
    )
    assert stats.kstest(np.asarray(rewards, np.float64), "norm").pvalue > 1e-4


def test_normal_quantiles_are_finite_and_symmetric_to_the_last_number():
    uniforms = np.array([0, 1, 2**23 - 1, 2**23, 2**24 - 2, 2**24 - 1], np.float64) / 2**24
    found = np.asarray(standard_normal(jnp.asarray(uniforms, jnp.float32)), np.float64)
    np.testing.assert_allclose(found, stats.norm.ppf(uniforms + 2**-25), rtol=2e-5)
    np.testing.assert_array_equal(found, -found[::-1])


def test_map_passes_through_jax_unharmed():
    environment = DeepSea(12, mapping_seed=3)
    again = jax.tree.map(lambda leaf: leaf, environment)
    np.testing.assert_array_equal(again.mapping, environment.mapping)
    assert jax.tree.map(lambda leaf: None, environment).mapping is None
    assert jax.tree.map(lambda leaf: 0, environment).mapping == 0
    traced = jax.eval_shape(lambda e: e, as_arrays(environment))
    assert (traced.mapping.shape, traced.mapping.dtype) == ((12, 12), np.int8)
    several = stacked([environment, DeepSea(12, mapping_seed=4)])
    np.testing.assert_array_equal(several.mapping[1], action_mapping(12, 4))
    other = dataclasses.replace(environment, mapping_seed=4, mapping=None)
    np.testing.assert_array_equal(other.mapping, action_mapping(12, 4))


word = st.integers(0, 2**32 - 1)


@given(st.data(), st.booleans(), st.integers(0, 1), st.tuples(word, word), st.booleans())
def test_one_step_goes_down_one_row(data, stochastic, action, words, bad):
    row = data.draw(st.integers(0, N - 1))
    column = data.draw(st.integers(0, row))
    key = jax.random.wrap_key_data(np.array(words, np.uint32))
    state = DeepSeaState(np.int32(row), np.int32(column), np.bool_(bad), np.bool_(False))
    sea = as_arrays(DeepSea(N, stochastic=stochastic))
    after, step = STEP(sea, key, state, np.int32(action))
    assert int(after.row) == row + 1
    assert 0 <= int(after.column) <= N - 1
    assert abs(int(after.column) - column) <= 1
    assert bool(after.bad) >= bad
    assert bool(step.terminated) == (row == N - 1)
    assert int(step.observation) == (-1 if row == N - 1 else (row + 1) * N + int(after.column))
    assert np.isfinite(step.reward)
