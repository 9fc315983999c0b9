"""Proximal policy optimisation: a NumPy twin in float64, and when it learns."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.deep import adam, ppo
from jbrl.agents.deep.networks import PolicyValue
from jbrl.agents.deep.ppo import PPO
from jbrl.agents.deep.sequence import TERMINATED, TRUNCATED, Rollout
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Box, Discrete, Spec
from jbrl.rollout.contract import as_arrays
from tests.agents.deep import reference, scripted
from tests.agents.deep.reference import STEP, assert_close

COSTS = PPO(
    learning_rate=0.02,
    discount=0.9,
    trace_decay=0.8,
    clip=0.1,
    value_cost=0.5,
    entropy_cost=0.05,
    max_gradient_norm=0.7,
    rollout_length=12,
    epochs=2,
    minibatches=3,
)
SMALL = PPO(hidden_width=6, rollout_length=12, minibatches=3, epochs=2)
KEY = jax.random.key(1)


def rollout_of(rng, steps):
    """A rollout of random steps, one of which terminates its episode and one of which cuts it."""
    ends = np.zeros(steps, np.int32)
    ends[3], ends[7] = TERMINATED, TRUNCATED
    path = rng.normal(size=(steps + 1, 3))
    following = path[1:].copy()
    following[[3, 7]] = rng.normal(size=(2, 3))
    actions = rng.integers(0, 2, steps).astype(np.int32)
    rewards = rng.normal(size=steps)
    columns = (v[:, None] for v in (actions, rewards, ends))
    return Rollout(path[:-1], following, *columns, np.int32(steps))


def play(given, observation):
    """Logits and value."""
    torso, heads = given
    row = reference.embed(torso, observation, final_activation=True) @ heads.weights + heads.bias
    return row[:-1], row[-1]


def logs_of(logits):
    return logits - np.log(np.exp(logits - logits.real.max()).sum()) - logits.real.max()


def twin_batch(given, rollout):
    """Log-probabilities, advantages and returns, by sums over the rest of each episode."""
    steps = rollout.capacity
    logits, values = zip(*(play(given, x) for x in rollout.observations), strict=True)
    following = [play(given, x)[1] for x in rollout.next_observations]
    ends = rollout.ends[:, 0]
    advantages = np.zeros(steps)
    for t in range(steps):
        weight = 1.0
        for k in range(t, steps):
            ahead = 0.0 if ends[k] == TERMINATED else COSTS.discount * following[k]
            advantages[t] += weight * (rollout.rewards[k, 0] + ahead - values[k])
            weight *= COSTS.discount * COSTS.trace_decay
            if ends[k]:
                break
    logs = np.array([logs_of(logits[t])[rollout.actions[t, 0]] for t in range(steps)])
    return logs, advantages, advantages + np.array(values)


def twin_loss(given, rollout, fixed, chosen):
    old, advantages, returns = fixed
    picked = advantages[chosen]
    scale = np.sqrt(np.mean((picked - picked.mean()) ** 2)) + 1e-8
    total = 0
    for t in chosen:
        logits, value = play(given, rollout.observations[t])
        logs = logs_of(logits)
        ratio = np.exp(logs[rollout.actions[t, 0]] - old[t])
        advantage = (advantages[t] - picked.mean()) / scale
        limited = min(max(ratio.real, 1 - COSTS.clip), 1 + COSTS.clip)
        gain = ratio * advantage
        if limited * advantage < gain.real:
            gain = limited * advantage  # clipped: no gradient
        total += COSTS.value_cost * (value - returns[t]) ** 2 - gain
        total += COSTS.entropy_cost * (np.exp(logs) * logs).sum()
    return total / len(chosen)


def twin_gradient(given, *arguments):
    leaves, structure = jax.tree.flatten(given)

    def slope(i, place):
        moved = [leaf.astype(complex) for leaf in leaves]
        moved[i][place] += STEP * 1j
        return twin_loss(jax.tree.unflatten(structure, moved), *arguments).imag / STEP

    slopes = [
        np.array([slope(i, place) for place in np.ndindex(leaf.shape)]).reshape(leaf.shape)
        for i, leaf in enumerate(leaves)
    ]
    norm = np.sqrt(sum((slope**2).sum() for slope in slopes))
    factor = min(1.0, COSTS.max_gradient_norm / norm)
    return jax.tree.unflatten(structure, [slope * factor for slope in slopes]), factor


def test_a_twin_in_double_precision_updates_alike():
    """Epochs over a rollout of three episodes, to 1e-11, some gradients clipped and some not."""
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        network = PolicyValue.of(Spec(Box((3,)), Discrete(2)), (4, 4), final_activation=True)
        shapes = jax.eval_shape(network.init, jax.random.key(0))
        expected = jax.tree.map(lambda v: rng.normal(size=v.shape) * 0.7, shapes)
        rollout, words = rollout_of(rng, 12), np.array([5, 6], np.uint32)
        learn = jax.jit(ppo.learn, static_argnames="network")
        learner = adam.learner(jax.tree.map(jnp.asarray, expected))
        found = learn(network, learner, rollout, words, COSTS).parameters
        drawn = jax.random.bits(jax.random.wrap_key_data(jnp.asarray(words)), (COSTS.epochs, 12))
    order = np.argsort(drawn, axis=1).reshape(-1, 12 // COSTS.minibatches)
    fixed, twin, factors = twin_batch(expected, rollout), reference.Adam(0.02), []
    for chosen in order:
        slopes, factor = twin_gradient(expected, rollout, fixed, chosen)
        expected = twin.step(expected, slopes)
        factors.append(factor)
    assert min(factors) < 1, "gradients are clipped"
    assert_close(found, expected, 1e-11)


@functools.cache
def followed():
    return jax.tree.map(
        np.asarray,
        scripted.follow_one(as_arrays(SMALL), scripted.ONE_HOT, KEY, scripted.transitions()),
    )


@pytest.mark.slow
def test_it_learns_every_twelve_decisions_across_episodes():
    states = followed()
    steps = len(scripted.transitions().action)
    np.testing.assert_array_equal(scripted.changed(states), np.arange(11, steps, 12))
    np.testing.assert_array_equal(states.rollout.length, np.arange(steps + 1) % 12)


@pytest.mark.slow
def test_the_first_policy_is_nearly_uniform_and_values_are_not_scaled():
    weights = followed().learner.parameters[1].weights[0]
    assert abs(weights[:, :-1]).max() < 0.01
    assert abs(weights[:, -1]).max() > 0.1


@pytest.mark.slow
def test_indices_are_the_vectors_that_they_stand_for():
    dense = scripted.follow_one(
        as_arrays(SMALL), scripted.BOX, KEY, scripted.transitions(dense=True)
    )
    assert_close(dense.learner.parameters, followed().learner.parameters, 1e-5)


@pytest.mark.slow
def test_lanes_do_not_matter_to_each_other():
    """The same bits beside other lanes; other keys begin, and remain, elsewhere."""
    agents = scripted.stacked(*[as_arrays(SMALL)] * 3)
    given = [scripted.transitions(seed) for seed in (0, 0, 5)]
    keys = [jax.random.key(k) for k in (1, 2, 3)]

    def play(*order):
        return scripted.follow_many(
            agents,
            scripted.ONE_HOT,
            jnp.stack([keys[i] for i in order]),
            scripted.stacked(*[given[i] for i in order]),
        )

    first, second = play(0, 1, 2), play(2, 0, 0)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a[0], b[1])
    weights = np.asarray(first.learner.parameters[1].weights)
    assert (weights[0] != weights[1]).any(axis=(1, 2)).all()
    assert_close(
        jax.tree.map(lambda v: v[0], first.learner.parameters),
        followed().learner.parameters,
        1e-5,
    )


def test_minibatches_of_different_size_are_refused():
    with pytest.raises(JbrlError, match="minibatches = 3: expected a divisor of rollout_length"):
        PPO(rollout_length=128, minibatches=3)


def test_minibatches_of_one_step_are_refused():
    for length in (4, 8):
        with pytest.raises(
            JbrlError,
            match=rf"minibatches = {length}: expected at most half of rollout_length = {length}",
        ):
            PPO(rollout_length=length, minibatches=length)
    assert PPO(rollout_length=8, minibatches=4).minibatches == 4
