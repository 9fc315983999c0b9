"""Table of the section "Deep agents on finite MDPs" of docs/published-comparison.md, from the study
experiments/deep-on-mdps.toml.

python experiments/deep_on_mdps.py [DIR] [--out FOLDER]

DIR holds results of the study: they are archived in experiments/published/deep-on-mdps. Without
DIR, the table is written again from what is kept there. A test compares it.
"""

import argparse
from pathlib import Path

import pandas as pd

import jbrl
from jbrl.report.text import score_text
from jbrl.stats.paired_test import PairedTest, paired_z

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments" / "published" / "deep-on-mdps"
STATIC = ROOT / "docs" / "_static"
DEEP = ("DQN", "BootDQN", "ActorCritic", "RecurrentActorCritic", "PPO")
INFORMED = ("BAMCP", "OPPS-DS", "e-Greedy")  # know the prior


def scores() -> pd.DataFrame:
    """Return mean, interval and times, a row for each problem and agent."""
    found = jbrl.Results(KEPT).scores.query("status == 'done'")
    return found.set_index(["experiment", "algorithm"])


def returns() -> pd.DataFrame:
    """Return a column of scores for each problem and agent, a row for each MDP."""
    found = jbrl.Results(KEPT).returns
    return found.pivot(index="unit", columns=["experiment", "algorithm"], values="score")


def against(found: pd.DataFrame, problem: str, agent: str, other: str) -> PairedTest:
    """Test an agent against another on the same MDPs of a problem."""
    return paired_z(found[problem, agent], found[problem, other])


def table() -> str:
    """Write scores, a row for each agent, bold where a test says that Random has another mean."""
    means, played = scores(), returns()
    problems = list(dict.fromkeys(means.index.get_level_values("experiment")))
    lines = ["| | " + " | ".join(problems) + " |", "|---|" + "---:|" * len(problems)]
    for agent in (*DEEP, *INFORMED, "Random"):
        cells = []
        for problem in problems:
            row = means.loc[(problem, agent)]
            text = score_text(row["mean"], row["ci95"], 2)
            differs = agent != "Random" and against(played, problem, agent, "Random").different
            cells.append(f"**{text}**" if differs else text)
        lines.append(f"| {agent} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="results to keep")
    parser.add_argument("--out", type=Path, default=STATIC, metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    if chosen.folder:
        jbrl.Results(chosen.folder).archive(KEPT, decimals=3)
    (chosen.out / "deep-on-mdps.md").write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    main()
