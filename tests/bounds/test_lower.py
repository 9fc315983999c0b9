"""Agents that compete for the lower end."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jbrl.agents.lookup import find_agent
from jbrl.bounds import lower
from jbrl.bounds.layers import Layers
from jbrl.bounds.model import make_model
from tests.bounds.exact import PRIORS, problem


def test_the_policy_that_is_certified_is_the_one_that_was_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[tuple[Any, int]] = []

    def play(agent: Any, *, n_environments: int, seed: int, **_: Any) -> SimpleNamespace:
        played.append((agent, seed))
        learned = SimpleNamespace(strategy=f"found with seed {seed}")
        return SimpleNamespace(returns=np.zeros(n_environments), learned=learned)

    monkeypatch.setattr(lower, "play", play)
    two = problem(PRIORS["unlike"])
    agent = find_agent("OPPS-DS", lower.Path.cwd()).agent()
    layers = Layers(make_model(two.mdps), merge_states=False)
    candidate = lower.candidates(two, layers, 0.9, 5, 1, {"OPPS-DS": agent}, training=7)[-1]
    for n, seed in ((3, 1), (4, 2)):
        assert len(candidate.play(n, np.random.SeedSequence(seed))) == n
    assert [one for one, _ in played] == [agent, *["found with seed 7"] * 2]
    assert len({seed for _, seed in played}) == 3
