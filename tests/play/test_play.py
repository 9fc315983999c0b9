"""Agents are played by name or as they are; what cannot be played is refused in a sentence."""

import re

import jax
import numpy as np
import pytest

import jbrl
from jbrl.agents import registry
from jbrl.agents.bayes.mean_model import EpsilonGreedy
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.spec import Episodes, Steps
from jbrl.play.lifetimes import lane_bytes
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from jbrl.rollout import episodes
from jbrl.rollout.contract import as_arrays


class Undecorated(jbrl.Agent):
    """Not registered."""


def counting(**facts):
    """An agent of which a count is none."""
    return record(type("Counting", (jbrl.Agent,), facts))()


SMALL = {"prior": "GC", "n_environments": 3, "horizon": 4}


def test_an_agent_is_played_by_its_name():
    by_name = jbrl.play("Random", **SMALL)
    assert np.array_equal(
        by_name.returns, jbrl.play(registry.AGENTS["Random"].agent(), **SMALL).returns
    )


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("e-Gredy", "unknown algorithm 'e-Gredy'; did you mean 'e-Greedy'?"),
        ("no_such_module_xyz:Mine", "cannot import 'no_such_module_xyz'"),
        (Undecorated(), "'Undecorated' is not registered: write @register_agent("),
        (Undecorated, '@register_agent("Undecorated") above the class'),
        (
            registry.AGENTS["e-Greedy"].agent,
            "agent = EpsilonGreedy: expected an agent, not its class: write EpsilonGreedy()",
        ),
        (
            registry.AGENTS["e-Greedy"].agent(epsilon=2.0),
            "EpsilonGreedy: epsilon = 2.0: expected a number from 0 up to 1",
        ),
        (counting(lanes=0), "'Counting': lanes = 0: expected an integer from 1"),
        (counting(lanes=2.5), "'Counting': lanes = 2.5: expected an integer from 1"),
        (counting(version="b"), "'Counting': version = 'b': expected an integer from 0"),
        (3, 'agent = 3: expected an agent, or the name of one, for example "e-Greedy"'),
        (None, "agent = None: expected an agent, or the name of one"),
    ],
)
def test_what_is_no_agent_is_refused(agent, message):
    with pytest.raises(JbrlError, match=re.escape(message)):
        jbrl.play(agent, **SMALL)


def test_the_size_of_lanes_of_an_agent_that_leaves_is_not_known():
    def leave(self, key, knowledge):
        raise SystemExit(3)

    assert lane_bytes(counting(reset=leave), Protocol(problem("GC"), problem("GC"))) == 0


PRIOR, TEST = "ShortestPath(n_states=5)", "Chain(n_states=5)"
BEST = -3.0  # four steps, of which the last costs nothing
WORST = -99.0  # 100 steps without the goal


def protocol(lifetime):
    return Protocol(problem(PRIOR), problem(TEST), 4, lifetime=lifetime, discount=0.9)


@pytest.mark.parametrize(("lifetime", "horizon"), [(Episodes(7), 350), (Steps(40), 40)])
def test_the_horizon_is_the_expected_number_of_decisions(lifetime, horizon):
    prior = protocol(lifetime).agent_prior()
    assert prior.horizon == horizon and float(prior.discount) == np.float32(0.9)
    np.testing.assert_array_equal(
        prior.mdps.concentrations, problem(PRIOR).mdps.concentrations, strict=True
    )


def test_a_prior_with_other_states_is_refused():
    with pytest.raises(jbrl.JbrlError, match="expected the same observations and actions"):
        Protocol(problem("ShortestPath(n_states=6)"), problem(TEST), 4, lifetime=Episodes(2))


def test_the_belief_counts_what_was_met():
    """In a chain without slips each row that was met leads to one state, the goal included, and
    nothing is counted from the goal on.
    """
    game = protocol(Episodes(6))
    agent = as_arrays(EpsilonGreedy(epsilon=0.0))
    prior = game.agent_prior()
    chain = problem(TEST)
    rules = episodes.Rules(
        agent, chain.environment, chain.recorder, jax.random.key(0), game.lifetime
    )
    lane = jax.jit(episodes.play_lifetime)(rules, agent.train(jax.random.key(0), prior), 0)
    seen = np.asarray(lane.agent.counts) - np.asarray(prior.mdps.concentrations)
    assert not np.abs(seen[4]).max()
    for x, u in np.argwhere(seen[:4].sum(2) > 0.5):
        y = np.clip(x + 2 * u - 1, 0, 4)
        np.testing.assert_allclose(np.delete(seen[x, u], y), 0, atol=1e-5)
    assert int(lane.episodes) == 6
    # once in each episode, and in those that are played until the block ends
    assert seen[3, 1, 4] >= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["e-Greedy", "PSRL"])
@pytest.mark.first_case_quick
def test_it_finds_the_shortest_path(name):
    parameters = {"epsilon": 0.0} if name == "e-Greedy" else {}
    cls = jbrl.AGENTS[name].agent
    played = jbrl.play(
        cls(**parameters), prior=PRIOR, test=TEST, n_environments=20, episodes=50, seed=1
    )
    assert ((played.returns <= BEST) & (played.returns > BEST - 2)).all()
    fewer = jbrl.play(
        cls(**parameters), prior=PRIOR, test=TEST, n_environments=3, episodes=50, seed=1
    )
    np.testing.assert_array_equal(fewer.returns, played.returns[:3])
    random = jbrl.play("Random", test=TEST, n_environments=20, episodes=50, seed=1)
    assert (played.returns > random.returns).all() and (random.returns >= WORST).all()


def test_an_environment_alone_is_no_prior():
    with pytest.raises(jbrl.JbrlError, match="PSRL needs a Dirichlet prior"):
        jbrl.play("PSRL", test=TEST, n_environments=2)
