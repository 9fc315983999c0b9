"""Start of lifetimes of T steps, and the inputs that they depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jbrl.agents.scripted import Random
from jbrl.environments.spec import Steps
from jbrl.mdp.dirichlet import distribution, draw_mdp
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.problem import DirichletProblem
from jbrl.rollout import steps

S, A = 5, 2


def anywhere(initial_state: int = -1) -> DirichletProblem:
    """A distribution over MDPs in which lifetimes start in a state drawn uniformly."""
    rewards = np.arange(S * A * S).reshape(S, A, S) % 3
    return DirichletProblem(
        "Anywhere", "Anywhere", mdps=distribution(np.ones((S, A, S)), rewards, initial_state)
    )


@pytest.mark.parametrize("initial_state", [-1, 3])
def test_first_states_of_what_is_played(initial_state: int) -> None:
    """Uniform over all states, the last one included: a chi-square test, false-alarm rate 1e-4,
    seed fixed.

    Or the one that is said.
    """
    problem = anywhere(initial_state)
    run = Run(Random(), Protocol(problem, problem, 1000, 0, Steps(2)), record=True)
    run.prepare()
    states = np.concatenate([chunk.trajectories["states"] for chunk in run.chunks()])
    counts = np.bincount(states[:, 0], minlength=S)
    if initial_state < 0:
        assert counts[-1] > 0
        assert stats.chisquare(counts).pvalue > 1e-4
    else:
        assert counts[initial_state] == 1000


def test_first_states_go_up_to_the_last() -> None:
    """For the least and the greatest uniform number that there are."""
    uniforms = jnp.array([0.0, 0.2, 0.9, 1 - 2**-24])
    firsts = jax.vmap(steps.mdps.start, in_axes=(None, None, 0))(jnp.int32(-1), S, uniforms)
    np.testing.assert_array_equal(firsts, [0, 1, 4, 4])


def test_what_moves_the_environment_does_not_hang_on_the_keys_of_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other keys for the agent: the same first state and the same random numbers
    for transitions.
    """
    key, mdps = jax.random.key(1), jax.tree.map(jnp.asarray, anywhere().mdps)
    mdp = draw_mdp(key, mdps, unit=True)
    plain = steps.draw_inputs(mdp, key, jnp.int32(7), 20)
    stream = steps.stream
    monkeypatch.setattr(
        steps,
        "stream",
        lambda key, i, name: stream(key, i if name == "environment" else i + 1, name),
    )
    other = steps.draw_inputs(mdp, key, jnp.int32(7), 20)
    assert int(plain.first) == int(other.first)
    np.testing.assert_array_equal(plain.noise, other.noise)
    assert (jax.random.key_data(plain.keys) != jax.random.key_data(other.keys)).all()
