"""Proximal policy optimisation: a NumPy twin in float64."""

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
from tests.agents.deep import reference
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


@pytest.mark.parametrize(
    ("length", "count", "expected"),
    [(128, 3, "a divisor of rollout_length"), (4, 4, "at most half of rollout_length = 4")],
)
def test_minibatches_that_do_not_fit_are_refused(length, count, expected):
    """Those of different sizes, and of one step."""
    with pytest.raises(JbrlError, match=f"minibatches = {count}: expected {expected}"):
        PPO(rollout_length=length, minibatches=count)
    assert PPO(rollout_length=8, minibatches=4).minibatches == 4
