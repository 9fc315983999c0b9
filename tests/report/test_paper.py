"""The parameters of the paper are those of the study that repeats it."""

import json
import tomllib
from pathlib import Path

import pytest

from jbrl.report import tables
from jbrl.report.chapters import document
from jbrl.report.paper import PLAYED, budgets, parameters
from jbrl.report.style import styles
from tests.report.synthetic import study

ONE = [("GC", "GC", "GC")]
ROOT = Path(__file__).parents[2]


def parts_of(agents, experiments=ONE):
    return tables.sections(*study(n=3, agents=agents, experiments=experiments))


def test_as_in_the_study_that_repeats_it():
    agents = tomllib.loads((ROOT / "experiments/paper.toml").read_text("utf-8"))["agents"]
    for agent in agents:
        name = agent.pop("algorithm")
        assert {key: sorted(values) for key, values in PLAYED[name].items()} == {
            key: pytest.approx(sorted(values)) if key in ("epsilon", "delta") else sorted(values)
            for key, values in agent.items()
        }


def test_smaller_budgets_are_said():
    agents = [
        ("BAMCP", {"simulations": 10}),
        ("BAMCP", {"simulations": 50}),
        ("BFS3", {"trajectories": 1, "samples": 2}),
    ]
    assert budgets(parts_of(agents)) == (
        "BAMCP has 10 and 50 simulations (in the paper 1 to 25,000); BFS3 has 1 trajectory (in "
        "the paper 1 to 10,000)."
    )


def test_the_budgets_of_the_paper_need_no_word():
    assert budgets(parts_of([("BAMCP", {"simulations": 25_000}), ("Random", {})])) == ""


def test_other_problems_than_those_of_the_paper_are_not_compared_with_it():
    parts = parts_of([("BAMCP", {"simulations": 10})], [("mine", "GC", "uniform(GC)")])
    assert budgets(parts) == ""
    assert parameters(parts) is None


def test_parameters_beside_those_of_the_paper():
    agents = [("BEB", {"beta": beta}) for beta in (0.5, 7.0)] + [("PSRL", {"period": 5})]
    rows = [[cell.text for cell in row.cells] for row in parameters(parts_of(agents)).rows]
    assert rows == [
        ["BEB", "β", "0.5, 7", "0.25, 0.5, 1, 1.5, 2, 2.5, 3, 4, 8, 16"],
        ["PSRL", "", "", "not in the paper"],
    ]


def test_the_report_says_so():
    agents = [("BAMCP", {"simulations": 10}), ("Random", {})]
    report = document(parts_of(agents), styles(["BAMCP", "Random"]), {})
    words = json.dumps([str(block) for block in report.chapters[0].blocks])
    assert "BAMCP has 10 simulations (in the paper 1 to 25,000)." in words
