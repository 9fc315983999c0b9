"""The best of a sampled set: several models of each (state, action), drawn from the posterior, and
the freedom to choose among them.

For each pair (x, u) draw K(x, u) transition rows from its Dirichlet posterior. In the *merged* MDP
an action is a pair (u, k): play u, and let the next state come from the k-th row of (x, u). Its
optimal values,

    Q(x, u) = max_{k < K(x, u)} sum_y P_k(x, u, y) [R(x, u, y) + g max_v Q(y, v)],

are optimistic where samples differ, that is where little is known. Asmuth et al. 2009 (BOSS);
Castro and Precup 2010 (SBOSS).

Rows lie one after the other, as many as there are: sum K, not S A max K. The merged MDP is solved
by policy iteration, exactly. All random numbers are functions of the stream of the task and of the
order of the draws.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jbrl.agents.search import native
from jbrl.agents.search.merged_rows import (
    Memory,
    MergedTask,
    Place,
    blank,
    bytes_needed,
    draw,
    first_row,
    next_row,
)
from jbrl.agents.search.native import read, read_row, write, write_row
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.mdp.planning import GREATEST_PLAIN_DISCOUNT, SHARE, TIE_TOLERANCE
from jbrl.vectorize import while_active

MEMORY = 4 << 30  # bytes of one device that solves in lockstep may take
MAX_BYTES = 1 << 30  # of the samples of one MDP
# of the policy: a handful is usual, and more could only follow rounding errors
MAX_IMPROVEMENTS = 64


@record
class MergedPolicy:
    """A policy of the merged MDP during its improvement."""

    rows: jax.Array  # [S * (S + 1)] float32, those it follows, with their expected rewards
    values: jax.Array  # [S] float32, less `level`
    level: jax.Array  # [] float32
    tolerance: jax.Array  # [S] float32, what rounding can do to the values
    q: jax.Array  # [S * A] float32, of a sweep that starts from `values`, less `level`
    changed: jax.Array  # [] bool
    improvements: jax.Array  # [] int32


@record
class MergedSolution:
    """Optimal action values of a merged MDP, of each action by its best row."""

    q: jax.Array  # [S, A] float32, less `level`
    level: jax.Array  # [] float32, the value of one state
    tolerance: jax.Array  # [S] float32, differences of action values up to which they tie


@record
class Sweep:
    """State of a Bellman sweep over all rows."""

    place: Place
    best: jax.Array  # [] float32, of the state's rows so far
    q: jax.Array  # [S * A] float32
    rows: jax.Array  # [S * (S + 1)] float32, the best of each state so far
    changed: jax.Array  # [] bool


def solve(task: MergedTask) -> MergedSolution:
    """Draw a merged MDP and solve it by policy iteration.

    Mapped, each task is solved on its own, one after the other on a CPU, in lockstep on other
    devices; either way as if it were alone.
    """
    return _solve_one(task)


def in_lockstep(tasks: MergedTask) -> MergedSolution:
    """Work on all tasks, stacked, which take each step together, as many at a time as fit in
    memory.
    """
    each = bytes_needed(tasks.n_states, tasks.n_actions, tasks.max_samples)
    return native.in_groups(tasks, _solve, blank, MEMORY // each)


def check_memory(name: str, n_states: int, n_actions: int, max_samples: int) -> int:
    """Return the bytes of one task.

    Raise `JbrlError` when `max_samples` samples of each pair are too many for agent `name`.
    """
    needed = bytes_needed(n_states, n_actions, max_samples)
    if needed > MAX_BYTES:
        raise JbrlError(
            f"{name}: capacity for {max_samples} samples of each of {n_states} x "
            f"{n_actions} pairs of state and action takes {needed / 2**30:.1f} GiB: expected at "
            f"most {MAX_BYTES >> 30} GiB"
        )
    return needed


def _solve(task: MergedTask, memory: Memory) -> tuple[MergedSolution, Memory]:
    memory = draw(task, memory)
    policy = MergedPolicy(
        rows=jnp.zeros(task.n_states * (task.n_states + 1)),
        values=task.values,
        level=jnp.float32(0),
        tolerance=jnp.zeros(task.n_states),
        q=jnp.zeros(task.n_states * task.n_actions),
        changed=task.samples[0] > 0,
        improvements=jnp.int32(0),
    )
    policy = while_active(_improvable, _improve, policy, (task, memory), keep="numbers")
    q = policy.q.reshape(task.n_states, task.n_actions)
    return MergedSolution(q, policy.level, policy.tolerance), memory


def _improvable(policy: MergedPolicy, _: tuple[Any, ...]) -> jax.Array:
    return policy.changed & (policy.improvements < MAX_IMPROVEMENTS)


def _improve(policy: MergedPolicy, consts: tuple[Any, ...]) -> MergedPolicy:
    """Follow the best rows, wherever they are better than those followed so far, and evaluate."""
    task, memory = consts
    bars = jnp.where(policy.improvements == 0, -jnp.inf, policy.values + policy.tolerance)
    begin = Sweep(first_row(task), jnp.float32(-jnp.inf), policy.q, policy.rows, jnp.bool_(False))
    left_out = (1 - task.discount) * policy.level
    consts = (task, memory, policy.values, left_out, bars)
    swept = while_active(_sweeping, _sweep, begin, consts, keep="numbers")
    evaluated = _evaluate(swept.rows, task, swept.changed)
    kept = (policy.values, policy.level, policy.tolerance)
    values, level, tolerance = (
        jnp.where(swept.changed, new, old) for new, old in zip(evaluated, kept, strict=True)
    )
    done = policy.improvements + 1
    return MergedPolicy(swept.rows, values, level, tolerance, swept.q, swept.changed, done)


def _sweeping(now: Sweep, _: tuple[Any, ...]) -> jax.Array:
    return now.place.left > 0


def _sweep(now: Sweep, consts: tuple[Any, ...]) -> Sweep:
    """Return the value of one row."""
    task, memory, values, left_out, bars = consts
    place, size, live = now.place, task.n_states, now.place.left > 0
    x, u = place.pair // task.n_actions, place.pair % task.n_actions
    first = place.left == read(task.samples, place.pair)
    row = read_row(memory.rows, jnp.where(live, place.i, 0) * size, size)
    rewards = read_row(task.rewards, place.pair * size, size)
    value = (row * (rewards + task.discount * values)).sum() - left_out
    before = read(now.q, place.pair)
    best = jnp.where(first & (u == 0), read(bars, x), now.best)
    better = live & (value > best)
    followed = read_row(now.rows, x * (size + 1), size + 1)
    new = jnp.concatenate([row, (row * rewards).sum()[None]])
    return Sweep(
        next_row(place, task),
        jnp.where(better, value, best),
        write(now.q, place.pair, jnp.where(live & (first | (value > before)), value, before)),
        write_row(now.rows, x * (size + 1), jnp.where(better, new, followed)),
        now.changed | better,
    )


def _evaluate(
    rows: jax.Array, task: MergedTask, wanted: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Evaluate the policy that follows `rows`, by elimination; anything unless `wanted`.

    The matrix of V = r + g P V is diagonally dominant: no pivoting is needed. Solved with it, a
    right side of ones shows what one unit of reward in each step comes to with the same rounding
    errors, so that values can leave out a level without these. They do so above g = 0.99.

    Returns: values less a level [S], the level [] and the tie tolerance of each state [S].
    """
    n_states = task.n_states
    table = rows.reshape(n_states, n_states + 1)
    transitions, rewards = table[:, :n_states], table[:, n_states:]
    system = jnp.eye(n_states) - task.discount * transitions
    system = jnp.concatenate([system, rewards, jnp.ones((n_states, 1))], axis=1)
    end = jnp.where(wanted, n_states, 0)
    system = _repeated(_eliminate, end, system)
    values, ones = system[:, n_states], system[:, n_states + 1]
    close = task.discount > GREATEST_PLAIN_DISCOUNT
    place = _destination(rows, task, jnp.where(close, end, 0))
    level = jnp.where(close, read(values, place), 0.0)
    values = values - jnp.where(close, level / read(ones, place) * ones, 0.0)
    sizes = _greatest_reached(transitions, jnp.abs(values), end)
    left_out = jnp.abs((1 - task.discount) * level)
    return values, level, jnp.float32(TIE_TOLERANCE) * (sizes + left_out)


def _repeated(
    body: Callable[..., Any], count: jax.Array, start: Any, consts: tuple[Any, ...] = ()
) -> Any:
    """Return what `value = body(k, value, *consts)` makes of `start`, for each k below `count`."""

    def active(carry: tuple[Any, ...], consts: tuple[Any, ...]) -> jax.Array:
        return carry[0] < consts[0]

    def advance(carry: tuple[Any, ...], consts: tuple[Any, ...]) -> tuple[Any, ...]:
        k, value = carry
        return k + 1, body(k, value, *consts[1:])

    begin = (jnp.int32(0), start)
    return while_active(active, advance, begin, (count, *consts), keep="numbers")[1]


def _destination(rows: jax.Array, task: MergedTask, steps: jax.Array) -> jax.Array:
    """Return the state where the likeliest next states lead from the start after so
    many `steps`.
    """
    n_states = task.n_states
    if task.start is None:
        return jnp.int32(0)

    def follow(_: jax.Array, x: jax.Array, rows: jax.Array) -> jax.Array:
        row = read_row(rows, x * (n_states + 1), n_states)
        return jnp.argmax(row).astype(jnp.int32)

    place: jax.Array = _repeated(follow, steps, task.start, (rows,))
    return place


def _greatest_reached(transitions: jax.Array, sizes: jax.Array, steps: jax.Array) -> jax.Array:
    """Return the greatest of `sizes` [S] among the states reached from each state,
    itself included.
    """

    def spread(_: jax.Array, reached: jax.Array, transitions: jax.Array) -> jax.Array:
        next_ = jnp.where(transitions > SHARE, reached[None, :], 0.0).max(1)
        return jnp.maximum(reached, next_)

    greatest: jax.Array = _repeated(spread, steps, sizes, (transitions,))
    return greatest


def _eliminate(k: jax.Array, system: jax.Array) -> jax.Array:
    """Make unknown number k disappear from all equations but its own."""
    pivot = lax.dynamic_index_in_dim(system, k, 0)
    pivot = pivot / lax.dynamic_index_in_dim(pivot, k, 1)
    here = (jnp.arange(system.shape[0], dtype=jnp.int32) == k)[:, None]
    return jnp.where(here, pivot, system - lax.dynamic_index_in_dim(system, k, 1) * pivot)


_solve_one = native.for_each(_solve, blank, in_lockstep)
