"""Random numbers and times of the host in traced methods, which a compiled program would keep.

A method that calls `np.random`, `random` or `time` runs once, when JAX traces it; what it has drawn
then is part of the compiled program, for all lifetimes. Such a method is found by tracing it
several times: it makes other programs, or leaves generators of the host in another state each time.
A time that is the same in all of them as float32 has it, such as the second, is not found.
"""

import contextlib
import gc
import itertools
import pickle
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend import core

FEWEST_TRACES = 3  # compared: `randn` draws two numbers every second time, and none between
MOST_TRACES = 4  # compared where tracing takes less than `SECONDS`
SECONDS = 1.0

# Part of the key of JAX's caches: what is traced within is traced anew.
_attempt = jax.make_user_context(0)
_attempts = itertools.count(1)

Programs = Callable[[], Iterator[tuple[str, core.ClosedJaxpr]]]


class Trace(NamedTuple):
    """One tracing of a method."""

    program: str
    before: list[bytes]  # states of all generators of random numbers
    after: list[bytes]


def find_host_values(programs: Programs) -> str | None:
    """Return the name of the first program that takes values from the host; None if none does.

    Programs that cannot be traced count as the same: they fail where they are used.

    Args:
      programs: traces and yields programs by name, always the same ones in the same order.
    """
    began, generators = time.monotonic(), _generators()
    first = _traced(programs, generators)
    for number in range(1, MOST_TRACES):
        if number >= FEWEST_TRACES and time.monotonic() - began > SECONDS:
            break
        again = _traced(programs, generators)
        for name, trace in first.items():
            if name in again and _differ(trace, again[name]):
                return name
    return None


def refusal(method: str) -> str:
    """Return the message about a method that takes values from the host."""
    return (
        f"{method} uses random numbers or times of the host (np.random, random, time, …), which "
        "would stay as they were when it was traced: expected random numbers drawn from its key "
        "by jax.random"
    )


def _traced(programs: Programs, generators: list[Any]) -> dict[str, Trace]:
    traces = {}
    with _attempt(next(_attempts)), contextlib.suppress(Exception, SystemExit):
        before = _states(generators)
        for name, program in programs():
            after = _states(generators)
            traces[name], before = Trace(_text(program), before, after), after
    return traces


def _differ(one: Trace, other: Trace) -> bool:
    """Return whether two tracings of a method, one after the other, show that it takes values from
    the host.

    A generator that the method seeds itself is in the same state after both.
    """
    states = zip(one.after, other.before, other.after, strict=True)
    drawn = any(after not in (first, before) for first, before, after in states)
    return drawn or one.program != other.program


def _generators() -> list[Any]:
    """Return all generators of random numbers of the process that have a state, also those of
    modules, closures and objects.

    NumPy's all have a bit generator.
    """
    kinds, new = set(), {random.Random, np.random.BitGenerator}
    while new:
        kinds |= new
        new = {kind for found in new for kind in found.__subclasses__()} - kinds
    kinds = {kind for kind in kinds if not issubclass(kind, random.SystemRandom)}
    return [found for found in gc.get_objects() if type(found) in kinds]


def _states(generators: list[Any]) -> list[bytes]:
    return [
        pickle.dumps(g.getstate() if isinstance(g, random.Random) else g.state) for g in generators
    ]


def _text(program: core.ClosedJaxpr) -> str:
    """Return all operations and constants of a program, without addresses of objects."""
    return re.sub(r"0x[0-9a-f]+", "", f"{program} {list(_constants(program))}")


def _constants(value: Any) -> Iterator[bytes]:
    """Yield the bytes of constants, and of arrays among the parameters of operations."""
    if isinstance(value, core.ClosedJaxpr):
        yield from _constants(value.consts)
        yield from _constants(value.jaxpr)
    elif isinstance(value, core.Jaxpr):
        for equation in value.eqns:
            yield from _constants(list(equation.params.values()))
            yield from _constants([v.val for v in equation.invars if isinstance(v, core.Literal)])
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _constants(part)
    elif isinstance(value, Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        yield from _constants(jax.random.key_data(value))
    elif isinstance(value, np.ndarray | np.generic | Array):
        yield np.asarray(value).tobytes()
