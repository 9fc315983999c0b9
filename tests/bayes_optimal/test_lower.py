"""Agents that compete for the lower end."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jbrl
from jbrl.agents.registry import find_agent
from jbrl.base.errors import JbrlError
from jbrl.bayes_optimal import bracket, lower
from jbrl.bayes_optimal.counts import Layers
from jbrl.bayes_optimal.lifetimes import Chance
from jbrl.bayes_optimal.lower import Candidate
from jbrl.bayes_optimal.model import make_model
from jbrl.environments.spec import Steps
from jbrl.play.protocol import Protocol
from jbrl.rollout.contract import Agent
from tests.bayes_optimal.exact import PRIORS, problem

TWO = problem(PRIORS["unlike"])


def policies(agent: Agent, name: str = "agent", horizon: int = 5) -> list[Candidate]:
    """The policies of the look-ahead, and at the end that of an agent."""
    layers = Layers(make_model(TWO.mdps), merge_states=False)
    protocol = Protocol(TWO, TWO, 2, 0, Steps(horizon), 0.9)
    return lower.candidates(protocol, layers, 2, {name: agent}, training=7)


def default(name: str) -> Agent:
    return find_agent(name, Path.cwd()).agent()


def test_the_policy_that_is_certified_is_the_one_that_was_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[tuple[Any, int]] = []

    def play(agent: Any, *, n_environments: int, seed: int, **_: Any) -> SimpleNamespace:
        played.append((agent, seed))
        learned = SimpleNamespace(strategy=f"found with seed {seed}")
        moves = {
            "states": np.zeros((n_environments, 6), int),
            "actions": np.zeros((n_environments, 5), int),
        }
        returns = np.zeros(n_environments)
        return SimpleNamespace(returns=returns, learned=learned, trajectories=moves, failure="")

    monkeypatch.setattr(lower, "play", play)
    agent = default("OPPS-DS")
    candidate = policies(agent)[-1]
    for n, seed in ((3, 1), (4, 2)):
        assert len(candidate.play(n, np.random.SeedSequence(seed))) == n
    assert [one for one, _ in played] == [agent, *["found with seed 7"] * 2]
    assert len({seed for _, seed in played}) == 3


def test_chance_is_taken_from_the_returns_of_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.random.default_rng(0)
    moves = {"states": drawn.integers(2, size=(20, 6)), "actions": drawn.integers(2, size=(20, 5))}
    played = SimpleNamespace(
        returns=drawn.normal(size=20), learned=None, trajectories=moves, failure=""
    )
    monkeypatch.setattr(lower, "play", lambda *_, **__: played)
    expected = played.returns - Chance(TWO.mdps, 0.9, 5).of(moves)
    returns = policies(default("Random"))[-1].play(20, np.random.SeedSequence(1))
    np.testing.assert_array_equal(returns, expected)


def test_an_agent_that_diverges_earns_no_lower_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = SimpleNamespace(
        returns=np.array([1.0, np.nan]), learned=None, failure="PPO has diverged"
    )
    monkeypatch.setattr(lower, "play", lambda *_, **__: lost)
    with pytest.raises(JbrlError, match="PPO has diverged"):
        policies(default("PPO"))[-1].play(2, np.random.SeedSequence(1))


def test_pieces_of_an_agent_are_known_by_its_parameters_and_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def digest(name: str, **parameters: float) -> str:
        agent = dataclasses.replace(default("e-Greedy"), **parameters)
        return policies(agent, name)[-1].digest

    known = [digest("e-Greedy"), digest("e-Greedy", epsilon=0.3)]
    monkeypatch.setattr(lower, "is_outside", lambda _: True)
    for source in ("one text", "another"):
        monkeypatch.setattr(lower, "source_digest", lambda _, source=source: source)
        known.append(digest("mine:Greedy"))
    assert all(len(one) == 8 for one in known)
    assert len(set(known)) == 4
    assert digest("BeliefPPO by 64 lifetimes, f9f2d842") == ""


def test_a_budget_bounds_the_trials_of_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many lifetimes as fit by the estimates of the time of a decision and of a search."""
    monkeypatch.setattr(lower, "decision_seconds", lambda *_: 1e-3)
    monkeypatch.setattr(lower, "search_seconds", lambda *_: 4.0)
    *suggested, greedy = policies(default("e-Greedy"), horizon=10)
    assert greedy.seconds(1000) == pytest.approx(2 + 1000 * 0.005)
    assert greedy.fitting(8192, None) == 8192
    assert greedy.fitting(8192, 7.0) == pytest.approx(1000, abs=1)
    assert greedy.fitting(8192, 5.0, searched=True) == pytest.approx(1000, abs=1)
    assert greedy.fitting(8192, 1e3) == 8192
    assert greedy.fitting(8192, 1e-9) == lower.LEAST_PLAYED
    assert all(one.fitting(8192, 1e-9) == 8192 for one in suggested)


def test_an_agent_that_does_not_fit_into_the_budget_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """256 lifetimes of 250 decisions, 0.1 seconds each, two agents, a fifth of the budget for both:
    64,000 seconds and more.
    """
    monkeypatch.setattr(lower, "decision_seconds", lambda *_: 0.1)
    monkeypatch.setattr(bracket, "available_cores", lambda: 1)
    expected = (
        r"agent = 'e-Greedy': 256 lifetimes .* 6\.4e\+03 seconds: expected budget = 6\.4e\+04"
    )
    with pytest.raises(JbrlError, match=expected):
        jbrl.bound(TWO, budget=1, agents=["e-Greedy", "Random"])
