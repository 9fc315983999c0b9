"""The optimal plan of an MDP, kept exact while its model changes one row at a time.

The plan holds the resolvent M = (I - g P_pi)^-1 of its policy. When the row that the policy follows in one state changes, be it that the
model has moved or the policy, M changes by a matrix of rank one (Sherman and Morrison 1950): S^2 multiplications. A Bellman
sweep then either certifies the plan or names the state whose value is furthest from what it should be, to be attended to next. Plain
value iteration would need on the order of 100 sweeps.

A transition is learned by `note`, then `attend` until the plan is `certified`; `add` does both. Where many MDPs are solved side by side
it pays to interleave these, because lanes need different numbers of `attend`.
"""

import dataclasses

import chex
import jax.numpy as jnp

from jbrl.mdp import lanes
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

__all__ = ["TIE_TOLERANCE", "Plan", "add", "attend", "certified", "change_row", "greedy", "note", "solve", "tie_tolerance"]

MOST_SWEEPS = 100_000  # of value iteration, where all else fails


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
    worst: chex.Array  # [] int32, state to attend to
    rounds: chex.Array  # [] int32, attentions since the model last changed; -1: certified

    @property
    def transitions(self) -> chex.Array:
        """P, [S, A, S]."""
        return self.weights / self.totals[:, :, None]

    @property
    def rewards(self) -> chex.Array:
        """Expected rewards, [S, A]."""
        return self.gains / self.totals


def certified(plan: Plan) -> chex.Array:
    """Whether `q` is final, [] bool."""
    return plan.rounds < 0


def solve(transitions: chex.Array, rewards: chex.Array, discount: chex.Array) -> Plan:
    """The optimal plan from scratch.

    Args:
      transitions: [S, A, S] float32.
      rewards: [S, A] float32, expected.
      discount: [] float32 in [0, 1).
    """
    return settle(_begin(transitions, jnp.ones_like(rewards), rewards, jnp.asarray(discount, jnp.float32)))


def solve_counts(counts: chex.Array, gains: chex.Array, discount: chex.Array) -> Plan:
    """The optimal plan of the MDP with transitions counts / totals and expected rewards gains / totals, totals = counts.sum(-1).

    Args: shapes as `solve`.
    """
    return settle(_begin(counts, counts.sum(-1), gains, jnp.asarray(discount, jnp.float32)))


def settle(plan: Plan) -> Plan:
    """`attend` until the plan is certified."""
    return lanes.while_active(lambda plan, _: ~certified(plan), lambda plan, _: attend(plan), plan, masked=False, lanes_last=True)


def add(plan: Plan, x: chex.Array, u: chex.Array, y: chex.Array, gain: chex.Array) -> Plan:
    """The optimal plan after `note`."""
    return settle(note(plan, x, u, y, gain))


def change_row(plan: Plan, x: chex.Array, u: chex.Array, row: chex.Array, reward: chex.Array) -> Plan:
    """The optimal plan after the transitions and the expected reward of one (state, action) have been replaced.

    Args:
      x, u: [] int32.
      row: [S] float32, the new P(x, u, .).
      reward: [] float32, the new r(x, u).
    """
    return settle(_replace(plan, x, u, row, reward))


@lanes.over_lanes
def greedy(plan: Plan, x: chex.Array, uniform: chex.Array) -> chex.Array:
    """An optimal action in state `x`, [] int32, uniformly among those that tie, by one uniform number in [0, 1)."""
    return lanes_choose(lanes.separate(lanes.pick(plan.q, x)), plan.tolerance, uniform)


def lanes_choose(values: chex.Array, tolerance: chex.Array, uniform: chex.Array) -> chex.Array:
    """An index among those within `tolerance` [N] of the greatest of `values` [A, N], uniformly by `uniform` [N]: [N] int32."""
    n_actions = values.shape[0]
    least = lanes.fold(jnp.maximum, lambda u: lanes.at(values, u), n_actions) - tolerance
    ties = lanes.separate((values >= least[None]).astype(jnp.float32))
    number = lanes.fold(jnp.add, lambda u: lanes.at(ties, u), n_actions)
    wanted = jnp.floor(uniform * number)
    ranks = lanes.separate(jnp.cumsum(ties, axis=0))
    return lanes.separate(lanes.fold(jnp.add, lambda u: (lanes.at(ranks, u) <= wanted).astype(jnp.float32), n_actions)).astype(jnp.int32)


@lanes.over_lanes
def note(plan: Plan, x: chex.Array, u: chex.Array, y: chex.Array, gain: chex.Array) -> Plan:
    """Take a transition into the model: weights(x, u, y) and totals(x, u) grow by 1, gains(x, u) by `gain`.

    A plan that is not certified is left as it is.
    """
    ready = (plan.rounds < 0).astype(jnp.float32)
    pair = lanes.separate_index(x * plan.q.shape[1] + u)
    total, q_here = lanes.pick(_by_pair(plan.totals), pair), lanes.pick(_by_pair(plan.q), pair)
    # Of q = (gains + g weights V) / totals only this entry changes.
    step = lanes.separate(ready * (gain + plan.discount * lanes.pick(plan.values, y) - q_here) / (total + 1))
    return dataclasses.replace(
        plan,
        weights=_add(plan.weights, pair * plan.q.shape[0] + y, ready),
        totals=_add(plan.totals, pair, ready),
        gains=_add(plan.gains, pair, ready * gain),
        q=_add(plan.q, pair, step),
        worst=jnp.where(plan.rounds < 0, x, plan.worst),
        rounds=jnp.maximum(plan.rounds, 0),
    )


@lanes.over_lanes
def _replace(plan: Plan, x: chex.Array, u: chex.Array, row: chex.Array, reward: chex.Array) -> Plan:
    pair, q_here = x * plan.q.shape[1] + u, reward + plan.discount * lanes_expected(row, plan.values)
    here = (jnp.arange(plan.totals[..., 0].size)[:, None] == pair[None]).reshape(*plan.totals.shape[:-1], -1)
    return dataclasses.replace(
        plan,
        weights=jnp.where(here[:, :, None], row[None, None], plan.weights),
        totals=jnp.where(here, 1.0, plan.totals),
        gains=jnp.where(here, reward[None, None], plan.gains),
        q=jnp.where(here, q_here[None, None], plan.q),
        worst=x,
        rounds=jnp.zeros_like(plan.rounds),
    )


@lanes.over_lanes
def attend(plan: Plan) -> Plan:
    """Put one state right, the worst, and sweep: one step towards the certificate. A certified plan stays as it is.

    The policy becomes greedy in that state, the inverse is made to hold the row that it follows there, and the values move by the
    column of the inverse times the Bellman residual of that state, which makes that residual 0.
    """
    x, unsettled = plan.worst, plan.rounds >= 0
    action, q_here = _greedy_or_same(lanes.separate(lanes.pick(plan.q, x)), lanes.pick(plan.policy, x), plan.tolerance)
    pair = x * plan.q.shape[1] + action
    row = lanes.separate(lanes.pick(_by_pair(plan.weights), pair)) / lanes.pick(_by_pair(plan.totals), pair)[None]
    inverse, column = lanes_replace_row(plan.inverse, x, row, plan.discount, unsettled.astype(jnp.float32))
    values = plan.values + column * lanes.separate(q_here - lanes.pick(plan.values, x))[None]
    # Should the inverse have been spoilt by rounding errors, value iteration gets there without it.
    values = jnp.where((plan.rounds > _patience(plan))[None], lanes_greatest(plan.q), values)
    here = (jnp.arange(plan.q.shape[0], dtype=jnp.int32)[:, None] == x[None]) & unsettled[None]
    policy = jnp.where(here, action[None], plan.policy)
    return _sweep(dataclasses.replace(plan, inverse=inverse, policy=policy, values=values))


def _greedy_or_same(q_here: chex.Array, now: chex.Array, tolerance: chex.Array) -> tuple[chex.Array, chex.Array]:
    """Action ([N] int32) and its value ([N]) in a state of action values `q_here` [A, N]: `now` unless another one is better."""
    n_actions = q_here.shape[0]
    greatest = lanes.separate(lanes.fold(jnp.maximum, lambda u: lanes.at(q_here, u), n_actions))
    first = lanes.fold(jnp.minimum, lambda u: jnp.where(lanes.at(q_here, u) >= greatest, u, n_actions - 1), n_actions)
    q_now = lanes.separate(lanes.pick(q_here, now))
    same = q_now >= greatest - tolerance
    return lanes.separate_index(jnp.where(same, now, first)), jnp.where(same, q_now, greatest)


def _sweep(plan: Plan) -> Plan:
    """The plan with the action values that follow from its values, and what is wrong with these."""
    n_states = plan.values.shape[0]
    q = (plan.gains + plan.discount[None, None] * lanes_expected(plan.weights, plan.values)) / plan.totals
    errors = lanes.separate(jnp.abs(lanes_greatest(q) - plan.values))
    error = lanes.separate(lanes.fold(jnp.maximum, lambda x: lanes.at(errors, x), n_states))
    worst = lanes.fold(jnp.minimum, lambda x: jnp.where(lanes.at(errors, x) >= error, x, n_states - 1), n_states)
    tolerance = lanes.separate(lanes_tie_tolerance(plan.values))
    wrong = (error > tolerance) & (plan.rounds >= 0) & (plan.rounds < _patience(plan) + MOST_SWEEPS)
    rounds = jnp.where(wrong, plan.rounds + 1, -1)
    return dataclasses.replace(plan, q=q, tolerance=tolerance, worst=lanes.separate_index(worst), rounds=rounds)


def _patience(plan: Plan) -> int:
    """Rounds after which something must be wrong with the inverse."""
    return 4 * plan.q.shape[0] * plan.q.shape[1] + 16


def _evaluated(plan: Plan) -> tuple[chex.Array, chex.Array]:
    """Inverse and values of the policy, from scratch."""
    totals = lanes_followed(plan.totals, plan.policy)
    inverse = lanes_resolvent(lanes_followed(plan.weights, plan.policy) / totals[:, None], plan.discount)
    values = lanes_expected(inverse, lanes.separate(lanes_followed(plan.gains, plan.policy) / totals))
    return inverse, lanes.separate(values)


@lanes.over_lanes
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
        worst=counters,
        rounds=counters,
    )
    inverse, values = _evaluated(plan)
    return _sweep(dataclasses.replace(plan, inverse=inverse, values=values))


def _by_pair(table: chex.Array) -> chex.Array:
    """A table [S, A, ..., N] with one axis for (state, action): [S A, ..., N]."""
    return table.reshape(-1, *table.shape[2:])


def _add(table: chex.Array, entry: chex.Array, amount: chex.Array) -> chex.Array:
    """`table` [..., N] with `amount` [N] added at the flat index `entry` [N] of each lane."""
    return lanes.add_at(table.reshape(-1, table.shape[-1]), entry, amount).reshape(*table.shape[:-1], -1)
