"""Q-learning: numbers by hand, a NumPy twin, and the optimal values of a chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.linear.tabular import QLearning
from jbrl.environments.spec import Discrete, Spec
from jbrl.rollout.contract import Transition
from tests.agents.linear import scripted, walk

AGENTS = [
    QLearning(),
    QLearning(epsilon=0.3),
    QLearning(epsilon=0.3),  # as the one before, with other keys
    QLearning(alpha=0.5, epsilon=1.0, gamma=0.9, q0=2.0),
    QLearning(alpha=1.0, epsilon=0.0, gamma=0.0, q0=-1.0),
    QLearning(alpha=0.01, epsilon=0.1, gamma=1.0),
]


@pytest.fixture(scope="module")
def played():
    return jax.tree.map(
        np.asarray,
        scripted.play_many(scripted.stacked(AGENTS), *scripted.script(len(AGENTS)).arrays),
    )


def twin(agent, steps):
    """Actions, and the values after each step."""
    q = np.full((scripted.N_STATES, scripted.N_ACTIONS), agent.q0)
    for x, reward, y, terminated, _, uniforms, _ in steps:
        wild = scripted.explored(uniforms, agent.epsilon)
        u = q[x].argmax() if wild is None else wild
        q[x, u] += agent.alpha * (
            reward + (0 if terminated else agent.gamma * q[y].max()) - q[x, u]
        )
        yield u, q.ravel().copy()


@pytest.mark.first_case_quick
@pytest.mark.parametrize("lane", range(len(AGENTS)))
def test_its_twin_learns_alike(played, lane):
    actions, values = zip(
        *twin(AGENTS[lane], scripted.script(len(AGENTS)).steps(lane)), strict=True
    )
    np.testing.assert_array_equal(played[0][lane], actions)
    np.testing.assert_allclose(played[1].q[lane], values, rtol=2e-5, atol=2e-5)


def test_a_lane_alone_is_a_lane_among_others(played):
    agent = jax.tree.map(jnp.float32, AGENTS[3])
    actions, states = scripted.play_one(agent, *(a[3] for a in scripted.script(len(AGENTS)).arrays))
    np.testing.assert_array_equal(played[0][3], actions)
    np.testing.assert_allclose(played[1].q[3], states.q, rtol=1e-6, atol=1e-6)


def test_lanes_with_other_keys_explore_elsewhere(played):
    assert (played[0][1] != played[0][2]).any()


def test_values_by_hand():
    """Two states, two actions, alpha 1/2, gamma 9/10."""
    agent, key = QLearning(alpha=0.5, gamma=0.9), jax.random.key(0)
    observe = jax.jit(agent.observe)
    state = agent.reset(key, scripted.SpecPrior(Spec(Discrete(2), Discrete(2))))
    table = [
        # observation, action, reward, next observation, terminated, truncated, values afterwards
        (0, 0, 1.0, 1, False, False, [0.5, 0, 0, 0]),
        (1, 1, 2.0, 0, False, False, [0.5, 0, 0, 1.225]),  # half of 2 + 0.9 * 0.5
        (0, 1, 3.0, 1, True, False, [0.5, 1.5, 0, 1.225]),  # nothing follows
        (1, 1, 0.0, 1, False, True, [0.5, 1.5, 0, 1.16375]),  # 1.225 + 0.5 * (0.9 * 1.225 - 1.225)
        (0, 0, np.nan, 1, False, False, [0.5, 1.5, 0, 1.16375]),  # nothing is learned from a NaN
    ]
    for x, u, reward, y, terminated, truncated, expected in table:
        transition = Transition(
            *map(jnp.int32, (x, u)),
            jnp.float32(reward),
            jnp.int32(y),
            jnp.bool_(terminated),
            jnp.bool_(truncated),
        )
        state = observe(key, state, transition)
        np.testing.assert_allclose(state.q, expected, rtol=1e-6)


WALKER = QLearning(alpha=0.2, epsilon=0.1, gamma=0.9)


@pytest.mark.slow
def test_it_finds_the_optimal_values_of_a_chain():
    """A deterministic one, where a constant step size leaves no noise.

    One fixed seed: no false alarms.
    """
    *_, end, _ = walk.walk(WALKER)
    q = end.agent.q.reshape(walk.LANES, walk.LENGTH, 2)[:, :-1]
    np.testing.assert_allclose(q, np.broadcast_to(walk.optimal(0.9), q.shape), atol=0.02)
    assert (q.argmax(-1) == 1).all()


@pytest.mark.slow
def test_its_table_is_not_copied_at_each_step():
    if jax.default_backend() != "cpu":
        pytest.skip("reads a program for CPUs")
    passes = scripted.passes_in_loops(walk.walk(WALKER)[-1], walk.LANES * walk.LENGTH * 2)
    assert passes == 2 * 1  # one scatter, in both halves of the walk
