"""A finite MDP as an environment: its steps follow the table by one uniform number each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jbrl.environments.check import check_environment
from jbrl.environments.spec import Discrete, Steps
from jbrl.environments.wrappers import Tabular
from jbrl.mdp.mdp import MDP
from tests.environments.playing import LANES, lane, on_host, some_actions, together, uniforms

S, A = 4, 3


def table(initial_state):
    rng = np.random.default_rng(0)
    transitions = rng.random((S, A, S)) * (rng.random((S, A, S)) < 0.6) + np.eye(S)[:, None]
    transitions /= transitions.sum(-1, keepdims=True)
    rewards = rng.normal(size=(S, A, S))
    return Tabular.of(
        MDP(
            jnp.asarray(transitions, jnp.float32),
            jnp.asarray(rewards, jnp.float32),
            jnp.int32(initial_state),
        )
    )


@pytest.mark.first_case_quick
@pytest.mark.parametrize("initial_state", [2, -1])
def test_every_step_is_that_of_a_slow_twin(initial_state):
    environment = table(initial_state)
    check_environment(environment, "table")
    assert environment.spec.observation == Discrete(S)
    assert environment.spec.actions == Discrete(A)
    assert isinstance(environment.lifetime, Steps)
    lanes = jax.tree.map(lambda leaf: np.stack([leaf] * LANES), environment)
    actions = some_actions(A)
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
