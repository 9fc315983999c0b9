"""One thread for each matrix product, while the threads of this package work side by side."""

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np

LIBRARIES = "libscipy_openblas*"  # in wheels of NumPy
GET, SET = "scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy's matrix products use one thread each; no effect with other builds of NumPy.

    The idle threads of OpenBLAS spin and take the cores from those that work.
    """
    found = _library()
    if found is None:
        yield
        return
    before = getattr(found, GET)()
    getattr(found, SET)(1)
    try:
        yield
    finally:
        getattr(found, SET)(before)


def _library() -> ctypes.CDLL | None:
    folder = Path(np.__file__).parents[1] / "numpy.libs"
    for path in sorted(folder.glob(LIBRARIES)):
        with contextlib.suppress(OSError):
            found = ctypes.CDLL(str(path))
            if hasattr(found, GET) and hasattr(found, SET):
                return found
    return None
