"""Environments played by given actions, every random word kept, so that slow twins can be fed
the same.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jbrl.base.pytree import record
from jbrl.environments.environment import as_arrays, drawn

T, SHORT = 5100, 1100  # more steps than the longest episode, than most
LANES = 4
TRACES = []


@record
class Log:
    """Record of T steps: all arrays [T, ...], after `play` [LANES, T, ...]."""

    before: jax.Array  # observation before the step
    step: object  # `Step`
    metrics: dict
    words: jax.Array  # [2] uint32, of the step's key
    reset_words: jax.Array  # [2] uint32, of the reset that follows an episode's last step


def play_one(environment, key, actions):
    """The first reset's words, and the log of a lifetime of len(actions) steps."""
    TRACES.append(type(environment).__name__)
    keys = jax.random.split(key, len(actions) + 1)

    def step(carry, inputs):
        state, before = carry
        key, action = inputs
        step_key, reset_key = jax.random.split(key)
        state, after = environment.step(step_key, state, action)
        ended = after.terminated | after.truncated
        log = Log(
            before,
            after,
            environment.metrics(state),
            jax.random.key_data(step_key),
            jax.random.key_data(reset_key),
        )
        begun = environment.reset(reset_key)
        return jax.tree.map(
            lambda new, old: jnp.where(ended, new, old), begun, (state, after.observation)
        ), log

    return jax.random.key_data(keys[0]), lax.scan(
        step, environment.reset(keys[0]), (keys[1:], actions)
    )[1]


one_step = jax.jit(lambda environment, key, state, action: environment.step(key, state, action))
alone = jax.jit(play_one)
together = jax.jit(jax.vmap(play_one))


def stacked(environments):
    """Environments of one class and size as one, with a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *map(as_arrays, environments))


def lifetimes(environment, seed=0, lanes=LANES):
    """The environments of `lanes` lifetimes, perturbed where they can be, and a key for each."""
    drawing, playing = jax.random.split(jax.random.key(seed))
    environment = as_arrays(environment)
    return stacked(
        [drawn(environment, key) for key in jax.random.split(drawing, lanes)]
    ), jax.random.split(playing, lanes)


def some_actions(n, seed=0, lanes=LANES, steps=T):
    """[lanes, steps] int32: lane 0 always 0, lane 1 mostly the last action, the others uniform."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(n, size=(lanes, steps))
    actions[0] = 0
    actions[1] = np.where(rng.random(steps) < 0.8, n - 1, actions[1])
    return actions.astype(np.int32)


def on_host(tree):
    return jax.tree.map(np.asarray, tree)


def play(environment, seed=0, steps=T):
    """The lanes' environments, their actions, the words of their first resets and their logs, as
    NumPy arrays.
    """
    lanes, keys = lifetimes(environment, seed)
    actions = some_actions(environment.spec.actions.n, seed, steps=steps)
    first, log = on_host(together(lanes, keys, actions))
    return lanes, actions, first, log


def lane(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


def uniforms(words):
    """[..., 2] float64, exactly the numbers that `sampling.uniforms` reads."""
    return (np.asarray(words) >> 8) / 2**24


def evenly(n):
    """n keys, a power of 2, whose first numbers are k / n, k = 0, …, n - 1."""
    words = np.zeros((n, 2), np.uint32)
    words[:, 0] = np.arange(n, dtype=np.uint64) * (2**32 // n)
    return jax.random.wrap_key_data(words)


def replay(twin, actions, first, log):
    """Compare one lane with a slow twin, step by step.

    `twin` has `reset(uniforms)`, `step(uniforms, action) -> (reward, terminated)` and
    `observation()`.
    """
    step_uniforms, reset_uniforms = uniforms(log.words), uniforms(log.reset_words)
    twin.reset(uniforms(first))
    rows = []
    for t, action in enumerate(actions.tolist()):
        before = twin.observation()
        reward, terminated = twin.step(step_uniforms[t], action)
        rows.append((before, reward, twin.observation(), terminated))
        if terminated:
            twin.reset(reset_uniforms[t])
    before, reward, observation, terminated = map(np.array, zip(*rows, strict=True))
    np.testing.assert_array_equal(log.before, before)
    np.testing.assert_array_equal(log.step.observation, observation)
    np.testing.assert_array_equal(log.step.terminated, terminated)
    np.testing.assert_allclose(log.step.reward, reward, rtol=1e-6, atol=1e-6)
    assert not log.step.truncated.any()


def episodes(log):
    """Lengths, returns and last steps of the finished episodes of one lane."""
    ends = np.flatnonzero(log.step.terminated | log.step.truncated)
    begins = np.concatenate([[0], ends[:-1] + 1])
    sums = np.concatenate([[0.0], np.cumsum(log.step.reward, dtype=np.float64)])
    return ends + 1 - begins, sums[ends + 1] - sums[begins], ends
