"""Bootstrapped DQN: updates of the original program, a NumPy twin of several heads, and which head
decides.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.deep import boot_dqn, replay
from jbrl.agents.deep.boot_dqn import BootDQN
from jbrl.agents.deep.networks import QNetwork
from jbrl.environments.spec import Steps
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import Transition, as_arrays
from tests.agents.deep import reference, test_dqn
from tests.agents.deep.reference import Adam
from tests.agents.deep.test_dqn import ORIGINAL, as_batch, batch_of, layers_of

KEY = jax.random.key(0)
SMALL = {"ensemble": 3, **test_dqn.SMALL}


def packed(network, heads, dtype):
    """Layers of several heads, each a list of (weights, bias)."""
    each = [
        jax.jit(network.pack)([(np.asarray(w, dtype), np.asarray(b, dtype)) for w, b in h])
        for h in heads
    ]
    return jax.tree.map(lambda *v: np.stack(v), *each)


def after_updates(agent, network, parts, batches, masks, noises):
    """The ensemble after updates; `parts` are online, target, prior and target prior of all heads.

    masks, noises: [K, B] for each update.
    """
    online, target, prior, target_prior = parts
    ensemble = jax.jit(boot_dqn.begun)(online, (target, target_prior))
    heads = jax.vmap(network.values, (0, None))

    @jax.jit
    def step(ensemble, batch, mask, noise, count):
        priors = (heads(prior, v) for v in (batch.observation, batch.next_observation))
        given = boot_dqn.Bootstrapped(batch, mask, noise, *priors)
        return boot_dqn.update(agent, network, ensemble, prior, given, count, jnp.bool_(True))

    for i, (batch, mask, noise) in enumerate(zip(batches, masks, noises, strict=True)):
        dtype = batch.reward.dtype
        mask, noise = jnp.asarray(mask, dtype), jnp.asarray(noise, dtype)
        ensemble = step(ensemble, batch, mask, noise, jnp.int32(i + 1))
    return ensemble


def assert_heads(network, found, heads, tolerance):
    for one, other in zip(found, packed(network, heads, jnp.float32), strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance, rtol=0)


def test_updates_are_those_of_the_original():
    """One head, six updates; the copy after the fourth takes the prior function along."""
    network = QNetwork(6, (50, 50, 3))
    parts = [
        packed(network, [layers_of(name, part=part)], jnp.float32)
        for name, part in (
            ("bdqn_p0", "net"),
            ("bdqn_tp0", "net"),
            ("bdqn_p0", "prior"),
            ("bdqn_tp0", "prior"),
        )
    ]
    names = [f"bdqn_b{i}" for i in range(6)]
    ensemble = after_updates(
        BootDQN(noise_scale=0.3, target_start="independent"),
        network,
        parts,
        [as_batch(batch_of(name), jnp.float32) for name in names],
        [ORIGINAL[f"{name}_m_t"][None] for name in names],
        [ORIGINAL[f"{name}_z_t"][None] for name in names],
    )
    assert_heads(network, ensemble.online, [layers_of("bdqn_p1")], 1e-6)
    assert_heads(network, ensemble.target[0], [layers_of("bdqn_tp1")], 1e-6)
    assert_heads(network, ensemble.target[1], [layers_of("bdqn_tp1", part="prior")], 0)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("joint", [True, False])
def test_its_twin_learns_alike_in_double_precision(joint):
    """Three heads with masks and noise of their own; `joint`: targets that start as copies."""
    network, rng, count = QNetwork(6, (8, 3)), np.random.default_rng(1), 3
    heads, targets, priors, target_priors = (
        [
            [
                (rng.normal(size=(6, 8)), rng.normal(size=8)),
                (rng.normal(size=(8, 3)), rng.normal(size=3)),
            ]
            for _ in range(count)
        ]
        for _ in range(4)
    )
    if joint:
        targets, target_priors = list(heads), list(priors)
    names = [f"bdqn_b{i}" for i in range(6)]
    masks = [rng.integers(0, 2, (count, 16)) for _ in names]
    noises = [rng.normal(size=(count, 16)) for _ in names]
    agent = BootDQN(
        ensemble=count,
        learning_rate=0.01,
        prior_scale=2.0,
        noise_scale=0.5,
        mean_over_heads=joint,
        target_start="copy" if joint else "independent",
    )
    with jax.enable_x64(True):
        parts = [packed(network, v, jnp.float64) for v in (heads, targets, priors, target_priors)]
        if joint:
            parts[3] = None
        batches = [as_batch(batch_of(name), jnp.float64) for name in names]
        ensemble = after_updates(agent, network, parts, batches, masks, noises)
        found = [np.asarray(v) for v in ensemble.online]
    for k in range(count):
        online, target, target_prior = heads[k], targets[k], target_priors[k]
        adam = Adam(0.01)
        for i, name in enumerate(names):
            batch = [v.astype(np.float64) if v.dtype == np.float32 else v for v in batch_of(name)]
            online = reference.one_step_of_a_head(
                online,
                target,
                priors[k],
                target_prior,
                adam,
                batch,
                masks[i][k],
                noises[i][k],
                scale=2.0,
                noise_scale=0.5,
                divisor=count if joint else 1,
            )
            if (i + 1) % 4 == 0:
                target, target_prior = online, priors[k]
        for layer, (weights, bias) in zip(found, online, strict=True):
            np.testing.assert_allclose(layer[k, :, :-1].T, weights, atol=1e-12, rtol=0)
            np.testing.assert_allclose(layer[k, :, -1], bias, atol=1e-12, rtol=0)


@jax.jit
def begun(agent, key):
    return agent.reset(key, problem("Chain-10s").prior(Steps(10), 0.95))


@jax.jit
def stepped(agent, state, i):
    key = jax.random.fold_in(KEY, i)
    action, state = agent.act(key, state, i % 10)
    terminated, truncated = i % 14 == 6, i % 14 == 13
    t = Transition(i % 10, action, i.astype(jnp.float32), (i + 1) % 10, terminated, truncated)
    return agent.observe(jax.random.fold_in(key, 1), state, t)


# one program for the tests of what happens in a lifetime
FROZEN = {"frozen_head": True, "epsilon_decay": 10.0, "target_clock": "updates from 1"}


def lived(values, n=40, seed=0):
    """States after n transitions in Chain-10s, an episode of 7 at a time: every other one is cut
    off.
    """
    agent = as_arrays(BootDQN(**{**SMALL, **FROZEN, **values}))
    states = [begun(agent, jax.random.key(seed))]
    for i in range(n):
        states.append(stepped(agent, states[-1], np.int32(i)))
    return agent, states


def test_another_head_decides_in_each_episode():
    _, states = lived({}, n=210)
    heads = np.array([int(state.head) for state in states[1:]])
    assert (heads[:6] == 0).all()
    within = heads[:-1][np.arange(1, 210) % 7 != 6] == heads[1:][np.arange(1, 210) % 7 != 6]
    assert within.all()
    # thirty draws of three heads: one is missing with a probability of 1.6e-5
    assert set(heads) == {0, 1, 2}
    # fifteen after episodes that terminate, fifteen after others: none is another one with 7e-8
    for last in (6, 13):
        assert (heads[last::14] != heads[last - 1 :: 14]).any()


@functools.cache
def frozen(clock):
    return lived({"target_clock": clock}, n=30)


def test_a_head_that_is_frozen_stays_as_it_was_when_the_episode_began():
    agent, states = frozen("updates from 1")
    states = [jax.tree.map(np.asarray, state) for state in states]
    first = jax.tree.map(lambda v: v[0], (states[0].learner.online, states[0].prior))
    jax.tree.map(np.testing.assert_array_equal, states[6].acting, first)
    for end in (14, 21, 28):
        # the copy is that of the last decision of the episode before, not yet updated by it
        before, after = states[end - 1], states[end]
        k = int(after.head)
        expected = jax.tree.map(lambda v, k=k: v[k], (before.learner.online, before.prior))
        jax.tree.map(np.testing.assert_array_equal, after.acting, expected)
    jax.tree.map(np.testing.assert_array_equal, states[25].acting, states[22].acting)
    assert not np.array_equal(states[25].learner.online[0], states[22].learner.online[0])
    # what is frozen decides, or else the head of the episode
    own = jax.tree.map(lambda v: v[after.head], (after.learner.online, after.prior))
    swapped = [(*layers[:-1], layers[-1][::-1]) for layers in own]
    act, keys = jax.jit(jax.vmap(agent.act, (0, None, 0))), jax.random.split(KEY, 10)
    current, alike, opposite = (
        act(keys, dataclasses.replace(after, acting=acting), jnp.arange(10))[0]
        for acting in (None, own, tuple(swapped))
    )
    assert (current == alike).all() and (opposite != alike).any()


def test_masks_noise_and_prior_functions_are_kept_with_each_transition():
    agent, states = lived({"mask_probability": 0.5}, n=64)
    state, network = states[-1], states[-1].network

    @jax.jit
    def read(kept):
        drawn = replay.read(kept, jnp.arange(64))
        return boot_dqn.bootstrapped(drawn, agent.ensemble, network.widths[-1])

    found, heads = read(state.replay), jax.jit(jax.vmap(network.values, (0, None)))
    for prior, seen in (
        (found.prior, found.batch.observation),
        (found.next_prior, found.batch.next_observation),
    ):
        np.testing.assert_allclose(prior, heads(state.prior, seen), atol=1e-6)
    # 192 draws: a share this far from half has a probability of 5e-5, a mean this large 6e-5
    assert abs(np.asarray(found.mask).mean() - 0.5) < 0.15
    assert abs(np.asarray(found.noise).mean()) < 0.29
    assert 0.7 < np.asarray(found.noise).std() < 1.3
    # masks and noise are drawn apart: they agree by chance, as far from half as above
    assert abs((np.asarray(found.mask > 0) == np.asarray(found.noise < 0)).mean() - 0.5) < 0.15


def test_exploration_decays_where_it_is_asked_for():
    agent = BootDQN(epsilon=0.1, epsilon_decay=10.0)
    for step, expected in ((0, 1.0), (10, 0.5), (30, 0.25), (1000, 0.1)):
        assert float(agent._epsilon(jnp.int32(step), jnp.int32(0))) == pytest.approx(expected)
    assert float(BootDQN()._epsilon(jnp.int32(0), jnp.int32(0))) == 0


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("clock", "copies", "epsilons"),
    [
        ("updates from 1", [3, 7, 11], [10 / 11, 10 / 12, 10 / 16]),
        ("updates", [4, 8, 12], [10 / 17, 10 / 18, 10 / 22]),
    ],
)
def test_updates_are_counted_from_one_where_it_is_asked_for(clock, copies, epsilons):
    """The first update is that after the eighth transition. Epsilon is that of the decisions after
    7, 8 and 12 transitions.
    """
    agent, states = frozen(clock)
    states = states[:20]
    updates = [int(state.learner.updates) for state in states]
    assert updates == [*[0] * 8, *range(1, 13)]
    targets = [np.asarray(state.learner.target[0][0]) for state in states]
    changed = [not np.array_equal(*pair) for pair in itertools.pairwise(targets)]
    assert [updates[i + 1] for i in np.flatnonzero(changed)] == copies
    found = [agent._epsilon(jnp.int32(n), states[n].learner.updates) for n in (7, 8, 12)]
    np.testing.assert_allclose(found, epsilons, rtol=1e-6)


def test_heads_and_seeds_differ_and_targets_start_as_copies_or_apart():
    states = [lived({}, n=0, seed=seed)[1][0] for seed in (0, 1)]
    for learner in (state.learner for state in states):
        jax.tree.map(np.testing.assert_array_equal, learner.target, (learner.online, None))
    apart = as_arrays(BootDQN(**SMALL, target_start="independent"))
    assert jax.eval_shape(begun, apart, KEY).learner.target[1] is not None
    layers = [np.asarray(v) for s in states for v in (s.learner.online[0], s.prior[0])]
    every = np.concatenate(layers)
    assert len(np.unique(every.reshape(len(every), -1), axis=0)) == 12
