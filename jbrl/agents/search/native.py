"""Expensive tasks of many MDPs at the speed of compiled C on CPUs.

Marks. XLA compiles a program for CPUs into many small functions, one for each fused operation, and
calls them one after the other. Each call costs some 100 ns, which is nothing for large arrays and
everything for a tree search, whose operations are on single numbers. XLA also knows how to compile
a whole call, loops included, into one function; it does so by itself for loops that touch less than
1 KB at an iteration, and for any call that `native` marks. A simulation of 15 steps takes 1 µs that
way and 15 µs without. What is marked must hold to operations that XLA can compile so: arithmetic,
reductions, `dynamic_slice`, `dynamic_update_slice`, `while_loop`; no scatter, gather by arrays of
indices, sort, cumulative sum, matrix product or callback. Other versions of XLA, and other devices,
pass over the mark: results do not depend on it, only speed.

Entries. Inside `native` code an array is updated in place on two conditions: it is indexed by
`read` and `write` (slices, not gathers and scatters), and within one iteration of a loop no read of
the array *before* an update feeds anything but that update. Loops that read and write the same
array therefore write first: they carry what the previous iteration wants written. Break the rule
and the results stay right, but the array is copied at each iteration.

Tasks. A task is a record of arrays, stacked along a leading axis; what all have in common may keep
length 1 there. On a CPU they run one after the other, on other devices in lockstep, either way as
if each were alone. To work on one takes memory, which the next one may find as it was left:
`work(task, memory) -> (result, memory)`.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata

F = TypeVar("F", bound=Callable[..., Any])
Work = Callable[[Any, Any], tuple[Any, Any]]


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
        return set_xla_metadata(marked(*args), **marks)

    return call  # type: ignore[return-value]


def read(array: Array, i: Array) -> Array:
    """Return array[i] of [N]; `i` must lie in range."""
    return read_row(array, i, 1)[0]


def read_row(array: Array, i: Array, length: int) -> Array:
    """Return array[i : i + length] of [N]; must lie in range."""
    return lax.dynamic_slice(array, (i,), (length,), allow_negative_indices=False)


def write(array: Array, i: Array, value: Array) -> Array:
    """Return `array` [N] with entry `i`, which must lie in range, replaced by `value` []."""
    return write_row(array, i, value[None])


def write_row(array: Array, i: Array, values: Array) -> Array:
    """Return `array` [N] with entries i, i + 1, ..., which must lie in range, replaced by
    `values`.
    """
    return lax.dynamic_update_slice(array, values, (i,), allow_negative_indices=False)


def for_one(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make `run`, a function of stacked tasks, a function of one task; mapped, it calls `run` once
    with all of them.
    """

    @custom_vmap
    def run_all(tasks: Any) -> Any:
        # XLA aborts where it sees through some arguments of a single task (jaxlib 0.10.2)
        return run(lax.optimization_barrier(tasks) if _count(tasks) == 1 else tasks)

    @run_all.def_vmap
    def _(size: int, batched: list[Any], tasks: Any) -> tuple[Any, ...]:
        mapped = batched[0]
        inner = max(
            int(v.shape[1 if b else 0])
            for v, b in zip(jax.tree.leaves(tasks), jax.tree.leaves(mapped), strict=True)
        )

        def merged(value: Array, own: bool) -> Array:
            if not own and value.shape[0] == 1:
                return value
            value = value if own else value[None]
            return jnp.broadcast_to(value, (size, inner, *value.shape[2:])).reshape(
                size * inner, *value.shape[2:]
            )

        results = run_all(jax.tree.map(merged, tasks, mapped))
        results = jax.tree.map(lambda v: v.reshape(size, inner, *v.shape[1:]), results)
        return results, jax.tree.map(lambda _: True, results)

    return lambda task: jax.tree.map(lambda v: v[0], run_all(jax.tree.map(lambda v: v[None], task)))


def for_each(
    work: Work, blank: Callable[[Any], Any], in_lockstep: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Make `work` a function of one task; mapped, tasks run one after the other on CPUs, in the
    same memory, `blank(tasks)`, and by `in_lockstep` on other devices.
    """

    @native
    def one_by_one(tasks: Any) -> Any:
        return in_turn(tasks, work, blank(tasks))

    def on_this_device(tasks: Any) -> Any:
        if jax.default_backend() == "cpu":
            return one_by_one(tasks)
        return lax.platform_dependent(tasks, cpu=one_by_one, default=in_lockstep)

    return for_one(on_this_device)


def in_turn(tasks: Any, work: Work, memory: Any) -> Any:
    """Return results of all tasks, one after the other in the same memory; for `native` code."""
    count = _count(tasks)

    def nth(i: Array) -> Any:
        return jax.tree.map(
            lambda v: lax.dynamic_index_in_dim(v, jnp.minimum(i, v.shape[0] - 1), keepdims=False),
            tasks,
        )

    def step(i: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        memory, results = carry
        result, memory = work(nth(i), memory)
        return memory, jax.tree.map(
            lambda all_, one: lax.dynamic_update_index_in_dim(all_, one, i, 0), results, result
        )

    each, _ = jax.eval_shape(work, jax.eval_shape(nth, jnp.int32(0)), memory)
    nothing = jax.tree.map(lambda v: jnp.zeros((count, *v.shape), v.dtype), each)
    return lax.fori_loop(0, count, step, (memory, nothing))[1]


def in_groups(tasks: Any, work: Work, blank: Callable[[Any], Any], max_group: int) -> Any:
    """Return results of all tasks, which take each step together, `most` at a time, each in memory
    of its own, `blank(task)`.

    Groups are powers of two, as is the number of tasks on accelerators: a last group of another
    size would be a program of its own.
    """
    leaves, structure = jax.tree.flatten(tasks)
    count = _count(tasks)
    own = [v for v in leaves if v.shape[0] == count]

    def one(own: list[Any]) -> Any:
        mine = iter(own)
        task = jax.tree.unflatten(
            structure, [next(mine) if v.shape[0] == count else v[0] for v in leaves]
        )
        return work(task, blank(task))[0]

    return lax.map(one, own, batch_size=min(count, 1 << (max(1, max_group).bit_length() - 1)))


def _count(tasks: Any) -> int:
    return max(int(v.shape[0]) for v in jax.tree.leaves(tasks))
