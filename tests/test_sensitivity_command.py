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
    # one state; the reward is the number of the action
    rewards = np.zeros((1, 4, 1), np.float32) + np.arange(4, dtype=np.float32)[None, :, None]
    concentrations = np.ones((1, 4, 1), np.float32)
    mdps = distribution(concentrations, rewards)
    write_json(DirichletProblem("One state", "one", mdps), tmp_path / "one.json")
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
