"""Samples of a bracket serve one purpose each, and its ends are limits at 97.5 %."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jbrl
from jbrl.bayes_optimal import bracket, upper
from jbrl.bayes_optimal.limits import lower_limit, upper_margin
from jbrl.bayes_optimal.look_ahead import LookAhead, Replication
from jbrl.bayes_optimal.lower import Candidate
from jbrl.bayes_optimal.plan import REPLICATIONS, USUAL_MDPS
from tests.bayes_optimal.exact import PRIORS, problem

PLAYED, LEAST = 300, -3.0


class Stages:
    """Stands in for all that draws samples: notes the seeds, and makes up what they give."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seeds: dict[str, list[tuple[int, ...]]] = {}
        self.replications: list[Replication] = []
        self.returns: dict[str, np.ndarray] = {}
        self.training = -1
        patch.setattr(LookAhead, "control", lambda _, seed: self.note("control", seed))
        patch.setattr(LookAhead, "replication", lambda _, __, n, seed: self.replicate(n, seed))
        patch.setattr(bracket, "hide", lambda _, seed, limit: [self.hide(seed)])
        patch.setattr(bracket, "restored", lambda *_: self.hidden)
        patch.setattr(upper.Ways, "hiding", lambda _, number, one: lambda decisions: one)
        patch.setattr(bracket, "candidates", self.candidates)

    def note(self, purpose: str, seed: np.random.SeedSequence) -> np.random.Generator:
        self.seeds.setdefault(purpose, []).append(tuple(seed.generate_state(2).tolist()))
        return np.random.default_rng(seed)

    def replicate(self, n_mdps: int, seed: np.random.SeedSequence) -> Replication:
        value, square = self.note("upper", seed).normal((3, 0.5), 0.1)
        self.replications.append(Replication(value, 60.0, square, 0.4, 2.0))
        return self.replications[-1]

    def hide(self, seed: np.random.SeedSequence) -> SimpleNamespace:
        def replication(n_mdps: int, seed: np.random.SeedSequence) -> Replication:
            value = self.note("pilot", seed).normal(70)  # not the lower one
            return Replication(value, 60.0, 0.0, 0.0, 0.0)

        self.note("hide", seed)
        sizes = {"kind": 1, "name": "hidden", "usual": 2048, "least": 1024}
        self.hidden = SimpleNamespace(replication=replication, margin=lambda *_: 0.0, **sizes)
        return SimpleNamespace(states=(0,), hidden=SimpleNamespace(trials=1), shift=0.0)

    def candidates(self, *arguments: Any) -> list[Candidate]:
        *_, self.training = arguments

        def player(name: str, mean: float) -> Candidate:
            def play(n_mdps: int, seed: np.random.SeedSequence) -> np.ndarray:
                found = mean + self.note(f"{name} {n_mdps}", seed).normal(size=n_mdps)
                self.returns[f"{name} {n_mdps}"] = found
                return found

            return Candidate(name, play, LEAST)

        return [player("worse", 1.7), player("better", 2.5)]


@pytest.fixture
def stages(monkeypatch):
    monkeypatch.setattr(bracket, "find_moves", lambda *_: None)
    monkeypatch.setattr(bracket, "repeats", lambda *_: None)
    return Stages(monkeypatch)


def bound() -> bracket.Bracket:
    two = problem(PRIORS["unlike"])
    return jbrl.bound(two, discount=0.9, horizon=5, decisions=2, played=PLAYED)


def test_small_rewards_are_no_error_of_rounding(stages):
    """What is wanted is the value in units of the rewards, however small they are."""
    weights, rewards = PRIORS["unlike"]
    two = problem((weights, 1e-14 * np.array(rewards)))
    found = jbrl.bound(two, discount=0.9, horizon=5, decisions=1, played=PLAYED)
    assert stages.replications  # neither end is exact
    assert found.upper - found.lower > 1e-14
    assert not found.close
    assert jbrl.bound(two, discount=0.9, horizon=5, decisions=5).upper_end.rests_on == {
        "method": "exact",
        "decisions": 5,
    }


def test_no_seed_serves_two_purposes(stages):
    """Only policies that are compared with each other play with the same."""
    bound()
    trial = str(bracket.TRIAL)
    assert stages.seeds["better " + trial] == stages.seeds.pop("worse " + trial)
    counts = {purpose: len(seeds) for purpose, seeds in stages.seeds.items()}
    assert counts == {
        "control": 1,
        "hide": 1,
        "pilot": 1,  # of the hidden state; the first of "upper" is that of the look-ahead
        "upper": 1 + REPLICATIONS,
        "better " + trial: 1,
        f"better {PLAYED}": 1,
    }
    used = [seed for seeds in stages.seeds.values() for seed in seeds]
    assert len(set(used)) == len(used)
    assert stages.training not in {words[0] for words in used}


def test_ends_are_limits_of_what_certifies_them(stages):
    """Of the replications that are no pilots, and of the policy that did best, played anew."""
    found = bound()
    replications = stages.replications[1:]
    played = stages.returns[f"better {PLAYED}"]
    square = np.mean([one.square for one in replications])
    n = USUAL_MDPS * REPLICATIONS
    above = 0.9**2 * upper_margin(n, square, 0.4, 2.0, 0.975)
    assert found.upper == pytest.approx(np.mean([one.value for one in replications]) + above)
    assert found.lower == pytest.approx(lower_limit(played, LEAST, 0.975))
    assert found.confidence == 0.95
    assert found.certified
    assert found.lower_end.confidence == found.upper_end.confidence == 0.975
    assert (found.lower_end.assumes, found.upper_end.assumes) == (bracket.RANGE, bracket.RANGE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_estimate_that_is_not_finite_is_replaced(value, stages, monkeypatch):
    """By the end that needs no sample."""
    made = Replication(value, value, 0.0, 0.0, 0.0)
    monkeypatch.setattr(LookAhead, "replication", lambda *_: made)
    monkeypatch.setattr(bracket, "lowest", lambda ways, _: ways[0])
    found = bound()
    assert np.isfinite(found.upper)
    assert found.upper_end.confidence == 1
    assert found.certified
    assert not dataclasses.replace(found, upper=value).certified
