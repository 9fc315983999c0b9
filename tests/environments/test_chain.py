"""Chain: a slow twin, values known in closed form, and the frequencies of slips."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jbrl.environments.environment import as_arrays, drawn
from jbrl.environments.walks import Chain, ChainState
from tests.environments.playing import (
    LANES,
    T,
    episodes,
    evenly,
    lane,
    lifetimes,
    on_host,
    play,
    replay,
    together,
)

N = 10


class Twin:
    """The rules in plain Python."""

    def __init__(self, n, slip, last_reward):
        self.n, self.slip, self.last_reward = n, slip, last_reward

    def reset(self, uniforms):
        self.x, self.steps = 0, 0

    def observation(self):
        return self.x

    def step(self, uniforms, action):
        move = 1 if action == 1 else -1
        if uniforms[0] < self.slip / 2:
            move = 0
        elif uniforms[0] < self.slip:
            move = -move
        self.x = min(max(self.x + move, 0), self.n - 1)
        self.steps += 1
        terminated = self.x == self.n - 1 or self.steps == 20 * self.n
        return self.last_reward if terminated else -1, terminated


@pytest.mark.parametrize(
    "settings",
    [{}, {"slip": 0.6}, {"slip": 1.0}, {"stochastic": True}, {"slip": 0.6, "last_reward": -1.0}],
    ids=str,
)
def test_every_step_is_that_of_a_slow_twin(settings):
    lanes, actions, first, log = play(Chain(N, **settings))
    for i in range(LANES):
        twin = Twin(N, np.float64(lanes.slip[i]), lanes.last_reward)
        replay(twin, actions[i], first[i], lane(log, i))


@pytest.mark.parametrize("last_reward", [0.0, -1.0])
def test_bounds_of_the_return_are_attained(last_reward):
    lanes, keys = lifetimes(Chain(N, last_reward=last_reward))
    log = on_host(
        together(
            lanes, keys, np.broadcast_to(np.array([[0], [0], [1], [1]], np.int32), (LANES, T))
        )[1]
    )
    for i, (length, earned) in ((0, (20 * N, -(20 * N - 1))), (3, (N - 1, -(N - 2)))):
        lengths, returns, _ = episodes(lane(log, i))
        assert set(lengths) == {length}
        assert set(returns) == {earned + last_reward}


def expected_return(n, slip, right, limit):
    """Mean return of a policy that goes right with probability `right`, by powers of the
    transition matrix.
    """
    forward = right * (1 - slip) + (1 - right) * slip / 2
    back = (1 - right) * (1 - slip) + right * slip / 2
    matrix = np.zeros((n, n))
    for x in range(n - 1):
        matrix[x, x + 1] += forward
        matrix[x, max(x - 1, 0)] += back
        matrix[x, x] += 1 - forward - back
    alive, total = np.eye(n)[0], 0.0
    for _ in range(limit - 1):  # -1 for each step but the last
        alive = alive @ matrix
        total -= alive[: n - 1].sum()
    return total


@pytest.mark.parametrize("n", [2, 3, 10])
def test_formula_gives_the_known_length_of_a_random_walk(n):
    """N (N - 1) steps from a wall to the other end, without a time limit (Feller
    1968, chapter 14).
    """
    assert expected_return(n, 0.0, 0.5, 200 * n**2) == pytest.approx(1 - n * (n - 1))


@pytest.mark.parametrize(("slip", "right"), [(0.0, 0.5), (0.25, 0.5), (0.25, 1.0), (0.1, 0.8)])
def test_mean_return_is_that_of_the_markov_chain(slip, right):
    """Mean of about 2,000 independent episodes: 4.5 standard errors, false-alarm rate below
    1e-5 each.
    """
    lanes, keys = lifetimes(Chain(N, slip=slip), seed=1, lanes=64)
    actions = (np.random.default_rng(2).random((64, 5000)) < right).astype(np.int32)
    log = on_host(together(lanes, keys, actions)[1])
    # The first k episodes of each lane, k fixed beforehand: the last, unfinished one would favour
    # short episodes.
    returns = np.concatenate([episodes(lane(log, i))[1][: 5000 // (20 * N)] for i in range(64)])
    assert len(returns) == 64 * 25
    assert abs(returns.mean() - expected_return(N, slip, right, 20 * N)) < 4.5 * returns.std(
        ddof=1
    ) / np.sqrt(len(returns))


def test_slips_are_as_frequent_as_they_should_be():
    """Chi-square test, false-alarm rate 1e-4."""
    slip = 0.25
    environment = as_arrays(Chain(N, slip=slip))
    keys = jax.random.split(jax.random.key(3), 40_000)
    state = ChainState(np.int32(4), np.int32(0))
    after = jax.jit(jax.vmap(lambda key: environment.step(key, state, np.int32(1))[0].position))(
        keys
    )
    counts = np.bincount(np.asarray(after) - 3, minlength=3)
    assert (
        stats.chisquare(counts, len(keys) * np.array([slip / 2, slip / 2, 1 - slip])).pvalue > 1e-4
    )


@pytest.mark.parametrize("action", [0, 1])
def test_slips_have_exactly_their_probabilities(action):
    """Random numbers are all multiples of 1/1024."""
    environment = as_arrays(Chain(N, slip=0.25))
    state = ChainState(np.int32(4), np.int32(0))
    after = jax.vmap(lambda key: environment.step(key, state, np.int32(action))[0].position)(
        evenly(1024)
    )
    expected = [128, 128, 768] if action else [768, 128, 128]
    assert np.bincount(np.asarray(after) - 3, minlength=3).tolist() == expected


def test_slip_is_drawn_uniformly_where_it_is_drawn():
    """Kolmogorov-Smirnov test, false-alarm rate 1e-4."""
    keys = jax.random.split(jax.random.key(4), 5000)
    draw = jax.jit(
        jax.vmap(lambda environment, key: drawn(environment, key).slip, in_axes=(None, 0))
    )
    slips = np.asarray(draw(as_arrays(Chain(N, stochastic=True)), keys), np.float64)
    assert stats.kstest(slips, stats.uniform(0, 0.25).cdf).pvalue > 1e-4
    assert set(np.asarray(draw(as_arrays(Chain(N, slip=0.5)), keys))) == {0.5}


@given(
    st.integers(0, N - 2),
    st.integers(0, 20 * N - 1),
    st.integers(0, 1),
    st.integers(0, 2**32 - 1),
    st.floats(0, 1, width=32),
)
def test_one_step_moves_by_one_at_most(position, steps, action, word, slip):
    environment = Chain(N, slip=np.float32(slip))
    key = jax.random.wrap_key_data(np.array([word, 0], np.uint32))
    state, step = one_step(
        environment, key, ChainState(np.int32(position), np.int32(steps)), np.int32(action)
    )
    assert abs(int(state.position) - position) <= 1
    assert int(state.steps) == steps + 1
    assert int(step.observation) == int(state.position)
    assert bool(step.terminated) == (state.position == N - 1 or steps + 1 == 20 * N)
    assert float(step.reward) == (0 if step.terminated else -1)


one_step = jax.jit(lambda environment, key, state, action: environment.step(key, state, action))
