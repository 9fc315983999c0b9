"""Compiled programs: how they are compiled, and which of them are kept.

A program is compiled in full, or quickly: on CPUs without XLA's newer emitters of fused loops and
with little optimisation of machine code, in half the time. The bits are the same. Without the
emitters updates in place are not vectorised: agents that plan in the mean model decide two to three
times as slowly, tree searches as fast (`benchmarks/compiler.py`). So times of the two are not
compared.

On Linux a process has a limited number of memory mappings, 65,530 by default, and a program for
CPUs takes a dozen of them or more. Beyond the limit the compiler crashes (jaxlib 0.10.2), so the
programs that are not in use are forgotten long before.
"""

import contextlib
import ctypes
import functools
import gc
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

import jax
import jax.extend.core
from jax import Array

from jbrl.base.errors import JbrlError, shown
from jbrl.play import executables
from jbrl.play.machine import available_cores
from jbrl.play.timing import since
from jbrl.vectorize import native

F = TypeVar("F", bound=Callable[..., Any])

# On CPUs each device is one core, and all of them are busy. XLA would split large operations of
# each device over all cores nevertheless, and then runs whole loops by asynchronous steps. Small
# sums and products it would hand to a library that prepares each call for longer than ours take.
# Without the two, on two cores, e-Greedy on GC takes a third less, SBOSS a quarter, and the bits
# are the same.
#
# The others are defaults, said all the same: what `XLA_FLAGS` holds does not decide the bits, but
# for the instructions that it allows (`jbrl._limit_instructions`).
ON_CPU: dict[str, str | bool] = {
    "xla_disable_hlo_passes": "cpu-parallel-task-assigner",
    "xla_cpu_experimental_ynn_fusion_type": "",
    "xla_backend_optimization_level": "3",
    "xla_cpu_use_fusion_emitters": True,
}
# Modules are split for as many threads as there are cores, not for 32: each part takes time.
QUICKLY: dict[str, str | bool] = {
    "xla_backend_optimization_level": "1",
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": str(min(32, available_cores())),
}

# XLA hands operations that can run side by side to other threads, and one decision waits longer for
# these than it computes. The order that takes least memory leaves few of them: on a busy machine
# Q(λ) on CartPole decides in half the time, e-Greedy on GC of 30 states in two thirds; the bits are
# the same.
ALONE = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}

# On a GPU loops and branches are recorded in graphs, too, besides what XLA records by default: the
# host neither launches their kernels nor decides whether a loop goes on. With 512 lanes on an H100
# four agents decide 1.3 to 2.5 times as fast, with the same bits (`benchmarks/gpu.py`).
ON_GPU: dict[str, str | bool] = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,"
    "DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    "xla_gpu_graph_min_graph_size": "1",
}

GPU = ("gpu", "cuda")  # platforms

Effort = Literal["full", "quick"]

MAPPINGS_SHARE = 0.5  # of the limit, beyond which programs are forgotten
_MAPPINGS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


class Program(NamedTuple):
    """A compiled function."""

    call: Callable[..., Any]
    lanes: int  # of a call
    fresh: bool  # compiled just now, not before
    bytes: int = 0  # of memory that a call takes on each device
    keepable: bool = False  # compiled in this process, so that it can be written to the disk


KEPT: dict[tuple[Any, ...], Program] = {}
_shapes: dict[tuple[Any, ...], Any] = {}
_untimed: set[Callable[..., Any]] = set()
COMPILING = "compiling"  # threads are called so, which `jbrl.__main__` does not wait for
LOOK = 0.1  # seconds between two looks at whether a compilation is still worth waiting for
VARIABLE = "JBRL_COMPILE"  # the effort where a study says nothing


def untimed(fn: F) -> F:
    """Mark a function whose programs no clock measures: they are always compiled quickly."""
    _untimed.add(fn)
    return fn


def _default() -> Effort:
    """Return the effort that the environment asks for.

    Raises:
      JbrlError: it is none.
    """
    asked = os.environ.get(VARIABLE) or "full"
    if asked not in get_args(Effort):
        raise JbrlError(f'{VARIABLE} = {shown(asked)}: expected "full" or "quick"')
    return cast(Effort, asked)


_effort: Effort | None = None  # of `compiling`


def present_effort() -> Effort:
    """Return how programs are compiled now."""
    return _effort or _default()


@contextlib.contextmanager
def compiling(effort: Effort | None) -> Iterator[None]:
    """Compile in full or quickly within the block, in all threads; None: as before."""
    global _effort
    before, _effort = _effort, effort or _effort
    try:
        yield
    finally:
        _effort = before


_check: Callable[[], Any] | None = None  # of `waiting_while`


@contextlib.contextmanager
def waiting_while(check: Callable[[], Any]) -> Iterator[None]:
    """Call `check` while something is compiled within the block: an error that it raises is not
    kept waiting by the compilation, which goes on in its thread.
    """
    global _check
    before, _check = _check, check
    try:
        yield
    finally:
        _check = before


def options_name(platform: str) -> str:
    """Return what results are marked with whose times may be compared: `full`, `quick`, or "" where
    there are no such options.
    """
    return present_effort() if platform == "cpu" or platform in GPU else ""


def compile_together(*tasks: Callable[[], Program] | None) -> tuple[list[Any], float]:
    """Compile several programs side by side, None for none.

    Neither an interrupt (KeyboardInterrupt) nor an error of `waiting_while` waits for compilations,
    which cannot be ended.

    Returns: the programs, and the wall seconds that it took: 0 when all had been compiled before.
    """
    forget_when_crowded()
    started, abandoned = time.perf_counter(), True
    pool = ThreadPoolExecutor(len(tasks), COMPILING)
    try:
        with without_collection():
            futures = [pool.submit(task) if task else None for task in tasks]
            while wait(filter(None, futures), LOOK if _check else None).not_done:
                if _check:
                    _check()
        abandoned = False
        programs = [future.result() if future else None for future in futures]
    finally:
        pool.shutdown(wait=not abandoned, cancel_futures=abandoned)
    seconds = since(started) if any(program.fresh for program in programs if program) else 0.0
    if seconds and (trim := _trim()):
        trim(0)
    return programs, seconds


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """Return the function of the C library that gives the system back what is free, where it has
    one: the compiler leaves tens of megabytes of each program behind, which malloc would keep.
    """
    try:
        return cast(Callable[[int], int], ctypes.CDLL(None).malloc_trim)
    except (AttributeError, OSError, TypeError):
        return None


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Switch the cyclic garbage collector off within the block.

    Tracing makes so many objects that live on that the collector takes a tenth of the time of a
    compilation.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compile_once(fn: Callable[..., Any], *args: Any) -> Program:
    """Compile `fn(*args)`, a function of the module level, as it is, for the one device that all
    arguments lie on: nothing is mapped.

    Arrays among the arguments that the function does not use are no part of the program, so that
    agents whose training takes the same operations share one.
    """
    devices = list(jax.tree.leaves(args)[0].devices())
    effort = present_effort()
    identity = (effort, *identity_of(fn, args, devices, (1, 1)))
    if identity in KEPT:
        return KEPT[identity]._replace(fresh=False)
    chosen = options(devices[0].platform, effort)
    if found := executables.find(identity, chosen, devices):
        program, (used, structure) = Program(found.call, 1, True, found.bytes), found.beside
    else:
        traced = jax.jit(fn).trace(*args)
        used, lowered = _lowered(traced.jaxpr, jax.tree.leaves(args))
        digest = hashlib.sha256(lowered.as_text().encode()).hexdigest()
        program = find_or_compile((digest, *devices), lambda: lowered, devices, 1, apart=False)
        structure = jax.tree.structure(traced.out_info)
        if program.keepable:
            executables.keep(identity, chosen, program.call, program.bytes, (used, structure))

    def call(*args: Any) -> Any:
        leaves = jax.tree.leaves(args)
        return jax.tree.unflatten(structure, program.call(*(leaves[i] for i in used)))

    KEPT[identity] = program._replace(call=call, fresh=True)
    return KEPT[identity]


def _lowered(jaxpr: Any, leaves: Sequence[Array]) -> tuple[tuple[int, ...], Any]:
    """Return which of the arguments a function uses, and the function of these alone, lowered.

    One argument is taken in any case, since it says on which device the program runs.

    Args:
      jaxpr: of the function, closed.
      leaves: all arguments.
    """
    used = native.inputs_used(jaxpr.jaxpr) or (0,)

    def part(*given: Array) -> list[Any]:
        whole: list[Any] = [None] * len(leaves)
        for i, value in zip(used, given, strict=True):
            whole[i] = value
        return jax.extend.core.jaxpr_as_fun(jaxpr)(*whole)

    return used, jax.jit(part, keep_unused=True).lower(*(leaves[i] for i in used))


def compile_for(
    fn: Callable[..., Any],
    jitted: Any,
    args: tuple[Any, ...],
    devices: Sequence[jax.Device],
    sizes: tuple[int, int],
) -> Program:
    """Compile `jitted`, made of `fn`, or find what has been compiled before.

    Args:
      fn: a function of the module level, which identifies the program together with the rest.
      args: arrays, or shapes in their place.
      sizes: lanes of a call, and lanes of a group or block.
    """
    identity = identity_of(fn, args, devices, sizes)
    return find_or_compile(identity, lambda: jitted.lower(*args), devices, sizes[0])


def find_or_compile(
    identity: tuple[Any, ...],
    lower: Callable[[], Any],
    devices: Sequence[jax.Device],
    lanes: int,
    *,
    apart: bool = True,
    alone: bool = False,
) -> Program:
    """Return the program with this identity: what has been compiled before, in this process or
    (`apart`) one before it, else what `lower` returns, compiled.

    Args:
      alone: a call plays one lifetime or few, and is waited for.
    """
    effort: Effort = "quick" if identity[0] in _untimed else present_effort()
    identity, chosen = (effort, *identity), options(devices[0].platform, effort, alone=alone)
    if identity in KEPT:
        return KEPT[identity]._replace(fresh=False)
    found = executables.find(identity, chosen, devices) if apart else None
    if found:
        KEPT[identity] = Program(found.call, lanes, True, found.bytes)
        return KEPT[identity]
    compiled, keepable = executables.compile_lowered(lower(), chosen)
    KEPT[identity] = Program(compiled, lanes, True, _bytes(compiled), keepable)
    if apart and keepable:
        executables.keep(identity, chosen, compiled, KEPT[identity].bytes)
    return KEPT[identity]


def shapes_of(fn: Callable[..., Any], *args: Any) -> Any:
    """Return `jax.eval_shape(fn, *args)`, of a function of the module level, traced once."""
    identity = ("shapes", *identity_of(fn, args, (), (0, 0)))
    if identity not in _shapes:
        found = executables.recall(identity)
        if found is None:
            found = jax.eval_shape(fn, *args)
            executables.remember(identity, found)
        _shapes[identity] = found
    return _shapes[identity]


def identity_of(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    devices: Sequence[jax.Device],
    sizes: tuple[int, int],
) -> tuple[Any, ...]:
    """Return what two programs have in common if they are the same.

    Args: as `compile_for`.
    """
    leaves, structure = jax.tree.flatten(args)
    return fn, structure, tuple(jax.typeof(leaf) for leaf in leaves), tuple(devices), sizes


def forget_when_crowded() -> bool:
    """Forget all programs that are not in use when the process has too many memory mappings.

    Returns: True if they are forgotten. False also where the system does not count mappings.
    """
    try:
        limit = int(_LIMIT.read_text())
        with _MAPPINGS.open("rb") as lines:
            count = sum(1 for _ in lines)
    except (OSError, ValueError):
        return False
    if count < MAPPINGS_SHARE * limit:
        return False
    KEPT.clear()
    jax.clear_caches()
    return True


@functools.cache
def options(
    platform: str, effort: Effort = "full", *, alone: bool = False
) -> dict[str, str | bool]:
    """Return the options for the compiler that this version of XLA has."""
    quickly, wanted = effort == "quick", dict[str, str | bool]()
    if platform == "cpu":
        wanted = {**ON_CPU, **(QUICKLY if quickly else {}), **(ALONE if alone else {})}
    elif platform in GPU and not quickly:
        wanted = ON_GPU
    return {name: value for name, value in wanted.items() if known(name, value)}


@functools.cache
def known(name: str, value: str | bool) -> bool:
    """Return whether this version of XLA has an option of the compiler."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _bytes(compiled: Any) -> int:
    """Return the memory that a call takes on each device, 0 where the compiler does not say."""
    found = compiled.memory_analysis()
    return (
        found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
        if found
        else 0
    )
