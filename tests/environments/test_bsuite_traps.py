"""Common mistakes about bsuite's environments, one test each where no other test has it.

Elsewhere: c (memory) and d (terminal observations) in `test_bsuite_golden.py`; e (counters live
across episodes), f (rows at the schedule), j (best episode) and k
(sums) in `tests/problems/test_bsuite_log.py`; i (signed bytes) in `test_images.py`. g and h are
about scores.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.environments.bsuite_cartpole import (
    BsuiteCartPole,
    BsuiteCartPoleSwingup,
    last_step,
    move,
    start,
)
from jbrl.environments.bsuite_tasks import DiscountingChain, MemoryChain, UmbrellaChain
from jbrl.environments.environment import as_arrays
from jbrl.environments.mountain_car import BsuiteMountainCar


def lived(environment, action, steps, seed=0):
    """Observations and steps of `steps` steps from a reset, all with one action."""
    environment = as_arrays(environment)
    state, first = environment.reset(jax.random.split(jax.random.key(seed))[0])
    keys = jax.random.split(jax.random.key(seed + 1), steps)

    def one(state, key):
        state, step = environment.step(key, state, jnp.int32(action))
        return state, step

    _, log = jax.jit(lambda s: jax.lax.scan(one, s, keys))(state)
    return np.asarray(first), jax.tree.map(np.asarray, log)


@pytest.mark.parametrize(
    ("environment", "action", "end"),
    [
        (BsuiteMountainCar(), 1, 1000),
        (DiscountingChain(), 0, 100),
        (BsuiteCartPoleSwingup(), 1, 1001),
        (MemoryChain(9), 0, 10),
        (UmbrellaChain(7), 0, 7),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_running_out_of_time_terminates(environment, action, end):
    _, log = lived(environment, action, end)
    assert log.terminated[end - 1]
    assert not log.terminated[: end - 1].any()
    assert not log.truncated.any()


def test_no_chain_is_chosen_before_the_first_action():
    np.testing.assert_array_equal(DiscountingChain().reset(jax.random.key(0))[1], [-1, 0])


def test_b_time_is_counted_in_steps_and_angles_are_wrapped():
    assert [last_step(t) for t in (10.0, 2.0, 1.0, 0.01)] == [1001, 200, 100, 2]
    float64 = 0.0
    for _ in range(1000):
        float64 += 0.01
    assert float64 < 10 < float64 + 0.01  # the original's clock
    state = start(jax.random.key(0), 0.0)
    turn = lambda state, _: (lambda after: (after, after.theta))(move(state, jnp.int32(2)))  # noqa: E731
    angles = np.asarray(jax.jit(lambda s: jax.lax.scan(turn, s, length=300))(state)[1])
    # pushed over, it turns round and round
    assert 0 <= angles.min() < 0.3 and 6 < angles.max() < np.float32(2 * np.pi)


def test_c_umbrella_shows_what_was_drawn_and_redraws_distractors():
    keys = jax.random.split(jax.random.key(0), 20)
    have = jax.jit(jax.vmap(as_arrays(UmbrellaChain(5)).reset))(keys)[1][:, 1]
    assert set(np.asarray(have).tolist()) == {0, 1}
    first, log = lived(UmbrellaChain(40, 30), 1, 39)
    assert (log.observation[:, 1] == 1).all()  # the first action
    assert (log.observation[:, 0] == first[0]).all()
    bits = np.concatenate([first[None, 3:], log.observation[:, 3:]])
    assert len(np.unique(bits, axis=0)) == 40
    assert abs(bits.mean() - 0.5) < 0.08  # 1200 fair bits: false-alarm rate 3e-8
    assert abs(log.reward.mean()) < 0.9
    same = np.corrcoef(log.reward, bits[1:, 0])[0, 1]
    assert abs(same) < 0.8  # 39 pairs: false-alarm rate below 1e-8


def test_cartpole_can_be_balanced_for_1001_steps_and_no_longer():
    environment = as_arrays(BsuiteCartPole())
    state, _ = environment.reset(jax.random.key(0))
    physics = jax.tree.map(jnp.zeros_like, state.physics)
    for steps, over in ((999, False), (1000, True)):
        upright = physics.__class__(
            *[getattr(physics, n) for n in ("x", "x_dot", "theta", "theta_dot")], jnp.int32(steps)
        )
        _, step = environment.step(None, state.__class__(upright, jnp.float32(0)), jnp.int32(1))
        assert float(step.reward) == 1
        assert bool(step.terminated) is over
        np.testing.assert_allclose(step.observation[5], (steps + 1) / 1000, rtol=1e-6)
