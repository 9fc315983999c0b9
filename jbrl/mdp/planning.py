"""Solving a known MDP: value iteration, policy iteration, and the pieces they share.

With transitions P, expected rewards r and discount g, the Bellman operator on action values is

    (T Q)(x, u) = r(x, u) + g sum_y P(x, u, y) max_v Q(y, v),

a contraction of factor g in the maximum norm, whose fixed point is Q*. Functions whose name begins
with `lanes_` are for use inside `vectorize.over_lanes`: their arrays have one more axis, the last,
which runs over lanes.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl import vectorize
from jbrl.base.pytree import record

# Action values that differ by less than this part of the greatest value that matters count
# as equal.
# A sweep in float32 over 25 states is off by up to 5e-7 of it: values equal in exact arithmetic
# stay tied, and improvement does not run after rounding errors.
TIE_TOLERANCE = 2e-6

# A policy goes to a state where it spends more than this share of the discounted time.
SHARE = 5e-5

# Above this discount, values are computed as differences from that of one state. Below, float32 has
# digits enough for the values themselves.
GREATEST_PLAIN_DISCOUNT = 0.99

# The discount up to which planners in float32 are right: tests/mdp/test_hard_problems.py.
GREATEST_DISCOUNT = 0.9999


@record
class Solution:
    """Action values and how good they are."""

    q: Array  # [S, A] float32
    residual: Array  # [] float32, greatest change in the last sweep
    sweeps: Array  # [] int32, Bellman sweeps or, of policy iteration, improvements done
    policy: Array  # [S] int32, greedy, the action of lowest number among those that tie


def lanes_expected(weights: Array, values: Array) -> Array:
    """Return sum_y weights(..., y) values(y): [..., N] from [..., S, N] and [S, N]."""
    values = values.reshape(values.shape[0], *(1 for _ in weights.shape[2:]), values.shape[-1])
    return vectorize.fold(
        jnp.add,
        lambda y: vectorize.at(weights, y, weights.ndim - 2) * vectorize.at(values, y),
        values.shape[0],
    )


def lanes_greatest(q: Array) -> Array:
    """Return max_u q(x, u): [S, N] from [S, A, N]."""
    return vectorize.fold(jnp.maximum, lambda u: vectorize.at(q, u, 1), q.shape[1])


def lanes_left_out(discount: Array, level: Array) -> Array:
    """Return (1 - g) c, [N]: the reduction of rewards where values leave out a level c."""
    return vectorize.prevent_fusion((1 - discount) * level)


def lanes_tie_tolerance(visits: Array, values: Array, discount: Array, level: Array) -> Array:
    """Return the difference up to which action values tie in each state: [S, N].

    It is `TIE_TOLERANCE` times the greatest |V| among the state itself and those that the policy
    goes to: what rounding can do to action values. A large value in a state that the policy does
    not go to makes that state coarser alone.

    Args:
      visits: discounted visits of each state, from each state: (I - g P_pi)^-1, [S, S, N]; or from
        one state, then taken for all: a row of it, [S, N].
      values: [S, N], less `level` [N].
    """
    sizes, horizon = jnp.abs(values), 1 / (1 - discount)
    # What looks like a few visits may be the rounding errors of an inverse that has changed.
    errors = 10 * np.finfo(np.float32).eps * horizon**2
    least = vectorize.prevent_fusion(jnp.maximum(jnp.float32(SHARE) * horizon, errors))

    def visited(y: int) -> Array:
        often = vectorize.at(visits, y, visits.ndim - 2)
        return jnp.where(often > vectorize.like(least, often), vectorize.at(sizes, y), 0.0)

    greatest = vectorize.prevent_fusion(vectorize.fold(jnp.maximum, visited, values.shape[0]))
    greatest = jnp.maximum(sizes, vectorize.like(greatest, sizes))
    return jnp.float32(TIE_TOLERANCE) * (greatest + jnp.abs(lanes_left_out(discount, level))[None])


def lanes_level(visits: Array, values: Array, discount: Array) -> Array:
    """Return the level that values omit, [N]: 0, or the value of the state visited most where g >
    0.99.

    Values less this one are as large as values differ, not as large as r / (1 - g); their rounding
    is as much smaller. A state that is never reached has no part in the choice.

    Args:
      visits, values: [S, N].
    """
    n_states = values.shape[0]
    most = vectorize.fold(jnp.maximum, lambda x: vectorize.at(visits, x), n_states)
    most = vectorize.prevent_fusion(most)
    # Of states visited equally often the one of greatest value.
    chosen = jnp.where(visits >= most[None], values, -jnp.inf)
    level = vectorize.fold(jnp.maximum, lambda x: vectorize.at(chosen, x), n_states)
    return vectorize.prevent_fusion(jnp.where(discount > GREATEST_PLAIN_DISCOUNT, level, 0.0))


@vectorize.over_lanes
def sweep(transitions: Array, rewards: Array, values: Array, discount: Array) -> Array:
    """Compute action values r + g P V, [S, A], from transitions [S, A, S], rewards [S, A], values
    [S] and discount [].
    """
    return lanes_sweep(transitions, rewards, values, discount)


def lanes_sweep(transitions: Array, rewards: Array, values: Array, discount: Array) -> Array:
    """Compute action values r + g P V: [S, A, N] from [S, A, S, N], [S, A, N], [S, N] and [N]."""
    return rewards + vectorize.like(discount, rewards) * vectorize.prevent_fusion(
        lanes_expected(transitions, values)
    )


def value_iteration(
    transitions: Array,
    rewards: Array,
    discount: Array,
    *,
    tolerance: float | Array,
    initial: Array | None = None,
    max_sweeps: int = 2**30,
) -> Solution:
    """Compute optimal action values by successive approximation, Q <- T Q.

    Stops after the first sweep that changes no action value by more than `tolerance`, or by more
    than rounding does (4 units in the last place of the greatest value). Then |Q - Q*| <= g
    residual / (1 - g) everywhere: Puterman 1994, theorem 6.3.1.

    Args:
      transitions: [S, A, S] float32.
      rewards: [S, A] float32, expected.
      discount: [] float32 in [0, 1).
      tolerance: in units of reward.
      initial: [S, A] action values to start from, for example those of a similar MDP; default 0.
      max_sweeps: after which it stops in any case.
    """
    discount, tolerance = jnp.asarray(discount, jnp.float32), jnp.asarray(tolerance, jnp.float32)
    consts = (transitions, rewards, discount, tolerance, jnp.int32(max_sweeps))
    begin = (
        jnp.zeros_like(rewards) if initial is None else initial,
        jnp.float32(jnp.inf),
        jnp.int32(0),
    )
    q, residual, sweeps = vectorize.while_active(
        _still_changing, _next_values, begin, consts, lanes_last=True
    )
    return Solution(q, residual, sweeps, q.argmax(-1).astype(jnp.int32))


def _still_changing(carry: tuple[Any, ...], consts: tuple[Any, ...]) -> Array:
    q, residual, sweeps = carry
    return _exceeds(residual, consts[3], q) & (sweeps < consts[4])


@vectorize.over_lanes
def _exceeds(residual: Array, tolerance: Array, q: Array) -> Array:
    rounding = 4 * np.finfo(np.float32).eps * _greatest_entry(q)
    return residual > jnp.maximum(tolerance, rounding)


@vectorize.over_lanes
def _next_values(carry: tuple[Any, ...], consts: tuple[Any, ...]) -> tuple[Any, ...]:
    q, _, sweeps = carry
    transitions, rewards, discount, *_ = consts
    values = vectorize.prevent_fusion(lanes_greatest(q))
    new = lanes_sweep(transitions, rewards, values, discount)
    return new, _greatest_entry(vectorize.prevent_fusion(new - q)), sweeps + 1


def _greatest_entry(q: Array) -> Array:
    """Return the greatest absolute value in each lane: [N] from [S, A, N]."""
    flat = q.reshape(-1, q.shape[-1])
    return vectorize.fold(jnp.maximum, lambda i: jnp.abs(vectorize.at(flat, i)), flat.shape[0])


def policy_iteration(
    transitions: Array, rewards: Array, discount: Array, start: Array | int = 0
) -> Solution:
    """Compute optimal action values by Howard's policy iteration: exact evaluation, improvement in
    all states at once.

    Stops when no action is better than the policy's by more than the tie tolerance of its state.
    `residual` is the Bellman residual of the last policy's values, max_x |max_u Q(x, u) - V(x)|;
    then |Q - Q*| <= g residual / (1 - g). Puterman 1994, section 6.4. Values are computed as
    differences from that of one state, see `lanes_level`, which `q` contains and `policy` was
    found without.

    Args: as `value_iteration`, and
      start: [] int32, where the policy is to be followed from; -1: anywhere.
    """
    start = jnp.maximum(jnp.asarray(start, jnp.int32), 0)
    consts = (transitions, rewards, jnp.asarray(discount, jnp.float32), start)
    policy = rewards.argmax(-1).astype(jnp.int32)
    level, tolerance, residual = jnp.float32(0), jnp.zeros_like(rewards[:, 0]), jnp.float32(jnp.inf)
    begin = (policy, rewards, level, tolerance, residual, jnp.int32(0), jnp.bool_(True))
    _, q, level, tolerance, residual, improvements, _ = vectorize.while_active(
        _improving, _improve, begin, consts, lanes_last=True
    )
    ties = q >= q.max(-1, keepdims=True) - tolerance[:, None]
    return Solution(q + level, residual, improvements, ties.argmax(-1).astype(jnp.int32))


def _improving(carry: tuple[Any, ...], _: tuple[Any, ...]) -> Array:
    return carry[6]


@vectorize.over_lanes
def _improve(carry: tuple[Any, ...], consts: tuple[Any, ...]) -> tuple[Any, ...]:
    policy, q, _, _, _, improvements, _ = carry
    transitions, rewards, discount, start = consts
    values, level, tolerance = lanes_evaluate(transitions, rewards, policy, discount, start)
    less = rewards - lanes_left_out(discount, level)[None, None]
    q = lanes_sweep(transitions, less, values, discount)
    greatest = vectorize.prevent_fusion(lanes_greatest(q))
    better = greatest > lanes_followed(q, policy) + tolerance
    first = vectorize.fold(
        jnp.minimum,
        lambda u: jnp.where(vectorize.at(q, u, 1) >= greatest, u, q.shape[1]),
        q.shape[1],
    )
    again = vectorize.fold(jnp.logical_or, lambda x: vectorize.at(better, x), q.shape[0]) & (
        improvements < rewards[..., 0].size
    )
    residual = vectorize.fold(
        jnp.maximum,
        lambda x: jnp.abs(vectorize.at(greatest, x) - vectorize.at(values, x)),
        q.shape[0],
    )
    policy = jnp.where(better, first.astype(jnp.int32), policy)
    return policy, q, level, tolerance, residual, improvements + 1, again


def lanes_evaluate(
    transitions: Array, rewards: Array, policy: Array, discount: Array, start: Array
) -> tuple[Array, Array, Array]:
    """Evaluate `policy`: solve V = r_pi + g P_pi V, with one step of iterative refinement, two
    above g = 0.99.

    Args:
      start: [N] int32, the state from which `lanes_level` counts visits.

    Returns: values less a level [S, N], the level [N] and the tie tolerance of each state [S, N].
    """
    followed, gained = lanes_followed(transitions, policy), lanes_followed(rewards, policy)
    inverse = lanes_resolvent(followed, discount)
    values = vectorize.prevent_fusion(lanes_expected(inverse, gained))
    visits = vectorize.prevent_fusion(vectorize.pick(inverse, start))
    level = lanes_level(visits, values, discount)
    values = vectorize.prevent_fusion(values - level[None])
    less = gained - lanes_left_out(discount, level)[None]
    residual = vectorize.prevent_fusion(lanes_sweep(followed, less, values, discount) - values)
    values = vectorize.prevent_fusion(values + lanes_expected(inverse, residual))
    residual = vectorize.prevent_fusion(lanes_sweep(followed, less, values, discount) - values)
    again = jnp.where(discount > GREATEST_PLAIN_DISCOUNT, lanes_expected(inverse, residual), 0.0)
    values = vectorize.prevent_fusion(values + again)
    return values, level, lanes_tie_tolerance(inverse, values, discount, level)


def lanes_followed(table: Array, policy: Array) -> Array:
    """Return table[x, policy[x]] for each x: [S, ..., N] from [S, A, ..., N] and [S, N]."""
    chosen = policy.reshape(policy.shape[0], *(1 for _ in table.shape[2:-1]), policy.shape[-1])
    result = vectorize.at(table, 0, 1)
    for u in range(1, table.shape[1]):
        result = jnp.where(chosen == u, vectorize.at(table, u, 1), result)
    return vectorize.prevent_fusion(result)


def lanes_resolvent(followed: Array, discount: Array) -> Array:
    """Return (I - g P)^-1 of stochastic matrices P: [S, S, N] from [S, S, N] and discount [N].

    Row after row of P enters by the formula of Sherman and Morrison, the other rows being 0 so far.
    As the matrices are diagonally dominant, no pivoting is needed. No LAPACK either, which hangs in
    programs sharded over CPU devices (jaxlib 0.10.2).
    """
    n_states, width = followed.shape[0], max(followed.shape[-1], discount.shape[-1])
    identity = jnp.broadcast_to(
        jnp.eye(n_states, dtype=followed.dtype)[:, :, None], (n_states, n_states, width)
    )

    def enter(x: Array, inverse: Array) -> Array:
        return lanes_replace_row(
            inverse,
            jnp.full((width,), x),
            vectorize.at(followed, x),
            discount,
            jnp.ones((width,), followed.dtype),
        )[0]

    return lax.fori_loop(0, n_states, enter, identity)


def lanes_replace_row(
    inverse: Array, x: Array, row: Array, discount: Array, wanted: Array
) -> tuple[Any, ...]:
    """Return the resolvent after row `x` of P has become `row`: Sherman and Morrison 1950.

    The previous row is not needed: the quantity to change is the residual of row x, e_x' (I - g P)
    M - e_x', for the new P. An inverse with rounding errors in that row is thereby repaired.

    Args:
      inverse: M, [S, S, N].
      x: [N] int32.
      row: [S, N].
      wanted: [N] float32, 1 where the row is to be replaced, 0 where nothing is to change.

    Returns: the new inverse and its column `x` ([S, N], 0 where not wanted).
    """
    here = jnp.arange(inverse.shape[0], dtype=x.dtype)[:, None] == x[None]
    unit = here.astype(inverse.dtype)
    weights = vectorize.prevent_fusion(unit - discount[None] * row)
    residual = vectorize.prevent_fusion(
        vectorize.fold(
            jnp.add,
            lambda s: vectorize.at(weights, s)[None] * vectorize.at(inverse, s),
            inverse.shape[0],
        )
        - unit
    )
    column = vectorize.pick(inverse, x, axis=1)
    scale = wanted / (1 + vectorize.pick(residual, x))
    new_column = vectorize.prevent_fusion(column * scale[None])
    return inverse - new_column[:, None] * residual[None], new_column
