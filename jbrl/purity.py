"""Host values in traced methods: numbers that the host draws while a method is traced are fixed in
the compiled program.

A method that calls `np.random`, `random` or `time` runs once, when JAX traces it; what it has drawn
then is part of the compiled program, for all lifetimes. Such a method gives another program each
time it is traced, which is how it is found.
"""

import contextlib
import hashlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

FEWEST_TRACES = 2  # compared
TRACES = 4  # compared where tracing takes less than `SECONDS`
# Compared where random numbers of the host were drawn, which need not show in two programs:
MORE_TRACES = 8
SECONDS = 1.0
_CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns")
_DAY = 86_400

# Part of the key of JAX's caches: what is traced within is traced anew.
_attempt = jax.make_user_context(0)
_attempts = itertools.count(1)
_alone = threading.Lock()  # clocks and generators are the process's

Programs = Callable[[], Iterator[tuple[str, core.ClosedJaxpr]]]


def host_values(programs: Programs) -> str | None:
    """Return the name of the first program that differs from one tracing to the next; None where
    all are the same.

    Random numbers of NumPy and Python come from other seeds each time, and the clocks show another
    date. The states of both generators are afterwards as they were. Programs that cannot be traced
    count as the same: they fail where they are used.

    Args:
      programs: traces and yields programs by name, always the same ones in the same order.
    """
    began = time.monotonic()
    first, drawn = _traced(programs, 0)
    for number in range(1, MORE_TRACES):
        wanted = TRACES if time.monotonic() - began < SECONDS else FEWEST_TRACES
        if number >= wanted and not drawn:
            return None
        found, more = _traced(programs, number)
        drawn |= more
        for name, digest in first.items():
            if found.get(name, digest) != digest:
                return name
    return None


def refusal(method: str) -> str:
    """Return the message about a method that takes values from the host."""
    return (
        f"{method} uses random numbers or times of the host (np.random, random, time, …), which "
        "would stay as they were when it was traced: expected random numbers drawn from its key "
        "by jax.random"
    )


def _traced(programs: Programs, seed: int) -> tuple[dict[str, bytes], bool]:
    """Return the digest of each program, and whether random numbers of the host have been drawn
    meanwhile.
    """
    found = {}
    with (
        _alone,
        _attempt(next(_attempts)),
        _other_host(seed) as has_drawn,
        contextlib.suppress(Exception),
    ):
        for name, program in programs():
            found[name] = _digest(program)
    return found, has_drawn()


@contextlib.contextmanager
def _other_host(seed: int) -> Iterator[Callable[[], bool]]:
    """Give this thread other random numbers and another date; yield a function that returns
    afterwards whether random numbers were drawn.
    """
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 (users may call it)
    clocks = {name: getattr(time, name) for name in _CLOCKS}
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    seeded, drawn = _states(), [False]
    try:
        for name, clock in clocks.items():
            setattr(
                time, name, _shifted(clock, seed * _DAY * (10**9 if name.endswith("_ns") else 1))
            )
        yield lambda: drawn[0]
    finally:
        drawn[0] = _states() != seeded
        for name, clock in clocks.items():
            setattr(time, name, clock)
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _shifted(clock: Callable[[], Any], seconds: int) -> Callable[[], Any]:
    """Return a clock that shows another time to this thread alone."""
    thread = threading.get_ident()
    return lambda: clock() + (seconds if threading.get_ident() == thread else 0)


def _states() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), kind, np.asarray(keys).tobytes(), tuple(rest)


def _digest(program: core.ClosedJaxpr) -> bytes:
    """Return the identity of a program: its operations, the numbers among them and its
    constants.
    """
    content = hashlib.sha256()
    _add_program(content, program.jaxpr, program.consts)
    return content.digest()


def _add_program(content: Any, jaxpr: core.Jaxpr, consts: Any) -> None:
    names: dict[Any, int] = {}

    def named(variables: Any) -> str:
        return " ".join(
            _literal(v)
            if isinstance(v, core.Literal)
            else f"{names.setdefault(v, len(names))}:{v.aval}"
            for v in variables
        )

    content.update(f"({named(jaxpr.constvars)};{named(jaxpr.invars)}".encode())
    for const in consts:
        _add(content, const)
    for equation in jaxpr.eqns:
        content.update(
            f"\n{equation.primitive} {named(equation.invars)} -> "
            f"{named(equation.outvars)} ".encode()
        )
        for key, value in sorted(equation.params.items()):
            content.update(f"{key}=".encode())
            _add(content, value)
    content.update(f"\n{named(jaxpr.outvars)})".encode())


def _literal(value: core.Literal) -> str:
    return f"{value.val!r}:{value.aval}"


def _add(content: Any, value: Any) -> None:
    """Add a parameter of an operation, or a constant. Of objects that have addresses only the kind
    counts.
    """
    if isinstance(value, core.ClosedJaxpr):
        _add_program(content, value.jaxpr, value.consts)
    elif isinstance(value, core.Jaxpr):
        _add_program(content, value, ())
    elif isinstance(value, tuple | list):
        for part in value:
            _add(content, part)
            content.update(b",")
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        is_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        array: Any = jax.random.key_data(value) if is_key else value  # type: ignore[arg-type]
        content.update(np.asarray(array).tobytes())
    elif value is None or isinstance(value, bool | int | float | complex | str):
        content.update(repr(value).encode())
    else:
        content.update(type(value).__name__.encode())
