"""`jbrl sensitivity`: draws found again from the seed are those that were played."""

import json
from pathlib import Path

import numpy as np
import pytest

import jbrl
from jbrl.mdp.dirichlet import distribution
from jbrl.problems.json_format import write_json
from jbrl.problems.problem import DirichletProblem
from tests.terminal import call, refused

AGENT = '''
import jax.numpy as jnp
import jbrl
from jbrl.agents.registry import register_agent


@register_agent("Constant in a test")
class Constant(jbrl.Agent):
    """Take one action."""

    action: int = jbrl.parameter(0, "taken always", low=0, high=3)
    idle: float = jbrl.parameter(0.5, "of no effect", low=0, high=1)

    def reset(self, key, knowledge):
        return jnp.int32(0)

    def act(self, key, state, observation):
        return jnp.int32(self.action), state

    def observe(self, key, state, transition):
        return state
'''


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("draws")
    (tmp_path / "constant_agent.py").write_text(AGENT)
    # one state; the reward is the number of the action, or of its opposite
    rewards = np.zeros((1, 4, 1), np.float32) + np.arange(4, dtype=np.float32)[None, :, None]
    concentrations = np.ones((1, 4, 1), np.float32)
    for name, paid in {"one": rewards, "two": 3 - rewards}.items():
        mdps = distribution(concentrations, paid)
        write_json(DirichletProblem(name, name, mdps), tmp_path / f"{name}.json")
    tables = {
        "study": {"name": "draws", "n_environments": 40, "horizon": 1, "discount": 0.5, "seed": 3},
        "experiments": [{"name": "one", "test": "one.json"}],
        "agents": [
            {
                "algorithm": "constant_agent:Constant",
                "action": {"uniform": [0, 3]},
                "idle": {"uniform": [0, 1]},
            },
            {"algorithm": "Random"},
        ],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.syspath_prepend(tmp_path)
        jbrl.run(tables, tmp_path / "out", progress=False)
        yield jbrl.Results("out")


def test_draws_are_those_that_were_played(study):
    trials = study.trials
    assert len(trials) == 40 and set(trials["algorithm"]) == {"Constant in a test"}
    np.testing.assert_array_equal(trials["score"], trials["action"])
    assert trials["idle"].nunique() == 40 and set(trials["action"]) == {0, 1, 2, 3}


def test_the_command_and_its_page(study):
    options = ("--format", "json", "--permutations", 99, "--out", "page")
    run = call("sensitivity", "out", *options)
    assert run.exit_code == 0, run.output
    rows = json.loads(run.stdout[: run.stdout.rindex("]") + 1])
    assert [row["parameter"] for row in rows] == ["action", "idle"]
    assert rows[0]["share"] == 1 and rows[0]["significant"] and not rows[1]["significant"]
    page = Path("page/index.html").read_text()
    assert "Which parameters matter?" in page and "idle" in page
    # tables, page, a figure and its numbers
    suffixes = sorted(path.suffix for path in Path("page").iterdir())
    assert suffixes == [".csv"] * 3 + [".html", ".png", ".svg"]
    message = "--algorithm: 'Random' draws no parameters here"
    refused(call("sensitivity", "out", "--algorithm", "Random"), message)
    message = "--experiment: unknown experiment 'two'"
    refused(call("sensitivity", "out", "--experiment", "two"), message)


def test_listed_values_in_two_experiments(study):
    """Actions 0 and 3 are the best of one experiment and the worst of the other."""
    tables = {
        "study": {"name": "lists", "n_environments": 3, "horizon": 1, "discount": 0.5, "seed": 3},
        "experiments": [{"name": name, "test": f"{name}.json"} for name in ("one", "two")],
        "agents": [{"algorithm": "constant_agent:Constant", "action": [0, 1, 3]}],
    }
    jbrl.run(tables, "lists", progress=False)
    run = call("sensitivity", "lists", "--table", "tuning", "--format", "json", "--out", "gains")
    (row,) = json.loads(run.stdout[: run.stdout.rindex("]") + 1])
    # 0, 1, 3 have percentiles 0.1 and 2.8; 3, 2, 0 have 0.2 and 2.9
    assert row["tuned"] == pytest.approx((2.9 + 2.8) / 2 / 2.7)
    assert row["single"] == pytest.approx((0.9 + 1.8) / 2 / 2.7)
    assert (row["dimension"], row["choose"], row["sensitivity_lower"]) == (
        *(1, "action"),
        pytest.approx(row["sensitivity"]),
    )
    page = Path("gains/index.html").read_text()
    assert "What does tuning gain?" in page and "1.06 (1.06 to 1.06)" in page
    text = call("sensitivity", "lists", "--table", "tuning").stdout
    assert "1.06 [1.06, 1.06]" in text and "sensitivity_lower" not in text
    message = "tuning: 1 experiments, and 1 algorithms with several settings: expected at least two"
    refused(call("sensitivity", "lists", "--table", "tuning", "--experiment", "one"), message)
    message = "--algorithm: 'Random' has one setting here"
    refused(call("sensitivity", "lists", "--table", "tuning", "--algorithm", "Random"), message)
