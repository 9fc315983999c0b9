"""Agents that do wrong: their units fail, with their parameters in the message, and the study
goes on.
"""

import json

import pytest

from jbrl.agents import registry
from jbrl.study.storage.store import Store
from tests.faults.cases import differences, outcome
from tests.terminal import call

WRONG = '''
"""Agents that do wrong."""

import jax.numpy as jnp

import jbrl


@jbrl.register_agent("Raises")
class Raises(jbrl.Agent):
    """Raises an error for one of its modes."""

    mode: str = jbrl.parameter("good", "what it does")
    size: float = jbrl.parameter(1.0, "some number")

    def train(self, key, prior):
        rewards = prior.mdps.rewards
        return rewards * jnp.nan if self.mode == "learns NaN" else rewards

    def reset(self, key, knowledge):
        return knowledge

    def act(self, key, state, x):
        if self.mode == "raises":
            raise ValueError("no idea what to do")
        if self.mode == "returns NaN":
            return jnp.float32(jnp.nan), state
        if self.mode == "leaves":
            raise SystemExit(3)
        if self.mode == "becomes NaN":
            return jnp.int32(0), state * jnp.nan
        if self.mode == "adds wrongly":
            return jnp.int32(0), jnp.ones(3) + jnp.ones(4)
        return jnp.argmax(state[x].sum(-1) + 0 * self.size).astype(jnp.int32), state
'''

MODES = '["raises", "returns NaN", "learns NaN", "leaves", "becomes NaN", "adds wrongly", "good"]'


@pytest.fixture
def wrong(study, monkeypatch):
    """A study with agents that do wrong before those that do not, and that no other test meets."""
    monkeypatch.setattr(registry, "AGENTS", dict(registry.AGENTS))
    name = f"wrong_{study.parent.name}"
    (study.parent / f"{name}.py").write_text(WRONG.replace('"Raises"', f'"Raises {name}"'))
    table = f'[[agents]]\nalgorithm = "{name}:Raises"\nmode = {MODES}\nsize = 2.5\n\n'
    study.write_text(study.read_text().replace("[[agents]]", table + "[[agents]]", 1))
    return study


def test_they_fail_and_the_others_go_on(wrong, whole):
    out = wrong.parent / "out"
    done = call("run", wrong, "--out", out)
    assert done.exit_code == 1
    units = Store(out).units()
    assert list(units["status"]) == ["failed"] * 6 + ["done"] * 4
    file = wrong.parent / f"wrong_{wrong.parent.name}.py"
    assert units["reason"][0] == f"ValueError: no idea what to do ({file}, line 25, in Raises.act)"
    assert "act returned float32[]: expected one action as a scalar int32" in units["reason"][1]
    assert units["reason"][2].endswith("Raises.train returned NaN in its knowledge")
    assert units["reason"][3] == f"SystemExit: 3 ({file}, line 29, in Raises.act)"
    assert units["reason"][4].endswith(
        f"{units['algorithm'][4]}, on MDP 0 of 'GC': its state is NaN: expected numbers or "
        "infinities"
    )
    shapes = "TypeError: add got incompatible shapes for broadcasting: (3,), (4,)."
    assert units["reason"][5] == f"{shapes} ({file}, line 33, in Raises.act)"
    assert f"seed 0: {units['reason'][0]}" in call("scores", out).stderr
    for mode, reason in zip(json.loads(MODES)[:6], units["reason"][:6], strict=True):
        assert f'(mode="{mode}", size=2.5) seed 0: failed: {reason}' in done.stderr
    shared = {name: found for name, found in outcome(out).items() if name in whole}
    assert list(differences(shared, whole)) == []
    assert call("run", wrong, "--out", out, "--only", "Random|Q-learning|good").exit_code == 0


def test_what_fails_is_told_even_when_nothing_else_is(wrong):
    """And no scores are pointed at where there are none."""
    command = ("run", wrong, "--out", wrong.parent / "out", "--only")
    done = call(*command, '"raises"', "--quiet")
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert '(mode="raises", size=2.5) seed 0: failed: ValueError' in done.stderr
    told = call(*command, '"raises"').output
    assert "0 units done, 1 failed" in told and "jbrl scores" not in told
    assert "See 'jbrl scores" in call(*command, 'Random|"raises"').output
