"""Tables and figures of docs/bsuite/agents.md, from the logs in experiments/published/bsuite.

python experiments/bsuite_published.py [--out DIR]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.analysis.bsuite import curves, scores
from jbrl.analysis.bsuite.logs import Logs
from jbrl.bsuite_logs import read_places
from jbrl.bsuite_sweep import EXPERIMENTS, SWEEP, TAGS
from jbrl.report import bsuite_figures as figures
from jbrl.report.style import styles
from jbrl.report.svg import alone

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "experiments" / "published" / "bsuite"
WHOLE = ("reference", "agents")  # files with all settings
SWEPT = ("DQN", "ActorCritic", "PPO", "Random", "Scripted")  # order of columns
SEEDS = "testing"  # file with the testing sweep, several runs of each setting
SHOWN = ("catch", "mountain_car", "deep_sea", "umbrella_length", "memory_len", "cartpole_swingup")
LEARNING = "catch"  # experiment whose learning curves are drawn


def logs(*names: str) -> Logs:
    """Read files of experiments/published/bsuite."""
    return read_places([str(PUBLISHED / f"{name}.parquet") for name in names])


def whole_sweep() -> Logs:
    """Return the runs of agents with all settings, in the order of `SWEPT`."""
    found = logs(*WHOLE)
    runs = sorted(found.runs, key=lambda run: SWEPT.index(run.agent))
    return Logs(tuple(runs), found.problems, found.notes)


def experiments_table(found: Logs) -> list[str]:
    """Return the lines of a table: a row per experiment, a column per agent, with intervals."""
    table = scores.summary(found, intervals=True).set_index(["bsuite_env", "agent"])
    lines = [f"| experiment | {' | '.join(found.agents)} |", "|---|" + "---|" * len(found.agents)]
    for name in EXPERIMENTS:
        if name in found.experiments:
            cells = [_cell(table.loc[(name, agent)]) for agent in found.agents]
            lines.append(f"| [{name}]({name}.md) | {' | '.join(cells)} |")
    return lines


def tags_table(found: Logs) -> list[str]:
    """Return the lines of a table: a row per tag, a column per agent."""
    table = scores.tag_scores(found).set_index(["tag", "agent"])
    mean = scores.summary(found).groupby("agent", sort=False)["score"].mean()
    lines = [f"| tag | {' | '.join(found.agents)} |", "|---|" + "---|" * len(found.agents)]
    for tag in TAGS:
        cells = [_cell(table.loc[(tag, agent)]) for agent in found.agents]
        lines.append(f"| {figures.words(tag)} | {' | '.join(cells)} |")
    lines.append(f"| all 23 experiments | {' | '.join(f'{mean[a]:.2f}' for a in found.agents)} |")
    return lines


def settings_table(found: Logs) -> list[str]:
    """Return the lines of a table of settings with several runs: mean score of a run, and the least
    and the greatest.
    """
    rows = []
    for agent in found.agents:
        for name in found.experiments:
            for setting, values, _ in scores._settings(found, agent, name, "0.3.6"):
                rows.append((setting, agent, values))
    table = pd.DataFrame(rows, columns=["setting", "agent", "values"])
    lines = [f"| setting | {' | '.join(found.agents)} |", "|---|" + "---|" * len(found.agents)]
    for setting in dict.fromkeys(name for name in SWEEP if name in set(table["setting"])):
        mine = table[table["setting"] == setting].set_index("agent")["values"]
        cells = [_spread(mine[agent]) if agent in mine else "" for agent in found.agents]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    return lines


def _cell(row: pd.Series) -> str:
    if not np.isfinite(row["score"]):
        return ""
    text = f"{row['score']:.2f}" + ("" if row["finished"] else " (unfinished)")
    lower, upper = row.get("lower", np.nan), row.get("upper", np.nan)
    return text + (f" [{lower:.2f}, {upper:.2f}]" if np.isfinite(lower) else "")


def _spread(values: np.ndarray) -> str:
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f}, {len(values)} runs)"


def main(arguments: list[str] | None = None) -> None:
    """Write the tables and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "_static" / "bsuite")
    folder = parser.parse_args(arguments).out
    folder.mkdir(parents=True, exist_ok=True)
    found, seeds = whole_sweep(), logs(SEEDS)
    tables = {
        "agents-experiments": experiments_table(found),
        "agents-tags": tags_table(found),
        "agents-testing": settings_table(seeds),
    }
    for name, lines in tables.items():
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    looks = styles(found.agents)
    learning = curves.mean_curves(curves.regrets(found, LEARNING))
    drawings = {
        "agents-radar": figures.radar(scores.tag_scores(found), looks),
        "agents-learning": figures.learning(learning, EXPERIMENTS[LEARNING], looks),
    }
    for name, drawing in drawings.items():
        (folder / f"{name}.svg").write_text(alone(drawing.figure), encoding="utf-8")


if __name__ == "__main__":
    main()
