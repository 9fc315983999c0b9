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

import jax.numpy as jnp
from jax import Array, lax

from jbrl.agents.search import draws
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.mdp.planning import GREATEST_PLAIN_DISCOUNT, SHARE, TIE_TOLERANCE
from jbrl.vectorize import native, while_active
from jbrl.vectorize.native import read, read_row, write, write_row

BLOCK = 32  # gamma variates proposed at once


@record
class MergedTask:
    """One merged MDP to draw and to solve."""

    stream: Array  # [2] uint32, of random words (`draws.stream`)
    counts: Array  # [S * A * S] float32, posterior concentrations
    rewards: Array  # [S * A * S] float32
    # [S * A] int32, K(x, u), from 1 to `max_samples`; 0 for all pairs: nothing is wanted
    samples: Array
    values: Array  # [S] float32, a guess of differences of values: the closer, the sooner done
    discount: Array  # [] float32
    start: Array | None  # [] int32, where the agent is; None: there is a single state
    n_states: int = static()
    n_actions: int = static()
    max_samples: int = static()  # samples of a pair


@record
class Place:
    """Position of a loop over all rows."""

    i: Array  # [] int32, number of the row
    pair: Array  # [] int32, x A + u
    left: Array  # [] int32, rows of this pair to come, this one included; 0: none is left


@record
class Block:
    """State of the generation of gamma variates: each round proposes one for every entry of the
    present block that has none yet.
    """

    round: Array  # [] int32
    start: Array  # [] int32, of the block
    shapes: Array  # [BLOCK] float32
    logs: Array  # [BLOCK] float32, logarithms of the variates
    accepted: Array  # [BLOCK] bool, whether the variate is final
    rows: Array


def bytes_needed(n_states: int, n_actions: int, max_samples: int) -> int:
    """Return the memory that one task takes."""
    return 4 * ((n_states * n_actions * max_samples + 1) * n_states + BLOCK)


def blank(task: MergedTask) -> Array:
    """Return the memory of a task, empty: [(S * A * max_samples + 1) * S + BLOCK] float32, the rows
    one after the other, behind them what is no row.
    """
    return jnp.zeros(bytes_needed(task.n_states, task.n_actions, task.max_samples) // 4)


def draw(task: MergedTask, rows: Array) -> Array:
    """Draw all rows: copy the concentrations, put the logarithms of gamma variates in their place,
    then probabilities.
    """
    place, rows = while_active(_rows_left, _copy, (first_row(task), rows), task, keep="numbers")
    zero = jnp.int32(0)
    block = Block(zero, zero, rows[:BLOCK], jnp.zeros(BLOCK), jnp.zeros(BLOCK, bool), rows)
    rows = while_active(
        _variates_left, _propose, block, (task.stream, place.i * task.n_states), keep="numbers"
    ).rows
    return while_active(_rows_left, _normalise, (first_row(task), rows), task, keep="numbers")[1]


def first_row(task: MergedTask) -> Place:
    """Return the place of the first row."""
    zero = jnp.int32(0)
    return Place(zero, zero, task.samples[0])


def next_row(place: Place, task: MergedTask) -> Place:
    """Return the place of the next row."""
    last, n_pairs = place.left == 1, task.n_states * task.n_actions
    after = place.pair + last.astype(jnp.int32)
    more = jnp.where(after < n_pairs, read(task.samples, jnp.minimum(after, n_pairs - 1)), 0)
    return Place(
        place.i + 1, jnp.minimum(after, n_pairs - 1), jnp.where(last, more, place.left - 1)
    )


def _rows_left(carry: tuple[Any, ...], _: MergedTask) -> Array:
    return carry[0].left > 0


def _here(place: Place, task: MergedTask) -> Array:
    """Return the index of the first number of the present row; of the placeholder row, when no row
    is left.
    """
    return (
        jnp.where(place.left > 0, place.i, task.n_states * task.n_actions * task.max_samples)
        * task.n_states
    )


def _copy(carry: tuple[Any, ...], task: MergedTask) -> tuple[Any, ...]:
    place, rows = carry
    concentrations = read_row(task.counts, place.pair * task.n_states, task.n_states)
    return next_row(place, task), write_row(rows, _here(place, task), concentrations)


def _normalise(carry: tuple[Any, ...], task: MergedTask) -> tuple[Any, ...]:
    place, rows = carry
    here = _here(place, task)
    logs = read_row(rows, here, task.n_states)
    weights = jnp.exp(logs - logs.max())
    return next_row(place, task), write_row(rows, here, weights / weights.sum())


def _variates_left(now: Block, consts: tuple[Any, ...]) -> Array:
    return now.start < consts[1]


def _propose(now: Block, consts: tuple[Any, ...]) -> Block:
    """Run one round.

    Shape 1: an exponential variate. Other shapes: Marsaglia and Tsang 2000. Shape 0:
    minus infinity.
    """
    (stream, total), shape = consts, now.shapes
    normal, accept = _open_uniforms(stream, now.round, 0), _open_uniforms(stream, now.round, 1)
    d = jnp.where(shape < 1, shape + 1, shape) - jnp.float32(1 / 3)
    t = jnp.float32(2**0.5) * lax.erf_inv(2 * normal - 1) / jnp.sqrt(9 * d)
    passed = ((t > -1) & (jnp.log(accept) < d * sampling.excess(t))) | (shape == 1)
    proposed = jnp.log(d) + 3 * jnp.log1p(jnp.maximum(t, jnp.float32(-0.9999999)))
    proposed = jnp.where(shape == 1, jnp.log(-jnp.log(accept)), proposed) + _boost(
        shape, stream, now.round
    )
    logs = jnp.where(now.accepted, now.logs, jnp.where(shape > 0, proposed, -jnp.inf))
    accepted = (
        now.accepted
        | passed
        | (shape <= 0)
        | (now.start + jnp.arange(BLOCK, dtype=jnp.int32) >= total)
    )
    done = accepted.all() & (now.start < total)
    rows = write_row(now.rows, jnp.minimum(now.start, now.rows.shape[0] - BLOCK), logs)
    start = now.start + jnp.where(done, BLOCK, 0)
    following = read_row(rows, jnp.minimum(start, rows.shape[0] - BLOCK), BLOCK)
    return Block(
        now.round + 1, start, jnp.where(done, following, shape), logs, accepted & ~done, rows
    )


def _boost(shape: Array, stream: Array, round: Array) -> Array:
    """Return log(U) / shape where shape is below 1, else 0: a variate of shape a + 1, times
    U^(1/a), has shape a.

    Ibid., section 6.
    """

    def wanted(carry: tuple[Any, ...], _: tuple[Any, ...]) -> Array:
        return carry[0]

    def compute(_: tuple[Any, ...], consts: tuple[Any, ...]) -> tuple[Any, ...]:
        shape, stream, round = consts
        return jnp.bool_(False), jnp.where(
            (shape > 0) & (shape < 1), jnp.log(_open_uniforms(stream, round, 2)) / shape, 0.0
        )

    small = ((shape > 0) & (shape < 1)).any()  # seldom
    return while_active(
        wanted, compute, (small, jnp.zeros(BLOCK)), (shape, stream, round), keep="numbers"
    )[1]


def _open_uniforms(stream: Array, round: Array, which: int) -> Array:
    """Return numbers strictly between 0 and 1 for a block, the first, second or third of a round:
    [BLOCK] float32, odd multiples of 2^-24.
    """
    number = (
        round.astype(jnp.uint32) * (3 * BLOCK) + jnp.arange(BLOCK, dtype=jnp.uint32) + which * BLOCK
    )
    return ((draws.word(stream, number) >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2**-23)


MEMORY = 4 << 30  # bytes of one device that solves in lockstep may take
MAX_BYTES = 1 << 30  # of the samples of one MDP
# of the policy: a handful is usual, and more could only follow rounding errors
MAX_IMPROVEMENTS = 64


@record
class MergedPolicy:
    """A policy of the merged MDP during its improvement."""

    rows: Array  # [S * (S + 1)] float32, those it follows, with their expected rewards
    values: Array  # [S] float32, less `level`
    level: Array  # [] float32
    tolerance: Array  # [S] float32, what rounding can do to the values
    q: Array  # [S * A] float32, of a sweep that starts from `values`, less `level`
    changed: Array  # [] bool
    improvements: Array  # [] int32


@record
class MergedSolution:
    """Optimal action values of a merged MDP, of each action by its best row."""

    q: Array  # [S, A] float32, less `level`
    level: Array  # [] float32, the value of one state
    tolerance: Array  # [S] float32, differences of action values up to which they tie


@record
class Sweep:
    """State of a Bellman sweep over all rows."""

    place: Place
    best: Array  # [] float32, of the state's rows so far
    q: Array  # [S * A] float32
    rows: Array  # [S * (S + 1)] float32, the best of each state so far
    changed: Array  # [] bool


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


def _solve(task: MergedTask, rows: Array) -> tuple[MergedSolution, Array]:
    rows = draw(task, rows)
    policy = MergedPolicy(
        rows=jnp.zeros(task.n_states * (task.n_states + 1)),
        values=task.values,
        level=jnp.float32(0),
        tolerance=jnp.zeros(task.n_states),
        q=jnp.zeros(task.n_states * task.n_actions),
        changed=task.samples[0] > 0,
        improvements=jnp.int32(0),
    )
    policy = while_active(_improvable, _improve, policy, (task, rows), keep="numbers")
    q = policy.q.reshape(task.n_states, task.n_actions)
    return MergedSolution(q, policy.level, policy.tolerance), rows


def _improvable(policy: MergedPolicy, _: tuple[Any, ...]) -> Array:
    return policy.changed & (policy.improvements < MAX_IMPROVEMENTS)


def _improve(policy: MergedPolicy, consts: tuple[Any, ...]) -> MergedPolicy:
    """Follow the best rows, wherever they are better than those followed so far, and evaluate."""
    task, rows = consts
    bars = jnp.where(policy.improvements == 0, -jnp.inf, policy.values + policy.tolerance)
    begin = Sweep(first_row(task), jnp.float32(-jnp.inf), policy.q, policy.rows, jnp.bool_(False))
    left_out = (1 - task.discount) * policy.level
    consts = (task, rows, policy.values, left_out, bars)
    swept = while_active(_sweeping, _sweep, begin, consts, keep="numbers")
    evaluated = _evaluate(swept.rows, task, swept.changed)
    kept = (policy.values, policy.level, policy.tolerance)
    values, level, tolerance = (
        jnp.where(swept.changed, new, old) for new, old in zip(evaluated, kept, strict=True)
    )
    done = policy.improvements + 1
    return MergedPolicy(swept.rows, values, level, tolerance, swept.q, swept.changed, done)


def _sweeping(now: Sweep, _: tuple[Any, ...]) -> Array:
    return now.place.left > 0


def _sweep(now: Sweep, consts: tuple[Any, ...]) -> Sweep:
    """Return the value of one row."""
    task, rows, values, left_out, bars = consts
    place, size, live = now.place, task.n_states, now.place.left > 0
    x, u = place.pair // task.n_actions, place.pair % task.n_actions
    first = place.left == read(task.samples, place.pair)
    row = read_row(rows, jnp.where(live, place.i, 0) * size, size)
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


def _evaluate(rows: Array, task: MergedTask, wanted: Array) -> tuple[Array, Array, Array]:
    """Evaluate the policy that follows `rows`, by elimination; anything unless `wanted`.

    The matrix of V = r + g P V is diagonally dominant: no pivoting is needed. Above g = 0.99 values
    leave out that of one state, the level. Its column is then one of ones, for (1 - g) times the
    level, which every equation has: pivots are no smaller, and no large values are subtracted from
    each other.

    Returns: values less a level [S], the level [] and the tie tolerance of each state [S].
    """
    n_states = task.n_states
    table = rows.reshape(n_states, n_states + 1)
    transitions, rewards = table[:, :n_states], table[:, n_states:]
    end = jnp.where(wanted, n_states, 0)
    close = task.discount > GREATEST_PLAIN_DISCOUNT
    place = _destination(rows, task, jnp.where(close, end, 0))
    left_out = (jnp.arange(n_states, dtype=jnp.int32) == place) & close
    system = jnp.where(left_out[None], 1.0, jnp.eye(n_states) - task.discount * transitions)
    values = _repeated(_eliminate, end, jnp.concatenate([system, rewards], axis=1))[:, n_states]
    reward = jnp.where(close, read(values, place), 0.0)
    level, values = reward / (1 - task.discount), jnp.where(left_out, 0.0, values)
    sizes = _greatest_reached(transitions, jnp.abs(values), end)
    return values, level, jnp.float32(TIE_TOLERANCE) * (sizes + jnp.abs(reward))


def _repeated(
    body: Callable[..., Any], count: Array, start: Any, consts: tuple[Any, ...] = ()
) -> Any:
    """Return what `value = body(k, value, *consts)` makes of `start`, for each k below `count`."""

    def active(carry: tuple[Any, ...], consts: tuple[Any, ...]) -> Array:
        return carry[0] < consts[0]

    def advance(carry: tuple[Any, ...], consts: tuple[Any, ...]) -> tuple[Any, ...]:
        k, value = carry
        return k + 1, body(k, value, *consts[1:])

    begin = (jnp.int32(0), start)
    return while_active(active, advance, begin, (count, *consts), keep="numbers")[1]


def _destination(rows: Array, task: MergedTask, steps: Array) -> Array:
    """Return the state where the likeliest next states lead from the start after so
    many `steps`.
    """
    n_states = task.n_states
    if task.start is None:
        return jnp.int32(0)

    def follow(_: Array, x: Array, rows: Array) -> Array:
        row = read_row(rows, x * (n_states + 1), n_states)
        return jnp.argmax(row).astype(jnp.int32)

    place: Array = _repeated(follow, steps, task.start, (rows,))
    return place


def _greatest_reached(transitions: Array, sizes: Array, steps: Array) -> Array:
    """Return the greatest of `sizes` [S] among the states reached from each state,
    itself included.
    """

    def spread(_: Array, reached: Array, transitions: Array) -> Array:
        next_ = jnp.where(transitions > SHARE, reached[None, :], 0.0).max(1)
        return jnp.maximum(reached, next_)

    greatest: Array = _repeated(spread, steps, sizes, (transitions,))
    return greatest


def _eliminate(k: Array, system: Array) -> Array:
    """Make unknown number k disappear from all equations but its own."""
    pivot = lax.dynamic_index_in_dim(system, k, 0)
    pivot = pivot / lax.dynamic_index_in_dim(pivot, k, 1)
    here = (jnp.arange(system.shape[0], dtype=jnp.int32) == k)[:, None]
    return jnp.where(here, pivot, system - lax.dynamic_index_in_dim(system, k, 1) * pivot)


_solve_one = native.for_each(_solve, blank, in_lockstep)
