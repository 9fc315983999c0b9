"""Agents are played by name or as they are; what cannot be played is refused in a sentence."""

import re

import numpy as np
import pytest

import jbrl
from jbrl.agents import registry
from jbrl.base.errors import JbrlError


class Undecorated(jbrl.Agent):
    """Not registered."""


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
        (3, 'agent = 3: expected an agent, or the name of one, for example "e-Greedy"'),
        (None, "agent = None: expected an agent, or the name of one"),
    ],
)
def test_what_is_no_agent_is_refused(agent, message):
    with pytest.raises(JbrlError, match=re.escape(message)):
        jbrl.play(agent, **SMALL)
