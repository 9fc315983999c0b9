"""A deep agent stands in the report beside a planner and a search on the prior, with its times."""

from pathlib import Path

import pytest

import jbrl
from jbrl.report.text import seconds_text

AGENTS = [
    {"algorithm": "DQN", "min_replay": 4},
    {"algorithm": "BAMCP", "simulations": 4, "depth": 3},
    {"algorithm": "OPPS-DS", "space": "F1", "budget": 20},
]


def rows_of(report: str, title: str) -> dict[str, list[str]]:
    """Return the cells of the first table below a heading, by the text of the first cell."""
    _, below = report.split(f"### {title}\n", 1)
    lines = below[below.index("\n| ") :].strip().split("\n\n")[0].splitlines()
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row for row in rows}


@pytest.mark.slow
def test_a_report_shows_a_deep_agent_beside_planners_with_computation_times(tmp_path: Path) -> None:
    study = {
        "study": {"name": "deep and planners", "n_environments": 4, "horizon": 8},
        "experiments": [{"name": "GC", "problem": "GC"}],
        "agents": AGENTS,
    }
    results = jbrl.run(study, tmp_path, progress=False)
    scores = results.scores.set_index("algorithm")
    assert list(scores["status"]) == ["done"] * 3
    assert (scores["online_seconds"] > 0).all()
    assert scores["offline_seconds"]["OPPS-DS"] > scores["offline_seconds"]["DQN"]
    report = results.report(form="markdown").read_text(encoding="utf-8")
    rows = rows_of(report.split('<a id="gc"></a>', 1)[1], "Best agent of each algorithm")
    assert rows["Algorithm"][-2:] == ["Offline", "Online"]
    for name in ("DQN", "BAMCP", "OPPS-DS"):
        offline, online = (scores[f"{kind}_seconds"][name] for kind in ("offline", "online"))
        assert rows[name][-2:] == [seconds_text(offline), seconds_text(online)]
