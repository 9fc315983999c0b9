"""Clocks: without compilation, with finished work, without callbacks inside."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

REPETITIONS = 5  # of a brief call, to distinguish it from other work of the machine
BRIEF = 0.05  # seconds that all repetitions of a call may take


def since(started: float) -> float:
    """Return wall seconds since `time.perf_counter()` was `started`; never less than none, even if
    the clock has jumped.
    """
    return max(0.0, time.perf_counter() - started)


def timed(call: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """Return the result of `call(*args)`, ready, and the wall seconds it took."""
    jax.block_until_ready(args)
    started = time.perf_counter()
    result = jax.block_until_ready(call(*args))
    return result, since(started)


class Duration(NamedTuple):
    """Wall seconds of a call: the median of its repetitions, and their interquartile range, NaN
    where the call was made once.
    """

    seconds: float
    spread: float = math.nan


def known(spread: float) -> float | None:
    """Return a spread as a result keeps it: None where it is unknown."""
    return None if math.isnan(spread) else spread


def timed_repeatedly(call: Callable[..., Any], *args: Any) -> tuple[Any, Duration]:
    """Return the result of `call(*args)`, ready, and its duration.

    Up to `REPETITIONS` times while these take less than `BRIEF` seconds in all; a call that takes
    longer is made once. `call` must leave its arguments as they are.
    """
    result, first = timed(call, *args)
    seconds = [first]
    while len(seconds) < REPETITIONS and sum(seconds) + seconds[-1] < BRIEF:
        seconds.append(timed(call, *args)[1])
    return result, _duration(seconds)


class Turns:
    """Timer of brief calls, which times calls of one program in turns.

    The machine is faster at one moment than at the next by more than agents differ that only their
    parameters distinguish. Of consecutive calls of one program the first is repeated by itself; the
    others are repeated in turns with it, and their duration is that of the first times the ratio.
    """

    def __init__(self) -> None:
        self._first: tuple[Callable[..., Any], tuple[Any, ...], Duration] | None = None

    def timed(self, call: Callable[..., Any], *args: Any) -> tuple[Any, Duration]:
        """Return the result of `call(*args)`, ready, and its duration, as `timed_repeatedly`."""
        if self._first is None or self._first[0] is not call:
            self._first = None  # its arguments are released before the call needs memory
            result, took = timed_repeatedly(call, *args)
            if not math.isnan(took.spread):
                self._first = (call, args, took)
            return result, took
        _, others, reference = self._first
        result, seconds = timed(call, *args)
        ratios: list[float] = []
        spent = seconds
        for _ in range(REPETITIONS):
            if spent + reference.seconds + seconds >= BRIEF:
                break
            before, after = timed(call, *others)[1], timed(call, *args)[1]
            spent += before + after
            if before > 0:  # a clock may have been set back
                ratios.append(after / before)
        if len(ratios) < 2:
            return result, Duration(seconds)
        ratio = _duration(ratios)
        return result, Duration(*(reference.seconds * v for v in ratio))


def _duration(seconds: list[float]) -> Duration:
    """Return the median and the interquartile range of repetitions."""
    if len(seconds) == 1:
        return Duration(seconds[0])
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    return Duration(float(median), float(high - low))


def device_name(devices: list[jax.Device]) -> str:
    """Name the devices that did the work, for example `cpu x 2` or `NVIDIA H200`."""
    name = devices[0].device_kind
    return f"{name} x {len(devices)}" if len(devices) > 1 else name


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Handle Ctrl-C after the block instead of inside it, usually by KeyboardInterrupt: for calls
    that take over the memory of what they are given.

    Only in the main thread, which alone receives it, and where it is not ignored.
    """
    alone = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    if not (alone and callable(handler)):
        yield
        return
    received: list[int] = []

    signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if received:
        handler(signal.SIGINT, None)
