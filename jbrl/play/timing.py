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


class Duration(NamedTuple):
    """Wall seconds of a call: the median of its repetitions, and their interquartile range, NaN
    where the call was made once; processor seconds of all threads, the median too.
    """

    seconds: float
    spread: float = math.nan
    processor: float = math.nan


def clocked(call: Callable[..., Any], *args: Any) -> tuple[Any, Duration]:
    """Return the result of `call(*args)`, ready, and the duration of this one call."""
    jax.block_until_ready(args)
    started, processor = time.perf_counter(), time.process_time()
    result = jax.block_until_ready(call(*args))
    seconds = since(started)
    return result, Duration(seconds, processor=max(0.0, time.process_time() - processor))


def timed(call: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """Return the result of `call(*args)`, ready, and the wall seconds it took."""
    result, took = clocked(call, *args)
    return result, took.seconds


def known(spread: float) -> float | None:
    """Return a number as a result keeps it: None where it is unknown."""
    return None if math.isnan(spread) else spread


def timed_repeatedly(call: Callable[..., Any], *args: Any) -> tuple[Any, Duration]:
    """Return the result of `call(*args)`, ready, and its duration.

    Up to `REPETITIONS` times while these take less than `BRIEF` seconds in all; a call that takes
    longer is made once. `call` must leave its arguments as they are.
    """
    result, first = clocked(call, *args)
    calls = [first]
    while len(calls) < REPETITIONS and sum(c.seconds for c in calls) + calls[-1].seconds < BRIEF:
        calls.append(clocked(call, *args)[1])
    processor = float(np.median([c.processor for c in calls]))
    return result, _duration([c.seconds for c in calls])._replace(processor=processor)


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
        result, (seconds, _, processor) = clocked(call, *args)
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
            return result, Duration(seconds, processor=processor)
        ratio = _duration(ratios)
        low, spread = (reference.seconds * v for v in ratio[:2])
        return result, Duration(low, spread, processor)


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
