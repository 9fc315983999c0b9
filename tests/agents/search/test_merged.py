"""Merged MDPs: their rows, their values, and that each is solved as if it were alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from benchmarks.twins import merged as reference
from benchmarks.twins.planner import policy_iteration
from jbrl.agents.search import draws, merged
from jbrl.agents.search.merged import MergedTask, blank, draw
from jbrl.base.errors import JbrlError

S, A, MAX_SAMPLES = 4, 2, 40
DRAW = jax.jit(lambda task: draw(task, blank(task)))


def whole(solution: merged.MergedSolution) -> jax.Array:
    """Action values with their level."""
    return solution.q + solution.level[..., None, None]


SOLVE = jax.jit(lambda task: whole(merged.solve(task)))
SOLVES = jax.jit(jax.vmap(lambda task: whole(merged.solve(task))))
LOCKSTEP = jax.jit(lambda tasks: whole(merged.in_lockstep(jax.tree.map(lambda v: v + 0, tasks))))


def words(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, 2, dtype=np.uint32)


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts with zeros, ones and fractions among them, rewards, and numbers of samples."""
    rng = np.random.default_rng(seed)
    counts = rng.choice([0, 0, 1, 1, 0.3, 2.5, 7], (S, A, S))
    counts[..., 0] += counts.sum(-1) == 0
    return counts, rng.random((S, A, S)), rng.integers(1, 9, (S, A))


def task(seed: int, **changes) -> MergedTask:
    counts, rewards, samples = problem(seed)
    made = MergedTask(
        stream=draws.stream(jnp.asarray(words(seed))),
        counts=jnp.asarray(counts, jnp.float32).reshape(-1),
        rewards=jnp.asarray(rewards, jnp.float32).reshape(-1),
        samples=jnp.asarray(samples, jnp.int32).reshape(-1),
        values=jnp.zeros(S),
        discount=jnp.float32(0.95),
        start=jnp.int32(0),
        n_states=S,
        n_actions=A,
        max_samples=MAX_SAMPLES,
    )
    return dataclasses.replace(made, **changes)


def stack(tasks: list[MergedTask]) -> MergedTask:
    return jax.tree.map(lambda *v: np.stack(v), *tasks)


@pytest.mark.parametrize("seed", range(4))
def test_rows_and_values_are_those_of_the_twin(seed):
    counts, rewards, samples = problem(seed)
    expected = reference.sampled_rows(counts, samples, tuple(int(w) for w in words(seed)))
    rows = np.asarray(DRAW(task(seed)))[: samples.sum() * S].reshape(-1, S)
    np.testing.assert_allclose(rows, np.concatenate(list(expected.values())), rtol=1e-4, atol=1e-7)
    assert (rows[np.repeat(counts.reshape(-1, S), samples.reshape(-1), 0) == 0] == 0).all()
    np.testing.assert_allclose(
        SOLVE(task(seed)), reference.merged_values(expected, rewards), rtol=2e-5
    )


def test_rows_have_the_marginals_of_their_dirichlet_distribution():
    # 20 draws of 320 rows each, shapes below, at and above 1: 8 tests at 1 in 10,000 and 3
    # correlations, false alarm rate 8e-4.
    samples = jnp.full(S * A, MAX_SAMPLES, jnp.int32)
    for counts in ([0.3, 1, 2.5, 0], [1, 1, 0, 1], [4, 30, 2, 0.05]):
        tiled = jnp.tile(jnp.array(counts, jnp.float32), S * A)
        many = [
            np.asarray(DRAW(task(seed, counts=tiled, samples=samples)))[
                : S * A * MAX_SAMPLES * S
            ].reshape(-1, S)
            for seed in range(20)
        ]
        sample = np.concatenate(many)
        for y, a in enumerate(counts):
            if 0.1 < a < sum(counts):
                assert stats.kstest(sample[:, y], stats.beta(a, sum(counts) - a).cdf).pvalue > 1e-4
        # Rows behind one another are independent: correlations within 4.5 standard deviations.
        assert abs(np.corrcoef(sample[:-1, 1], sample[1:, 1])[0, 1]) < 4.5 / np.sqrt(len(sample))


def test_one_certain_row_is_kept_and_more_samples_of_it_change_nothing():
    counts = np.zeros((S, A, S), np.float32)
    for x, u in np.ndindex(S, A):
        counts[x, u, (x + u) % S] = 3
    one, more = (
        SOLVE(
            task(5, counts=jnp.asarray(counts).reshape(-1), samples=jnp.full(S * A, k, jnp.int32))
        )
        for k in (1, 7)
    )
    rewards = problem(5)[1]
    expected = reference.merged_values(
        {pair: [counts[pair] / 3] for pair in np.ndindex(S, A)}, rewards
    )
    np.testing.assert_allclose(one, expected, rtol=1e-5)
    np.testing.assert_array_equal(one, more)


@pytest.mark.parametrize("discount", [0.999, 0.9999])
@pytest.mark.parametrize("seed", range(4))
def test_values_differ_as_they_do_without_a_large_level(seed, discount):
    """Rewards of 10,000 and a bit: values up to 1e8, which differ by less than 1."""
    paid = np.float32(problem(seed)[1] + 1e4)
    one = jnp.ones(S * A, jnp.int32)
    given = task(seed, rewards=paid.reshape(-1), samples=one, discount=jnp.float32(discount))
    rows = np.asarray(DRAW(given), float)[: S * A * S].reshape(S, A, S)
    rows /= rows.sum(-1, keepdims=True)
    exact = policy_iteration(rows, (rows * paid).sum(-1), float(np.float32(discount)))
    found = jax.jit(merged.solve)(given)
    np.testing.assert_allclose(whole(found), exact, rtol=1e-6)
    error = (found.q - found.q.mean()) - (exact - exact.mean())
    assert abs(error).max() < found.tolerance.max() < 0.03


def test_a_guess_of_the_values_changes_nothing_but_the_time():
    for seed in range(4):
        np.testing.assert_allclose(
            SOLVE(task(seed, values=jnp.arange(S, dtype=jnp.float32) * 30)),
            SOLVE(task(seed)),
            rtol=1e-5,
        )


def test_batched_or_in_lockstep_is_one_by_one_whatever_is_beside_it():
    tasks = [task(seed) for seed in range(4)]
    idle = task(1, samples=jnp.zeros(S * A, jnp.int32))  # nothing is wanted of it
    alone = np.stack([SOLVE(t) for t in tasks])
    np.testing.assert_array_equal(SOLVES(stack(tasks)), alone)
    np.testing.assert_array_equal(SOLVES(stack(tasks[::-1])), alone[::-1])
    np.testing.assert_array_equal(SOLVES(stack([tasks[0], idle, *tasks[2:]]))[2:], alone[2:])
    np.testing.assert_allclose(LOCKSTEP(stack(tasks)), alone, rtol=1e-5)


def test_samples_beyond_memory_are_refused():
    with pytest.raises(
        JbrlError,
        match=r"SBOSS: capacity for 1048576 samples of each of 25 x 4 pairs .* takes 9\.8 GiB",
    ):
        merged.check_memory("SBOSS", 25, 4, 2**20)
