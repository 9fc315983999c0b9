"""Tables and figures of docs/bsuite/agents.md and of the pages of its agents, from the logs in
experiments/published/bsuite.

python experiments/bsuite_published.py [--out DIR]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, TAGS, TESTING
from jbrl.bsuite_logs import read_places
from jbrl.report.bsuite import learning_figures, score_figures
from jbrl.report.bsuite.words import in_words
from jbrl.report.figures import Drawing
from jbrl.report.style import styles
from jbrl.report.svg import alone
from jbrl.stats.bsuite import curves, scores
from jbrl.stats.bsuite.logs import Logs

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "experiments" / "published" / "bsuite"
WHOLE = ("reference", "agents", "recurrent")  # files with all settings
SWEPT = ("DQN", "ActorCritic", "RecurrentActorCritic", "PPO", "Random", "Scripted")  # the columns
LEARNERS = ("DQN", "ActorCritic", "PPO")  # of the file agents
SEEDED = SWEPT[:-1]  # with three seeds of the testing sweep
LEARNING = {"agents-learning": "catch", "agents-cartpole": "cartpole", "agents-car": "mountain_car"}


def logs(*names: str) -> Logs:
    """Read files of experiments/published/bsuite."""
    return read_places([str(PUBLISHED / f"{name}.parquet") for name in names])


def whole_sweep() -> Logs:
    """Return the runs of agents with all settings, in the order of `SWEPT`."""
    found = logs(*WHOLE)
    runs = sorted(found.runs, key=lambda run: SWEPT.index(run.agent))
    return Logs(tuple(runs), found.problems, found.notes)


def testing_sweep() -> Logs:
    """Return the three runs of each setting of the testing sweep, of the agents of `SEEDED`."""
    found = logs(*WHOLE, "seeds")
    runs = [run for run in found.runs if run.bsuite_id in TESTING and run.agent in SEEDED]
    return Logs(tuple(sorted(runs, key=lambda run: SEEDED.index(run.agent))), found.problems)


def deep_sea_table() -> list[str]:
    """Return the lines of a table: episodes in which an agent leaves the way to the goal, of the
    sizes of both kinds of deep sea that BootDQN has played.
    """
    found = {(run.agent, run.bsuite_id): run for run in logs("exploration", "agents").runs}
    agents = ("BootDQN", *LEARNERS)
    lines = [
        f"| experiment | size | {' | '.join(agents)} |",
        "|---|---:|" + "---:|" * len(agents),
    ]
    for agent, bsuite_id in found:
        if agent == "BootDQN":
            name, size = bsuite_id.split("/")[0], SWEEP[bsuite_id].settings["size"]
            missed = [found[one, bsuite_id].columns["total_bad_episodes"][-1] for one in agents]
            lines.append(f"| {name} | {size} | {' | '.join(f'{int(n):,}' for n in missed)} |")
    return lines


def memory_table() -> list[str]:
    """Return the lines of a table: per cent of the episodes with the right answer, of the settings
    that need a memory. Half of them is what guessing gets.
    """
    agents = ("RecurrentActorCritic", *LEARNERS)
    found = {(run.agent, run.bsuite_id): run.columns for run in logs("recurrent", "agents").runs}
    lines = [f"| setting | {' | '.join(agents)} |", "|---|" + "---:|" * len(agents)]
    for agent, bsuite_id in found:
        if agent == agents[0] and bsuite_id.startswith("memory_"):
            kind, settings = bsuite_id.split("/")[0], SWEEP[bsuite_id].all_settings
            bits, length = settings["num_bits"], settings["memory_length"]
            about = f"{bits} bit{'s' if bits > 1 else ''}, {length} step{'s' if length > 1 else ''}"
            cells = [
                f"{columns['total_perfect'][-1] / columns['episode'][-1]:.1%}"
                for columns in (found[name, bsuite_id] for name in agents)
            ]
            lines.append(f"| {kind}, {about} | {' | '.join(cells)} |")
    return lines


def experiments_table(found: Logs) -> list[str]:
    """Return the lines of a table: a row per experiment, a column per agent, with intervals."""
    table = scores.summary(found, intervals=True).set_index(["bsuite_env", "agent"])
    lines = [f"| experiment | {' | '.join(found.agents)} |", "|---|" + "---|" * len(found.agents)]
    for name in EXPERIMENTS:
        if name in found.experiments:
            cells = [_cell(table.loc[(name, agent)]) for agent in found.agents]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def tags_table(found: Logs) -> list[str]:
    """Return the lines of a table: a row per tag, a column per agent, and their means."""
    table = scores.tag_scores(found).set_index(["tag", "agent"])
    means = scores.summary(found).groupby("agent")["score"].mean()
    lines = [f"| tag | {' | '.join(found.agents)} |", "|---|" + "---|" * len(found.agents)]
    for tag in TAGS:
        cells = [_cell(table.loc[(tag, agent)]) for agent in found.agents]
        lines.append(f"| {in_words(tag)} | {' | '.join(cells)} |")
    cells = [f"{means[agent]:.2f}" for agent in found.agents]
    lines.append(f"| all 23 experiments | {' | '.join(cells)} |")
    return lines


def _cell(row: pd.Series) -> str:
    lower, upper = row.get("lower", np.nan), row.get("upper", np.nan)
    known = f" [{lower:.2f}, {upper:.2f}]" if np.isfinite(lower) else ""
    return f"{row['score']:.2f}{known}"


def main(arguments: list[str] | None = None) -> None:
    """Write the tables and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "_static" / "bsuite")
    folder = parser.parse_args(arguments).out
    folder.mkdir(parents=True, exist_ok=True)
    found = whole_sweep()
    tables = {
        "agents-experiments": experiments_table(found),
        "agents-tags": tags_table(found),
        "agents-deep-sea": deep_sea_table(),
        "agents-memory": memory_table(),
        "agents-testing": experiments_table(testing_sweep()),
    }
    for name, lines in tables.items():
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, drawing in figures(found).items():
        (folder / f"{name}.svg").write_text(alone(drawing.figure), encoding="utf-8")


def figures(found: Logs) -> dict[str, Drawing]:
    """Return the figures of `whole_sweep` by the names of their files."""
    looks = styles((*SWEPT, "BootDQN"))
    seas = logs("exploration", "agents")
    tags = scores.tag_scores(found)
    drawings = {
        "agents-radar": score_figures.radar(tags[tags["agent"] != "Scripted"], looks),
        "agents-seas": learning_figures.solving(
            curves.solutions(seas, "deep_sea"), looks, logarithmic=False
        ),
        "agents-memory-len": learning_figures.scaling(
            curves.final_regrets(found, "memory_len"), EXPERIMENTS["memory_len"], looks
        ),
    }
    for name, experiment in LEARNING.items():
        rows = curves.mean_curves(curves.regrets(found, experiment))
        drawings[name] = learning_figures.learning(rows, EXPERIMENTS[experiment], looks)
    return drawings


if __name__ == "__main__":
    main()
