"""Expensive tasks of many MDPs: one after the other on a CPU, in lockstep on other devices, either
way as if each were alone.

A task is a record of arrays. Tasks are stacked along a leading axis; what all have in common may
keep length 1 there. To work on one takes memory, which the next one may find as it was left:
`work(task, memory) -> (result, memory)`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

Work = Callable[[Any, Any], tuple[Any, Any]]


def for_one(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make `run`, a function of stacked tasks, a function of one task; mapped, it calls `run` once
    with all of them.
    """

    @custom_vmap
    def run_all(tasks: Any) -> Any:
        return run(tasks)

    @run_all.def_vmap
    def _(size: int, batched: list[Any], tasks: Any) -> tuple[Any, ...]:
        mapped = batched[0]
        inner = max(
            int(v.shape[1 if b else 0])
            for v, b in zip(jax.tree.leaves(tasks), jax.tree.leaves(mapped), strict=True)
        )

        def merged(value: jax.Array, own: bool) -> jax.Array:
            if not own and value.shape[0] == 1:
                return value
            value = value if own else value[None]
            return jnp.broadcast_to(value, (size, inner, *value.shape[2:])).reshape(
                size * inner, *value.shape[2:]
            )

        found = run_all(jax.tree.map(merged, tasks, mapped))
        found = jax.tree.map(lambda v: v.reshape(size, inner, *v.shape[1:]), found)
        return found, jax.tree.map(lambda _: True, found)

    return lambda task: jax.tree.map(lambda v: v[0], run_all(jax.tree.map(lambda v: v[None], task)))


def on_this_device(
    tasks: Any, one_by_one: Callable[[Any], Any], in_lockstep: Callable[[Any], Any]
) -> Any:
    """Return the one of the two that suits the device that the program is compiled for."""
    if jax.default_backend() == "cpu":
        return one_by_one(tasks)
    return lax.platform_dependent(tasks, cpu=one_by_one, default=in_lockstep)


def in_turn(tasks: Any, work: Work, memory: Any) -> Any:
    """Return results of all tasks, one after the other in the same memory; for `native` code."""
    count = _count(tasks)

    def nth(i: jax.Array) -> Any:
        return jax.tree.map(
            lambda v: lax.dynamic_index_in_dim(v, jnp.minimum(i, v.shape[0] - 1), keepdims=False),
            tasks,
        )

    def step(i: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        memory, found = carry
        result, memory = work(nth(i), memory)
        return memory, jax.tree.map(
            lambda all_, one: lax.dynamic_update_index_in_dim(all_, one, i, 0), found, result
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
