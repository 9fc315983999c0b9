"""Images: where they come from, what is refused, and how the original reads bytes; mistakes about
bsuite's environments that no other test has.
"""

import gzip
import importlib.util
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.environments.bsuite_cartpole import (
    BsuiteCartPole,
    BsuiteCartPoleSwingup,
    last_step,
    move,
    start,
)
from jbrl.environments.bsuite_tasks import DiscountingChain, MemoryChain, UmbrellaChain
from jbrl.environments.environment import as_arrays
from jbrl.environments.images import IMAGES, LABELS, ImageBandit, digits, read_idx
from jbrl.environments.mountain_car import BsuiteMountainCar
from jbrl.problems.lookup import problem


def idx(values, magic=None):
    values = np.asarray(values, np.uint8)
    head = struct.pack(f">{values.ndim + 1}I", magic or 0x800 + values.ndim, *values.shape)
    return head + values.tobytes()


def written(folder, pixels, labels, compressed=False):
    folder.mkdir(exist_ok=True)
    for name, content in ((IMAGES, pixels), (LABELS, labels)):
        data = content if isinstance(content, bytes) else idx(content)
        path = folder / (f"{name}.gz" if compressed else name)
        path.write_bytes(gzip.compress(data) if compressed else data)
    return folder


PIXELS = np.arange(3 * 4 * 5).reshape(3, 4, 5) * 4
SOUND = (PIXELS, [1, 0, 9])


@pytest.mark.parametrize("compressed", [False, True])
def test_idx_files_are_read(tmp_path, compressed):
    pixels, labels = read_idx(written(tmp_path, *SOUND, compressed))
    np.testing.assert_array_equal(pixels, PIXELS)
    np.testing.assert_array_equal(labels, [1, 0, 9])
    environment = ImageBandit(folder=str(tmp_path))
    assert environment.spec.observation.shape == (4, 5)


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (idx(PIXELS, 0x801), [1, 0, 9], "magic number 0x00000801: expected 0x00000803"),
        (PIXELS, idx([1, 0, 9], 0x803), "magic number 0x00000803: expected 0x00000801"),
        (b"", [1], "a file of 0 bytes: expected 0x00000803"),
        (idx(PIXELS)[:-1], [1, 0, 9], "59 bytes of data for sizes 3 x 4 x 5: expected 60"),
        (idx(PIXELS) + b"0", [1, 0, 9], "61 bytes of data for sizes 3 x 4 x 5: expected 60"),
        (PIXELS, [1, 0], "2 labels for the 3 images"),
        (PIXELS, [1, 0, 10], "label 10: expected 0 to 9"),
        (b"\x1f\x8b but not gzip", [1], "cannot be read"),
        (gzip.compress(idx(PIXELS), mtime=0)[:-9], [1, 0, 9], "cannot be read"),
        (PIXELS[:0], [], "0 bytes of data for sizes 0 x 4 x 5: expected at least 1"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, pixels, labels, message):
    with pytest.raises(JbrlError, match=message.replace("(", r"\(")) as caught:
        problem(f'ImageBandit(folder="{written(tmp_path / "data", pixels, labels)}")')
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_a_missing_library_are_refused(tmp_path, monkeypatch):
    with pytest.raises(JbrlError, match=rf"no {IMAGES} and no {IMAGES}.gz"):
        read_idx(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(JbrlError, match=r"expected the package scikit-learn"):
        ImageBandit()


def test_data_is_part_of_the_identity_and_its_folder_is_not(tmp_path):
    one = written(tmp_path / "one", *SOUND)
    same = written(tmp_path / "same", *SOUND, compressed=True)
    other = written(tmp_path / "other", PIXELS + 1, [1, 0, 9])
    digests = [problem(f'bsuite/mnist/0(folder="{path}")').digest for path in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]
    assert problem("bsuite/mnist/0").digest not in digests
    assert problem("bsuite/mnist/0(wrap=false)").digest != problem("bsuite/mnist/0").digest
    assert problem("bsuite/mnist/0(wrap=true)") == problem("bsuite/mnist/0")


def test_bytes_are_signed_as_in_the_original_unless_asked_otherwise():
    """Trap i: bright strokes are negative."""
    pixels, labels = digits()
    assert (pixels.shape, labels.shape, int(pixels.max())) == ((1797, 8, 8), (1797,), 255)
    keys = jax.random.split(jax.random.key(0), 50)
    wrapped, plain = (
        np.asarray(jax.jit(jax.vmap(ImageBandit(wrap=w).reset))(keys)[1]) for w in (True, False)
    )
    bytes_ = np.rint(plain * 255)
    assert bytes_.min() == 0
    assert bytes_.max() == 255
    signed = bytes_.astype(np.uint8).astype(np.int8)
    np.testing.assert_array_equal(np.rint(wrapped * 255), signed)
    assert wrapped.min() < 0


def test_fraction_keeps_the_first_images():
    environment = ImageBandit(fraction=0.1)
    np.testing.assert_array_equal(environment.pixels, digits()[0][:179])


def lived(environment, action, steps, seed=0):
    """Observations and steps of `steps` steps from a reset, all with one action."""
    environment = as_arrays(environment)
    first_key = jax.random.split(jax.random.key(seed))[0]
    keys = jax.random.split(jax.random.key(seed + 1), steps)

    def one(state, key):
        state, step = environment.step(key, state, jnp.int32(action))
        return state, step

    @jax.jit
    def live(key):
        state, first = environment.reset(key)
        return first, jax.lax.scan(one, state, keys)[1]

    return jax.tree.map(np.asarray, live(first_key))


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
    step_of = jax.jit(lambda state: environment.step(None, state, jnp.int32(1))[1])
    state, _ = environment.reset(jax.random.key(0))
    physics = jax.tree.map(np.zeros_like, state.physics)
    for steps, over in ((999, False), (1000, True)):
        upright = physics.__class__(
            *[getattr(physics, n) for n in ("x", "x_dot", "theta", "theta_dot")], np.int32(steps)
        )
        step = step_of(state.__class__(upright, np.float32(0)))
        assert float(step.reward) == 1
        assert bool(step.terminated) is over
        np.testing.assert_allclose(step.observation[5], (steps + 1) / 1000, rtol=1e-6)
