"""A study as large as the published one fits into a page."""

from collections import Counter

import pytest

from benchmarks.large_study import EXPERIMENTS, agents, study
from jbrl.report import sections
from jbrl.report.study import write_report


def test_the_grid_is_that_of_the_paper():
    found = Counter(name for name, _ in agents())
    assert found == {
        "Random": 1,
        "e-Greedy": 11,
        "Soft-max": 10,
        "OPPS-DS": 40,
        "BAMCP": 21,
        "BFS3": 72,
        "SBOSS": 77,
        "BEB": 10,
        "Optimal": 1,
    }
    assert found.total() - found["Optimal"] == 242


@pytest.mark.slow
def test_one_experiment_takes_a_sixth_of_five_megabytes(tmp_path):
    scores, returns = study(n=10, experiments=EXPERIMENTS[:1])
    page = write_report(scores, returns, {"oracles": ["Optimal"]}, tmp_path)
    assert page.stat().st_size < 5e6 / 6
    text = page.read_text(encoding="utf-8")
    assert text.count('id="gc--online-mark-') == text.count('id="gc--latency-mark-') == 242


@pytest.mark.slow
def test_tables_of_the_whole_study():
    parts = sections.sections(*study(), ["Optimal"])
    assert [len(s.competitors) for s in parts] == [242] * 6
    assert all(s.contest.winners({}).algorithms for s in parts)
