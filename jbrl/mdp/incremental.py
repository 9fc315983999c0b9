"""The optimal plan of an MDP, kept exact while its model changes one row at a time.

The plan holds the resolvent M = (I - g P_pi)^-1 of its policy. When the row that the policy follows
in one state changes, be it that the model has moved or the policy, M changes by a matrix of rank
one (Sherman and Morrison 1950): S^2 multiplications. A Bellman sweep then either certifies the plan
or names the state with the greatest Bellman residual, which is improved next. Plain value iteration
would need on the order of 100 sweeps.

`add_transition` takes a transition in, then `improve` runs until the plan is `converged`; `learn`
does both. Where many MDPs are solved side by side, interleaving these saves time, because lanes
need different numbers of improvements.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.base.pytree import record
from jbrl.mdp.planning import (
    lanes_expected,
    lanes_followed,
    lanes_greatest,
    lanes_left_out,
    lanes_level,
    lanes_replace_row,
    lanes_resolvent,
    lanes_tie_tolerance,
)

MAX_SWEEPS = 100_000  # of value iteration, where all else fails


@record
class Plan:
    """An MDP, with transitions P = weights / totals and expected rewards r = gains / totals, and
    its solution.

    Where the discount is above 0.99, `values` and `q` leave out `level`, the value of the state
    that the policy visits most from the start: V = values + level, Q = q + level. What is left is
    as large as values differ, not as large as r / (1 - g), and so is its rounding. In these terms
    the Bellman operator is

        q(x, u) = r(x, u) - (1 - g) level + g sum_y P(x, u, y) values(y).

    Guarantee of a certified plan: |max_u q(x, u) - values(x)| <= tolerance(x) in each state x, with
    the tolerance that `planning.lanes_tie_tolerance` says. Hence |Q - Q*| <= g max tolerance / (1 -
    g). The sweep behind q starts from `values` and `level` alone, so rounding errors in `inverse`
    do not enter: they can only delay the certificate.
    """

    weights: Array  # [S, A, S] float32, at least 0
    totals: Array  # [S, A] float32, sums of `weights` over next states
    gains: Array  # [S, A] float32
    discount: Array  # [] float32
    inverse: Array  # [S, S] float32, (I - g P_pi)^-1
    policy: Array  # [S] int32, greedy up to ties
    values: Array  # [S] float32, those of the policy, less `level`
    q: Array  # [S, A] float32, action values, less `level`
    level: Array  # [] float32
    tolerance: Array  # [S] float32, differences of action values up to which they tie
    start: Array  # [] int32, where the policy is followed from
    residual_state: Array  # [] int32, of those not certified the one of greatest residual
    rounds: Array  # [] int32, improvements since the model last changed; -1: certified

    @property
    def transitions(self) -> Array:
        """P, [S, A, S]."""
        return self.weights / self.totals[:, :, None]

    @property
    def rewards(self) -> Array:
        """Expected rewards, [S, A]."""
        return self.gains / self.totals

    @property
    def action_values(self) -> Array:
        """Q, [S, A]."""
        return self.q + self.level


def converged(plan: Plan) -> Array:
    """Return whether `q` is final, [] bool."""
    return plan.rounds < 0


def solve(transitions: Array, rewards: Array, discount: Array, start: Array | int = 0) -> Plan:
    """Compute the optimal plan from scratch.

    Args:
      transitions: [S, A, S] float32.
      rewards: [S, A] float32, expected.
      discount: [] float32 from 0 to `planning.GREATEST_DISCOUNT`.
      start: [] int32, where the policy is to be followed from; -1: anywhere.
    """
    return _converged(transitions, jnp.ones_like(rewards), rewards, discount, start)


def solve_counts(counts: Array, gains: Array, discount: Array, start: Array | int = 0) -> Plan:
    """Compute the optimal plan where transitions are counts / totals and expected rewards gains /
    totals.

    Here totals = counts.sum(-1). Args: shapes as `solve`.
    """
    return _converged(counts, counts.sum(-1), gains, discount, start)


def _converged(
    weights: Array, totals: Array, gains: Array, discount: Array, start: Array | int
) -> Plan:
    start = jnp.maximum(jnp.asarray(start, jnp.int32), 0)
    plan = _begin(weights, totals, gains, jnp.asarray(discount, jnp.float32), start)
    return _until_certified(plan, _improve_from_all)


def converge(plan: Plan) -> Plan:
    """Call `improve` until the plan is certified."""
    return _until_certified(plan, improve)


def _until_certified(plan: Plan, step: Callable[[Plan], Plan]) -> Plan:
    return vectorize.while_active(
        lambda plan, _: ~converged(plan),
        lambda plan, _: step(plan),
        plan,
        keep="nothing",
        lanes_last=True,
    )


def learn(plan: Plan, x: Array, u: Array, y: Array, gain: Array) -> Plan:
    """Compute the optimal plan after `add_transition`."""
    return converge(add_transition(plan, x, u, y, gain))


@vectorize.over_lanes
def greedy(plan: Plan, x: Array, uniform: Array) -> Array:
    """Return an optimal action in state `x`, [] int32, uniformly among those that tie, by one
    uniform number in [0, 1).
    """
    tolerance = vectorize.prevent_fusion(vectorize.pick(plan.tolerance, x))
    return lanes_choose(vectorize.prevent_fusion(vectorize.pick(plan.q, x)), tolerance, uniform)


def lanes_choose(values: Array, tolerance: Array, uniform: Array) -> Array:
    """Return an index among those within `tolerance` [N] of the greatest of `values` [A, N],
    uniformly by `uniform` [N]: [N] int32.
    """
    n_actions = values.shape[0]
    least = vectorize.fold(jnp.maximum, lambda u: vectorize.at(values, u), n_actions) - tolerance
    ties = vectorize.prevent_fusion((values >= least[None]).astype(jnp.float32))
    number = vectorize.fold(jnp.add, lambda u: vectorize.at(ties, u), n_actions)
    wanted = jnp.floor(uniform * number)
    ranks = vectorize.prevent_fusion(jnp.cumsum(ties, axis=0))
    return vectorize.prevent_fusion(
        vectorize.fold(
            jnp.add, lambda u: (vectorize.at(ranks, u) <= wanted).astype(jnp.float32), n_actions
        )
    ).astype(jnp.int32)


@vectorize.over_lanes
def add_transition(plan: Plan, x: Array, u: Array, y: Array, gain: Array) -> Plan:
    """Add a transition to the model: weights(x, u, y) and totals(x, u) grow by 1, gains(x, u) by
    `gain`.

    The policy is followed from `y` from now on. A plan that is not certified is left as it is.
    """
    ready = (plan.rounds < 0).astype(jnp.float32)
    pair = vectorize.prevent_fusion_index(x * plan.q.shape[1] + u)
    totals = _add(plan.totals, pair, ready)
    # Of q = (gains + g weights values) / totals - (1 - g) level only this entry changes.
    seen = (
        gain
        + plan.discount * vectorize.pick(plan.values, y)
        - lanes_left_out(plan.discount, plan.level)
    )
    change = ready * (seen - vectorize.pick(_by_pair(plan.q), pair))
    step = vectorize.prevent_fusion(change / vectorize.pick(_by_pair(totals), pair))
    return dataclasses.replace(
        plan,
        weights=_add(plan.weights, pair * plan.q.shape[0] + y, ready),
        totals=totals,
        gains=_add(plan.gains, pair, ready * gain),
        q=_add(plan.q, pair, step),
        start=jnp.where(plan.rounds < 0, y, plan.start),
        residual_state=jnp.where(plan.rounds < 0, x, plan.residual_state),
        rounds=jnp.maximum(plan.rounds, 0),
    )


@vectorize.over_lanes
def improve(plan: Plan) -> Plan:
    """Correct the worst state, and sweep: one step towards the certificate.

    A certified plan stays as it is.

    The policy becomes greedy in that state, the inverse is updated for the row that it follows
    there, and the values move by the column of the inverse times the Bellman residual of that
    state, which makes that residual 0. The tolerance is that of where the policy goes to from the
    start.
    """
    return _improved(plan, from_all=False)


@vectorize.over_lanes
def _improve_from_all(plan: Plan) -> Plan:
    """As `improve`, with the tolerance of each state by where the policy goes to from that state.

    This costs S^2 operations more, and serves plans that are followed from anywhere.
    """
    return _improved(plan, from_all=True)


def _improved(plan: Plan, *, from_all: bool) -> Plan:
    x, unsettled = plan.residual_state, plan.rounds >= 0
    tolerance = vectorize.prevent_fusion(vectorize.pick(plan.tolerance, x))
    values_here = vectorize.prevent_fusion(vectorize.pick(plan.q, x))
    action, q_here = _greedy_or_same(values_here, vectorize.pick(plan.policy, x), tolerance)
    pair = x * plan.q.shape[1] + action
    total = vectorize.pick(_by_pair(plan.totals), pair)
    row = vectorize.pick(_by_pair(plan.weights), pair) / total[None]
    wanted = unsettled.astype(jnp.float32)
    inverse, column = lanes_replace_row(plan.inverse, x, row, plan.discount, wanted)
    change = vectorize.prevent_fusion(q_here - vectorize.pick(plan.values, x))
    values = plan.values + column * change[None]
    # Should the inverse have been spoilt by rounding errors, value iteration converges without it.
    values = jnp.where((plan.rounds > _patience(plan))[None], lanes_greatest(plan.q), values)
    here = (jnp.arange(plan.q.shape[0], dtype=jnp.int32)[:, None] == x[None]) & unsettled[None]
    policy = jnp.where(here, action[None], plan.policy)
    changed = dataclasses.replace(plan, inverse=inverse, policy=policy)
    return _swept(changed, values, wanted, from_all=from_all)


def _swept(plan: Plan, values: Array, wanted: Array, *, from_all: bool) -> Plan:
    """Return the plan after a sweep from `values`, centred on the state visited most.

    Args:
      values: [S, N], less the plan's level.
      wanted: [N], 1 where they are to be centred, else 0.
      from_all: the tolerance of a state is by where the policy goes to from it, not from the start.
    """
    visits = vectorize.prevent_fusion(vectorize.pick(plan.inverse, plan.start))
    moved = vectorize.prevent_fusion(lanes_level(visits, values, plan.discount) * wanted)
    values = vectorize.prevent_fusion(values - moved[None])
    centred = dataclasses.replace(plan, values=values, level=plan.level + moved)
    return _sweep(centred, plan.inverse if from_all else visits)


def _greedy_or_same(q_here: Array, now: Array, tolerance: Array) -> tuple[Array, Array]:
    """Return an action ([N] int32) and its value ([N]) in a state of action values `q_here` [A, N]:
    `now` unless another one is better.
    """
    n_actions = q_here.shape[0]
    greatest = vectorize.prevent_fusion(
        vectorize.fold(jnp.maximum, lambda u: vectorize.at(q_here, u), n_actions)
    )
    first = vectorize.fold(
        jnp.minimum,
        lambda u: jnp.where(vectorize.at(q_here, u) >= greatest, u, n_actions - 1),
        n_actions,
    )
    q_now = vectorize.prevent_fusion(vectorize.pick(q_here, now))
    same = q_now >= greatest - tolerance
    return vectorize.prevent_fusion_index(jnp.where(same, now, first)), jnp.where(
        same, q_now, greatest
    )


def _sweep(plan: Plan, visits: Array) -> Plan:
    """Return the plan with the action values that follow from its values, and their error."""
    n_states = plan.values.shape[0]
    sums = plan.gains + plan.discount[None, None] * lanes_expected(plan.weights, plan.values)
    q = sums / plan.totals - lanes_left_out(plan.discount, plan.level)[None, None]
    greatest = lanes_greatest(q)
    tolerance = lanes_tie_tolerance(visits, plan.values, plan.discount, plan.level)
    errors = jnp.abs(greatest - plan.values)
    errors = vectorize.prevent_fusion(jnp.where(errors > tolerance, errors, 0.0))
    error = vectorize.prevent_fusion(
        vectorize.fold(jnp.maximum, lambda x: vectorize.at(errors, x), n_states)
    )
    worst = vectorize.fold(
        jnp.minimum,
        lambda x: jnp.where(vectorize.at(errors, x) >= error, x, n_states - 1),
        n_states,
    )
    wrong = (error > 0) & (plan.rounds >= 0) & (plan.rounds < _patience(plan) + MAX_SWEEPS)
    rounds = jnp.where(wrong, plan.rounds + 1, -1)
    return dataclasses.replace(
        plan,
        q=q,
        tolerance=tolerance,
        residual_state=vectorize.prevent_fusion_index(worst),
        rounds=rounds,
    )


def _patience(plan: Plan) -> int:
    """Return the number of rounds after which the inverse is taken to be wrong."""
    return 4 * plan.q.shape[0] * plan.q.shape[1] + 16


def _evaluated(plan: Plan) -> tuple[Array, Array]:
    """Return inverse and values of the policy, from scratch."""
    totals = lanes_followed(plan.totals, plan.policy)
    inverse = lanes_resolvent(
        lanes_followed(plan.weights, plan.policy) / totals[:, None], plan.discount
    )
    values = lanes_expected(
        inverse, vectorize.prevent_fusion(lanes_followed(plan.gains, plan.policy) / totals)
    )
    return inverse, vectorize.prevent_fusion(values)


@vectorize.over_lanes
def _begin(weights: Array, totals: Array, gains: Array, discount: Array, start: Array) -> Plan:
    n_states, n_actions, width = jnp.broadcast_shapes(totals.shape, gains.shape, discount.shape)
    weights, totals, gains = (
        jnp.broadcast_to(v, (*v.shape[:-1], width)) for v in (weights, totals, gains)
    )
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
        level=numbers,
        tolerance=jnp.zeros((n_states, width), weights.dtype),
        start=jnp.broadcast_to(start, (width,)),
        residual_state=counters,
        rounds=counters,
    )
    inverse, values = _evaluated(plan)
    evaluated = dataclasses.replace(plan, inverse=inverse)
    return _swept(evaluated, values, jnp.ones((width,), weights.dtype), from_all=True)


def _by_pair(table: Array) -> Array:
    """Return a table [S, A, ..., N] with one axis for (state, action): [S A, ..., N]."""
    return table.reshape(-1, *table.shape[2:])


def _add(table: Array, entry: Array, amount: Array) -> Array:
    """Return `table` [..., N] with `amount` [N] added at the flat index `entry` [N] of each
    lane.
    """
    return vectorize.add_at(table.reshape(-1, table.shape[-1]), entry, amount).reshape(
        *table.shape[:-1], -1
    )
