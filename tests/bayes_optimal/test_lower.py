"""Agents that compete for the lower end; limits of means, the part of returns that is chance, and
how many brackets are false.
"""

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jbrl
from jbrl.agents.registry import find_agent
from jbrl.base.errors import JbrlError
from jbrl.bayes_optimal import bracket, lower, plan
from jbrl.bayes_optimal.limits import Chance, lower_limit, upper_margin
from jbrl.bayes_optimal.lower import Candidate
from jbrl.environments.spec import Steps
from jbrl.mdp.counts import Layers
from jbrl.mdp.model import make_model
from jbrl.play.protocol import Protocol
from jbrl.rollout.contract import Agent
from tests.bayes_optimal.exact import BANDITS, PRIORS, exact, iterated, problem, some_problem

TWO = problem(PRIORS["unlike"])


def policies(agent: Agent, name: str = "agent", horizon: int = 5) -> list[Candidate]:
    """The policies of the look-ahead, and at the end that of an agent."""
    return suggested("unlike", horizon, {name: agent})


def suggested(
    prior: str, horizon: int, agents: Mapping[str, Agent] = MappingProxyType({})
) -> list[Candidate]:
    """The policies of the look-ahead for one of `PRIORS`, and those of agents."""
    two = problem(PRIORS[prior])
    layers = Layers(make_model(two.mdps), merge_states=False)
    protocol = Protocol(two, two, 2, 0, Steps(horizon), 0.9)
    return lower.candidates(protocol, layers, 2, agents, training=7)


def default(name: str) -> Agent:
    return find_agent(name, Path.cwd()).agent()


def test_the_policy_that_is_certified_is_the_one_that_was_tried(monkeypatch):
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


def test_chance_is_taken_from_the_returns_of_an_agent(monkeypatch):
    drawn = np.random.default_rng(0)
    moves = {"states": drawn.integers(2, size=(20, 6)), "actions": drawn.integers(2, size=(20, 5))}
    played = SimpleNamespace(
        returns=drawn.normal(size=20), learned=None, trajectories=moves, failure=""
    )
    monkeypatch.setattr(lower, "play", lambda *_, **__: played)
    expected = played.returns - Chance(TWO.mdps, 0.9, 5).of(moves)
    returns = policies(default("Random"))[-1].play(20, np.random.SeedSequence(1))
    np.testing.assert_array_equal(returns, expected)


def test_an_agent_that_diverges_earns_no_lower_end(monkeypatch):
    lost = SimpleNamespace(
        returns=np.array([1.0, np.nan]), learned=None, failure="PPO has diverged"
    )
    monkeypatch.setattr(lower, "play", lambda *_, **__: lost)
    with pytest.raises(JbrlError, match="PPO has diverged"):
        policies(default("PPO"))[-1].play(2, np.random.SeedSequence(1))

    def lost_before(*_: object, **__: object) -> None:
        raise FloatingPointError("BEB returned NaN")

    monkeypatch.setattr(lower, "play", lost_before)
    with pytest.raises(JbrlError, match="BEB returned NaN"):
        policies(default("BEB"))[-1].play(2, np.random.SeedSequence(1))


def test_pieces_of_an_agent_are_known_by_its_parameters_and_source(monkeypatch):
    def digest(name: str, **parameters: float) -> str:
        agent = dataclasses.replace(default("e-Greedy"), **parameters)
        return policies(agent, name)[-1].digest

    known = [digest("e-Greedy"), digest("e-Greedy(epsilon=0.3)", epsilon=0.3)]
    monkeypatch.setattr(lower, "is_outside", lambda _: True)
    for source in ("one text", "another"):
        monkeypatch.setattr(lower, "source_digest", lambda _, source=source: source)
        known.append(digest("mine:Greedy"))
    assert all(len(one) == 8 for one in known)
    assert len(set(known)) == 4
    assert digest("BeliefPPO by 64 lifetimes, f9f2d842") == ""


def test_a_budget_bounds_the_trials_of_agents(monkeypatch):
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


def test_an_agent_that_does_not_fit_into_the_budget_is_refused(monkeypatch):
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


Draw = Callable[[np.random.Generator], np.ndarray]
N, RUNS, CONFIDENCE = 300, 400, 0.9
MOST_MISSES = 62  # of 400 at 10 %: more occur once in 4,000 tests where limits are exact


def rare(chance: float) -> Draw:
    return lambda generator: (generator.random(N) < chance) / chance


LAWS: dict[
    str, tuple[Draw, float, float]
] = {  # draws, the mean, the greatest value; the least is 0
    "rare": (rare(1e-3), 1.0, 1e3),
    "rarer": (rare(1e-5), 1.0, 1e5),
    "frequent": (rare(0.3), 1.0, 1 / 0.3),
    "heavy": (lambda g: np.minimum(g.pareto(1.1, N), 50.0), (1 - 51**-0.1) / 0.1, 50.0),
    "even": (lambda g: g.random(N), 0.5, 1.0),
    "constant": (lambda _: np.full(N, 0.7), 0.7, 1.0),
}


@pytest.mark.parametrize("ordinary", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("name", LAWS)
def test_limits_fail_as_seldom_as_they_say(name, ordinary):
    """Below and above, of a law and of its mirror image, where a rare event is a catastrophe;
    whatever square is expected, in units of that of the mean.
    """
    draw, mean, most = LAWS[name]
    generator = np.random.default_rng(2)
    misses = np.zeros(4, int)
    for _ in range(RUNS):
        x = draw(generator)
        square, expected = float((x**2).mean()), ordinary * mean**2
        misses += [
            lower_limit(x, 0.0, CONFIDENCE) > mean,
            lower_limit(-x, -most, CONFIDENCE) > -mean,
            x.mean() + upper_margin(N, square, expected, most, CONFIDENCE) < mean,
            -x.mean() + upper_margin(N, square, expected, 0.0, CONFIDENCE) < -mean,
        ]
    assert (misses <= MOST_MISSES).all()


def test_limits_are_near_the_mean_of_ordinary_samples():
    """Student's limits are 1.96 standard errors away."""
    x = np.random.default_rng(4).random(20_000)
    error = x.std() / len(x) ** 0.5
    assert x.mean() - lower_limit(x, 0.0, 0.975) < 2.9 * error
    assert x.mean() - lower_limit(x, -100.0, 0.975) < 13 * error  # 100 ln(40) / N is 9 of them
    centred = float(((x - 0.5) ** 2).mean())
    assert upper_margin(len(x), centred, 1 / 12, 0.5, 0.975) < 2.75 * error
    assert upper_margin(len(x), centred, 1 / 12, 5.0, 0.975) < 3.3 * error
    assert lower_limit(np.array([3.0, 3.0]), 2.0, 0.975) == 2.0


DISCOUNT, HORIZON = 0.9, 5


def by_hand(mdps: object, states: np.ndarray, actions: np.ndarray) -> float:
    """Return the chance of one lifetime, transition by transition."""
    prior = np.asarray(mdps.concentrations, float)  # type: ignore[attr-defined]
    rewards = np.asarray(mdps.rewards, float)  # type: ignore[attr-defined]
    mean = prior / prior.sum(-1, keepdims=True)
    counts, found = prior.copy(), 0.0
    for t, (x, u, y) in enumerate(zip(states[:-1], actions, states[1:], strict=True)):
        later = iterated(mean, rewards, DISCOUNT, len(actions) - t - 1)
        worth = rewards[x, u] + DISCOUNT * later
        row = counts[x, u] / counts[x, u].sum()
        found += DISCOUNT**t * (worth[y] - row @ worth)
        counts[x, u, y] += 1
    return found


@pytest.mark.parametrize("name", ["fractions", "zeros"])
def test_agrees_with_sums_by_hand(name):
    two = problem(PRIORS[name])
    played = jbrl.play(
        "Random", prior=two, n_environments=20, horizon=HORIZON, discount=DISCOUNT, record=True
    )
    kept = played.trajectories
    found = Chance(two.mdps, DISCOUNT, HORIZON).of(kept)
    for lane in range(20):
        expected = by_hand(two.mdps, kept["states"][lane], kept["actions"][lane])
        assert found[lane] == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_has_the_mean_0_and_most_of_the_variance():
    """4.5 standard errors; the seed is fixed."""
    played = jbrl.play("e-Greedy", prior="GDL", n_environments=2048, record=True)
    found = Chance(jbrl.problem("GDL").mdps, 0.95, 250).of(played.trajectories)
    assert abs(found.mean()) < 4.5 * found.std() / 2048**0.5
    assert (played.returns - found).var() < 0.25 * played.returns.var()


@pytest.fixture(autouse=True)
def few_samples(monkeypatch):
    """Limits hold for any number of MDPs; hidden states, for long lifetimes, are not tried."""
    monkeypatch.setattr(plan, "USUAL_MDPS", 256)
    monkeypatch.setattr(bracket, "TRIAL", 64)
    monkeypatch.setattr(bracket, "hide", lambda *_: [])


def misses(numbers: Iterable[int]) -> int:
    """Count the brackets that miss the value by more than rounding, all of them certified."""
    missed = 0
    for number in numbers:
        one = some_problem(number)
        found = jbrl.bound(
            one, discount=DISCOUNT, horizon=HORIZON, decisions=1, seed=number, played=2048
        )
        value = exact(one.mdps, DISCOUNT, HORIZON)
        slack = 1e-5 * max(1.0, abs(value))
        assert found.lower <= found.upper
        assert found.certified
        missed += not found.lower - slack <= value <= found.upper + slack
    return missed


def test_few_brackets_are_false():
    """An ordinary problem, one with a rare outcome, and a bandit. Two misses of 3 at 95 % occur
    once in 138 runs; seeds are fixed.
    """
    assert misses([0, 1, BANDITS[0]]) <= 1


@pytest.mark.slow
def test_brackets_are_false_as_seldom_as_they_say():
    """More than 27 misses of 320 at 95 % occur once in 300 runs; seeds are fixed."""
    numbers = range(4, BANDITS[-1] + 1)
    missed = misses(numbers)
    assert missed <= 27
    page = (Path(__file__).parents[2] / "docs/bounds.md").read_text(encoding="utf-8")
    page = " ".join(page.split())
    assert f"Of {len(numbers)} problems" in page and f" {missed} bracket" in page


def test_policies_of_the_look_ahead_are_agents_by_the_name_that_they_have():
    values = ("", ", beta=0.09", ", beta=0.3", ", beta=0.9")
    expected = [f"Look-ahead(decisions=3{beta})" for beta in values]
    assert [one.name for one in suggested("unlike", 3)] == expected


def test_equal_samples_of_great_size_have_a_limit():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert -1e30 < lower_limit(np.full(64, 1e30), -1e30, CONFIDENCE) <= 1e30
