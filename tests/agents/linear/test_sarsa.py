"""Sarsa(lambda): numbers by hand, a NumPy twin, and the optimal policy of a chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.linear.tabular import Sarsa
from jbrl.base.pytree import record
from jbrl.environments import environment as environments
from jbrl.environments.spec import Discrete, Episodes, Spec
from jbrl.environments.walks import Chain
from jbrl.problems.recorder import EpisodeMean
from jbrl.rollout import episodes
from jbrl.rollout.contract import NO_ACTION, DrawsParameters, Transition
from tests.agents.linear import scripted, walk

AGENTS = [
    Sarsa(trace_decay=0.5),
    Sarsa(epsilon=0.3, trace_decay=0.9),
    Sarsa(epsilon=0.3, trace_decay=0.9),  # as the one before, with other keys
    Sarsa(alpha=0.2, epsilon=1.0, gamma=0.9, trace_decay=1.0, q0=2.0),
    Sarsa(alpha=1.0, epsilon=0.0, gamma=0.0, q0=-1.0),
    Sarsa(alpha=0.01, epsilon=0.1, gamma=1.0, trace_decay=0.0),
]


@pytest.fixture(scope="module")
def played():
    return jax.tree.map(
        np.asarray,
        scripted.play_many(scripted.stacked(AGENTS), *scripted.script(len(AGENTS)).arrays),
    )


def twin(agent, steps):
    """Actions, values and traces after each step."""

    def choose(x, uniforms):
        wild = scripted.explored(uniforms, agent.epsilon)
        return q[x].argmax() if wild is None else wild

    q = np.full((scripted.N_STATES, scripted.N_ACTIONS), agent.q0)
    starts = True
    for x, reward, y, terminated, truncated, act_uniforms, observe_uniforms in steps:
        if starts:
            u, trace = choose(x, act_uniforms), np.zeros_like(q)
        following = 0 if terminated else choose(y, observe_uniforms)
        delta = reward + (0 if terminated else agent.gamma * q[y, following]) - q[x, u]
        trace *= agent.gamma * agent.trace_decay
        trace[x, u] += 1
        q += agent.alpha * delta * trace
        yield u, q.ravel().copy(), trace.ravel().copy()
        starts, u = terminated or truncated, following


@pytest.mark.parametrize("lane", range(len(AGENTS)))
def test_its_twin_learns_alike(played, lane):
    actions, values, traces = zip(
        *twin(AGENTS[lane], scripted.script(len(AGENTS)).steps(lane)), strict=True
    )
    np.testing.assert_array_equal(played[0][lane], actions)
    np.testing.assert_allclose(played[1].q[lane], values, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(played[1].trace[lane], traces, rtol=2e-5, atol=2e-5)


def test_a_lane_alone_is_a_lane_among_others(played):
    agent = jax.tree.map(jnp.float32, AGENTS[3])
    actions, states = scripted.play_one(agent, *(a[3] for a in scripted.script(len(AGENTS)).arrays))
    np.testing.assert_array_equal(played[0][3], actions)
    np.testing.assert_allclose(played[1].q[3], states.q, rtol=1e-6, atol=1e-6)


def test_lanes_with_other_keys_explore_elsewhere(played):
    assert (played[0][1] != played[0][2]).any()


def test_values_by_hand():
    """Two states, two actions, alpha 1/2, gamma 9/10, lambda 1/2, greedy: traces decay by 0.45."""
    agent, key = Sarsa(alpha=0.5, epsilon=0.0, gamma=0.9, trace_decay=0.5), jax.random.key(0)
    act, observe = jax.jit(agent.act), jax.jit(agent.observe)
    state = agent.reset(key, scripted.SpecPrior(Spec(Discrete(2), Discrete(2))))
    table = [
        # observation, reward, next observation, terminated, truncated; values and traces of action
        # 0 afterwards
        (0, 1.0, 1, False, False, [0.5, 0], [1, 0]),
        (1, 2.0, 0, False, False, [1.05125, 1.225], [0.45, 1]),  # delta = 2 + 0.9 * 0.5 = 2.45
        (0, 0.0, 1, True, False, [0.4191859375, 0.98846875], [1.2025, 0.45]),  # delta = -1.05125
        # a new episode; delta = -0.1 * 0.98846875
        (1, 0.0, 1, False, True, [0.4191859375, 0.9390453125], [0, 1]),
        # nothing is learned from a NaN, but traces go on
        (0, np.nan, 1, False, False, [0.4191859375, 0.9390453125], [1, 0]),
    ]
    for x, reward, y, terminated, truncated, values, traces in table:
        u, state = act(key, state, jnp.int32(x))
        assert u == 0  # ties go to the action of the lowest number
        transition = Transition(
            jnp.int32(x),
            u,
            jnp.float32(reward),
            jnp.int32(y),
            jnp.bool_(terminated),
            jnp.bool_(truncated),
        )
        state = observe(key, state, transition)
        np.testing.assert_allclose(state.q, np.array([values, [0, 0]]).T.ravel(), rtol=1e-6)
        np.testing.assert_allclose(state.trace, np.array([traces, [0, 0]]).T.ravel(), rtol=1e-6)
        assert (state.next_action == NO_ACTION) == (terminated or truncated)


WALKER = Sarsa(alpha=0.2, epsilon=0.0, gamma=0.9)


def test_it_finds_the_optimal_policy_of_a_chain():
    """Values of 0 being above all that can be earned, it tries everything though it is greedy.

    One fixed seed: no false alarms.
    """
    half, end, _ = walk.walk(WALKER)
    q = end.agent.q.reshape(walk.LANES, walk.LENGTH, 2)[:, :-1]
    assert (q.argmax(-1) == 1).all()
    np.testing.assert_allclose(
        q[..., 1], np.broadcast_to(walk.optimal(0.9)[:, 1], q.shape[:2]), atol=0.02
    )
    earned, ended = (
        getattr(end.recorder, name) - getattr(half.recorder, name) for name in ("total", "episodes")
    )
    # the second half: the shortest way, always
    np.testing.assert_array_equal(earned, -(walk.LENGTH - 2) * ended)


def test_a_step_is_one_pass_over_each_table():
    if jax.default_backend() != "cpu":
        pytest.skip("reads a program for CPUs")
    passes = scripted.passes_in_loops(walk.walk(WALKER)[-1], walk.LANES * walk.LENGTH * 2)
    assert passes == 2 * 2  # one for each of two tables, in both halves of the walk


@record
class Complete(DrawsParameters):
    """Sarsa(lambda) as Jordan et al. 2020 compare it: parameters drawn for each lifetime."""

    def draw(self, key):
        alpha, epsilon, gap, decay = jax.random.uniform(key, (4,))
        log_uniform = lambda u, low, high: jnp.exp(np.log(low) + u * np.log(high / low)).astype(  # noqa: E731
            jnp.float32
        )
        return Sarsa(
            log_uniform(alpha, 1e-3, 1e-1),
            0.1 * epsilon,
            1 - log_uniform(gap, 1e-4, 0.05),
            decay,
            jnp.float32(0),
        )

    def draw_and_train(self, key, prior):
        return self.draw(key), prior


@jax.jit
def totals(rules, prior, indices):
    return jax.vmap(lambda index: episodes.play_lifetime(rules, prior, index).recorder)(indices)


@pytest.mark.slow
@pytest.mark.first_case_quick
@pytest.mark.parametrize(("slips", "published"), [(False, -27.9), (True, -35.1)])
def test_means_are_the_published_ones(slips, published):
    """Jordan et al. 2020, Appendix I, chain of 10 states: means of 10,000 lifetimes, printed
    to 0.1.

    False-alarm rate 6e-5 each.
    """
    n, lifetime = 500, Episodes(100)
    chain = environments.as_arrays(Chain(n_states=10, stochastic=slips))
    rules = episodes.Rules(Complete(), chain, EpisodeMean(), jax.random.key(5), lifetime)
    played = totals(rules, scripted.SpecPrior(chain.spec), jnp.arange(n, dtype=jnp.int32))
    scores = EpisodeMean().scores(jax.tree.map(np.asarray, played))
    error = scores.std() * (1 / n + 1 / 10_000) ** 0.5
    assert abs(scores.mean() - published) < 4 * error + 0.05
