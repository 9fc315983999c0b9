"""Images: guess the digit, or the garment, of one image per episode. Where the images come from."""

import gzip
import importlib.util
import zlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Spec
from jbrl.mdp import sampling

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"  # names of MNIST's files
IMAGES_MAGIC, LABELS_MAGIC = 0x803, 0x801
CLASSES = 10


@record
class ImageBanditState:
    """Label of the image, and regret of the last guess."""

    label: Array  # [] int32
    regret: Array  # [] float32, 0 before the guess


@register_environment("ImageBandit", cite="osband2020bsuite")
class ImageBandit(Environment[ImageBanditState]):
    """Image bandit, `mnist` of bsuite: guess which of ten classes an image belongs to, once
    per episode.

    Observation: an image drawn uniformly, [height, width], its bytes divided by 255; zeros after
    the guess. Reward: 1 for the right class, -1 for another one; the episode terminates with it.

    With `wrap`, a byte above 127 counts as that byte minus 256, so bright strokes are negative: the
    original reads bytes as signed numbers, and its scores belong to such images.

    The images are the 1,797 of 8 x 8 in scikit-learn's `load_digits`, their 17 shades spread over 0
    to 255. With `folder`, they are the training images of MNIST, Fashion-MNIST or any other data
    set in the same two IDX files, compressed or not: `train-images-idx3-ubyte` and
    `train-labels-idx1-ubyte`, with or without `.gz`. The content of the images is part of what
    identifies a result; the folder is not.

    Metrics: `total_regret`, 2 for a wrong class.

    `pixels` and `labels` follow from the other fields where they are None.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.

    Raises:
      JbrlError: scikit-learn is missing, or a file is missing or is not what its name says.
    """

    lifetime = Episodes(10_000)
    aside = ("folder",)  # `pixels` and `labels` are its content

    folder: str = parameter("", "folder of IDX files; empty: scikit-learn's digits")
    fraction: float = parameter(
        1.0, "share of the images in use, the first ones", low=0, high=1, open_low=True, static=True
    )
    wrap: bool = parameter(True, "take bytes above 127 as negative, as the original does")
    pixels: Any = None  # [n, height, width] uint8
    labels: Any = None  # [n] uint8

    def __post_init__(self) -> None:
        if self.pixels is None and isinstance(self.wrap, bool):  # not traced
            pixels, labels = read_idx(Path(self.folder)) if self.folder else digits()
            n = max(1, int(self.fraction * len(pixels)))
            object.__setattr__(self, "pixels", pixels[:n])
            object.__setattr__(self, "labels", labels[:n])

    @property
    def spec(self) -> Spec:
        return Spec(Box(tuple(self.pixels.shape[1:]), -128 / 255, 1.0), Discrete(CLASSES))

    @property
    def typical_steps(self) -> float:
        return 1.0

    def reset(self, key: Array) -> tuple[ImageBanditState, Array]:
        index = sampling.uniform_index(sampling.uniforms(key)[0], self.pixels.shape[0])
        pixels = jnp.asarray(self.pixels).at[index].get(mode="promise_in_bounds")
        label = jnp.asarray(self.labels).at[index].get(mode="promise_in_bounds")
        return ImageBanditState(label.astype(jnp.int32), jnp.float32(0)), self._shown(pixels)

    def step(
        self, key: Array, state: ImageBanditState, action: Array
    ) -> tuple[ImageBanditState, Step]:
        del key
        reward = jnp.where(action == state.label, jnp.float32(1), jnp.float32(-1))
        blank = jnp.zeros(self.pixels.shape[1:], jnp.float32)
        after = ImageBanditState(state.label, 1 - reward)
        return after, Step(blank, reward, jnp.bool_(True))

    def metrics(self, state: ImageBanditState) -> dict[str, Array]:
        return {"total_regret": state.regret}

    def _shown(self, pixels: Array) -> Array:
        values = pixels.astype(jnp.float32)
        signed = jnp.where(jnp.logical_and(self.wrap, values > 127), values - 256, values)
        return signed / jnp.float32(255)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's digits: images [1797, 8, 8] and labels [1797], uint8.

    The 17 shades v become round(255 v / 16).

    Raises:
      JbrlError: scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")  # not imported, which would take a second
    if package is None or not package.submodule_search_locations:
        raise JbrlError(
            "folder = '': the images are scikit-learn's, which is not installed: expected the "
            "package scikit-learn, or a folder with MNIST's files"
        )
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    shades = table[:, :-1].astype(np.float64).reshape(-1, 8, 8)
    return np.round(shades * 255 / 16).astype(np.uint8), table[:, -1]


def read_idx(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read MNIST's two files: images [n, height, width] and labels [n], uint8.

    Raises:
      JbrlError: one of them is missing, cannot be read or is not what its name says.
    """
    images, labels = _file(folder, IMAGES), _file(folder, LABELS)
    pixels, classes = _idx(images, IMAGES_MAGIC, 3), _idx(labels, LABELS_MAGIC, 1)
    if len(pixels) != len(classes):
        raise JbrlError(
            f"{labels}: {len(classes)} labels for the {len(pixels)} images of {images.name}: "
            "expected one for each"
        )
    if classes.max() >= CLASSES:
        raise JbrlError(f"{labels}: label {classes.max()}: expected 0 to {CLASSES - 1}")
    return pixels, classes


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise JbrlError(f"{folder}: no {name} and no {name}.gz: expected the IDX files of MNIST's form")


def _idx(path: Path, magic: int, rank: int) -> np.ndarray:
    """Read the array of bytes in an IDX file of `rank` dimensions."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as error:
        raise JbrlError(f"{path}: cannot be read: {error}") from None
    size_of_head = 4 * (rank + 1)
    whole = len(content) >= size_of_head
    head = np.frombuffer(content[:size_of_head] if whole else b"", ">u4")
    if not whole or head[0] != magic:
        start = f"0x{head[0]:08x}" if whole else f"a file of {len(content)} bytes"
        raise JbrlError(f"{path}: magic number {start}: expected 0x{magic:08x}, an IDX file")
    shape = tuple(int(n) for n in head[1:])
    size = int(np.prod(np.array(shape, object)))
    given = len(content) - size_of_head
    if size == 0 or given != size:
        said = " x ".join(map(str, shape))
        raise JbrlError(
            f"{path}: {given} bytes of data for sizes {said}: expected {size or 'at least 1'}"
        )
    return np.frombuffer(content, np.uint8, offset=size_of_head).reshape(shape)
