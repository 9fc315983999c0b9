"""Clocks: compilation apart, work awaited, nothing called back inside."""

import time
from collections.abc import Callable
from typing import Any

import jax


def since(started: float) -> float:
    """Wall seconds since `time.perf_counter()` was `started`; never less than none, whatever has become of the clock."""
    return max(0.0, time.perf_counter() - started)


def timed(call: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """Result of `call(*args)`, ready, and the wall seconds it took."""
    jax.block_until_ready(args)
    started = time.perf_counter()
    result = jax.block_until_ready(call(*args))
    return result, since(started)


def device_name(devices: list[jax.Device]) -> str:
    """What the work ran on, for example `cpu x 2` or `NVIDIA H200`."""
    name = devices[0].device_kind
    return f"{name} x {len(devices)}" if len(devices) > 1 else name
