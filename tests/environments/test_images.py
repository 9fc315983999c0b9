"""Images: where they come from, what is refused, and how the original reads bytes."""

import gzip
import importlib.util
import struct

import jax
import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.environments.images import IMAGES, LABELS, ImageBandit, digits, read_idx
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
    wrapped, plain = (jax.vmap(ImageBandit(wrap=w).reset)(keys)[1] for w in (True, False))
    bytes_ = np.rint(np.asarray(plain) * 255)
    assert bytes_.min() == 0
    assert bytes_.max() == 255
    signed = bytes_.astype(np.uint8).astype(np.int8)
    np.testing.assert_array_equal(np.rint(np.asarray(wrapped) * 255), signed)
    assert np.asarray(wrapped).min() < 0


def test_fraction_keeps_the_first_images():
    environment = ImageBandit(fraction=0.1)
    np.testing.assert_array_equal(environment.pixels, digits()[0][:179])
