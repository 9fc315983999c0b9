"""Host values in traced methods: numbers that the host draws while a method is traced are fixed in
the compiled program.

A method that calls `np.random`, `random` or `time` runs once, when JAX traces it; what it has drawn
then is part of the compiled program, for all lifetimes. Draws are found by the states of all
generators before and after a method is traced, so that a draw counts even where it decides nothing
this time. Times are found by programs that differ from one tracing to the next.
"""

import contextlib
import gc
import hashlib
import itertools
import os
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

FEWEST_TRACES = 2  # compared
TRACES = 4  # compared where tracing takes less than `SECONDS`
SECONDS = 1.0
_CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns")
_DAY = 86_400

# Part of the key of JAX's caches: what is traced within is traced anew.
_attempt = jax.make_user_context(0)
_attempts = itertools.count(1)
_alone = threading.Lock()  # clocks and generators are the process's

Programs = Callable[[], Iterator[tuple[str, core.ClosedJaxpr]]]


class Trace(NamedTuple):
    """One tracing of a method."""

    program: bytes  # its identity
    fresh: bool  # random numbers of the operating system were asked for: seeds of new generators
    before: tuple[bytes, ...]  # states of all generators
    after: tuple[bytes, ...]

    def depends_on_host(self, other: "Trace") -> bool:
        """Return whether the two tracings of a method show that it takes values from the host.

        A generator that is in the same state after both was not used, or was seeded by the method
        itself.
        """
        drawn = any(
            len(set(states)) > 1 and before != states
            for before, states in zip(
                zip(self.before, other.before, strict=True),
                zip(self.after, other.after, strict=True),
                strict=True,
            )
        )
        return drawn or self.program != other.program or (self.fresh and other.fresh)


def host_values(programs: Programs) -> str | None:
    """Return the name of the first program that takes values from the host; None if none does.

    The generators of NumPy and Python start from other seeds each time, and the clocks show another
    date; the states of both generators are afterwards as they were. Programs that cannot be traced
    count as the same: they fail where they are used.

    Args:
      programs: traces and yields programs by name, always the same ones in the same order.
    """
    began, generators = time.monotonic(), _generators()
    first = _traced(programs, 0, generators)
    for number in range(1, TRACES):
        if number >= FEWEST_TRACES and time.monotonic() - began > SECONDS:
            return None
        found = _traced(programs, number, generators)
        for name, trace in first.items():
            if name in found and trace.depends_on_host(found[name]):
                return name
    return None


def refusal(method: str) -> str:
    """Return the message about a method that takes values from the host."""
    return (
        f"{method} uses random numbers or times of the host (np.random, random, time, …), which "
        "would stay as they were when it was traced: expected random numbers drawn from its key "
        "by jax.random"
    )


def _traced(programs: Programs, seed: int, generators: Sequence[Any]) -> dict[str, Trace]:
    """Return a tracing of each program."""
    found = {}
    with (
        _alone,
        _attempt(next(_attempts)),
        _other_host(seed),
        _asked_for_entropy() as asked,
        contextlib.suppress(Exception),
    ):
        before = _states(generators)
        for name, program in programs():
            found[name] = Trace(_digest(program), bool(asked), before, _states(generators))
            asked.clear()
            _seed(seed)
            before = _states(generators)
    return found


@contextlib.contextmanager
def _other_host(seed: int) -> Iterator[None]:
    """Give the generators of NumPy and Python another seed, and this thread another date."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 (users may call it)
    clocks = {name: getattr(time, name) for name in _CLOCKS}
    _seed(seed)
    try:
        for name, clock in clocks.items():
            setattr(
                time, name, _shifted(clock, seed * _DAY * (10**9 if name.endswith("_ns") else 1))
            )
        yield
    finally:
        for name, clock in clocks.items():
            setattr(time, name, clock)
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def _shifted(clock: Callable[[], Any], seconds: int) -> Callable[[], Any]:
    """Return a clock that shows another time to this thread alone."""
    thread = threading.get_ident()
    return lambda: clock() + (seconds if threading.get_ident() == thread else 0)


@contextlib.contextmanager
def _asked_for_entropy() -> Iterator[list[bool]]:
    """Yield a list that is not empty once this thread asks the operating system for random
    numbers, as a generator without a seed does, `secrets` and `uuid.uuid4`.
    """
    asked: list[bool] = []
    thread, entropy, make = threading.get_ident(), os.urandom, random.Random.__init__

    def urandom(size: int, /) -> bytes:
        if threading.get_ident() == thread:
            asked.append(True)
        return entropy(size)

    def init(self: random.Random, x: Any = None) -> None:
        if x is None and threading.get_ident() == thread:
            asked.append(True)
        make(self, x)

    changes = (
        (os, "urandom", urandom),
        (random, "_urandom", urandom),
        (random.Random, "__init__", init),
    )
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield asked
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _generators() -> list[Any]:
    """Return all generators of random numbers of the process that have a state, also those of
    modules, closures and objects.

    NumPy's all have a bit generator.
    """
    objects = gc.get_objects()  # millions, of few kinds
    kinds = {
        kind
        for kind in set(map(type, objects))
        if issubclass(kind, random.Random | np.random.BitGenerator)
        and not issubclass(kind, random.SystemRandom)
    }
    return [found for found in objects if type(found) in kinds]


def _states(generators: Sequence[Any]) -> tuple[bytes, ...]:
    return tuple(
        pickle.dumps(g.getstate() if isinstance(g, random.Random) else g.state) for g in generators
    )


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
