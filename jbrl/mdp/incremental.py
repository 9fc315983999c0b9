"""The optimal plan of an MDP, kept exact while its model changes one row at a time.

The plan holds the resolvent M = (I - g P_pi)^-1 of its policy. When the row that the policy follows in one state changes, be it that the
model has moved or the policy, M changes by a matrix of rank one (Sherman and Morrison 1950): S^2 multiplications. A Bellman
sweep then either certifies the plan or names the state with the greatest Bellman residual, which is improved next. Plain value
iteration would need on the order of 100 sweeps.

`add_transition` takes a transition in, then `improve` runs until the plan is `converged`; `learn` does both. Where many MDPs are solved
side by side it pays to interleave these, because lanes need different numbers of improvements.
"""

import dataclasses

import chex
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.mdp.planning import (
    TIE_TOLERANCE,
    lanes_expected,
    lanes_followed,
    lanes_greatest,
    lanes_replace_row,
    lanes_resolvent,
    lanes_tie_tolerance,
    tie_tolerance,
)
from jbrl.pytree import record

__all__ = [
    "TIE_TOLERANCE",
    "Plan",
    "add_transition",
    "change_row",
    "converge",
    "converged",
    "greedy",
    "improve",
    "learn",
    "solve",
    "tie_tolerance",
]

MAX_SWEEPS = 100_000  # of value iteration, where all else fails


@record
class Plan:
    """An MDP, with transitions P = weights / totals and expected rewards r = gains / totals, and its solution.

    Guarantee of a certified plan: |max_u q(x, u) - values(x)| <= tolerance everywhere, with tolerance = `tie_tolerance(values)`, hence
    |q - Q*| <= g tolerance / (1 - g). The sweep behind q starts from `values` alone, so rounding errors in `inverse` do not enter:
    they can only delay the certificate.
    """

    weights: chex.Array  # [S, A, S] float32, at least 0
    totals: chex.Array  # [S, A] float32, sums of `weights` over next states
    gains: chex.Array  # [S, A] float32
    discount: chex.Array  # [] float32
    inverse: chex.Array  # [S, S] float32, (I - g P_pi)^-1
    policy: chex.Array  # [S] int32, greedy up to ties
    values: chex.Array  # [S] float32, those of the policy
    q: chex.Array  # [S, A] float32
    tolerance: chex.Array  # [] float32
    residual_state: chex.Array  # [] int32, state with the greatest Bellman residual
    rounds: chex.Array  # [] int32, improvements since the model last changed; -1: certified

    @property
    def transitions(self) -> chex.Array:
        """P, [S, A, S]."""
        return self.weights / self.totals[:, :, None]

    @property
    def rewards(self) -> chex.Array:
        """Expected rewards, [S, A]."""
        return self.gains / self.totals


def converged(plan: Plan) -> chex.Array:
    """Whether `q` is final, [] bool."""
    return plan.rounds < 0


def solve(transitions: chex.Array, rewards: chex.Array, discount: chex.Array) -> Plan:
    """The optimal plan from scratch.

    Args:
      transitions: [S, A, S] float32.
      rewards: [S, A] float32, expected.
      discount: [] float32 in [0, 1).
    """
    return converge(_begin(transitions, jnp.ones_like(rewards), rewards, jnp.asarray(discount, jnp.float32)))


def solve_counts(counts: chex.Array, gains: chex.Array, discount: chex.Array) -> Plan:
    """The optimal plan of the MDP with transitions counts / totals and expected rewards gains / totals, totals = counts.sum(-1).

    Args: shapes as `solve`.
    """
    return converge(_begin(counts, counts.sum(-1), gains, jnp.asarray(discount, jnp.float32)))


def converge(plan: Plan) -> Plan:
    """`improve` until the plan is certified."""
    return vectorize.while_active(lambda plan, _: ~converged(plan), lambda plan, _: improve(plan), plan, keep="nothing", lanes_last=True)


def learn(plan: Plan, x: chex.Array, u: chex.Array, y: chex.Array, gain: chex.Array) -> Plan:
    """The optimal plan after `add_transition`."""
    return converge(add_transition(plan, x, u, y, gain))


def change_row(plan: Plan, x: chex.Array, u: chex.Array, row: chex.Array, reward: chex.Array) -> Plan:
    """The optimal plan after the transitions and the expected reward of one (state, action) have been replaced.

    Args:
      x, u: [] int32.
      row: [S] float32, the new P(x, u, .).
      reward: [] float32, the new r(x, u).
    """
    return converge(_replace(plan, x, u, row, reward))


@vectorize.over_lanes
def greedy(plan: Plan, x: chex.Array, uniform: chex.Array) -> chex.Array:
    """An optimal action in state `x`, [] int32, uniformly among those that tie, by one uniform number in [0, 1)."""
    return lanes_choose(vectorize.prevent_fusion(vectorize.pick(plan.q, x)), plan.tolerance, uniform)


def lanes_choose(values: chex.Array, tolerance: chex.Array, uniform: chex.Array) -> chex.Array:
    """An index among those within `tolerance` [N] of the greatest of `values` [A, N], uniformly by `uniform` [N]: [N] int32."""
    n_actions = values.shape[0]
    least = vectorize.fold(jnp.maximum, lambda u: vectorize.at(values, u), n_actions) - tolerance
    ties = vectorize.prevent_fusion((values >= least[None]).astype(jnp.float32))
    number = vectorize.fold(jnp.add, lambda u: vectorize.at(ties, u), n_actions)
    wanted = jnp.floor(uniform * number)
    ranks = vectorize.prevent_fusion(jnp.cumsum(ties, axis=0))
    return vectorize.prevent_fusion(
        vectorize.fold(jnp.add, lambda u: (vectorize.at(ranks, u) <= wanted).astype(jnp.float32), n_actions)
    ).astype(jnp.int32)


@vectorize.over_lanes
def add_transition(plan: Plan, x: chex.Array, u: chex.Array, y: chex.Array, gain: chex.Array) -> Plan:
    """Take a transition into the model: weights(x, u, y) and totals(x, u) grow by 1, gains(x, u) by `gain`.

    A plan that is not certified is left as it is.
    """
    ready = (plan.rounds < 0).astype(jnp.float32)
    pair = vectorize.prevent_fusion_index(x * plan.q.shape[1] + u)
    total, q_here = vectorize.pick(_by_pair(plan.totals), pair), vectorize.pick(_by_pair(plan.q), pair)
    # Of q = (gains + g weights V) / totals only this entry changes.
    step = vectorize.prevent_fusion(ready * (gain + plan.discount * vectorize.pick(plan.values, y) - q_here) / (total + 1))
    return dataclasses.replace(
        plan,
        weights=_add(plan.weights, pair * plan.q.shape[0] + y, ready),
        totals=_add(plan.totals, pair, ready),
        gains=_add(plan.gains, pair, ready * gain),
        q=_add(plan.q, pair, step),
        residual_state=jnp.where(plan.rounds < 0, x, plan.residual_state),
        rounds=jnp.maximum(plan.rounds, 0),
    )


@vectorize.over_lanes
def _replace(plan: Plan, x: chex.Array, u: chex.Array, row: chex.Array, reward: chex.Array) -> Plan:
    pair, q_here = x * plan.q.shape[1] + u, reward + plan.discount * lanes_expected(row, plan.values)
    here = (jnp.arange(plan.totals[..., 0].size)[:, None] == pair[None]).reshape(*plan.totals.shape[:-1], -1)
    return dataclasses.replace(
        plan,
        weights=jnp.where(here[:, :, None], row[None, None], plan.weights),
        totals=jnp.where(here, 1.0, plan.totals),
        gains=jnp.where(here, reward[None, None], plan.gains),
        q=jnp.where(here, q_here[None, None], plan.q),
        residual_state=x,
        rounds=jnp.zeros_like(plan.rounds),
    )


@vectorize.over_lanes
def improve(plan: Plan) -> Plan:
    """Put one state right, the worst, and sweep: one step towards the certificate. A certified plan stays as it is.

    The policy becomes greedy in that state, the inverse is made to hold the row that it follows there, and the values move by the
    column of the inverse times the Bellman residual of that state, which makes that residual 0.
    """
    x, unsettled = plan.residual_state, plan.rounds >= 0
    action, q_here = _greedy_or_same(vectorize.prevent_fusion(vectorize.pick(plan.q, x)), vectorize.pick(plan.policy, x), plan.tolerance)
    pair = x * plan.q.shape[1] + action
    row = vectorize.prevent_fusion(vectorize.pick(_by_pair(plan.weights), pair)) / vectorize.pick(_by_pair(plan.totals), pair)[None]
    inverse, column = lanes_replace_row(plan.inverse, x, row, plan.discount, unsettled.astype(jnp.float32))
    values = plan.values + column * vectorize.prevent_fusion(q_here - vectorize.pick(plan.values, x))[None]
    # Should the inverse have been spoilt by rounding errors, value iteration gets there without it.
    values = jnp.where((plan.rounds > _patience(plan))[None], lanes_greatest(plan.q), values)
    here = (jnp.arange(plan.q.shape[0], dtype=jnp.int32)[:, None] == x[None]) & unsettled[None]
    policy = jnp.where(here, action[None], plan.policy)
    return _sweep(dataclasses.replace(plan, inverse=inverse, policy=policy, values=values))


def _greedy_or_same(q_here: chex.Array, now: chex.Array, tolerance: chex.Array) -> tuple[chex.Array, chex.Array]:
    """Action ([N] int32) and its value ([N]) in a state of action values `q_here` [A, N]: `now` unless another one is better."""
    n_actions = q_here.shape[0]
    greatest = vectorize.prevent_fusion(vectorize.fold(jnp.maximum, lambda u: vectorize.at(q_here, u), n_actions))
    first = vectorize.fold(jnp.minimum, lambda u: jnp.where(vectorize.at(q_here, u) >= greatest, u, n_actions - 1), n_actions)
    q_now = vectorize.prevent_fusion(vectorize.pick(q_here, now))
    same = q_now >= greatest - tolerance
    return vectorize.prevent_fusion_index(jnp.where(same, now, first)), jnp.where(same, q_now, greatest)


def _sweep(plan: Plan) -> Plan:
    """The plan with the action values that follow from its values, and what is wrong with these."""
    n_states = plan.values.shape[0]
    q = (plan.gains + plan.discount[None, None] * lanes_expected(plan.weights, plan.values)) / plan.totals
    errors = vectorize.prevent_fusion(jnp.abs(lanes_greatest(q) - plan.values))
    error = vectorize.prevent_fusion(vectorize.fold(jnp.maximum, lambda x: vectorize.at(errors, x), n_states))
    worst = vectorize.fold(jnp.minimum, lambda x: jnp.where(vectorize.at(errors, x) >= error, x, n_states - 1), n_states)
    tolerance = vectorize.prevent_fusion(lanes_tie_tolerance(plan.values))
    wrong = (error > tolerance) & (plan.rounds >= 0) & (plan.rounds < _patience(plan) + MAX_SWEEPS)
    rounds = jnp.where(wrong, plan.rounds + 1, -1)
    return dataclasses.replace(plan, q=q, tolerance=tolerance, residual_state=vectorize.prevent_fusion_index(worst), rounds=rounds)


def _patience(plan: Plan) -> int:
    """Rounds after which something must be wrong with the inverse."""
    return 4 * plan.q.shape[0] * plan.q.shape[1] + 16


def _evaluated(plan: Plan) -> tuple[chex.Array, chex.Array]:
    """Inverse and values of the policy, from scratch."""
    totals = lanes_followed(plan.totals, plan.policy)
    inverse = lanes_resolvent(lanes_followed(plan.weights, plan.policy) / totals[:, None], plan.discount)
    values = lanes_expected(inverse, vectorize.prevent_fusion(lanes_followed(plan.gains, plan.policy) / totals))
    return inverse, vectorize.prevent_fusion(values)


@vectorize.over_lanes
def _begin(weights: chex.Array, totals: chex.Array, gains: chex.Array, discount: chex.Array) -> Plan:
    n_states, n_actions, width = jnp.broadcast_shapes(totals.shape, gains.shape, discount.shape)
    weights, totals, gains = (jnp.broadcast_to(v, (*v.shape[:-1], width)) for v in (weights, totals, gains))
    numbers, counters = jnp.zeros((width,), weights.dtype), jnp.zeros((width,), jnp.int32)
    plan = Plan(
        weights,
        totals,
        gains,
        discount=jnp.broadcast_to(discount, (width,)),
        inverse=jnp.zeros((n_states, n_states, width), weights.dtype),
        policy=jnp.argmax(gains / totals, axis=1).astype(jnp.int32),
        values=jnp.zeros((n_states, width), weights.dtype),
        q=jnp.zeros((n_states, n_actions, width), weights.dtype),
        tolerance=numbers,
        residual_state=counters,
        rounds=counters,
    )
    inverse, values = _evaluated(plan)
    return _sweep(dataclasses.replace(plan, inverse=inverse, values=values))


def _by_pair(table: chex.Array) -> chex.Array:
    """A table [S, A, ..., N] with one axis for (state, action): [S A, ..., N]."""
    return table.reshape(-1, *table.shape[2:])


def _add(table: chex.Array, entry: chex.Array, amount: chex.Array) -> chex.Array:
    """`table` [..., N] with `amount` [N] added at the flat index `entry` [N] of each lane."""
    return vectorize.add_at(table.reshape(-1, table.shape[-1]), entry, amount).reshape(*table.shape[:-1], -1)
