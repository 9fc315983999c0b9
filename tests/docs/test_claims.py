"""The claims table of docs/testing.md: each figure of the front page and each page of results has a
row, and what a row names is there.
"""

import re
import shlex

import pytest

import jbrl
from tests.docs.commands import ROOT, problem_of

PAGE = (ROOT / "docs/testing.md").read_text(encoding="utf-8").split("## Claims")[1]
ROWS = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in PAGE.splitlines()[5:]]
CLAIMS = {row[0]: row for row in ROWS if len(row) > 1 and row[0] not in ("claim", "|---")}
FRONT = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (
    *("published-comparison.md", "bounds.md", "problems/bandits.md", "trained.md", "jordan.md"),
    *("problems/wrong-priors.md", "bsuite/agents.md", "which-agent.md", "performance.md"),
    *("choose.md", "complete-algorithms.md", "evaluation.md", "opps.md", "subset.md"),
)
# lines of the front page with a figure, as patterns, and the claim that covers them; None: what the
# line says is a definition or a setting
FIGURES = {
    r"^\[!\[Python": "versions, licence",
    r"PLOS ONE, 2016": None,
    r"^decisions in 500 MDPs": None,
    r"a maze of 25 cells|\(paired test, 95%\)": None,
    r"^\| .*Bayes-optimal": "ends of the Bayes-optimal value",
    r"^\| ": "best agents, ties, advice",
    r"With two seconds to search|a hundred to twenty thousand times": "best agents, ties, advice",
    r"`jbrl choose pump\.json .*A quarter of an hour": "a quarter of an hour",
    r"\*\*\d+ \[agents\]": "number of agents",
    r"one core is \[8 to$|^  264 times\]": "times as fast as the C++ program",
}
FIGURE = re.compile(r"\b\d|two seconds|\bhundreds?\b|thousand")


def lines() -> list[str]:
    """Return the lines of the front page with a figure; code and addresses do not count."""
    text = re.sub(r"^```.*?^```", "", FRONT, flags=re.MULTILINE | re.DOTALL)
    found = [re.sub(r"\]\([^)]*\)", "]", line) for line in text.splitlines()]
    return [line for line in found if FIGURE.search(line)]


def covering(line: str) -> str:
    """Return the pattern that matches a line; fail where none does."""
    for pattern in FIGURES:
        if re.search(pattern, line):
            return pattern
    pytest.fail(f"README.md: a figure that no claim covers: {line}")


def test_each_figure_of_the_front_page_is_covered_by_a_claim():
    used = {covering(line) for line in lines()}
    assert used == set(FIGURES)
    assert {claim for claim in FIGURES.values() if claim} <= set(CLAIMS)


def test_a_new_figure_is_found():
    with pytest.raises(pytest.fail.Exception, match="no claim covers"):
        covering("- **Fast**: 17 times.")


def test_each_page_of_results_has_a_claim():
    targets = {link for row in CLAIMS.values() for link in re.findall(r"\]\(([^)]+)\)", row[1])}
    assert set(RESULTS) <= targets
    for link in targets:
        assert (ROOT / "docs" / link.partition("#")[0]).is_file()


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_row_names_a_command_its_tolerance_and_its_minutes(claim):
    _, _, check, tolerance, minutes = CLAIMS[claim]
    assert tolerance and re.fullmatch(r"< 1|–|\d+", minutes)
    commands = [shlex.split(one) for one in re.findall(r"`(\w+ [^`]+)`", check)]
    assert commands
    for tool, *words in commands:
        assert tool in ("pytest", "python", "jbrl")
        assert tool != "jbrl" or problem_of(words) is None
        named = [word for word in words if "/" in word and not word.startswith("out/")]
        assert named or tool == "jbrl"
        assert all((ROOT / word).exists() for word in named)


def test_the_number_of_agents_is_that_of_the_register():
    """Oracles, which see the environment, are no agents to choose."""
    every = [entry.agent for entry in jbrl.AGENTS.values()]
    own = [a for a in every if a.__module__.startswith("jbrl.") and not issubclass(a, jbrl.Oracle)]
    assert f"**{len(own)} [agents]" in FRONT


def test_the_times_of_the_c_program_are_those_of_the_kernels():
    table = (ROOT / "benchmarks/results/table.md").read_text().split("The main job")[0]
    times = [float(row) for row in re.findall(r"\| ([\d.]+) \|$", table, re.MULTILINE)]
    text = re.sub(r"\s+", " ", FRONT)
    assert len(times) > 5 and f"[{min(times):.0f} to {max(times):.0f} times]" in text
