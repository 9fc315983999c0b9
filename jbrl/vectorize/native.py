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

Groups. Work on one task is a chain in which each operation waits for the one before. `LANES` tasks
that take each step together hide that, and an operation on all of them is one vector instruction,
if three conditions hold. What lanes have is [G, 1]: XLA lets LLVM unroll the loop over the last
axis, here of length 1, and the loop over lanes stays one that LLVM vectorises. Arithmetic and
indexing stand apart (`apart`), since a loop with both in it is not vectorised, and a selection of
what was read becomes a branch. Memory is a `Table`, whose length is a power of two, so that a mask
replaces tests of bounds.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.extend
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata

from jbrl.base.pytree import record, static

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


# Operations that take no longer in native code. For matrix products XLA has slower code there, with
# other bits; for sorting and for writing several entries at once it has none.
_NAMES = """
abs add and argmax argmin bitcast_convert_type broadcast_in_dim ceil clamp concatenate cond
convert_element_type copy cumlogsumexp cummax cummin cumprod cumsum custom_jvp_call
custom_vjp_call custom_vmap_call div dynamic_slice dynamic_update_slice eq erf_inv exp expm1
floor gather ge gt integer_pow iota is_finite jit le log log1p logistic lt max min mul ne neg
not optimization_barrier or pad pjit platform_index pow random_bits random_fold_in
random_split random_unwrap random_wrap reduce reduce_and reduce_max reduce_min reduce_or
reduce_sum rem reshape rev round rsqrt scan scatter scatter-add select_n shift_left
shift_right_arithmetic shift_right_logical sign slice split sqrt square squeeze stack
stop_gradient sub tanh threefry2x32 tile transpose unstack while xla_metadata_value xor
"""
_OPERATIONS = frozenset(_NAMES.split())


def as_native(traced: Any) -> Callable[..., Any] | None:
    """Return a function that was traced as `native` code; None: it has operations that XLA compiles
    worse, or not at all, there.

    It takes the leaves of the arguments, and returns those of the results and, last, a number of
    each argument, so that XLA finds none to be unused.

    Args:
      traced: what `jax.jit(...).trace` returns.
    """
    program = traced.jaxpr
    if not all(map(_has_code, _operations(program.jaxpr))):
        return None
    used = [i for i in inputs_used(program.jaxpr) if program.in_avals[i].size]

    @native
    def run(given: list[Array]) -> Any:
        every = [jnp.zeros(kind.shape, kind.dtype) for kind in program.in_avals]
        for i, value in zip(used, given, strict=True):
            every[i] = value
        numbers = [v.reshape(-1)[:1].astype(jnp.int32) for v in given]
        return *jax.extend.core.jaxpr_as_fun(program)(*every), jnp.concatenate(numbers)

    return lambda *leaves: run([leaves[i] for i in used])


def inputs_used(jaxpr: Any) -> tuple[int, ...]:
    """Return the numbers of the inputs of a program that an operation or a result takes."""
    wanted = {id(v) for v in (*jaxpr.outvars, *(v for eqn in jaxpr.eqns for v in eqn.invars))}
    return tuple(i for i, v in enumerate(jaxpr.invars) if id(v) in wanted)


def _operations(jaxpr: Any) -> Iterator[Any]:
    """Yield the operations of a program and of those within it."""
    for operation in jaxpr.eqns:
        yield operation
        for inner in jax.extend.core.jaxprs_in_params(operation.params):
            yield from _operations(inner)


def _has_code(operation: Any) -> bool:
    name = operation.primitive.name
    if name.startswith("scatter") and math.prod(operation.invars[1].aval.shape[:-1]) > 1:
        return False  # several entries at once
    return name in _OPERATIONS


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
        return run(lax.optimization_barrier(tasks) if count_of(tasks) == 1 else tasks)

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
    work: Work,
    blank: Callable[[Any], Any],
    in_lockstep: Callable[[Any], Any],
    grouped: Callable[[Any], Any] | None = None,
    worthwhile: Callable[[Any], bool] | None = None,
) -> Callable[[Any], Any]:
    """Make `work` a function of one task; mapped, tasks run one after the other on CPUs, in the
    same memory, `blank(tasks)`, and by `in_lockstep` on other devices.

    Args:
      grouped: takes the place of `work` on CPUs where there are at least `LANES` tasks and
        `worthwhile(tasks)` holds: a function of stacked tasks, to the same bits.
    """

    @native
    def one_by_one(tasks: Any) -> Any:
        return in_turn(tasks, work, blank(tasks))

    in_groups = native(grouped) if grouped else one_by_one

    def on_cpu(tasks: Any) -> Any:
        enough = count_of(tasks) >= LANES and (worthwhile is None or worthwhile(tasks))
        return in_groups(tasks) if enough else one_by_one(tasks)

    return for_one(functools.partial(by_device, on_cpu, in_lockstep))


def by_device(on_cpu: Callable[[Any], Any], elsewhere: Callable[[Any], Any], tasks: Any) -> Any:
    """Return `on_cpu(tasks)` on CPUs, `elsewhere(tasks)` on other devices."""
    if jax.default_backend() == "cpu":
        return on_cpu(tasks)
    return lax.platform_dependent(tasks, cpu=on_cpu, default=elsewhere)


def in_turn(tasks: Any, work: Work, memory: Any, size: int = 0) -> Any:
    """Return results of all tasks, one after the other in the same memory; for `native` code.

    Args:
      work: as `Work`; with a size, of stacked tasks and to stacked results.
      size: tasks that `work` takes at once, of which there are at least so many; where the last
        ones are fewer, it takes some of those before again. 0: a single one, not stacked.
    """
    count = count_of(tasks)

    def nth(i: Array) -> Any:
        if size:
            return jax.tree.map(
                lambda v: v if v.shape[0] == 1 else lax.dynamic_slice_in_dim(v, i * size, size),
                tasks,
            )
        return jax.tree.map(
            lambda v: lax.dynamic_index_in_dim(v, jnp.minimum(i, v.shape[0] - 1), keepdims=False),
            tasks,
        )

    def stacked(task: Any, memory: Any) -> tuple[Any, Any]:
        result, memory = work(task, memory)
        return result if size else jax.tree.map(lambda v: v[None], result), memory

    def step(i: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        memory, results = carry
        result, memory = stacked(nth(i), memory)
        put = functools.partial(
            lax.dynamic_update_slice_in_dim, start_index=i * size if size else i, axis=0
        )
        return memory, jax.tree.map(put, results, result)

    each, _ = jax.eval_shape(stacked, jax.eval_shape(nth, jnp.int32(0)), memory)
    nothing = jax.tree.map(lambda v: jnp.zeros((count, *v.shape[1:]), v.dtype), each)
    return lax.fori_loop(0, -(-count // (size or 1)), step, (memory, nothing))[1]


def in_groups(tasks: Any, work: Work, blank: Callable[[Any], Any], max_group: int) -> Any:
    """Return results of all tasks, which take each step together, `most` at a time, each in memory
    of its own, `blank(task)`.

    Groups are powers of two, as is the number of tasks on accelerators: a last group of another
    size would be a program of its own.
    """
    leaves, structure = jax.tree.flatten(tasks)
    count = count_of(tasks)
    own = [v for v in leaves if v.shape[0] == count]

    def one(own: list[Any]) -> Any:
        mine = iter(own)
        task = jax.tree.unflatten(
            structure, [next(mine) if v.shape[0] == count else v[0] for v in leaves]
        )
        return work(task, blank(task))[0]

    return lax.map(one, own, batch_size=min(count, 1 << (max(1, max_group).bit_length() - 1)))


def count_of(tasks: Any) -> int:
    """Return the number of stacked tasks."""
    return max(int(v.shape[0]) for v in jax.tree.leaves(tasks))


LANES = 8  # of a group: numbers of 32 bits in a register of AVX2


@record
class Table:
    """Numbers of each lane of a group, one lane after the other."""

    values: Array  # [P], P a power of two
    stride: int = static()  # from one lane to the next; 0: all lanes have the same numbers


def blank_table(length: int, dtype: Any) -> Table:
    """Return zeros, `length` of them for each lane."""
    return table(jnp.zeros((LANES, length), dtype))


def table(values: Array) -> Table:
    """Return the numbers of each lane, [LANES, N], or of all lanes, [1, N]."""
    lanes, stride = values.shape
    if lanes > 1 and stride % SAME_SET == 0:
        stride += LINE
    wanted = 1 << (lanes * stride - 1).bit_length()
    flat = jnp.pad(values, ((0, 0), (0, stride - values.shape[1]))).reshape(-1)
    return Table(jnp.pad(flat, (0, wanted - lanes * stride)), stride if lanes > 1 else 0)


SAME_SET = 512  # numbers: lanes so far apart would displace each other from the cache
LINE = 16  # numbers in a line of the cache


def _position(table: Table, i: Array) -> Array:
    """Return where entry `i` [LANES, 1] of each lane is."""
    if table.stride:
        i = i + jnp.arange(LANES, dtype=jnp.int32)[:, None] * table.stride
    return i & (table.values.shape[0] - 1)


def read_each(table: Table, i: Array) -> Array:
    """Return entry `i` of each lane, both [LANES, 1]; must lie in range."""
    numbers = lax.GatherDimensionNumbers((1,), (), (0,))
    return lax.gather(table.values, _position(table, i), numbers, (1,), mode="promise_in_bounds")


def write_each(table: Table, i: Array, values: Array) -> Table:
    """Return `table` with entries i, i + 1, ... of each lane replaced by `values` [LANES, n], or
    [1, n] for all lanes; `i` is [LANES, 1]; must lie in range.
    """
    where, new = _position(table, i), table.values
    for lane, row in enumerate(jnp.broadcast_to(values, (LANES, values.shape[1]))):
        new = lax.dynamic_update_slice(new, row, (where[lane, 0],), allow_negative_indices=False)
    return dataclasses.replace(table, values=new)


def apart(fn: F) -> F:
    """Keep XLA from fusing what `fn`, a function of arrays in `native` code, does with what is
    around it. Every argument must be used.
    """
    marked = jax.jit(fn)

    @functools.wraps(fn)
    def call(*args):  # type: ignore[no-untyped-def]
        return set_xla_metadata(marked(*args), inlineable="false")

    return call  # type: ignore[return-value]
