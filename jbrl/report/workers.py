"""Parallel drawing of the experiments of a large report: one process for each core."""

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Result = TypeVar("Result")

_work: Callable[[int], Any] | None = None  # of the pool that is open; a child has a copy


def side_by_side(work: Callable[[int], Result], count: int) -> list[Result]:
    """Return `[work(0), …, work(count - 1)]`, by several processes where that is safe, else one by
    one.

    Processes are forked, so that they see the tables of the report without a copy. This is safe on
    Linux while JAX is not loaded, whose threads do not survive a fork.

    Args:
      work: its result can be pickled; what it raises is raised here.
    """
    global _work
    processes = min(count, _cores())
    if processes < 2 or sys.platform != "linux" or "jax" in sys.modules or _work is not None:
        return [work(number) for number in range(count)]
    _work = work
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)
            context = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(processes, mp_context=context) as pool:
                return list(pool.map(_call, range(count)))
    except (BrokenProcessPool, OSError):  # no memory, or no processes, for more than this one
        return [work(number) for number in range(count)]
    finally:
        _work = None


def _call(number: int) -> Any:
    assert _work is not None
    return _work(number)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
