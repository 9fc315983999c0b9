"""Chain and gridworld: slow twins, bounds of returns, probabilities of slips."""

import jax
import numpy as np
import pytest

from jbrl.environments.environment import as_arrays
from jbrl.environments.walks import Chain, ChainState, Gridworld, GridworldState
from tests.environments import playing
from tests.environments.playing import LANES, SHORT, episodes, lane, lifetimes, on_host

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


@pytest.mark.parametrize("action", [0, 1])
def test_slips_of_the_chain_have_exactly_their_probabilities(action):
    """Random numbers are all multiples of 1/1024."""
    expected = [128, 768, 128] if action else [768, 128, 128]
    np.testing.assert_array_equal(moves(Chain, action, playing.evenly(1024)), expected)


@pytest.mark.parametrize("perpendicular", [False, True])
@pytest.mark.parametrize("action", range(4))
def test_slips_of_the_gridworld_have_exactly_their_probabilities(action, perpendicular):
    """Random numbers are all multiples of 1/1024."""
    aside = [(action + 1) % 4, (action - 1) % 4]
    if perpendicular:
        aside = [other for other in range(4) if np.dot(MOVES[action], MOVES[other]) == 0]
    expected = np.array([0, 0, 0, 0, 128])
    expected[action], expected[aside] = 768, 64
    found = moves(Gridworld, action, playing.evenly(1024), perpendicular=perpendicular)
    np.testing.assert_array_equal(found, expected)
