"""docs/agents/tabular.md: its tables are those of the kept scores."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jbrl
from experiments import tabular

PAGES = {"Q-learning": "q-learning", "Sarsa": "sarsa"}


def test_the_tables_are_those_of_the_kept_scores(tmp_path: Path) -> None:
    tabular.main(["--out", str(tmp_path)])
    for name in PAGES.values():
        kept = (tabular.STATIC / f"{name}.md").read_text()
        assert (tmp_path / f"{name}.md").read_text() == kept
        page = (tabular.ROOT / "docs" / "agents" / "tabular.md").read_text()
        assert f"{{include}} ../_static/tabular/{name}.md" in page


@pytest.mark.first_case_quick
@pytest.mark.parametrize("algorithm", PAGES)
def test_a_row_is_what_the_study_gives(algorithm: str) -> None:
    """The first 100 of the 1000 lifetimes have the mean of all, but for their own error."""
    kept = pd.read_csv(tabular.KEPT).query("experiment == 'Chain-10d'")
    row = kept[kept["algorithm"] == algorithm].iloc[0]
    values = json.loads(row["parameters"])
    agent = jbrl.AGENTS[algorithm].agent(**values)
    played = jbrl.play(agent, test="Chain-10d", n_environments=100, seed=0).returns
    error = 4 * row["ci95"] / 1.96 * np.sqrt(row["n"] / len(played) + 1) + 1e-3
    assert abs(played.mean() - row["mean"]) < error
