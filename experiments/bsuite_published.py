"""Table and figures of docs/bsuite/agents.md and of the pages of its agents, from the logs in
experiments/published/bsuite.

python experiments/bsuite_published.py [--out DIR]
"""

import argparse
from pathlib import Path

import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, TAGS, TESTING
from jbrl.bsuite_logs import read_places
from jbrl.report import bsuite_figures
from jbrl.report.axes import Drawing, styles
from jbrl.report.bsuite_figures import in_words
from jbrl.report.html import alone
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


def missed_episodes() -> pd.DataFrame:
    """Return the episodes in which an agent leaves the way to the goal: a row for each setting of
    both kinds of deep sea that BootDQN has played, a column for each agent.
    """
    runs = logs("exploration", "agents").runs
    played = {run.bsuite_id for run in runs if run.agent == "BootDQN"}
    rows = [
        (run.bsuite_id, run.agent, run.columns["total_bad_episodes"][-1])
        for run in runs
        if run.bsuite_id in played
    ]
    return pd.DataFrame(rows).pivot(index=0, columns=1, values=2)


def remembered() -> pd.DataFrame:
    """Return the share of the episodes with the right answer, a row for each setting that needs a
    memory, by `setting`, `bits` and `steps`, a column for each agent. Guessing gets a half.
    """
    rows = []
    for run in logs("recurrent", "agents").runs:
        if run.bsuite_id.startswith("memory_"):
            settings = SWEEP[run.bsuite_id].all_settings
            share = run.columns["total_perfect"][-1] / run.columns["episode"][-1]
            key = (run.bsuite_id, settings["num_bits"], settings["memory_length"])
            rows.append((*key, run.agent, share))
    keys = ["setting", "bits", "steps"]
    table = pd.DataFrame(rows, columns=[*keys, "agent", "share"])
    return table.pivot(index=keys, columns="agent", values="share").reset_index()


def scores_table(found: Logs) -> list[str]:
    """Return the lines of a table: the score of each agent in each experiment, the means of the
    tags, and of all experiments.
    """
    by = scores.summary(found).pivot(index="bsuite_env", columns="agent", values="score")
    tags = scores.tag_scores(found).pivot(index="tag", columns="agent", values="score")
    rows = [(name, by.loc[name]) for name in EXPERIMENTS if name in found.experiments]
    rows += [(f"**{in_words(tag)}**", tags.loc[tag]) for tag in TAGS]
    rows += [("**all 23 experiments**", by.mean())]
    lines = [f"| experiment | {' | '.join(found.agents)} |", "|---|" + "---:|" * len(found.agents)]
    for name, row in rows:
        lines.append(f"| {name} | {' | '.join(f'{row[agent]:.2f}' for agent in found.agents)} |")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Write the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "_static" / "bsuite")
    folder = parser.parse_args(arguments).out
    folder.mkdir(parents=True, exist_ok=True)
    found = whole_sweep()
    lines = scores_table(found)
    (folder / "agents-scores.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, drawing in figures(found).items():
        (folder / f"{name}.svg").write_text(alone(drawing.figure), encoding="utf-8")


def figures(found: Logs) -> dict[str, Drawing]:
    """Return the figures of `whole_sweep` by the names of their files."""
    looks = styles((*SWEPT, "BootDQN"))
    seas = logs("exploration", "agents")
    tags = scores.tag_scores(found)
    drawings = {
        "agents-radar": bsuite_figures.radar(tags[tags["agent"] != "Scripted"], looks),
        "agents-seas": bsuite_figures.solving(
            curves.solutions(seas, "deep_sea"), looks, logarithmic=False
        ),
        "agents-memory-len": bsuite_figures.scaling(
            curves.final_regrets(found, "memory_len"), EXPERIMENTS["memory_len"], looks
        ),
    }
    for name, experiment in LEARNING.items():
        rows = curves.mean_curves(curves.regrets(found, experiment))
        drawings[name] = bsuite_figures.learning(rows, EXPERIMENTS[experiment], looks)
    return drawings


if __name__ == "__main__":
    main()
