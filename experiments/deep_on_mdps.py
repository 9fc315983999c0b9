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
from jbrl.report.text import score_text, seconds_text
from jbrl.stats.paired_test import PairedTest, paired_z

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments" / "published" / "deep-on-mdps"
STATIC = ROOT / "docs" / "_static"
DEEP = ("DQN", "BootDQN", "ActorCritic", "RecurrentActorCritic", "PPO")
INFORMED = ("BAMCP", "OPPS-DS", "e-Greedy")  # know the prior
BESIDE = ("Random", "BAMCP")  # agents that all others are compared with


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


def difference_text(test: PairedTest) -> str:
    """Write a paired difference with its 95% interval: bold where it is significant."""
    text = score_text(test.difference, test.critical * test.standard_error, 2)
    return f"**{text}**" if test.different else text


def table() -> str:
    """Write scores, paired differences and times, a row for each problem and agent."""
    means, played = scores(), returns()
    lines = [
        f"| problem | agent | score | {' | '.join(f'against {name}' for name in BESIDE)} | offline "
        "| a decision |",
        "|---|---|" + "---:|" * (3 + len(BESIDE)),
    ]
    for problem in dict.fromkeys(means.index.get_level_values("experiment")):
        for agent in (*DEEP, *INFORMED, "Random"):
            row = means.loc[(problem, agent)]
            cells = [
                problem,
                agent,
                score_text(row["mean"], row["ci95"], 2),
                *(
                    difference_text(against(played, problem, agent, other))
                    if other != agent
                    else ""
                    for other in BESIDE
                ),
                seconds_text(row["offline_seconds"]),
                seconds_text(row["online_seconds"]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
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
