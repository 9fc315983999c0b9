"""The incremental planner: exact after every one of many changes, whatever the order, mapped
or not.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from benchmarks.twins import planner as twin
from jbrl.mdp import incremental
from jbrl.mdp.dirichlet import mean_transitions
from jbrl.problems.lookup import problem

DISCOUNT = np.float32(0.95)
CHANGES = 500


def larger(*quick, slow):
    """Problems of one program, and larger ones, of which each has its own."""
    return [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


@functools.cache
def start(name):
    mdps = problem(name).mdps
    mean = np.asarray(mean_transitions(jnp.asarray(mdps.concentrations)))
    return mean, (mean * np.asarray(mdps.rewards)).sum(-1)


def changes(name, number, rng):
    """States, actions, new rows and rewards; rows keep to the transitions that the problem has."""
    mean, rewards = start(name)
    n_states, n_actions = rewards.shape
    x, u = (rng.integers(0, n, number).astype(np.int32) for n in (n_states, n_actions))
    rows = np.where(mean[x, u] > 0, rng.gamma(0.3, size=(number, n_states)) + 1e-6, 0)
    rows, paid = rows / rows.sum(1, keepdims=True), rng.uniform(0, rewards.max(), number)
    return x, u, rows.astype(np.float32), paid.astype(np.float32)


def change_row(plan, x, u, row, reward):
    """The optimal plan after the row and the expected reward of one (state, action) are others."""
    q = reward - (1 - plan.discount) * plan.level + plan.discount * row @ plan.values
    changed = dataclasses.replace(
        plan,
        weights=plan.weights.at[x, u].set(row),
        totals=plan.totals.at[x, u].set(1),
        gains=plan.gains.at[x, u].set(reward),
        q=plan.q.at[x, u].set(q),
        residual_state=x,
        rounds=jnp.int32(0),
    )
    return incremental.converge(changed)


@jax.jit
def change_all(plan, changed):
    """The plan after each change, in a row, and how many attentions each took."""

    def step(plan, change):
        plan = change_row(plan, *change)
        return plan, plan

    return lax.scan(step, plan, changed)[1]


def exact(plan):
    """Q* of the plan's own model, in float64."""
    weights, totals, gains = (np.asarray(v, float) for v in (plan.weights, plan.totals, plan.gains))
    return twin.policy_iteration(weights / totals[..., None], gains / totals, float(plan.discount))


def check(plan, *, from_all=False):
    """The guarantee as it is written, the certificate apart from rounding, and that q and policy
    belong together.
    """
    expected = exact(plan)
    q, values, tolerance, level = (
        np.asarray(v, float) for v in (plan.q, plan.values, plan.tolerance, plan.level)
    )
    assert plan.rounds == -1
    states = np.arange(len(q))
    np.testing.assert_array_equal(level, 0)  # the discount is not close to 1
    visits = np.asarray(plan.inverse) if from_all else np.asarray(plan.inverse)[int(plan.start)]
    visited = np.where(0.05 * visits > 5e-5, abs(values), 0).max(-1)
    greatest = np.maximum(abs(values), visited)
    np.testing.assert_allclose(tolerance, 2e-6 * greatest, rtol=1e-5)
    assert (abs(q.max(1) - values) <= tolerance * 1.0001).all()
    assert (q.max(1) - q[states, np.asarray(plan.policy)] <= tolerance * 1.0001).all()
    error = abs(expected - level - q).max()
    assert error <= DISCOUNT / (1 - DISCOUNT) * tolerance.max()
    return error / tolerance.max()


@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", larger("GC", "UGC", slow=("GDL", "Grid", "UGrid")))
def test_500_changed_rows(name):
    plan = jax.jit(incremental.solve)(*start(name), DISCOUNT)
    check(plan, from_all=True)
    changed = changes(name, CHANGES, np.random.default_rng(0))
    plans = jax.tree.map(np.asarray, change_all(plan, changed))
    errors = [check(jax.tree.map(lambda v, t=t: v[t], plans)) for t in range(0, CHANGES, 5)]
    assert max(errors) < 3  # far below the bound of 19 tolerances: measured, not guaranteed
    # The inverse has not drifted.
    last = jax.tree.map(lambda v: v[-1], plans)
    followed = (last.weights / last.totals[..., None])[np.arange(len(last.policy)), last.policy]
    inverse = np.linalg.inv(np.eye(len(followed)) - 0.95 * followed.astype(float))
    np.testing.assert_allclose(last.inverse, inverse, atol=2e-4)


def test_solving_many_at_once():
    mean, rewards = start("GC")
    scales = np.array([0.5, 1, 1e6], np.float32)
    plans = jax.jit(jax.vmap(incremental.solve, (None, 0, None)))(
        mean, rewards * scales[:, None, None], DISCOUNT
    )
    for i in range(3):
        check(jax.tree.map(lambda v, i=i: v[i], plans), from_all=True)
    whole = plans.q + plans.level[:, None, None]
    np.testing.assert_allclose(whole[2], 1e6 * whole[1], rtol=1e-5)


def test_learning_a_transition_changes_the_model_by_it():
    plan = jax.jit(incremental.solve)(*start("GC"), DISCOUNT)
    plan = dataclasses.replace(
        plan, weights=2 * plan.weights, totals=2 * plan.totals, gains=2 * plan.gains
    )
    x, u, y = np.int32(3), np.int32(1), np.int32(4)
    learned = jax.jit(incremental.learn)(plan, x, u, y, np.float32(10))
    expected = np.array(plan.weights)
    expected[3, 1, 4] += 1
    np.testing.assert_array_equal(learned.weights, expected)
    np.testing.assert_allclose(learned.totals, expected.sum(-1), rtol=1e-6)
    np.testing.assert_allclose((learned.gains - plan.gains)[3, 1], 10, rtol=1e-6)
    assert np.count_nonzero(learned.gains - plan.gains) == 1
    check(learned)
    np.testing.assert_allclose(
        learned.transitions, expected / expected.sum(-1, keepdims=True), rtol=1e-6
    )
    np.testing.assert_allclose(learned.rewards, learned.gains / expected.sum(-1), rtol=1e-6)


def test_certified_plans_rest_and_others_accept_no_news():
    plan = jax.jit(incremental.solve)(*start("GC"), DISCOUNT)
    rested = jax.jit(incremental.improve)(plan)
    for field in ("weights", "totals", "gains", "inverse", "policy", "values", "level", "rounds"):
        np.testing.assert_array_equal(getattr(rested, field), getattr(plan, field))
    np.testing.assert_allclose(rested.q, plan.q, rtol=1e-6)
    add = jax.jit(incremental.add_transition)
    noted = add(plan, np.int32(0), np.int32(1), np.int32(1), np.float32(7))
    assert not incremental.converged(noted)
    again = add(noted, np.int32(2), np.int32(2), np.int32(0), np.float32(3))
    jax.tree.map(np.testing.assert_array_equal, again, noted)


def test_a_transition_changes_one_action_value_where_values_leave_out_a_level():
    plan = jax.jit(incremental.solve)(*start("GC"), np.float32(0.999))
    noted = jax.jit(incremental.add_transition)(
        plan, np.int32(0), np.int32(1), np.int32(1), np.float32(7)
    )
    before, weights, totals, gains, values, found = (
        np.asarray(v, float)
        for v in (plan.q, noted.weights, noted.totals, noted.gains, plan.values, noted.q)
    )
    left_out = (1 - float(plan.discount)) * float(plan.level)
    assert left_out > 0.1 and np.argwhere(found != before).tolist() == [[0, 1]]
    expected = (gains + float(plan.discount) * weights @ values) / totals - left_out
    np.testing.assert_allclose(found[0, 1], expected[0, 1], rtol=1e-5)


def test_a_spoilt_inverse_only_delays():
    """With an inverse that is of no use at all, value iteration takes over: the certificate does
    not depend on it.
    """
    plan = jax.jit(incremental.solve)(*start("GC"), DISCOUNT)
    rng = np.random.default_rng(0)
    for _ in range(3):
        inverse = jnp.asarray(rng.normal(0, 30, plan.inverse.shape), jnp.float32)
        spoilt = dataclasses.replace(plan, inverse=inverse)
        x, u, row, reward = (v[0] for v in changes("GC", 1, rng))
        check(jax.jit(change_row)(spoilt, x, u, row, reward))


@pytest.mark.parametrize("name", larger("GC", slow=("Grid",)))
def test_ties_in_exact_arithmetic_are_ties(name):
    """After each of many transitions the actions that tie are those that tie in float64 to
    12 digits.
    """
    mdps = problem(name).mdps
    counts, rewards = np.array(mdps.concentrations), np.asarray(mdps.rewards)
    plan = jax.jit(incremental.solve_counts)(counts, (counts * rewards).sum(-1), DISCOUNT)
    learn = jax.jit(incremental.learn)
    rng, ties = np.random.default_rng(1), 0
    for _ in range(60):
        q = exact(plan)
        exactly = q >= q.max(1, keepdims=True) - 1e-12 * abs(q).max()
        np.testing.assert_array_equal(
            plan.q >= plan.q.max(1, keepdims=True) - plan.tolerance[:, None], exactly
        )
        ties += (exactly.sum(1) > 1).sum()
        x, u = rng.integers(len(q)), rng.integers(q.shape[1])
        y = rng.choice(len(q), p=counts[x, u] / counts[x, u].sum())
        counts[x, u, y] += 1
        plan = learn(plan, *map(np.int32, (x, u, y)), rewards[x, u, y])
    assert ties > 50


def test_greedy_shares_the_interval_among_ties():
    plan = jax.jit(incremental.solve)(*start("GC"), DISCOUNT)
    q = np.array(plan.q)
    q[2] = [q[2].max() + 1, q[2].max(), q[2].max() + 1 + 0.5 * float(plan.tolerance[2])]
    plan = dataclasses.replace(plan, q=jnp.asarray(q))
    uniforms = np.array([0, 0.2, 0.4, 0.6, 0.9, 1 - 2**-24], np.float32)
    act = jax.jit(jax.vmap(incremental.greedy, (None, None, 0)))
    np.testing.assert_array_equal(act(plan, jnp.int32(0), uniforms), [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(act(plan, jnp.int32(2), uniforms), [0, 0, 0, 2, 2, 2])


def test_one_state_one_action():
    plan = jax.jit(incremental.solve)(jnp.ones((1, 1, 1)), jnp.full((1, 1), 3.0), DISCOUNT)
    np.testing.assert_allclose(plan.action_values, 3 / (1 - DISCOUNT), rtol=1e-5)
    plan = jax.jit(change_row)(plan, jnp.int32(0), jnp.int32(0), jnp.ones(1), jnp.float32(-2))
    np.testing.assert_allclose(plan.action_values, -2 / (1 - DISCOUNT), rtol=1e-5)
