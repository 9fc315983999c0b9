"""Loops of scalar steps at the speed of compiled C, on CPUs.

XLA compiles a program for CPUs into many small functions, one for each fused operation, and calls
them one after the other. Each call costs some 100 ns, which is nothing for large arrays and
everything for a tree search, whose operations are on single numbers. XLA also knows how to compile
a whole call, loops included, into one function; it does so by itself for loops that touch less than
1 KB at an iteration, and for any call that bears the mark given here. A simulation of 15 steps
takes 1 µs that way and 15 µs without.

What is marked must hold to operations that XLA can compile so: arithmetic, reductions,
`dynamic_slice`, `dynamic_update_slice`, `while_loop`; no scatter, gather by arrays of indices,
sort, cumulative sum, matrix product or callback. Arrays are updated in place only where nothing
that reads the old array can come after the update; see `memory`.

The mark is an attribute that other versions of XLA, and other devices, pass over: results do not
depend on it, only speed.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.experimental.xla_metadata import set_xla_metadata

F = TypeVar("F", bound=Callable[..., Any])


def native(fn: F) -> F:
    """Compile `fn`, a function of arrays (pytrees), for CPUs as one function of machine code.

    Not to be mapped.

    Every argument must be used: XLA aborts on one that is not (jaxlib 0.10.2).
    """
    marked = jax.jit(fn)

    @jax.jit
    @functools.wraps(fn)
    def call(*args):  # type: ignore[no-untyped-def]
        marks = {"xla_cpu_small_call": "true", "inlineable": "false"}
        return set_xla_metadata(marked(*args), **marks)  # type: ignore[no-untyped-call]

    return call  # type: ignore[return-value]
