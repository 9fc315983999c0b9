"""Value and policy iteration against exact values, their stopping rules and their limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins import planner as twin
from jbrl.mdp import incremental, planning
from jbrl.mdp.dirichlet import mean_transitions
from jbrl.problems.lookup import problem

DISCOUNT = np.float32(0.95)


def random_mdps(n_states, n_actions, number=6, seed=0):
    rng = np.random.default_rng(seed)
    shape = (number, n_states, n_actions)
    transitions = rng.dirichlet(np.full(n_states, 0.5), shape).astype(np.float32)
    return transitions, rng.uniform(-1, 3, shape).astype(np.float32)


def exact(transitions, rewards, discount=DISCOUNT):
    mdps = zip(transitions.astype(float), rewards.astype(float), strict=True)
    return np.stack([twin.policy_iteration(p, r, float(discount)) for p, r in mdps])


def on_host(tree):
    return jax.tree.map(np.asarray, tree)


def iterate(transitions, rewards, discount=DISCOUNT, tolerance=1e-3):
    return planning.value_iteration(transitions, rewards, discount, tolerance=tolerance)


solvers = {"value": iterate, "policy": planning.policy_iteration}


@pytest.mark.first_case_quick
@pytest.mark.parametrize("solver", solvers)
@pytest.mark.parametrize(
    ("n_states", "n_actions"), [(1, 1), (5, 3), pytest.param(40, 1, marks=pytest.mark.slow)]
)
def test_random_mdps_alone_and_mapped(solver, n_states, n_actions):
    transitions, rewards = random_mdps(n_states, n_actions)
    expected = exact(transitions, rewards)
    run = lambda p, r: solvers[solver](p, r, DISCOUNT)  # noqa: E731
    together = on_host(jax.jit(jax.vmap(run))(transitions, rewards))
    grid = (v.reshape(2, 3, *v.shape[1:]) for v in (transitions, rewards))
    in_a_grid = on_host(jax.jit(jax.vmap(jax.vmap(run)))(*grid))
    alone = on_host(jax.jit(run)(transitions[4], rewards[4]))
    # What is guaranteed, and float32: 1e-6 of the greatest value.
    bound = DISCOUNT / (1 - DISCOUNT) * together.residual + 1e-6 * abs(expected).max()
    assert (abs(together.q - expected).max((1, 2)) <= bound).all()
    if solver == "policy":
        np.testing.assert_allclose(together.q, expected, rtol=0, atol=1e-5 * abs(expected).max())
    assert abs(alone.q - expected[4]).max() <= bound[4]
    assert alone.sweeps == together.sweeps[4]
    close = {"rtol": 0, "atol": 1e-6 * abs(expected).max()}
    np.testing.assert_allclose(np.reshape(in_a_grid.q, expected.shape), together.q, **close)
    np.testing.assert_array_equal(np.ravel(in_a_grid.sweeps), together.sweeps)


def test_a_sweep_is_that_of_the_definition():
    transitions, rewards = random_mdps(4, 3, number=1)
    q = np.random.default_rng(1).uniform(0, 5, (4, 3)).astype(np.float32)
    got = jax.jit(planning.sweep)(transitions[0], rewards[0], q.max(1), DISCOUNT)
    np.testing.assert_allclose(got, twin.sweep(transitions[0], rewards[0], q, DISCOUNT), rtol=1e-6)


def test_value_iteration_stops_where_its_twin_stops():
    transitions, rewards = random_mdps(5, 3)
    solve = jax.jit(jax.vmap(lambda p, r, t: iterate(p, r, tolerance=t), (0, 0, None)))
    for tolerance in (3.0, 0.5, 1e-2):
        got = jax.tree.map(np.asarray, solve(transitions, rewards, np.float32(tolerance)))
        for i in range(6):
            q, residual, sweeps = twin.value_iteration(
                transitions[i].astype(float), rewards[i].astype(float), float(DISCOUNT), tolerance
            )
            assert got.sweeps[i] == sweeps
            np.testing.assert_allclose(got.residual[i], residual, rtol=1e-3)
            np.testing.assert_allclose(got.q[i], q, rtol=1e-5)


def test_a_warm_start_spares_sweeps():
    transitions, rewards = (v[0] for v in random_mdps(5, 3))
    cold = iterate(transitions, rewards)
    warm = planning.value_iteration(
        transitions, rewards * np.float32(1.001), DISCOUNT, tolerance=1e-3, initial=cold.q
    )
    again = planning.value_iteration(transitions, rewards, DISCOUNT, tolerance=1e-3, initial=cold.q)
    assert again.sweeps == 1
    assert warm.sweeps < cold.sweeps - 50


def test_no_tolerance_at_all_stops_at_rounding():
    transitions, rewards = (v[0] for v in random_mdps(5, 3))
    for scale in (1e-20, 1.0, 1e20):
        got = iterate(transitions, rewards * np.float32(scale), tolerance=0.0)
        assert got.sweeps < 1000
        expected = exact(transitions[None], rewards[None])[0] * scale
        np.testing.assert_allclose(got.q, expected, rtol=0, atol=2e-5 * 60 * scale)


@pytest.mark.parametrize("solver", solvers)
def test_without_a_future_rewards_are_values(solver):
    transitions, rewards = (v[0] for v in random_mdps(5, 3))
    got = jax.jit(solvers[solver])(transitions, rewards, np.float32(0))
    np.testing.assert_allclose(got.q, rewards, rtol=1e-6)


def test_patience_costs_policy_iteration_nothing():
    transitions, rewards = random_mdps(5, 3)
    discount = np.float32(0.999)
    solve = jax.jit(jax.vmap(lambda p, r: planning.policy_iteration(p, r, discount)))
    got = solve(transitions, rewards)
    assert (np.asarray(got.sweeps) < 10).all()
    expected = exact(transitions, rewards, discount)
    np.testing.assert_allclose(got.q, expected, rtol=0, atol=1e-4 * abs(expected).max())


def test_policy_iteration_follows_the_first_of_the_actions_that_tie():
    """In exact arithmetic they are equal, in float32 often not, by rounding: rows are random, but
    all states pay alike; or two actions lead to twins, states that differ in the order of actions.
    """
    alike = random_mdps(4, 3, number=32)[0]
    twins = alike.copy()
    twins[:, 0], twins[:, 2] = np.eye(4)[[1, 2, 0]], alike[:, 1, ::-1]
    solve = jax.jit(jax.vmap(lambda p, r: planning.policy_iteration(p, r, DISCOUNT).policy))
    np.testing.assert_array_equal(solve(alike, (alike * np.float32(0.7)).sum(-1)), 0)
    paid = np.float32([[0.1], [0.3], [0.3], [0.7]]) * twins.sum(-1)
    np.testing.assert_array_equal(np.asarray(solve(twins, paid))[:, 0], 0)


def test_not_a_number_ends_the_loops():
    transitions, rewards = (v[0] for v in random_mdps(3, 2))
    bad = np.full_like(rewards, np.nan)
    assert np.isnan(iterate(transitions, bad).q).all()
    assert np.isnan(planning.policy_iteration(transitions, bad, DISCOUNT).q).all()


@pytest.mark.parametrize("discount", [0.0, 0.95, 0.999])
def test_resolvent(discount):
    followed = random_mdps(9, 1, number=4)[0][:, :, 0]
    discounts = jnp.full(4, discount, jnp.float32)
    got = jax.jit(planning.lanes_resolvent)(jnp.moveaxis(followed, 0, -1), discounts)
    expected = np.linalg.inv(np.eye(9) - discount * followed.astype(float))
    error = 3e-6 / (1 - discount) ** 1.5
    np.testing.assert_allclose(np.moveaxis(got, -1, 0), expected, rtol=0, atol=error)


@pytest.mark.parametrize(
    ("discount", "visits", "seen"),
    [(0.9, 4e-4, False), (0.9, 6e-4, True), (0.999, 0.5, False), (0.999, 2.0, True)],
)
def test_a_state_that_is_hardly_visited_makes_no_other_coarser(discount, visits, seen):
    """Hardly: less than 5e-5 of the time, or than the rounding errors of an inverse."""
    often = np.array([[5.0, visits], [0.0, 9.0]], np.float32)[..., None]
    values = np.array([[1.0], [-100.0]], np.float32)
    tolerance = jax.jit(planning.lanes_tie_tolerance)
    found = tolerance(often, values, np.full(1, discount, np.float32), np.zeros(1, np.float32))
    np.testing.assert_allclose(found[:, 0], [2e-4 if seen else 2e-6, 2e-4], rtol=1e-5)


def test_replacing_a_row_mends_it():
    """A wrong inverse: after `lanes_replace_row` in a state, that row of (I - g P) M is that of the
    identity, whatever it was.
    """
    followed = random_mdps(6, 1, number=3)[0][:, :, 0]
    noise = np.random.default_rng(0).normal(0, 0.01, (3, 6, 6))
    inverse = np.linalg.inv(np.eye(6) - 0.95 * followed.astype(float)) + noise
    x, wanted = np.array([1, 4, 5], np.int32), np.array([1, 1, 0], np.float32)
    rows = np.stack([followed[i, x[i]] for i in range(3)], -1)
    lanes_last = jnp.asarray(np.moveaxis(inverse, 0, -1), jnp.float32)
    replace = jax.jit(planning.lanes_replace_row)
    found = replace(lanes_last, x, rows, jnp.full(3, DISCOUNT), wanted)
    got, column = (np.asarray(v) for v in found)
    for i in (0, 1):
        row = (np.eye(6) - float(DISCOUNT) * followed[i])[x[i]] @ np.asarray(got[..., i], float)
        np.testing.assert_allclose(row, np.eye(6)[x[i]], atol=1e-5)
        np.testing.assert_allclose(column[:, i], got[:, x[i], i], atol=1e-5)
    np.testing.assert_array_equal(got[..., 2], np.asarray(lanes_last)[..., 2])
    assert not column[:, 2].any()


def test_the_mean_of_gc_is_a_tie_everywhere():
    mdps = problem("GC").mdps
    mean = mean_transitions(jnp.asarray(mdps.concentrations))
    plan = on_host(jax.jit(incremental.solve)(mean, (mean * mdps.rewards).sum(-1), DISCOUNT))
    assert (plan.q.max(1) - plan.q.min(1) <= plan.tolerance).all()
