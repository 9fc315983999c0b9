"""Actor-critics and PPO among transitions: when they update, from what, alone and in company."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents import selection
from jbrl.agents.deep import actor_critic
from jbrl.agents.deep.actor_critic import ActorCritic
from jbrl.agents.deep.ppo import PPO
from jbrl.agents.deep.recurrent_actor_critic import RecurrentActorCritic
from jbrl.agents.deep.sequence import Sequence
from jbrl.rollout.contract import NO_ACTION, as_arrays
from tests.agents.deep import scripted
from tests.agents.deep.reference import assert_close

LENGTH = 4  # of sequences: one size, one program
SMALL = {"hidden_width": 6, "sequence_length": LENGTH}
AGENTS = {
    "feed-forward": ActorCritic(**SMALL),
    "acting": RecurrentActorCritic(**SMALL),
    "tf": RecurrentActorCritic(**SMALL, unroll_from="tf", skip=True, max_gradient_norm=5.0),
    "jax": RecurrentActorCritic(**SMALL, unroll_from="jax"),
    "PPO": PPO(hidden_width=6, rollout_length=12, minibatches=3, epochs=2),
}
SLOW = pytest.mark.slow
ALIKE = ["feed-forward", *(pytest.param(name, marks=SLOW) for name in ("acting", "PPO"))]
KEY = jax.random.key(1)


@functools.cache
def followed(name):
    return jax.tree.map(
        np.asarray,
        scripted.follow_one(as_arrays(AGENTS[name]), scripted.ONE_HOT, KEY, scripted.transitions()),
    )


def due():
    """Numbers of the transitions that complete a sequence: every fourth of an episode, the
    last.
    """
    found, start = [], 0
    for length, _ in scripted.EPISODES:
        found += [start + t for t in range(length) if t + 1 == length or (t + 1) % LENGTH == 0]
        start += length
    return found


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    "name", ["feed-forward", "acting", *(pytest.param(name, marks=SLOW) for name in ("tf", "jax"))]
)
def test_it_learns_when_a_sequence_is_full_or_its_episode_ends(name):
    states = followed(name)
    np.testing.assert_array_equal(scripted.changed(states), due())
    lengths = states.played.length
    assert (lengths[np.add(due(), 1)] == 0).all()
    assert lengths.max() == LENGTH - 1


@pytest.mark.slow
def test_ppo_learns_every_twelve_decisions_across_episodes():
    """Its first policy is nearly uniform; first values are not scaled."""
    states, steps = followed("PPO"), len(scripted.transitions().action)
    np.testing.assert_array_equal(scripted.changed(states), np.arange(11, steps, 12))
    np.testing.assert_array_equal(states.rollout.length, np.arange(steps + 1) % 12)
    weights = states.learner.parameters[1].weights[0]
    assert abs(weights[:, :-1]).max() < 0.01
    assert abs(weights[:, -1]).max() > 0.1


def test_sequences_are_those_of_one_episode_in_order():
    """The same updates from sequences cut by hand."""
    states, given = followed("feed-forward"), scripted.transitions()
    network, start = states.network, 0
    learner = jax.tree.map(lambda v: v[0], states.learner)
    learn = jax.jit(actor_critic.learn, static_argnames=("network", "sizes"))
    append = jax.jit(Sequence.append)
    for last in due():
        played = Sequence.empty(scripted.ONE_HOT.observation, LENGTH)
        for t in range(start, last + 1):
            played = append(played, jax.tree.map(lambda v, t=t: v[t], given))
        terminated = jnp.bool_(given.terminated[last])
        learner = learn(network, learner, played, terminated, ActorCritic(), sizes=(4,))
        assert_close(
            jax.tree.map(lambda v, last=last: v[last + 1], states.learner.parameters),
            learner.parameters,
            1e-6,
        )
        start = last + 1


def test_a_cut_off_episode_goes_on_from_its_last_observation():
    given = scripted.transitions()
    cut = next(t for t in due() if given.truncated[t])
    others = given.next_observation.copy()
    others[cut] = (others[cut] + 1) % scripted.N_STATES
    agent = as_arrays(AGENTS["feed-forward"])
    moved = scripted.follow_one(
        agent, scripted.ONE_HOT, KEY, given.__class__(**{**vars(given), "next_observation": others})
    )
    assert scripted.changed(moved).tolist() == due()
    before, after = (followed("feed-forward").learner.parameters[1].bias[cut + k] for k in (0, 1))
    np.testing.assert_array_equal(moved.learner.parameters[1].bias[cut], before)
    assert abs(moved.learner.parameters[1].bias[cut + 1] - after).max() > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ALIKE)
def test_indices_are_the_vectors_that_they_stand_for(name):
    """A row of the first weights, forward and backward, in place of a product; -1 for zeros."""
    dense = scripted.follow_one(
        as_arrays(AGENTS[name]), scripted.BOX, KEY, scripted.transitions(dense=True)
    )
    assert_close(dense.learner.parameters, followed(name).learner.parameters, 1e-5)


@pytest.mark.parametrize("name", ["tf", "acting", "jax"])
@pytest.mark.first_case_quick
def test_the_memory_is_reset_where_an_episode_ends(name):
    ends = np.cumsum([length for length, _ in scripted.EPISODES])
    states = followed(name)
    quiet = (states.memory.hidden == 0).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(quiet), [0, *ends])
    zeros = (states.start.hidden == 0).all(axis=1)
    assert zeros[ends].all() == (name != "jax")


@pytest.mark.slow
def test_learning_starts_as_asked():
    # after four steps of the second episode learning goes on where acting is
    acting, tf, go_on = followed("acting"), followed("tf"), 3 + LENGTH
    np.testing.assert_array_equal(acting.start.hidden[go_on], acting.memory.hidden[go_on])
    assert (tf.start.hidden[go_on] != tf.memory.hidden[go_on]).any()


def test_actions_are_drawn_from_the_softmax():
    """Frequencies of 2000 equally spaced numbers are exact to one of them for each action."""
    logits = np.array([0.3, -1.2, 2.0, 0.0], np.float32)
    uniforms = ((np.arange(2000) + 0.5) / 2000).astype(np.float32)
    actions = jax.jit(jax.vmap(selection.softmax_sample, in_axes=(None, 0)))(logits, uniforms)
    shares = np.bincount(actions, minlength=4) / 2000
    weights, sample = np.exp(logits), jax.jit(selection.softmax_sample)
    np.testing.assert_allclose(shares, weights / weights.sum(), rtol=0, atol=1 / 2000)
    assert int(sample(jnp.array([jnp.nan, 1.0]), jnp.float32(0.9))) == NO_ACTION
    assert int(sample(jnp.array([-1e38, 0.0]), jnp.float32(0.0))) == 1
