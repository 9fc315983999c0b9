"""Chain and gridworld: slow twins, values known from their Markov chains, frequencies of slips."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jbrl.environments.environment import as_arrays
from jbrl.environments.walks import Chain, ChainState, Gridworld, GridworldState
from tests.environments import playing
from tests.environments.playing import LANES, SHORT, episodes, lane, lifetimes, on_host, one_step

N = {Chain: 10, Gridworld: 5}
MOVES = [(0, -1), (0, 1), (-1, 0), (1, 0)]  # of the gridworld
observations = jax.jit(
    jax.vmap(
        lambda environment, key, state, action: environment.step(key, state, action)[1].observation,
        in_axes=(None, 0, None, None),
    )
)


class ChainTwin:
    """The rules in plain Python."""

    def __init__(self, environment, slip):
        self.n, self.slip, self.last_reward = environment.n_states, slip, environment.last_reward

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


class GridworldTwin:
    """The rules in plain Python, with the published program's action numbers 1 to 4."""

    def __init__(self, environment, slip):
        self.n, self.slip, self.perpendicular = environment.size, slip, environment.perpendicular

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
    ("cls", "settings"),
    [
        *((cls, settings) for cls in N for settings in ({"slip": 0.6}, {"stochastic": True})),
        (Chain, {"slip": 0.6, "last_reward": -1.0}),
        (Gridworld, {"slip": 0.6, "perpendicular": True}),
    ],
    ids=str,
)
def test_every_step_is_that_of_a_slow_twin(cls, settings):
    lanes, actions, first, log = playing.play(cls(N[cls], **settings), steps=SHORT)
    kind = ChainTwin if cls is Chain else GridworldTwin
    for i in range(LANES):
        playing.replay(kind(lanes, np.float64(lanes.slip[i])), actions[i], first[i], lane(log, i))


@pytest.mark.parametrize(
    ("environment", "path", "longest", "shortest", "last"),
    [
        (Chain(10), [1] * 9, 200, 9, 1.0),
        (Chain(10, last_reward=-1.0), [1] * 9, 200, 9, 0.0),
        (Gridworld(5), [1] * 4 + [3] * 4, 500, 8, 0.0),
    ],
)
def test_bounds_of_the_return_are_attained(environment, path, longest, shortest, last):
    lanes, keys = lifetimes(environment)
    actions = np.zeros((LANES, SHORT), np.int32)
    actions[3] = np.tile(path, SHORT)[:SHORT]
    log = on_host(playing.together(lanes, keys, actions)[1])
    for i, length in ((0, longest), (3, shortest)):
        lengths, returns, _ = episodes(lane(log, i))
        assert (set(lengths), set(returns)) == ({length}, {last - length})


def turned(action, perpendicular):
    """The two actions of the gridworld that a slip may take."""
    if not perpendicular:
        return (action + 1) % 4, (action - 1) % 4
    return [other for other in range(4) if np.dot(MOVES[action], MOVES[other]) == 0]


def probabilities(cls, action, slip, perpendicular=False):
    """[A + 1], of the moves and of staying, for a wanted action."""
    found = np.zeros(3 if cls is Chain else 5)
    found[[action, -1]] = 1 - slip, slip / 2
    if cls is Chain:
        found[1 - action] = slip / 2
    else:
        found[list(turned(action, perpendicular))] = slip / 4
    return found


def expected_length(cls, n, slip, policy, limit, perpendicular=False):
    """Mean length of an episode of a policy, probabilities of actions, by powers of the transition
    matrix.
    """
    taken = sum(p * probabilities(cls, u, slip, perpendicular) for u, p in enumerate(policy))
    size, moves = ((n, 1), [(-1, 0), (1, 0)]) if cls is Chain else ((n, n), MOVES)
    matrix = np.zeros((*size, *size))
    for x, y in np.ndindex(size):
        for (dx, dy), probability in zip([*moves, (0, 0)], taken, strict=True):
            to = min(max(x + dx, 0), size[0] - 1), min(max(y + dy, 0), size[1] - 1)
            matrix[(x, y, *to)] += probability
    count = np.prod(size)
    alive, matrix, total = np.eye(count)[0], matrix.reshape(count, count), 0.0
    for _ in range(limit):
        total += alive.sum()
        alive = alive @ matrix
        alive[-1] = 0
    return total


@pytest.mark.parametrize(
    ("cls", "n", "length"),
    [
        # N (N - 1) steps of a random walk from a wall to the other end (Feller 1968, chapter 14)
        *((Chain, n, n * (n - 1)) for n in (2, 3, 10)),
        # h(start) = 1 + h(start) / 2 + h(side) / 2 and h(side) = 1 + h(side) / 2 + h(start) / 4
        (Gridworld, 2, 8),
    ],
)
def test_formula_gives_the_known_length_of_a_random_walk(cls, n, length):
    policy = np.full(2 if cls is Chain else 4, 0.5 if cls is Chain else 0.25)
    assert expected_length(cls, n, 0.0, policy, 200 * n**2 + 4000) == pytest.approx(length)


RIGHT, MOSTLY = (0, 0.5, 0, 0.5), (0.1, 0.5, 0.0, 0.4)
GRID = [(0.0, (0.25,) * 4, False), (0.25, MOSTLY, False), (0.25, RIGHT, False)]
GRID += [(0.25, MOSTLY, True), (1.0, RIGHT, True)]
CHAIN = [(0.0, (0.5, 0.5)), (0.25, (0.5, 0.5)), (0.25, (0, 1)), (0.1, (0.2, 0.8))]


@pytest.mark.parametrize(
    ("cls", "slip", "policy", "perpendicular"),
    [
        *((Chain, *case, False) for case in CHAIN),
        *(pytest.param(Gridworld, *case, marks=pytest.mark.slow) for case in GRID),
    ],
)
def test_mean_return_is_that_of_the_markov_chain(cls, slip, policy, perpendicular):
    """Mean of the first episodes of 64 lanes: 4.5 standard errors, false-alarm rate below 1e-5.

    Their number is fixed beforehand: the last, unfinished one would favour short episodes.
    """
    more = {"perpendicular": perpendicular} if cls is Gridworld else {}
    lanes, keys = lifetimes(cls(N[cls], slip=slip, **more), seed=1, lanes=64)
    limit = 20 * (N[cls] if cls is Chain else N[cls] ** 2)
    actions = np.random.default_rng(2).choice(len(policy), (64, SHORT), p=policy).astype(np.int32)
    log = on_host(playing.together(lanes, keys, actions)[1])
    lengths = np.concatenate([episodes(lane(log, i))[0][: SHORT // limit] for i in range(64)])
    assert len(lengths) == 64 * (SHORT // limit)
    expected = expected_length(cls, N[cls], slip, np.array(policy), limit, perpendicular)
    assert abs(lengths.mean() - expected) < 4.5 * lengths.std(ddof=1) / np.sqrt(len(lengths))


def moves(cls, action, keys, **settings):
    """Counts of steps from the middle with a slip of 0.25: [A + 1], and those that stayed."""
    if cls is Chain:
        state, around = ChainState(np.int32(4), np.int32(0)), {3: 0, 5: 1, 4: 2}
    else:
        state = GridworldState(*map(np.int32, (2, 2, 0)))
        around = {(2 + dx) * 5 + 2 + dy: i for i, (dx, dy) in enumerate([*MOVES, (0, 0)])}
    environment = as_arrays(cls(N[cls], slip=0.25, **settings))
    cells = observations(environment, keys, state, np.int32(action))
    return np.bincount([around[c] for c in np.asarray(cells).tolist()], minlength=len(around))


@pytest.mark.parametrize(
    ("cls", "action"), [(Chain, 1), *((Gridworld, action) for action in range(4))]
)
def test_slips_are_as_frequent_as_they_should_be(cls, action):
    """Chi-square test, false-alarm rate 1e-4 each."""
    counts = moves(cls, action, jax.random.split(jax.random.key(3 + action), 40_000))
    expected = probabilities(cls, action, 0.25)
    assert counts[expected == 0].sum() == 0
    assert stats.chisquare(counts[expected > 0], 40_000 * expected[expected > 0]).pvalue > 1e-4


@pytest.mark.parametrize("action", [0, 1])
def test_slips_of_the_chain_have_exactly_their_probabilities(action):
    """Random numbers are all multiples of 1/1024."""
    expected = [128, 768, 128] if action else [768, 128, 128]
    np.testing.assert_array_equal(moves(Chain, action, playing.evenly(1024)), expected)


@pytest.mark.parametrize("perpendicular", [False, True])
@pytest.mark.parametrize("action", range(4))
def test_slips_of_the_gridworld_have_exactly_their_probabilities(action, perpendicular):
    """Random numbers are all multiples of 1/1024."""
    expected = 1024 * probabilities(Gridworld, action, 0.25, perpendicular)
    found = moves(Gridworld, action, playing.evenly(1024), perpendicular=perpendicular)
    np.testing.assert_array_equal(found, expected)
    ahead, aside = np.flatnonzero(expected == 768), np.flatnonzero(expected == 64)
    assert (ahead.tolist(), len(aside)) == ([action], 2)
    opposite = any(np.dot(MOVES[action], MOVES[other]) == -1 for other in aside)
    assert opposite is not perpendicular


words, slips = st.integers(0, 2**32 - 1), st.floats(0, 1, width=32)


@given(st.integers(0, 8), st.integers(0, 199), st.integers(0, 1), words, slips)
def test_one_step_of_the_chain_moves_by_one_at_most(position, steps, action, word, slip):
    key = jax.random.wrap_key_data(np.array([word, 0], np.uint32))
    before = ChainState(np.int32(position), np.int32(steps))
    state, step = one_step(Chain(10, slip=np.float32(slip)), key, before, np.int32(action))
    assert abs(int(state.position) - position) <= 1
    assert (int(state.steps), int(step.observation)) == (steps + 1, int(state.position))
    assert bool(step.terminated) == (state.position == 9 or steps + 1 == 200)
    assert float(step.reward) == (0 if step.terminated else -1)


cells = st.integers(0, 4)


@given(cells, cells, st.integers(0, 499), st.integers(0, 3), words, slips, st.booleans())
def test_one_step_of_the_gridworld_moves_by_one_cell_at_most(x, y, steps, action, word, slip, side):
    key = jax.random.wrap_key_data(np.array([word, 0], np.uint32))
    environment = as_arrays(Gridworld(5, slip=slip, perpendicular=side))
    before = GridworldState(*map(np.int32, (x, y, steps)))
    state, step = one_step(environment, key, before, np.int32(action))
    assert abs(int(state.x) - x) + abs(int(state.y) - y) <= 1
    assert int(step.observation) == int(state.x) * 5 + int(state.y)
    assert bool(step.terminated) == (int(step.observation) == 24 or steps + 1 == 500)
    assert float(step.reward) == -1
