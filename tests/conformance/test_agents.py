"""Properties of every agent: one table over the register, so that a new agent is tested without
further work.
"""

import dataclasses
import functools
import re
from importlib import resources
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import check_parameters
from jbrl.environments.environment import Tabular
from jbrl.environments.spec import Steps
from jbrl.mdp.dirichlet import distribution, draw_mdp
from jbrl.mdp.sampling import stream
from jbrl.play.offline import SearchCheckpoint, Trials, learn
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior, EnvironmentPrior
from jbrl.rollout import steps
from jbrl.rollout.contract import (
    BAYESIAN,
    OfflineSearch,
    Oracle,
    Stepwise,
    Transition,
    as_arrays,
    check_requirements,
)
from jbrl.rollout.faults import observe_key, reset_key
from jbrl.rollout.steps import draw_inputs, play_steps

N, T = 256, 100
KEY = jax.random.key(0)

SMALL = {"hidden_width": 16, "discount": 0.9}
REPLAY = SMALL | {"batch_size": 8, "replay_capacity": 128, "min_replay": 8, "learning_rate": 0.01}
# Parameters at which an agent is quick to test and clearly better than Random; default:
# its defaults.
# Q1 and Q2 believe in impossible transitions; Q0 does not.
PARAMETERS = {
    "VDBE-e-Greedy": {"epsilon0": 0.2},
    "BFS3": {"trajectories": 2, "samples": 2, "depth": 3, "max_samples": 8},
    "SBOSS": {"epsilon": 0.001},
    "Formula": {"formula": "Q0"},
    "Linear": {"variables": "Q0"},
    "Look-ahead": {"decisions": 6},
    "OPPS-DS": {"space": "Q0; -Q0", "budget": 100, "c": 20.0},
    "OPPS-CS": {"variables": "Q0", "budget": 500, "draws": 50},
    "ANN": {"budget": 512, "batch": 256, "hidden_width": 16, "horizon": 50},
    "DPT": {"budget": 5_120, "batch": 256, "hidden_width": 16, "horizon": 50},
    "BeliefPPO": {"budget": 122_880, "batch": 256, "hidden_width": 32, "horizon": 50}
    | {"learning_rate": 0.003, "entropy_cost": 0.01},
    "RL2": {"budget": 61_440, "batch": 128, "units": 16, "horizon": 50}
    | {"learning_rate": 0.005, "discount": 0.9},
    "DQN": REPLAY,
    "BootDQN": REPLAY | {"ensemble": 2, "epsilon": 0.1},
    # few decisions to learn from: short sequences, large steps
    "ActorCritic": SMALL | {"sequence_length": 4, "learning_rate": 0.03},
    "RecurrentActorCritic": SMALL | {"sequence_length": 4, "learning_rate": 0.02},
    "PPO": SMALL | {"rollout_length": 10, "minibatches": 2, "learning_rate": 0.02},
}
# Parameters with which an agent is clearly better than Random, where those above are too small.
LARGER = {"BFS3": {"trajectories": 5, "samples": 5, "depth": 10}}
# Agents that `make test-slow` plays. One of each kind, the cheapest to compile, stays in
# `make test`, and so does an agent that is registered anew.
LEFT_OUT = (
    "AC AC-Parl2 AC-s ANN ActorCritic BAMCP BEB BEB-published BOSS BeliefPPO BootDQN DPT DQN "
    "Formula Linear Look-ahead NAC-TD OPPS-CS OPPS-DS PPO PPO-linear Q-Parl2 Q-lambda Q-lambda-s "
    "RL2 RecurrentActorCritic SBOSS SBOSS-published Sarsa Sarsa-Parl2 Sarsa-lambda "
    "Sarsa-lambda-s Soft-max Soft-max-published VDBE-e-Greedy e-Greedy-published"
)
SLOW = set(LEFT_OUT.split())
# Than Random, and not meant to be: a constant action, and a policy that on GC is never revised.
NO_BETTER = {"Random", "Soft-max-published", "SBOSS-published"}

every_agent = pytest.mark.parametrize("name", sorted(AGENTS))


def prior_of(mdps, horizon):
    return DirichletPrior(jax.tree.map(jnp.asarray, mdps), jnp.float32(0.95), horizon)


def plays_finite_mdps(name):
    """Return whether an agent accepts a Dirichlet prior: one that plays other environments
    alone is tested elsewhere.
    """
    try:
        check_requirements(AGENTS[name].agent(), name, prior_of(problem("GC").mdps, 1), "GC")
    except JbrlError:
        return False
    return True


def kind(name):
    """Return the knowledge that an agent requires, and the loop that plays it."""
    agent = AGENTS[name].agent()
    return agent.requires, isinstance(agent, Oracle), isinstance(agent, Stepwise)


def quick_first(names, slow=()):
    """The names as parameters of a test: those in `slow` and in `SLOW` are slow."""
    return [
        pytest.param(name, marks=pytest.mark.slow) if name in SLOW.union(slow) else name
        for name in sorted(names)
    ]


PLAYERS = sorted(name for name in AGENTS if plays_finite_mdps(name))
every_player = pytest.mark.parametrize("name", quick_first(PLAYERS))
# Where others of the quick ones say as much as those whose search takes long.
every_cheap_player = pytest.mark.parametrize("name", quick_first(PLAYERS, slow=LARGER))


def play_one(agent, prior, mdp, index, noise, decided_by="agent"):
    """Play lifetime number `index`, moved by the random numbers of lifetime number `noise`.

    Args:
      decided_by: stream that the agent's keys come from.
    """
    TRACES.append(type(agent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "stream", swapped(noise, decided_by))
        inputs = draw_inputs(mdp, KEY, index, prior.horizon)
    trajectory, fault = play_steps(agent, agent.train(KEY, prior), inputs, keep=True)
    return trajectory.states, trajectory.actions, trajectory.rewards, fault


def swapped(noise, decided_by="agent"):
    """`sampling.stream`, but for the keys that move the environment: those of lifetime
    number `noise`.
    """

    def swapped_stream(key, index, name):
        name = decided_by if name == "agent" else name
        return stream(key, noise if name == "environment" else index, name)

    return swapped_stream


TRACES = []
play_single = jax.jit(play_one)
play_many = jax.jit(jax.vmap(play_one, in_axes=(None, None, 0, 0, 0)))
play_many_by_noise = jax.jit(
    jax.vmap(functools.partial(play_one, decided_by="environment"), in_axes=(None, None, 0, 0, 0))
)


def make(name, prior=None, **values):
    """An agent as it plays; one that searches has searched on `prior`, GC by default."""
    cls = AGENTS[name].agent
    agent = cls(**check_parameters(cls, {**PARAMETERS.get(name, {}), **values}, name))
    if isinstance(agent, OfflineSearch):
        prior = prior or game()[0]
        agent = learn(agent, 0, prior, Trials(prior, 0.95, KEY, jax.devices()), SearchCheckpoint())[
            0
        ].strategy
    return as_arrays(agent)


@functools.cache
def game():
    """The prior of GC and N MDPs drawn from it."""
    prior = prior_of(problem("GC").mdps, T)

    def draw(index):
        return draw_mdp(stream(KEY, index, "mdp"), prior.mdps, unit=True)

    return prior, jax.jit(jax.vmap(draw))(jnp.arange(N))


@functools.cache
def played(name, larger=False):
    """States [N, T+1], actions [N, T], rewards [N, T] of an agent on N MDPs of GC, and what it has
    done wrong [N].

    Args:
      larger: with the parameters of `LARGER`.
    """
    agent = make(name, **LARGER.get(name, {}) if larger else {})
    return tuple(map(np.asarray, play_many(agent, *game(), jnp.arange(N), jnp.arange(N))))


def earned(name, judged):
    """Return the earnings of an agent, [N]: the discounted return; where `judged` has no prior to
    start from, the rewards of the second half.
    """
    rewards = played(name, name in LARGER)[2].astype(np.float64)
    if AGENTS[judged].agent.requires == BAYESIAN:
        return (rewards * 0.95 ** np.arange(T)).sum(1)
    return rewards[:, T // 2 :].sum(1)


def test_every_kind_of_agent_is_among_the_quick_ones():
    assert set(AGENTS) >= SLOW
    assert {kind(name) for name in set(PLAYERS) - SLOW} == {kind(name) for name in PLAYERS}


@every_agent
def test_it_is_described(name):
    entry = AGENTS[name]
    assert "\n" not in entry.summary
    assert entry.summary.endswith(".")
    assert len(entry.summary) <= 140
    bibliography = (resources.files("jbrl") / "references.bib").read_text(encoding="utf-8")
    for key in entry.cite.split(","):
        assert key.startswith("@") or f"{{{key}," in bibliography
    pages = (Path(__file__).parents[2] / "docs" / "agents").glob("*.md")
    table = re.compile(rf"^```{{parameters}} {re.escape(name)}\b(?!-)", re.MULTILINE)
    assert any(table.search(page.read_text(encoding="utf-8")) for page in pages), "on no page"


@every_agent
def test_its_parameters_are_declared(name):
    for field in dataclasses.fields(AGENTS[name].agent):
        assert field.metadata.get("doc"), f"{field.name} is not described"
        if type(field.default) in (int, float):
            assert np.isfinite(field.metadata["low"]), f"{field.name} has no lower bound"
            if type(field.default) is int and not field.metadata["static"]:
                assert field.metadata["high"] < 2**31, f"{field.name} may not fit into int32"
    check_parameters(AGENTS[name].agent, {}, name)


@every_agent
def test_values_that_a_parameter_does_not_accept_are_refused(name):
    """Each parameter: one below its range, one that is no number, one of another type."""
    for field in dataclasses.fields(AGENTS[name].agent):
        kind, low = type(field.default), field.metadata.get("low")
        wrong = {
            float: [np.nan, "0.5", True, None],
            int: [2.5, "3", True],
            bool: [1, "yes"],
            str: ["no such choice" if field.metadata.get("choices") else "", 1],
        }[kind]
        if kind in (int, float) and low > -np.inf:
            wrong += [kind(low - 1)]
        for value in wrong:
            with pytest.raises(JbrlError, match=re.escape(field.name)):
                check_parameters(AGENTS[name].agent, {field.name: value}, "study.toml: agents[0]")
    with pytest.raises(JbrlError, match="no_parameter"):
        check_parameters(AGENTS[name].agent, {"no_parameter": 3}, "study.toml: agents[0]")


@every_agent
def test_a_prior_that_it_cannot_use_is_refused(name):
    """BAMCP on an environment without a Dirichlet prior, say; the message names both."""
    prior = EnvironmentPrior(jax.jit(Tabular.of)(game()[1]), jnp.float32(1), Steps(T))
    agent, observation = AGENTS[name].agent(), prior.spec.observation
    needs = agent.requires
    if isinstance(prior, needs.prior) and isinstance(observation, needs.observations):
        check_requirements(agent, name, prior, "elsewhere")
    else:
        with pytest.raises(JbrlError, match=f"{name} needs .*: 'elsewhere' offers "):
            check_requirements(agent, name, prior, "elsewhere")


@every_agent
def test_no_other_agent_is_taken_for_it(name):
    """JAX keeps compiled functions by the structure of their arguments."""
    agent = AGENTS[name].agent()
    others = [AGENTS[other].agent() for other in AGENTS if other != name]
    assert jax.tree.structure(agent) not in [jax.tree.structure(other) for other in others]


@every_player
def test_actions_are_legal_integers_and_states_hold_no_nan(name):
    _, actions, _, fault = played(name)
    assert actions.dtype == np.int32
    assert ((actions >= 0) & (actions < 3)).all()
    assert not fault.any()


def decided_otherwise(first, second):
    """Lifetimes in which a decision differs although all that came before is the same.

    Args:
      first, second: (what was met, [N, T] or longer; actions [N, T]), the same lifetimes with
        other outcomes.
    """
    (met, actions), (other_met, other_actions) = first, second
    same_action = actions == other_actions
    same_outcome = met[:, : actions.shape[1]] == other_met[:, : actions.shape[1]]
    before = np.cumprod(
        same_outcome & np.pad(same_action, ((0, 0), (1, 0)), constant_values=True)[:, :-1], axis=1
    ).astype(bool)
    return np.flatnonzero((before & ~same_action).any(axis=1))


def other_noise():
    return jnp.arange(N, 2 * N)


@every_player
def test_decisions_do_not_depend_on_what_moves_the_environment(name):
    """Other random numbers in the environment, the same keys for the agent: the same decisions
    until something else happens.
    """
    states, actions, _, _ = played(name)
    other = tuple(map(np.asarray, play_many(make(name), *game(), jnp.arange(N), other_noise())))
    assert decided_otherwise((states, actions), other[:2]).size == 0
    assert (states != other[0]).any(axis=1).mean() > 0.9, "other things happen"


# One that decides with the keys alone, one that seldom does, one that learns with them, one at its
# own pace.
@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", ["Random", "e-Greedy", "PSRL", "BAMCP"])
def test_an_agent_whose_keys_are_those_of_the_environment_would_be_found(name):
    agent = make(name, epsilon=0.1) if name == "e-Greedy" else make(name)
    first, second = (
        tuple(map(np.asarray, play_many_by_noise(agent, *game(), jnp.arange(N), noise)[:2]))
        for noise in (jnp.arange(N), other_noise())
    )
    assert decided_otherwise(first, second).size > 0


@every_player
def test_alone_it_does_the_same_as_in_company(name):
    # At the same width, as the runner plays: programs of another width may round differently.
    prior, mdps = game()
    chosen = np.where(np.arange(N) < N // 2, 0, N - 1)
    index = jnp.asarray(chosen, jnp.int32)
    states, actions, rewards, _ = play_many(
        make(name), prior, jax.tree.map(lambda v: np.asarray(v)[chosen], mdps), index, index
    )
    np.testing.assert_array_equal(actions, played(name)[1][chosen])
    np.testing.assert_array_equal(states, played(name)[0][chosen])
    np.testing.assert_array_equal(rewards, played(name)[2][chosen])


@every_player
def test_one_program_serves_all_parameter_values(name):
    other = {
        f.name: another(name, f)
        for f in dataclasses.fields(AGENTS[name].agent)
        if not f.metadata["static"]
    }
    played(name)
    before = len(TRACES)
    play_many(make(name, **other), *game(), *[jnp.arange(N)] * 2)
    assert len(TRACES) == before


def another(name, field):
    """A value that the parameter accepts, not its default."""
    usual = PARAMETERS.get(name, {}).get(field.name, field.default)
    for value in (
        (not usual,)
        if type(usual) is bool
        else (usual + type(usual)(1), usual / 2, usual + 0.25, usual - 0.25)
    ):
        try:
            checked = check_parameters(AGENTS[name].agent, {field.name: value}, name)[field.name]
        except Exception:
            continue
        if checked != usual:
            return checked
    raise AssertionError(f"{field.name} accepts nothing but {usual}")


@every_cheap_player
def test_impossible_transitions_do_not_matter(name):
    """They are neither believed nor simulated: what they would pay, here the greatest reward that
    there is, changes nothing.
    """
    prior, mdps = game()
    states, actions, _, _ = played(name)
    possible = np.asarray(prior.mdps.concentrations)[states[:, :-1], actions, states[:, 1:]] > 0
    assert possible.all()
    rewards = jnp.where(prior.mdps.concentrations > 0, prior.mdps.rewards, prior.mdps.rewards.max())
    told = dataclasses.replace(prior, mdps=dataclasses.replace(prior.mdps, rewards=rewards))
    met = dataclasses.replace(mdps, rewards=jnp.broadcast_to(rewards[None], mdps.rewards.shape))
    np.testing.assert_array_equal(
        play_many(make(name, told), told, met, *[jnp.arange(N)] * 2)[1], actions
    )


@pytest.mark.first_case_quick
@every_cheap_player
def test_one_state_and_one_action_are_enough(name):
    mdps = distribution(np.full((1, 1, 1), 0.5), np.full((1, 1, 1), 2.0), -1)
    prior = prior_of(mdps, 3)
    drawn = jax.jit(lambda key: draw_mdp(key, prior.mdps, unit=False))(KEY)
    states, actions, rewards, fault = play_single(
        make(name, prior), prior, drawn, jnp.int32(0), jnp.int32(0)
    )
    assert not fault
    assert not np.asarray(states).any()
    assert not np.asarray(actions).any()
    np.testing.assert_array_equal(rewards, [2, 2, 2])


@pytest.mark.parametrize("name", quick_first(set(PLAYERS) - NO_BETTER, slow=LARGER))
def test_it_is_better_than_random(name):
    # Paired on the same MDPs. An agent that is no better passes with a probability of 0.0014.
    difference = earned(name, name) - earned("Random", name)
    assert difference.mean() > 3 * difference.std(ddof=1) / np.sqrt(N)


@pytest.mark.slow  # JAX compiles each operation on its own
@every_player
def test_uncompiled_it_does_the_same(name):
    (prior, mdps), agent, index = game(), make(name), 5
    mdp = jax.tree.map(lambda v: v[index], mdps)
    states, actions, rewards, _ = (v[index] for v in played(name))
    knowledge = agent.train(KEY, prior)
    if isinstance(agent, Oracle):
        knowledge = agent.reveal(knowledge, Tabular.of(mdp))
    state = agent.reset(reset_key(stream(KEY, index, "parameters")), knowledge)
    for t, key in enumerate(jax.random.split(stream(KEY, index, "agent"), T)[:3]):
        action, state = agent.act(key, state, jnp.int32(states[t]))
        assert int(action) == actions[t]
        x, y, never = jnp.int32(states[t]), jnp.int32(states[t + 1]), jnp.bool_(False)
        state = agent.observe(
            observe_key(key), state, Transition(x, action, jnp.float32(rewards[t]), y, never, never)
        )
