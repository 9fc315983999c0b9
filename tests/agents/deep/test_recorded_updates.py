"""Updates of the actor-critics: those of the original, and those of a NumPy twin in float64;
lambda-returns by hand and by definition.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.deep import actor_critic, adam, recurrent_actor_critic
from jbrl.agents.deep.actor_critic import ActorCritic
from jbrl.agents.deep.networks import PolicyValue
from jbrl.agents.deep.recurrent_actor_critic import (
    LstmState,
    RecurrentActorCritic,
    RecurrentPolicyValue,
)
from jbrl.agents.deep.sequence import generalised_advantages, lambda_returns, sequence_returns
from jbrl.environments.spec import Box, Discrete, Spec
from tests.agents.deep import reference
from tests.agents.deep.reference import assert_close

SIZES = (4, 8, 32)


@functools.partial(jax.jit, static_argnames=("network", "sizes"))
def learn(network, learner, start, played, terminated, agent, sizes):
    """One update by either agent: the learner, and the state of the memory, if there is one."""
    if isinstance(network, RecurrentPolicyValue):
        return recurrent_actor_critic.learn(
            network, learner, start, played, terminated, agent, sizes
        )
    return actor_critic.learn(network, learner, played, terminated, agent, sizes), start


def network_of(spec, hidden, *, recurrent, final_activation=False, skip=False):
    if recurrent:
        return RecurrentPolicyValue.of(
            spec, hidden, 2, final_activation=final_activation, skip=skip
        )
    return PolicyValue.of(spec, (hidden, hidden), final_activation=final_activation)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("agent", ["ac", "acr", "acrent"])
def test_the_original_updates_alike(agent):
    """Three sequences, of 32, 7 and 1 or 5 steps, of which the last two terminate."""
    spec = Spec(Box((6,)), Discrete(3))
    network = network_of(spec, 64 if agent == "ac" else 16, recurrent=agent != "ac")
    algorithm = ActorCritic if agent == "ac" else RecurrentActorCritic
    costs = algorithm(entropy_cost=0.05 if agent == "acrent" else 0.0)
    learner = adam.learner(reference.parameters(agent, 0))
    start = LstmState(np.zeros(16, np.float32), np.zeros(16, np.float32))
    for i in range(3):
        played, terminated = reference.sequence_of(agent, i)
        learner, start = learn(network, learner, start, played, terminated, costs, SIZES)
        assert_close(learner.parameters, reference.parameters(agent, i + 1), 1e-6)
        if agent != "ac":
            for found, name in ((start.hidden, "hidden"), (start.cell, "cell")):
                expected = reference.recorded()[f"{agent}_unroll_{name}{i + 1}"][0]
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


VARIANTS = {
    "TF, recurrent": {
        "entropy_cost": 0.1,
        "value_cost": 0.5,
        "sum_losses": True,
        "final_activation": True,
        "skip": True,
        "recurrent": True,
        "max_gradient_norm": 0.5,
    },
    "recurrent": {"recurrent": True, "entropy_cost": 0.1},
    "default": {},
    "entropy": {"entropy_cost": 0.3, "discount": 0.5, "trace_decay": 0.2},
    "TF": {"value_cost": 0.5, "sum_losses": True, "final_activation": True},
}


def drawn(network, seed):
    """Parameters of a network in float64, biases too."""
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda v: rng.normal(size=v.shape) * 0.7, shapes)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_twin_in_double_precision_updates_alike(variant):
    """Two updates, the second from a sequence that fills its space, to 1e-12."""
    given = dict(VARIANTS[variant])
    recurrent, max_norm = given.pop("recurrent", False), given.get("max_gradient_norm")
    build = {name: given[name] for name in ("final_activation", "skip") if name in given}
    algorithm = RecurrentActorCritic if recurrent else ActorCritic
    costs, rng = algorithm(learning_rate=0.02, **given), np.random.default_rng(2)
    with jax.enable_x64(True):
        network = network_of(Spec(Box((3,)), Discrete(2)), 4, recurrent=recurrent, **build)
        expected = drawn(network, 1)
        learner, twin = adam.learner(jax.tree.map(jnp.asarray, expected)), reference.Adam(0.02)
        start = LstmState(*rng.normal(size=(2, 4)))
        for length, terminated in ((3, True), (6, False)):
            played = reference.padded(
                rng.normal(size=(length + 1, 3)),
                rng.integers(0, 2, length),
                rng.normal(size=length),
                6,
            )
            slopes = reference.gradient(expected, played, terminated, start, costs, **build)
            if max_norm:
                slopes = scaled(slopes, max_norm)
            learner, after = learn(network, learner, start, played, terminated, costs, (4, 6))
            if recurrent:
                states = reference.outputs(
                    expected, played.observations[: length + 1], start, **build
                )[1]
                assert_close(after, states[-1], 1e-12)
            expected = twin.step(expected, slopes)
            assert_close(learner.parameters, expected, 1e-12)


def scaled(slopes, max_norm):
    """A gradient longer than `max_norm`, at that length."""
    norm = np.sqrt(sum((slope**2).sum() for slope in jax.tree.leaves(slopes)))
    assert norm > max_norm
    return jax.tree.map(lambda slope: slope * max_norm / norm, slopes)


BY_HAND = [
    # rewards, discounts, next values, traces, returns
    ([1.0], [0.5], [4.0], [0.0], [3.0]),
    # G_1 = 2 + 0.5 * 4 = 4, G_0 = 1 + 0.5 (0.5 * 8 + 0.5 * 4) = 4
    ([1.0, 2.0], [0.5, 0.5], [8.0, 4.0], [0.5, 0.0], [4.0, 4.0]),
    # terminated: the last value does not count
    ([1.0, 2.0], [0.5, 0.0], [8.0, 4.0], [1.0, 0.0], [2.0, 2.0]),
    # two sequences: the first one ends with its value, and learns nothing of the second
    ([1.0, 2.0, 100.0], [0.5, 0.5, 0.5], [8.0, 4.0, 0.0], [1.0, 0.0, 0.0], [3.0, 4.0, 100.0]),
]


@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case):
    *given, expected = (np.array(v, np.float32) for v in case)
    np.testing.assert_array_equal(jax.jit(lambda_returns)(*given), expected)
    values = np.arange(len(expected), dtype=np.float32)
    rewards, discounts, following, traces = given
    advantages = jax.jit(generalised_advantages)(rewards, discounts, values, following, traces)
    np.testing.assert_array_equal(advantages, expected - values)


returns_of = jax.jit(sequence_returns)


@pytest.mark.parametrize(("terminated", "trace_decay"), [(True, 0.9), (False, 0.9), (False, 1.0)])
def test_a_sequence_by_its_definition(terminated, trace_decay):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=9), rng.normal(size=10)
    with jax.enable_x64(True):
        for length in (1, 5, 9):
            found = returns_of(
                jnp.asarray(rewards),
                jnp.asarray(values[1:]),
                jnp.int32(length),
                jnp.bool_(terminated),
                discount=0.8,
                trace_decay=trace_decay,
            )
            expected = reference.returns(
                rewards[:length], values[: length + 1], terminated, 0.8, trace_decay
            )
            np.testing.assert_allclose(found[:length], expected, rtol=1e-13, atol=1e-13)
            np.testing.assert_array_equal(found[length:], 0)


def test_what_follows_a_sequence_does_not_matter_even_if_infinite():
    rewards, values = np.ones((2, 4), np.float32)
    values[2:] = np.inf
    found = returns_of(
        rewards, values, jnp.int32(2), jnp.bool_(False), discount=0.5, trace_decay=0.5
    )
    # G_1 = 1 + 0.5, G_0 = 1 + 0.5 (0.5 + 0.75)
    np.testing.assert_array_equal(found, [1.625, 1.5, 0, 0])


def test_advantages_are_discounted_sums_of_errors():
    """Schulman et al. 2016, equation 16, episode by episode."""
    rng = np.random.default_rng(1)
    count, discount, decay = 40, 0.9, 0.7
    rewards, values, following = rng.normal(size=(3, count)).astype(np.float32)
    end = rng.choice(3, count, p=[0.8, 0.1, 0.1])  # goes on, terminated, truncated
    end[-1] = 2
    discounts = np.where(end == 1, 0, discount).astype(np.float32)
    traces = np.where(end > 0, 0, decay).astype(np.float32)
    # the value at the end of a step is that at the start of the next, where an episode goes on
    joined = np.where(end > 0, following, np.append(values[1:], 0)).astype(np.float32)
    errors = rewards + discounts * joined - values
    expected = np.zeros(count)
    for t in range(count):
        stop = t + np.flatnonzero(end[t:] > 0)[0] + 1
        expected[t] = sum((discount * decay) ** (k - t) * errors[k] for k in range(t, stop))
    found = generalised_advantages(rewards, discounts, values, joined, traces)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
