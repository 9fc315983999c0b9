"""Q-learning and Sarsa(lambda) with tables: NumPy twins, numbers by hand, and the optimal values of
a chain on which they walk in the driver of studies.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.linear.action_values import QLearning, Sarsa
from jbrl.environments import environment as environments
from jbrl.environments.spec import Discrete, Episodes, OneHot, Spec
from jbrl.environments.walks import Chain
from jbrl.mdp import sampling
from jbrl.problems.recorder import EpisodeMean
from jbrl.rollout import episodes
from jbrl.rollout.contract import NO_ACTION, Transition
from tests.agents.linear.scripted import SpecPrior, passes_in_loops, play

N_STATES, N_ACTIONS, STEPS = 5, 3, 200
KEY = jax.random.key(0)
SETTINGS = [
    {},
    {"epsilon": 0.3},
    {"epsilon": 0.3},  # as the one before, with other keys
    {"alpha": 0.5, "epsilon": 1.0, "gamma": 0.9, "q0": 2.0},
    {"alpha": 1.0, "epsilon": 0.0, "gamma": 0.0, "q0": -1.0},
    {"alpha": 0.01, "epsilon": 0.1, "gamma": 1.0},
]
TRACE_DECAYS = (0.5, 0.9, 0.9, 1.0, 0.8, 0.0)
AGENTS = {
    "QLearning": [QLearning(**values) for values in SETTINGS],
    "Sarsa": [
        Sarsa(**values, trace_decay=decay)
        for values, decay in zip(SETTINGS, TRACE_DECAYS, strict=True)
    ],
}


@functools.cache
def script():
    """Transitions of a lane for each agent, arrays [L, T], and the keys of both functions; one
    episode in five steps ends, half of them truncated. One observation of six is that of zeros, -1.
    """
    rng = np.random.default_rng(8)
    shape = (len(SETTINGS), STEPS)
    arrival, start = rng.integers(-1, N_STATES, (2, *shape)).astype(np.int32)
    end = rng.choice(3, shape, p=[0.8, 0.1, 0.1])
    observation = np.roll(np.where(end > 0, start, arrival), 1, axis=1)
    reward = rng.normal(size=shape).astype(np.float32)
    keys = jax.random.split(jax.random.key(3), (2, *shape))
    return observation, reward, arrival, end == 1, end == 2, *keys


def lane_of(agent, *arrays):
    return play(agent, SpecPrior(Spec(OneHot(N_STATES), Discrete(N_ACTIONS))), KEY, *arrays)


@functools.cache
def played(name):
    """Actions [L, T] and states [L, T, ...] of the agents side by side."""
    agents = jax.tree.map(lambda *values: jnp.array(values, jnp.float32), *AGENTS[name])
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lane_of))(agents, *script()))


def epsilon_greedy(values, uniforms, epsilon):
    explores = uniforms[0] < np.float32(epsilon)
    return int(uniforms[1] * np.float32(N_ACTIONS)) if explores else values.argmax()


def q_learning_twin(agent, steps):
    """Actions, and the values after each step."""
    q = np.full((N_STATES, N_ACTIONS), agent.q0)
    for x, reward, y, terminated, _, uniforms, _ in steps:
        x, y = max(x, 0), max(y, 0)
        u = epsilon_greedy(q[x], uniforms, agent.epsilon)
        q[x, u] += agent.alpha * (
            reward + (0 if terminated else agent.gamma * q[y].max()) - q[x, u]
        )
        yield u, q.ravel().copy()


def sarsa_twin(agent, steps):
    """Actions, values and traces after each step."""
    q = np.full((N_STATES, N_ACTIONS), agent.q0)
    starts = True
    for x, reward, y, terminated, truncated, act_uniforms, observe_uniforms in steps:
        x, y = max(x, 0), max(y, 0)
        if starts:
            u, trace = epsilon_greedy(q[x], act_uniforms, agent.epsilon), np.zeros_like(q)
        following = 0 if terminated else epsilon_greedy(q[y], observe_uniforms, agent.epsilon)
        delta = reward + (0 if terminated else agent.gamma * q[y, following]) - q[x, u]
        trace *= agent.gamma * agent.trace_decay
        trace[x, u] += 1
        q += agent.alpha * delta * trace
        yield u, q.ravel().copy(), trace.ravel().copy()
        starts, u = terminated or truncated, following


@pytest.mark.parametrize(("name", "twin"), [("QLearning", q_learning_twin), ("Sarsa", sarsa_twin)])
def test_its_twin_learns_alike(name, twin):
    actions, states = played(name)
    uniforms = [np.asarray(jax.vmap(jax.vmap(sampling.uniforms))(keys)) for keys in script()[5:]]
    for lane, agent in enumerate(AGENTS[name]):
        steps = zip(*(a[lane] for a in (*script()[:5], *uniforms)), strict=True)
        expected, *tables = zip(*twin(agent, steps), strict=True)
        np.testing.assert_array_equal(actions[lane], expected)
        for field, table in zip(("q", "trace"), tables, strict=False):
            np.testing.assert_allclose(getattr(states, field)[lane], table, rtol=2e-5, atol=2e-5)
    assert (actions[1] != actions[2]).any(), "lanes with other keys explore elsewhere"


def transition(x, u, reward, y, terminated, truncated):
    numbers = jnp.int32(x), jnp.int32(u), jnp.float32(reward), jnp.int32(y)
    return Transition(*numbers, jnp.bool_(terminated), jnp.bool_(truncated))


TWO = SpecPrior(Spec(Discrete(2), Discrete(2)))


def test_values_of_q_learning_by_hand():
    """Two states, two actions, alpha 1/2, gamma 9/10."""
    agent = QLearning(alpha=0.5, gamma=0.9)
    observe, state = jax.jit(agent.observe), agent.reset(KEY, TWO)
    table = [
        # observation, action, reward, next observation, terminated, truncated, values afterwards
        (0, 0, 1.0, 1, False, False, [0.5, 0, 0, 0]),
        (1, 1, 2.0, 0, False, False, [0.5, 0, 0, 1.225]),  # half of 2 + 0.9 * 0.5
        (0, 1, 3.0, 1, True, False, [0.5, 1.5, 0, 1.225]),  # nothing follows
        (1, 1, 0.0, 1, False, True, [0.5, 1.5, 0, 1.16375]),  # 1.225 + 0.5 * (0.9 * 1.225 - 1.225)
        (0, 0, np.nan, 1, False, False, [0.5, 1.5, 0, 1.16375]),  # nothing is learned from a NaN
    ]
    for *step, expected in table:
        state = observe(KEY, state, transition(*step))
        np.testing.assert_allclose(state.q, expected, rtol=1e-6)


# Sarsa(lambda) on two states: alpha 1/2, gamma 9/10, lambda 1/2, greedy: traces decay by 0.45.
# Observation, reward, next observation, terminated, truncated; values and traces of action 0 after.
SARSA_BY_HAND = [
    (0, 1.0, 1, False, False, [0.5, 0], [1, 0]),
    (1, 2.0, 0, False, False, [1.05125, 1.225], [0.45, 1]),  # delta = 2 + 0.9 * 0.5 = 2.45
    (0, 0.0, 1, True, False, [0.4191859375, 0.98846875], [1.2025, 0.45]),  # delta = -1.05125
    # a new episode; delta = -0.1 * 0.98846875
    (1, 0.0, 1, False, True, [0.4191859375, 0.9390453125], [0, 1]),
    # nothing is learned from a NaN, but traces go on
    (0, np.nan, 1, False, False, [0.4191859375, 0.9390453125], [1, 0]),
]


def test_values_of_sarsa_by_hand():
    agent = Sarsa(alpha=0.5, epsilon=0.0, gamma=0.9, trace_decay=0.5)
    act, observe, state = jax.jit(agent.act), jax.jit(agent.observe), agent.reset(KEY, TWO)
    for x, reward, y, terminated, truncated, values, traces in SARSA_BY_HAND:
        u, state = act(KEY, state, jnp.int32(x))
        assert u == 0  # ties go to the action of the lowest number
        state = observe(KEY, state, transition(x, u, reward, y, terminated, truncated))
        np.testing.assert_allclose(state.q, np.array([values, [0, 0]]).T.ravel(), rtol=1e-6)
        np.testing.assert_allclose(state.trace, np.array([traces, [0, 0]]).T.ravel(), rtol=1e-6)
        assert (state.next_action == NO_ACTION) == (terminated or truncated)


# Walks along a chain.

LENGTH, LANES = 5, 16
WALKERS = {
    "QLearning": QLearning(alpha=0.2, epsilon=0.1, gamma=0.9),
    "Sarsa": Sarsa(alpha=0.2, epsilon=0.0, gamma=0.9),
}


@functools.partial(jax.jit, donate_argnums=1)
def half(rules, lanes):
    """Lanes after half of the blocks."""
    advance = jax.vmap(episodes.advance, (None, 0))
    return jax.lax.fori_loop(0, 20, lambda _, now: advance(rules, now), lanes)


@functools.cache
def walk(name):
    """Values and recorders of the lanes, halfway and at the end, and the text of the program."""
    chain = environments.as_arrays(Chain(n_states=LENGTH))
    more_than_are_played = Episodes(10**6)
    rules = episodes.Rules(
        WALKERS[name], chain, EpisodeMean(), jax.random.key(1), more_than_are_played
    )
    prior = SpecPrior(Spec(Discrete(LENGTH), Discrete(2)))
    begin = jax.jit(jax.vmap(episodes.begin, (None, None, 0)))
    begun = begin(rules, prior, jnp.arange(LANES, dtype=jnp.int32))
    program = half.lower(rules, begun).compile()
    parts, lanes = [], begun
    for _ in range(2):
        lanes = program(rules, lanes)
        parts.append((np.array(lanes.agent.q), jax.tree.map(np.array, lanes.recorder)))
    return *parts, program.as_text()


def optimal(gamma):
    """Optimal values of the chain, [LENGTH - 1, 2]: each step costs 1 but the last."""
    right = np.array([-sum(gamma**k for k in range(LENGTH - 2 - s)) for s in range(LENGTH - 1)])
    state = right[np.maximum(np.arange(LENGTH - 1) - 1, 0)]
    return np.stack([-1 + gamma * state, right], axis=1)


@pytest.mark.parametrize("name", [pytest.param("QLearning", marks=pytest.mark.slow), "Sarsa"])
def test_it_finds_the_optimal_values_of_a_chain(name):
    """A deterministic one, where a constant step size leaves no noise. Values of 0 being above all
    that can be earned, Sarsa tries everything though it is greedy. One fixed seed: no false alarms.
    """
    (_, before), (q, after), _ = walk(name)
    q = q.reshape(LANES, LENGTH, 2)[:, :-1]
    expected = np.broadcast_to(optimal(0.9), q.shape)
    assert (q.argmax(-1) == 1).all()
    np.testing.assert_allclose(q[..., 1], expected[..., 1], atol=0.02)
    if name == "QLearning":
        np.testing.assert_allclose(q, expected, atol=0.02)
    else:  # the second half: the shortest way, always
        earned, ended = after.total - before.total, after.episodes - before.episodes
        np.testing.assert_array_equal(earned, -(LENGTH - 2) * ended)


@pytest.mark.parametrize(
    ("name", "tables"), [pytest.param("QLearning", 1, marks=pytest.mark.slow), ("Sarsa", 2)]
)
def test_a_step_is_one_pass_over_each_table(name, tables):
    if jax.default_backend() != "cpu":
        pytest.skip("reads a program for CPUs")
    passes = passes_in_loops(walk(name)[-1], LANES * LENGTH * 2)
    assert passes == tables
