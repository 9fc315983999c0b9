"""Finite Markov decision processes as arrays.

Letters used everywhere: `S` states, `A` actions, `T` decisions of a trajectory.
"""

import math
from decimal import Decimal, localcontext
from typing import Any

import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record

_DIGITS = 50


@record
class MDP:
    """One MDP.

    `initial_state` -1 means: uniformly random at the start of each trajectory.
    """

    transitions: Array  # [S, A, S] float32, rows sum to 1
    rewards: Array  # [S, A, S] float32, reward of (state, action, next state)
    initial_state: Array  # [] int32

    @property
    def n_states(self) -> int:
        return int(self.transitions.shape[-3])

    @property
    def n_actions(self) -> int:
        return int(self.transitions.shape[-2])


def start(initial_state: Array, n_states: int, uniform: Array) -> Array:
    """Return the first state of a trajectory, [] int32, from one uniform number (used only when
    `initial_state` is -1).
    """
    anywhere = (uniform * n_states).astype(jnp.int32)
    return jnp.where(initial_state < 0, anywhere, initial_state)


@vectorize.over_lanes
def step(cdf: Array, rewards: Array, x: Array, u: Array, uniform: Array) -> tuple[Any, ...]:
    """Return the next state and reward, ([] int32, [] float32), of action `u` in state `x`.

    Args:
      cdf: [S, A, S] cumulative transition probabilities (`sampling.cumulative`).
      rewards: [S, A, S].
      uniform: [] float32 in [0, 1): all the randomness of the step; the next state is
        `sampling.inverse_cdf` of it.
    """
    n_states, n_actions, _, _ = cdf.shape
    pair = vectorize.prevent_fusion_index(x * n_actions + u)
    y = vectorize.prevent_fusion_index(_inverse_cdf(cdf.reshape(-1, *cdf.shape[2:]), pair, uniform))
    entry = pair * n_states + y
    return y, vectorize.prevent_fusion(
        vectorize.pick(rewards.reshape(-1, rewards.shape[-1]), entry)
    )


def _inverse_cdf(cdf: Array, row: Array, uniform: Array) -> Array:
    """Return how many entries of row `row` [N] of `cdf` [R, S, N] are not above `uniform` [N]:
    [N] int32.
    """
    n_states = cdf.shape[1]
    if vectorize.is_passed_over(cdf):
        below = (vectorize.pick(cdf, row) <= uniform[None]).astype(jnp.float32)
        below = vectorize.prevent_fusion(below)
        number = vectorize.fold(jnp.add, lambda y: vectorize.at(below, y), n_states)
        return number.astype(jnp.int32)
    entries, first = cdf.reshape(-1, cdf.shape[-1]), row * n_states
    y = jnp.zeros_like(first)
    stride = 1 << (n_states - 1).bit_length()
    while stride > 1:  # bisection
        stride //= 2
        probed = y + (stride - 1)
        below = vectorize.pick(entries, first + jnp.minimum(probed, n_states - 1)) <= uniform
        y = jnp.where(below & (probed < n_states - 1), y + stride, y)
    return y


def expected_rewards(transitions: Array, rewards: Array) -> Array:
    """Return r(x, u) = sum_y P(x, u, y) R(x, u, y): [..., S, A] from two arrays [..., S, A, S]."""
    return (transitions * rewards).sum(-1)


def horizon_for(precision: float, discount: float, largest_reward: float) -> int:
    """Return the number of decisions after which the rest of the discounted return is below
    `precision`.

    T = ceil(log(precision (1 - discount) / Rmax) / log discount), Castronovo et al. 2016,
    section 3.1.

    Args:
      largest_reward: Rmax, the greatest absolute value of a reward.

    Raises:
      JbrlError: `precision` is not positive.
    """
    if not precision > 0:
        raise JbrlError(
            f"precision of an automatic horizon: {precision!r} is not a positive number"
        )
    if discount == 0 or largest_reward <= 0:
        return 1
    with localcontext(prec=_DIGITS):
        share = Decimal(precision) * (1 - Decimal(discount)) / Decimal(largest_reward)
    return decisions_until(share, discount)


def decisions_until(share: float | Decimal, discount: float) -> int:
    """Return the least number T >= 1 for which `discount`^T is at most `share`.

    In decimal digits: logarithms of float64 differ between C libraries.

    Args:
      share: positive.
      discount: between 0 and 1, not one of them.
    """
    with localcontext(prec=_DIGITS):
        count = Decimal(share).ln() / Decimal(discount).ln()
        return max(1, math.ceil(round(count, _DIGITS // 2)))  # an integer but for rounding is one
