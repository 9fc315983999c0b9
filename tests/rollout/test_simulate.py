"""The lane kernel plays what `jbrl.play` plays, under `jit` and `vmap`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jbrl
from jbrl.agents import BAMCP, DQN, OPPSDS, EpsilonGreedy, Formula, QLearning, Random

STEPS, EPISODES = jbrl.Steps(20), jbrl.Episodes(3)


@pytest.mark.parametrize(
    ("agent", "name", "lifetime"),
    [
        (EpsilonGreedy(epsilon=0.1), "GC", STEPS),
        (QLearning(), "DeepSea(size=4)", EPISODES),
        pytest.param(BAMCP(simulations=5), "GC", STEPS, marks=pytest.mark.slow),
        pytest.param(Formula(), "GC", STEPS, marks=pytest.mark.slow),
        pytest.param(DQN(), "Catch", EPISODES, marks=pytest.mark.slow),
    ],
)
def test_scores_are_those_of_play(agent, name, lifetime):
    problem = jbrl.problem(name)
    key, index = problem.key(3), jnp.arange(6)
    run = jax.jit(jax.vmap(lambda i: jbrl.simulate(agent, problem, key, i, lifetime=lifetime)))
    wanted = {"horizon": 20} if lifetime is STEPS else {"episodes": 3}
    played = jbrl.play(agent, test=problem, n_environments=6, seed=3, **wanted)
    simulated = run(index)
    np.testing.assert_array_equal(simulated.scores(problem), played.returns)
    assert simulated.steps.sum() == played.decisions


def test_a_sweep_over_parameters_and_seeds_is_played_bit_for_bit():
    gc, epsilons, seeds = jbrl.problem("GC"), (0.0, 0.1, 0.5), (0, 7)
    keys = jnp.stack([gc.key(seed) for seed in seeds])

    def lifetime(epsilon, key, index):
        agent = EpsilonGreedy(epsilon=epsilon)
        return jbrl.simulate(agent, gc, key, index, prior=jbrl.problem("UGC"), lifetime=STEPS)

    over_seeds = jax.vmap(jax.vmap(lifetime, (None, None, 0)), (None, 0, None))
    grid = jax.jit(jax.vmap(over_seeds, (0, None, None)))
    scores = grid(jnp.array(epsilons), keys, jnp.arange(6)).scores(gc)
    for i, epsilon in enumerate(epsilons):
        for j, seed in enumerate(seeds):
            agent, options = EpsilonGreedy(epsilon=epsilon), {"prior": "UGC", "test": "GC"}
            played = jbrl.play(agent, **options, n_environments=6, seed=seed, horizon=20)
            np.testing.assert_array_equal(scores[i, j], played.returns)


def test_settings_of_an_environment_can_be_mapped():
    """A cart that is pushed off at once falls sooner the lower the threshold is."""
    pole, key = jbrl.problem("CartPole").environment, jax.random.key(0)

    def steps(gravity):
        heavier = dataclasses.replace(pole, gravity=gravity)
        return jbrl.simulate(Random(), heavier, key, lifetime=EPISODES).steps

    lengths = jax.jit(jax.vmap(steps))(jnp.array([0.01, 50.0]))
    assert lengths[0] > lengths[1]


def test_states_and_actions_are_kept_when_asked_for():
    gc = jbrl.problem("GC")
    simulated = jbrl.simulate(Random(), gc, gc.key(0), lifetime=STEPS, record=True)
    played = jbrl.play(Random(), test="GC", n_environments=1, horizon=20, record=True)
    for name in ("states", "actions", "rewards"):
        ours = getattr(simulated.trajectory, name)
        np.testing.assert_array_equal(ours, played.trajectories[name][0])


def test_what_cannot_be_simulated_is_refused():
    gc, catch = jbrl.problem("GC"), jbrl.problem("Catch")
    with pytest.raises(jbrl.JbrlError, match="OPPSDS learns on the host before it plays"):
        jbrl.simulate(OPPSDS(), gc, gc.key(0))
    with pytest.raises(jbrl.JbrlError, match=r"BAMCP needs a Dirichlet prior.*'Catch' offers"):
        jbrl.simulate(BAMCP(), catch, catch.key(0))
