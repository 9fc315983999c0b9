"""Problems in gymnax's signature: the episodes of the contract, resets within a step, lanes drawn
together as alone, and a learner in the manner of PureJaxRL.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.examples import functional_ppo
from jbrl import functional
from jbrl.base.errors import JbrlError
from jbrl.mdp.sampling import stream
from jbrl.problems.lookup import problem


def test_an_episode_is_that_of_the_environment_and_the_next_follows_within_the_step():
    env, params = functional.make("DeepSea(size=3)")
    key = jax.random.key(4)
    reset, step_of = jax.jit(params.reset), jax.jit(params.step)
    observation, state = jax.jit(env.reset)(key, params)
    own, first = reset(jax.random.fold_in(key, 1))
    for k in range(5):
        assert int(observation) == int(first)
        key = jax.random.fold_in(key, 10 + k)
        observation, state, reward, done, info = jax.jit(env.step)(key, state, 1, params)
        own, step = step_of(jax.random.fold_in(key, 0), own, jnp.int32(1))
        assert float(reward) == float(step.reward)
        assert bool(done) == bool(info["terminated"]) == bool(step.terminated) == (k == 2)
        assert float(info["discount"]) == (0 if done else 1)
        assert int(info["final_observation"]) == int(step.observation)
        first = step.observation
        if done:
            own, first = reset(jax.random.fold_in(key, 1))
            assert int(state.time) == 0


def test_finite_mdps_are_truncated_and_ends_are_told_apart_as_gymnax_1_does():
    env, params = functional.make("GC", max_steps=2, split_done=True, vectors=True)
    observation, state = env.reset(jax.random.PRNGKey(0), params)  # an old key
    assert observation.shape == env.observation_space(params).shape == (5,)
    assert float(observation.sum()) == 1
    *_, terminated, truncated, info = env.step(jax.random.PRNGKey(1), state, 0, params)
    assert not terminated and not truncated
    state = functional.EpisodeState(state.environment, jnp.int32(1))
    _, state, _, terminated, truncated, info = env.step(jax.random.PRNGKey(2), state, 0, params)
    assert not terminated and truncated and float(info["discount"]) == 1
    assert int(state.time) == 0


def test_params_that_are_given_are_those_of_the_episode():
    env, params = functional.make("GC", seed=3)
    elsewhere = dataclasses.replace(params.mdp, initial_state=jnp.int32(3))
    other = dataclasses.replace(params, mdp=elsewhere)
    observed = [env.reset(jax.random.key(0), *of)[0] for of in ((), (other,))]
    assert [int(np.argmax(o)) if np.ndim(o) else int(o) for o in observed] == [0, 3]


@pytest.mark.slow
def test_params_are_the_environments_of_a_study():
    found = problem("GC")
    env, params = functional.make("GC", seed=3, index=7)
    expected = found.sample(found.key(3), 7)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), params, expected)
    assert env.action_space(params).n == found.spec.actions.n
    drawn = jax.vmap(env.action_space().sample)(jax.random.split(jax.random.key(0), 60))
    assert set(np.asarray(drawn).tolist()) == set(range(3))


@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", ["GC", "Chain-10d", "MountainCar", "DeepSea(size=4)"])
def test_lanes_drawn_together_are_those_drawn_alone(name):
    found, numbers = problem(name), jnp.array([2, 0, 5], jnp.int32)
    lanes = functional.Lanes.draw(found, 1, numbers)
    prior = found.prior(found.lifetime, 0.0)
    sample = jax.jit(lambda number: prior.sample(stream(found.key(1), number, "mdp")))
    leaves = [np.asarray(leaf) for leaf in lanes.leaves]
    for lane, number in enumerate(np.asarray(numbers)):
        alone = sample(number)
        for axis, leaf, own in zip(lanes.axes, leaves, jax.tree.leaves(alone), strict=True):
            own_leaf = leaf if axis is None else leaf[lane]
            np.testing.assert_allclose(own_leaf, own, rtol=1e-6)
    assert (0 in lanes.axes) == (name != "DeepSea(size=4)")


@pytest.mark.parametrize(
    "options", [{"seed": -1}, {"index": 1.5}, {"max_steps": 0}, {"vectors": 1}, {"split_done": 0}]
)
def test_bad_values_are_refused_by_name(options):
    with pytest.raises(JbrlError, match=next(iter(options))):
        functional.make("GC", **options)


def test_the_example_learns():
    """The best return of DeepSea(size=3) is 0.99 in three steps; that of chance is 0.12."""
    env, params = functional.make("DeepSea(size=3)", vectors=True)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        rewards = jax.jit(partial(functional_ppo.train, env))(params, jax.random.key(0))
    assert rewards[0] < 0.1
    assert rewards[-1] > 0.3
