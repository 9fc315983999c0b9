"""Number of MDPs that run at once, and their devices: the only place that decides these.

On CPUs a compiled call always plays `lanes` MDPs per device, the last ones repeated when fewer are
wanted, because compiled code may round differently at different widths: the results of an MDP then
cannot depend on how many others are played. The data that lanes share, an agent and its knowledge,
are given once for each *group* of lanes, so that one program serves a unit of work alone and
several at once. On CPUs a device plays one group, on accelerators as many as fit.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jbrl.play.compilation import Program, compile_for
from jbrl.play.machine import available_cores
from jbrl.problems.problem import DirichletProblem, Problem
from jbrl.rollout.contract import Agent

AXIS = "lanes"
WIDEST_ON_ACCELERATOR = 16_384
CACHE = 2**20  # bytes of a core's own cache, where the models of all lanes are to stay
FEWEST = 64  # lanes with a model: fewer would not pay for calling the operations of a step


def use_all_cores(cores: int | None = None) -> bool:
    """Make each CPU core a JAX device, all of them unless `cores`, or the variable
    JAX_NUM_CPU_DEVICES, says how many; programs of one device run inline (`run_inline`).

    Returns False when JAX has already started and keeps the devices it has.
    """
    run_inline()
    if cores is None and "JAX_NUM_CPU_DEVICES" in os.environ:
        return True
    try:
        jax.config.update("jax_num_cpu_devices", cores or available_cores())
    except RuntimeError:
        return False
    return True


def run_inline() -> None:
    """Let programs of one CPU device run in the thread that calls them, unless JAX has already
    started: until another thread wakes takes 20 to 30 µs, which is most of a short decision.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def lanes_per_device(
    agent: Agent, test: Problem, n_environments: int, devices: Sequence[jax.Device]
) -> int:
    """Return the number of MDPs that each device plays at once: on CPUs fixed by the agent and the
    problem, on accelerators as many as wanted (rounded up to a power of two).
    """
    if devices[0].platform == "cpu":
        return lanes_on_cpu(agent, test)
    return lanes_on_accelerator(n_environments, len(devices))


def lanes_on_cpu(agent: Agent, test: Problem) -> int:
    """Return the number of MDPs that a CPU device plays at once."""
    if not agent.holds_model or not isinstance(test, DirichletProblem):
        return agent.lanes
    n_states, n_actions, _ = test.mdps.concentrations.shape
    fitting = CACHE // (4 * n_states**2 * (n_actions + 1))  # a model, and an inverse of one policy
    return min(agent.lanes, max(FEWEST, 1 << fitting.bit_length() >> 1))


def lanes_on_accelerator(wanted: int, n_devices: int) -> int:
    """Return the number of MDPs that each accelerator plays at once."""
    return min(1 << (-(-wanted // n_devices) - 1).bit_length(), WIDEST_ON_ACCELERATOR)


def compile_mapped(
    fn: Callable[[Any, Any], Any],
    shared: Any,
    lane: Any,
    width: int,
    devices: Sequence[jax.Device],
    groups: int = 1,
) -> Program:
    """Compile `fn(shared, lane)`, mapped over `groups` groups of `width` lanes on each device.

    Args:
      fn: a function of the module level, written for one lane.
      shared: pytree given whole to every lane of a group.
      lane: pytree of `jax.ShapeDtypeStruct`: the input of one lane.
      width: lanes of a group.
      groups: on each device.

    Returns: a program that takes `shared` of all groups stacked along a leading axis (`spread`),
      and lanes stacked along one of length width x groups x devices, group by group. Compiled once
      for each combination of function, shapes, static fields, width, groups and devices.
    """
    count = groups * len(devices)
    every, lanes = _stacked(shared, count), _stacked(lane, width * count)
    each = jax.vmap(fn, in_axes=(None, 0))

    def body(shared: Any, lanes: Any) -> Any:
        if groups == 1:
            return each(jax.tree.map(lambda v: v[0], shared), lanes)
        grouped = jax.tree.map(lambda v: v.reshape(groups, width, *v.shape[1:]), lanes)
        return jax.tree.map(
            lambda v: v.reshape(groups * width, *v.shape[2:]), jax.vmap(each)(shared, grouped)
        )

    return compile_for(
        fn, _over_devices(body, devices), (every, lanes), devices, (width * count, width)
    )


def _over_devices(
    body: Callable[..., Any], devices: Sequence[jax.Device], donated: tuple[int, ...] = ()
) -> Any:
    """Run `body` on each device, on its part of all arguments along their leading axis."""
    mesh, split = Mesh(np.array(devices), (AXIS,)), PartitionSpec(AXIS)
    mapped = jax.shard_map(body, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)
    # Where `body` leaves an input unused, for example an agent its key, JAX would drop it, and
    # crash when called again (jaxlib 0.10.2).
    placed = NamedSharding(mesh, split)
    # on several devices said of results, too: one without entries loses it
    after: dict[str, Any] = {"out_shardings": placed} if len(devices) > 1 else {}
    return jax.jit(mapped, in_shardings=placed, keep_unused=True, donate_argnums=donated, **after)


def compile_blocks(
    fn: Callable[..., Any],
    shared: Any,
    lane: Any,
    width: int,
    devices: Sequence[jax.Device],
    max_blocks: int,
) -> Program:
    """Compile `fn(shared, lane)`, mapped over blocks of `width` lanes, of which each device plays
    up to `max_blocks`, one after the other.

    One call for many blocks: calling takes time, during which all devices wait. How many blocks
    there are changes no bits.

    Args: as `compile_mapped`.

    Returns: a program that takes `shared` stacked for the devices (`spread`), the number of blocks
      on each device ([devices] int32), and lanes as `calls` gives them; `parts` reads its results.
    """
    each = jax.vmap(fn, in_axes=(None, 0))

    def body(shared: Any, wanted: Array, lanes: Any) -> Any:
        shared = jax.tree.map(lambda v: v[0], shared)
        blocks = _in_blocks(lanes, max_blocks, width)
        shapes = jax.eval_shape(each, shared, jax.tree.map(lambda v: v[0], blocks))
        empty = jax.tree.map(lambda v: jnp.zeros((max_blocks, *v.shape), v.dtype), shapes)
        return _each_block(lambda block: each(shared, block), wanted[0], blocks, empty)

    count = len(devices)
    lanes = _stacked(lane, count * max_blocks * width)
    return compile_for(
        fn,
        _over_devices(body, devices),
        (_stacked(shared, count), _numbers(count), lanes),
        devices,
        (count * max_blocks * width, width),
    )


def compile_groups(
    fn: Callable[[Any, Any, Any], Any],
    shared: Any,
    lane: Any,
    width: int,
    devices: Sequence[jax.Device],
    max_blocks: int,
) -> Program:
    """Compile `fn(shared, lanes, limit)`, a function of a group of `width` lanes, of which each
    device plays up to `max_blocks` in turn.

    Args:
      fn: a function of the module level that returns lanes of the structure that it takes; `limit`
        is [] int32.
      shared: pytree given whole to every group.
      lane: pytree of `jax.ShapeDtypeStruct`: one lane.

    Returns: a program that takes `shared` stacked for the devices (`spread`), how many groups each
      device plays and the limit ([devices] int32 each), and lanes stacked along an axis of length
      devices x max_blocks x width, whose memory it takes over; it returns lanes.
    """

    def body(shared: Any, wanted: Array, limit: Array, lanes: Any) -> Any:
        shared = jax.tree.map(lambda v: v[0], shared)
        groups = _in_blocks(lanes, max_blocks, width)
        return _each_block(
            lambda group: fn(shared, group, limit[0]), wanted[0], groups, groups, in_place=True
        )

    count = len(devices)
    numbers, lanes = _numbers(count), _stacked(lane, count * max_blocks * width)
    return compile_for(
        fn,
        _over_devices(body, devices, donated=(3,)),
        (_stacked(shared, count), numbers, numbers, lanes),
        devices,
        (count * max_blocks * width, width),
    )


def _stacked(tree: Any, count: int) -> Any:
    """Return the shapes of `count` of these along a leading axis."""
    return jax.tree.map(lambda v: jax.ShapeDtypeStruct((count, *v.shape), v.dtype), tree)


def _numbers(count: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count,), jnp.int32)


def _in_blocks(lanes: Any, count: int, width: int) -> Any:
    return jax.tree.map(lambda v: v.reshape(count, width, *v.shape[1:]), lanes)


def _each_block(
    play: Callable[[Any], Any], wanted: Array, blocks: Any, results: Any, *, in_place: bool = False
) -> Any:
    """Play the first `wanted` blocks one after the other, into `results`; return their lanes.

    Args:
      in_place: the results are the blocks.
    """

    def one(i: Array, results: Any) -> Any:
        tables = results if in_place else blocks
        block = jax.tree.map(lambda v: lax.dynamic_index_in_dim(v, i, keepdims=False), tables)
        return jax.tree.map(
            lambda table, new: lax.dynamic_update_index_in_dim(table, new, i, 0),
            results,
            play(block),
        )

    results = lax.fori_loop(0, wanted, one, results)
    return jax.tree.map(lambda v: v.reshape(v.shape[0] * v.shape[1], *v.shape[2:]), results)


class Call(NamedTuple):
    """Lanes that the devices play in one call of a program made by `compile_blocks`."""

    lanes: np.ndarray  # [devices * max_blocks * width] int64
    blocks: np.ndarray  # [devices] int32
    wanted: int  # lanes that count, the first ones


def calls(n_lanes: int, width: int, n_devices: int, max_blocks: int) -> Iterator[Call]:
    """Yield lanes 0..n_lanes-1, in order, in as few calls as they take, with as few blocks as can
    be on the device that has most.
    """
    for first in range(0, n_lanes, n_devices * max_blocks * width):
        blocks = min(n_devices * max_blocks, -(-(n_lanes - first) // width))
        share = -(-blocks // n_devices)
        starts = first + share * width * np.arange(n_devices)[:, None]
        lanes = np.minimum(starts + np.arange(max_blocks * width), n_lanes - 1).reshape(-1)
        wanted = np.clip(blocks - share * np.arange(n_devices), 0, share).astype(np.int32)
        yield Call(lanes, wanted, min(n_lanes - first, blocks * width))


def parts(result: Array, call: Call, width: int) -> list[np.ndarray]:
    """Join the results of a program made by `compile_blocks` from all devices, cut to
    `call.wanted`, those of the wanted lanes.
    """
    shards = sorted(result.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return [
        np.asarray(shard.data)[: n * width] for shard, n in zip(shards, call.blocks, strict=True)
    ]


def spread(shared: Sequence[Any], devices: Sequence[jax.Device]) -> Any:
    """Stack the data that lanes share, one pytree for each group, and place them on the devices.

    Stacked on the host and sent at once: an operation of JAX for each leaf would take longer than
    many units.
    """
    stacked = [np.stack(leaves) for leaves in zip(*map(host_leaves, shared), strict=True)]
    return placed(stacked, shared[0], devices)


def host_leaves(tree: Any) -> list[npt.NDArray[Any]]:
    """Return the leaves of a pytree of arrays on the host, random keys as their words."""
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf) for leaf in leaves]


def host_rows(leaf: Array, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return rows of an array that is split over devices along its leading axis, random keys as
    their words.

    Only these are copied, and no view of a device's memory is left, which a program that takes the
    memory over would have to copy first.
    """
    words = jax.random.key_data(leaf) if is_key(leaf) else leaf
    found = np.empty((len(rows), *words.shape[1:]), words.dtype)
    for shard in words.addressable_shards:
        first, last, _ = shard.index[0].indices(len(words))
        here = np.flatnonzero((rows >= first) & (rows < last))
        found[here] = np.asarray(shard.data)[rows[here] - first]
    return found


def placed(leaves: Iterable[npt.NDArray[Any]], like: Any, devices: Sequence[jax.Device]) -> Any:
    """Undo `host_leaves`: the pytree of the structure of `like`, split over the devices along its
    leading axis. One leaf after the other, as they come.
    """
    sharding = NamedSharding(Mesh(np.array(devices), (AXIS,)), PartitionSpec(AXIS))
    examples, structure = jax.tree.flatten(like)
    sent = [
        jax.random.wrap_key_data(new, impl=jax.random.key_impl(example)) if is_key(example) else new
        for leaf, example in zip(leaves, examples, strict=True)
        for new in [jax.device_put(leaf, sharding)]
    ]
    return jax.tree.unflatten(structure, sent)


def is_key(leaf: Any) -> bool:
    """Return whether an array consists of random keys."""
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def groups(start: int, stop: int, capacity: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield lane numbers start..stop-1 in calls of `capacity`: (numbers [capacity] int32, how many
    of them count).
    """
    for first in range(start, stop, capacity):
        count = min(capacity, stop - first)
        yield np.minimum(np.arange(first, first + capacity), stop - 1).astype(np.int32), count
