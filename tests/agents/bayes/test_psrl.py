"""PSRL: the same samples lead to the same decisions, at the right times, from the
right posterior.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from benchmarks.twins import agents as twins
from jbrl.agents.bayes.psrl import PSRL
from jbrl.mdp import sampling
from jbrl.mdp.dirichlet import distribution
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from tests.reference.trajectories import KEY, decisions, prior_of

draw_rows = jax.jit(sampling.dirichlet)


@pytest.mark.parametrize("period", [1, 7])
def test_its_twin_decides_alike(period):
    """Given the rows that the same key draws from the same counts."""
    gc = problem("UGC").mdps
    for _, steps in decisions(PSRL(period), "UGC", "GC", n_environments=6):
        counts = np.array(gc.concentrations)
        for t, (x, u, y, _, key) in enumerate(steps):
            if t % period == 0:
                q = twins.optimal_values(
                    np.asarray(draw_rows(key, counts), float), np.asarray(gc.rewards, float)
                )
            assert u == q[x].argmax()
            counts[x, u, y] += 1


@pytest.mark.slow
def test_an_action_is_as_frequent_as_it_is_likely_to_be_optimal():
    """Two arms, paying 1 with probabilities of Beta(1, 2) and Beta(3, 1): the first is better with
    probability 1/10.

    P(p > q) = integral of q^2 3 (1 - q)^2 dq = 3 B(3, 3) = 1/10. Binomial test, false-alarm
    rate 1e-4.
    """
    concentrations = np.zeros((3, 2, 3))
    concentrations[:, 0] = [0, 1, 2]
    concentrations[:, 1] = [0, 3, 1]
    rewards = np.zeros((3, 2, 3))
    rewards[:, :, 1] = 1
    # All states are alike but their rows are drawn apart; with discount 0 only those of state
    # 0 count.
    agent, knowledge = (
        PSRL(),
        DirichletPrior(distribution(concentrations, rewards), jnp.float32(0), 10),
    )
    first = jax.jit(
        jax.vmap(lambda key: agent.act(key, agent.reset(KEY, knowledge), jnp.int32(0))[0])
    )
    chosen = np.asarray(first(jax.random.split(jax.random.key(5), 4000)))
    assert stats.binomtest(int((chosen == 0).sum()), 4000, 0.1).pvalue > 1e-4


def test_it_keeps_to_its_sample_for_a_period():
    agent = PSRL(period=3)
    state = agent.reset(KEY, prior_of("GC"))
    act = jax.jit(agent.act)
    policies = []
    for key in jax.random.split(jax.random.key(2), 36):
        _, state = act(key, state, jnp.int32(0))
        policies.append(tuple(np.asarray(state.policy)))
    blocks = [policies[t : t + 3] for t in range(0, 36, 3)]
    assert all(len(set(block)) == 1 for block in blocks)
    assert len({block[0] for block in blocks}) > 6
