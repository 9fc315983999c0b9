"""Random against its twin."""

from jbrl.agents.random import Random
from jbrl.problems.problem import problem
from tests.reference import agents as twins


def test_its_twin_decides_alike():
    for _, steps in twins.decisions(Random(), "GDL"):
        assert twins.disagreements(steps, twins.Random(problem("GDL").mdps)) == []
