"""Gridworld: a slow twin, values known from its Markov chain, and the frequencies of slips."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jbrl.environments.environment import as_arrays, drawn
from jbrl.environments.walks import Gridworld, GridworldState
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

N = 5
MOVES = [(0, -1), (0, 1), (-1, 0), (1, 0)]


def turned(action, perpendicular):
    """The two actions that a slip may take."""
    if not perpendicular:
        return (action + 1) % 4, (action - 1) % 4
    return [other for other in range(4) if np.dot(MOVES[action], MOVES[other]) == 0]


def probabilities(action, slip, perpendicular):
    """[5], of the four moves and of staying, for a wanted action."""
    found = np.zeros(5)
    found[[action, 4]] = 1 - slip, slip / 2
    found[list(turned(action, perpendicular))] = slip / 4
    return found


class Twin:
    """The rules in plain Python, with the published program's action numbers 1 to 4."""

    def __init__(self, n, slip, perpendicular):
        self.n, self.slip, self.perpendicular = n, slip, perpendicular

    def reset(self, uniforms):
        self.x, self.y, self.steps = 0, 0, 0

    def observation(self):
        return self.x * self.n + self.y

    def step(self, uniforms, action):
        number = action + 1
        u, slip = uniforms[0], self.slip
        if u < slip / 2:
            number = None
        elif u < slip and self.perpendicular:
            forwards, backwards = (4, 3) if number <= 2 else (2, 1)
            number = forwards if u < slip * 0.75 else backwards
        elif u < slip * 0.75:
            number = number + 1 if number < 4 else 1
        elif u < slip:
            number = number - 1 if number > 1 else 4
        dx, dy = MOVES[number - 1] if number else (0, 0)
        self.x = min(max(self.x + dx, 0), self.n - 1)
        self.y = min(max(self.y + dy, 0), self.n - 1)
        self.steps += 1
        return -1, (self.x, self.y) == (self.n - 1, self.n - 1) or self.steps == 20 * self.n**2


@pytest.mark.parametrize(
    "settings",
    [
        *({}, {"slip": 0.6}, {"slip": 1.0}, {"stochastic": True}),
        *({"slip": 0.6, "perpendicular": True}, {"stochastic": True, "perpendicular": True}),
    ],
    ids=str,
)
def test_every_step_is_that_of_a_slow_twin(settings):
    lanes, actions, first, log = play(Gridworld(N, **settings))
    for i in range(LANES):
        twin = Twin(N, np.float64(lanes.slip[i]), lanes.perpendicular)
        replay(twin, actions[i], first[i], lane(log, i))


def test_bounds_of_the_return_are_attained():
    lanes, keys = lifetimes(Gridworld(N))
    actions = np.zeros((LANES, T), np.int32)
    actions[3] = np.tile([1] * (N - 1) + [3] * (N - 1), T)[:T]
    log = on_host(together(lanes, keys, actions)[1])
    for i, length in ((0, 20 * N**2), (3, 2 * (N - 1))):
        lengths, returns, _ = episodes(lane(log, i))
        assert set(lengths) == {length}
        assert set(returns) == {-length}


def expected_length(n, slip, policy, limit, perpendicular=False):
    """Mean length of an episode of a policy, four probabilities, by powers of the
    transition matrix.
    """
    taken = sum(p * probabilities(action, slip, perpendicular) for action, p in enumerate(policy))
    matrix = np.zeros((n, n, n, n))
    for x, y in np.ndindex(n, n):
        for (dx, dy), probability in zip([*MOVES, (0, 0)], taken, strict=True):
            matrix[x, y, min(max(x + dx, 0), n - 1), min(max(y + dy, 0), n - 1)] += probability
    alive, matrix = np.eye(n * n)[0], matrix.reshape(n * n, n * n)
    total = 0.0
    for _ in range(limit):
        total += alive.sum()
        alive = alive @ matrix
        alive[-1] = 0
    return total


def test_formula_gives_the_known_length_in_two_by_two_cells():
    """By hand: h(start) = 1 + h(start) / 2 + h(side) / 2 and h(side) = 1 + h(side) / 2 + h(start) /
    4, hence h(start) = 8.
    """
    assert expected_length(2, 0.0, np.full(4, 0.25), 4000) == pytest.approx(8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slip", "policy", "perpendicular"),
    [
        (0.0, (0.25, 0.25, 0.25, 0.25), False),
        (0.25, (0.1, 0.5, 0.0, 0.4), False),
        (0.25, (0, 0.5, 0, 0.5), False),
        (0.25, (0.1, 0.5, 0.0, 0.4), True),
        (1.0, (0, 0.5, 0, 0.5), True),
    ],
)
def test_mean_return_is_that_of_the_markov_chain(slip, policy, perpendicular):
    """Mean of 640 independent episodes: 4.5 standard errors, false-alarm rate below 1e-5 each."""
    environment = Gridworld(N, slip=slip, perpendicular=perpendicular)
    lanes, keys = lifetimes(environment, seed=1, lanes=64)
    actions = np.random.default_rng(2).choice(4, (64, T), p=policy).astype(np.int32)
    log = on_host(together(lanes, keys, actions)[1])
    # The first ten episodes of each lane, all of which end in time: a share of those that end would
    # favour short ones.
    returns = np.concatenate([episodes(lane(log, i))[1][: T // (20 * N**2)] for i in range(64)])
    assert len(returns) == 64 * 10
    limit = expected_length(N, slip, np.array(policy), 20 * N**2, perpendicular)
    assert abs(-returns.mean() - limit) < 4.5 * returns.std(ddof=1) / np.sqrt(len(returns))


@pytest.mark.parametrize("action", range(4))
def test_slips_are_as_frequent_as_they_should_be(action):
    """Chi-square test, false-alarm rate 1e-4 each."""
    slip = 0.25
    keys = jax.random.split(jax.random.key(3 + action), 40_000)
    cells = many_steps(
        as_arrays(Gridworld(N, slip=slip)),
        keys,
        GridworldState(*map(np.int32, (2, 2, 0))),
        np.int32(action),
    )
    counts, expected = moves(cells), probabilities(action, slip, False)
    assert counts[expected == 0].sum() == 0
    assert stats.chisquare(counts[expected > 0], len(keys) * expected[expected > 0]).pvalue > 1e-4


@pytest.mark.parametrize("perpendicular", [False, True])
@pytest.mark.parametrize("action", range(4))
def test_slips_have_exactly_their_probabilities(action, perpendicular):
    """Random numbers are all multiples of 1/1024."""
    cells = many_steps(
        as_arrays(Gridworld(N, slip=0.25, perpendicular=perpendicular)),
        evenly(1024),
        GridworldState(*map(np.int32, (2, 2, 0))),
        np.int32(action),
    )
    expected = 1024 * probabilities(action, 0.25, perpendicular)
    np.testing.assert_array_equal(moves(cells), expected)
    ahead, aside = np.flatnonzero(expected == 768), np.flatnonzero(expected == 64)
    assert (ahead.tolist(), len(aside)) == ([action], 2)
    opposite = any(np.dot(MOVES[action], MOVES[other]) == -1 for other in aside)
    assert opposite is not perpendicular


def moves(cells):
    """Return counts of steps from cell (2, 2): [5], by action, and those that stayed."""
    around = {(2 + dx) * N + 2 + dy: i for i, (dx, dy) in enumerate(MOVES)} | {2 * N + 2: 4}
    return np.bincount([around[c] for c in np.asarray(cells).tolist()], minlength=5)


many_steps = jax.jit(
    jax.vmap(
        lambda environment, key, state, action: environment.step(key, state, action)[1].observation,
        in_axes=(None, 0, None, None),
    )
)


def test_slip_is_drawn_uniformly_where_it_is_drawn():
    """Kolmogorov-Smirnov test, false-alarm rate 1e-4."""
    keys = jax.random.split(jax.random.key(4), 5000)
    draw = jax.jit(
        jax.vmap(lambda environment, key: drawn(environment, key).slip, in_axes=(None, 0))
    )
    slips = np.asarray(draw(as_arrays(Gridworld(N, stochastic=True)), keys), np.float64)
    assert stats.kstest(slips, stats.uniform(0, 0.25).cdf).pvalue > 1e-4
    assert set(np.asarray(draw(as_arrays(Gridworld(N, slip=0.5)), keys))) == {0.5}


cells = st.integers(0, N - 1)


@given(
    cells,
    cells,
    st.integers(0, 20 * N**2 - 1),
    st.integers(0, 3),
    st.integers(0, 2**32 - 1),
    st.floats(0, 1, width=32),
    st.booleans(),
)
def test_one_step_moves_by_one_cell_at_most(x, y, steps, action, word, slip, perpendicular):
    key = jax.random.wrap_key_data(np.array([word, 0], np.uint32))
    environment = as_arrays(Gridworld(N, slip=slip, perpendicular=perpendicular))
    state, step = one_step(
        environment, key, GridworldState(*map(np.int32, (x, y, steps))), np.int32(action)
    )
    assert abs(int(state.x) - x) + abs(int(state.y) - y) <= 1
    assert int(step.observation) == int(state.x) * N + int(state.y)
    assert bool(step.terminated) == (int(step.observation) == N**2 - 1 or steps + 1 == 20 * N**2)
    assert float(step.reward) == -1


one_step = jax.jit(lambda environment, key, state, action: environment.step(key, state, action))
