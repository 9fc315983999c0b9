"""Solving a known MDP: value iteration, policy iteration, and the pieces they share.

With transitions P, expected rewards r and discount g, the Bellman operator on action values is

    (T Q)(x, u) = r(x, u) + g sum_y P(x, u, y) max_v Q(y, v),

a contraction of factor g in the maximum norm, whose fixed point is Q*. Functions whose name begins with `lanes_` are for use inside
`vectorize.over_lanes`: their arrays have one more axis, the last, which runs over lanes.
"""

import chex
import jax.numpy as jnp
from jax import lax

from jbrl import vectorize
from jbrl.pytree import record

# Action values that differ by less than this part of the greatest value count as equal. A sweep in float32 over 25 states is off by
# up to 5e-7 of the greatest value: values equal in exact arithmetic stay tied, and improvement does not run after rounding errors.
TIE_TOLERANCE = 2e-6


@record
class Solution:
    """Action values and how good they are."""

    q: chex.Array  # [S, A] float32
    residual: chex.Array  # [] float32, greatest change in the last sweep
    sweeps: chex.Array  # [] int32, Bellman sweeps (value iteration) or improvements (policy iteration) done


def lanes_expected(weights: chex.Array, values: chex.Array) -> chex.Array:
    """sum_y weights(..., y) values(y): [..., N] from [..., S, N] and [S, N]."""
    values = values.reshape(values.shape[0], *(1 for _ in weights.shape[2:]), values.shape[-1])
    return vectorize.fold(jnp.add, lambda y: vectorize.at(weights, y, weights.ndim - 2) * vectorize.at(values, y), values.shape[0])


def lanes_greatest(q: chex.Array) -> chex.Array:
    """max_u q(x, u): [S, N] from [S, A, N]."""
    return vectorize.fold(jnp.maximum, lambda u: vectorize.at(q, u, 1), q.shape[1])


def lanes_tie_tolerance(values: chex.Array) -> chex.Array:
    """The difference below which two action values count as equal: [N] from values [S, N]."""
    return jnp.float32(TIE_TOLERANCE) * vectorize.fold(jnp.maximum, lambda x: jnp.abs(vectorize.at(values, x)), values.shape[0])


def tie_tolerance(values: chex.Array) -> chex.Array:
    """The difference below which two action values count as equal, [] float32, given values of any shape."""
    return jnp.float32(TIE_TOLERANCE) * jnp.abs(values).max()


@vectorize.over_lanes
def sweep(transitions: chex.Array, rewards: chex.Array, values: chex.Array, discount: chex.Array) -> chex.Array:
    """Action values r + g P V, [S, A], from transitions [S, A, S], rewards [S, A], values [S] and discount []."""
    return lanes_sweep(transitions, rewards, values, discount)


def lanes_sweep(transitions: chex.Array, rewards: chex.Array, values: chex.Array, discount: chex.Array) -> chex.Array:
    """Action values r + g P V: [S, A, N] from [S, A, S, N], [S, A, N], [S, N] and [N]."""
    return rewards + vectorize.like(discount, rewards) * vectorize.prevent_fusion(lanes_expected(transitions, values))


def value_iteration(
    transitions: chex.Array,
    rewards: chex.Array,
    discount: chex.Array,
    *,
    tolerance: float | chex.Array,
    initial: chex.Array | None = None,
) -> Solution:
    """Optimal action values by successive approximation, Q <- T Q.

    Stops after the first sweep that changes no action value by more than `tolerance`, or by more than rounding does
    (4 units in the last place of the greatest value). Then |Q - Q*| <= g residual / (1 - g) everywhere: Puterman 1994, theorem 6.3.1.

    Args:
      transitions: [S, A, S] float32.
      rewards: [S, A] float32, expected.
      discount: [] float32 in [0, 1).
      tolerance: in units of reward.
      initial: [S, A] action values to start from, for example those of a similar MDP; default 0.
    """
    consts = (transitions, rewards, jnp.asarray(discount, jnp.float32), jnp.asarray(tolerance, jnp.float32))
    begin = (jnp.zeros_like(rewards) if initial is None else initial, jnp.float32(jnp.inf), jnp.int32(0))
    q, residual, sweeps = vectorize.while_active(_still_changing, _next_values, begin, consts, lanes_last=True)
    return Solution(q, residual, sweeps)


def _still_changing(carry: tuple, consts: tuple) -> chex.Array:
    q, residual, _ = carry
    return _exceeds(residual, consts[3], q)


@vectorize.over_lanes
def _exceeds(residual: chex.Array, tolerance: chex.Array, q: chex.Array) -> chex.Array:
    rounding = 4 * jnp.finfo(q.dtype).eps * _greatest_entry(q)
    return residual > jnp.maximum(tolerance, rounding)


@vectorize.over_lanes
def _next_values(carry: tuple, consts: tuple) -> tuple:
    q, _, sweeps = carry
    transitions, rewards, discount, _ = consts
    values = vectorize.prevent_fusion(lanes_greatest(q))
    new = lanes_sweep(transitions, rewards, values, discount)
    return new, _greatest_entry(vectorize.prevent_fusion(new - q)), sweeps + 1


def _greatest_entry(q: chex.Array) -> chex.Array:
    """Greatest absolute value in each lane: [N] from [S, A, N]."""
    flat = q.reshape(-1, q.shape[-1])
    return vectorize.fold(jnp.maximum, lambda i: jnp.abs(vectorize.at(flat, i)), flat.shape[0])


def policy_iteration(transitions: chex.Array, rewards: chex.Array, discount: chex.Array) -> Solution:
    """Optimal action values by Howard's policy iteration: exact evaluation, improvement in all states at once.

    Stops when no action is better than the policy's by more than the tie tolerance. `residual` is the Bellman residual of the last
    policy's values, max_x |max_u Q(x, u) - V(x)|; then |Q - Q*| <= g residual / (1 - g). Puterman 1994, section 6.4.

    Args: as `value_iteration`.
    """
    consts = (transitions, rewards, jnp.asarray(discount, jnp.float32))
    policy = rewards.argmax(-1).astype(jnp.int32)
    begin = (policy, rewards, jnp.float32(jnp.inf), jnp.int32(0), jnp.bool_(True))
    _, q, residual, improvements, _ = vectorize.while_active(_improving, _improve, begin, consts, lanes_last=True)
    return Solution(q, residual, improvements)


def _improving(carry: tuple, _: tuple) -> chex.Array:
    return carry[4]


@vectorize.over_lanes
def _improve(carry: tuple, consts: tuple) -> tuple:
    policy, q, _, improvements, _ = carry
    transitions, rewards, discount = consts
    values = lanes_evaluate(transitions, rewards, policy, discount)
    q = lanes_sweep(transitions, rewards, values, discount)
    greatest = vectorize.prevent_fusion(lanes_greatest(q))
    better = greatest > lanes_followed(q, policy) + lanes_tie_tolerance(values)[None]
    first = vectorize.fold(jnp.minimum, lambda u: jnp.where(vectorize.at(q, u, 1) >= greatest, u, q.shape[1]), q.shape[1])
    again = vectorize.fold(jnp.logical_or, lambda x: vectorize.at(better, x), q.shape[0]) & (improvements < rewards[..., 0].size)
    residual = vectorize.fold(jnp.maximum, lambda x: jnp.abs(vectorize.at(greatest, x) - vectorize.at(values, x)), q.shape[0])
    return jnp.where(better, first.astype(jnp.int32), policy), q, residual, improvements + 1, again


def lanes_evaluate(transitions: chex.Array, rewards: chex.Array, policy: chex.Array, discount: chex.Array) -> chex.Array:
    """Values of `policy` [S, N]: the solution of V = r_pi + g P_pi V, [S, N], with one step of iterative refinement."""
    followed, gained = lanes_followed(transitions, policy), lanes_followed(rewards, policy)
    inverse = lanes_resolvent(followed, discount)
    values = vectorize.prevent_fusion(lanes_expected(inverse, gained))
    residual = vectorize.prevent_fusion(lanes_sweep(followed, gained, values, discount) - values)
    return vectorize.prevent_fusion(values + lanes_expected(inverse, residual))


def lanes_followed(table: chex.Array, policy: chex.Array) -> chex.Array:
    """table[x, policy[x]] for each x: [S, ..., N] from [S, A, ..., N] and [S, N]."""
    chosen = policy.reshape(policy.shape[0], *(1 for _ in table.shape[2:-1]), policy.shape[-1])
    result = vectorize.at(table, 0, 1)
    for u in range(1, table.shape[1]):
        result = jnp.where(chosen == u, vectorize.at(table, u, 1), result)
    return vectorize.prevent_fusion(result)


def lanes_resolvent(followed: chex.Array, discount: chex.Array) -> chex.Array:
    """(I - g P)^-1 of stochastic matrices P: [S, S, N] from [S, S, N] and discount [N].

    Row after row of P enters by the formula of Sherman and Morrison, the other rows being 0 so far. As the matrices are diagonally
    dominant, no pivoting is needed. No LAPACK either, which hangs in programs sharded over CPU devices (jaxlib 0.10.2).
    """
    n_states, width = followed.shape[0], max(followed.shape[-1], discount.shape[-1])
    identity = jnp.broadcast_to(jnp.eye(n_states, dtype=followed.dtype)[:, :, None], (n_states, n_states, width))

    def enter(x: chex.Array, inverse: chex.Array) -> chex.Array:
        return lanes_replace_row(inverse, jnp.full((width,), x), vectorize.at(followed, x), discount, jnp.ones((width,), followed.dtype))[0]

    return lax.fori_loop(0, n_states, enter, identity)


def lanes_replace_row(inverse: chex.Array, x: chex.Array, row: chex.Array, discount: chex.Array, wanted: chex.Array) -> tuple:
    """The resolvent after row `x` of P has become `row`: Sherman and Morrison 1950.

    The row that was there is not asked for: what has to change is the residual of row x, e_x' (I - g P) M - e_x', for the new P. So an
    inverse with rounding errors in that row is mended at the same time.

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
        vectorize.fold(jnp.add, lambda s: vectorize.at(weights, s)[None] * vectorize.at(inverse, s), inverse.shape[0]) - unit
    )
    column = vectorize.prevent_fusion(vectorize.pick(inverse, x, axis=1))
    scale = wanted / (1 + vectorize.pick(residual, x))
    new_column = vectorize.prevent_fusion(column * scale[None])
    return inverse - new_column[:, None] * residual[None], new_column
