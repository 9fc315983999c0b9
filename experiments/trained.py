"""Score against offline seconds of the study experiments/trained.toml: the figure and the table of
docs/trained.md.

jbrl run experiments/trained.toml --out OUT
python experiments/trained.py OUT FIGURES    draws into the folder FIGURES, and prints the table
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import pandas as pd

import jbrl
from jbrl.analysis.brackets import known
from jbrl.report.style import COLOURS, INK, LOOK, SYMBOLS

LINES = ("OPPS-DS", "ANN", "ANN, samples", "BeliefPPO", "RL2")
LEAST = 1e-3  # seconds: what is less is drawn here


def named(row: pd.Series) -> str:
    """Return the name of a line: the algorithm, and how it plays where there are two ways."""
    sampling = row.algorithm == "ANN" and json.loads(row.parameters)["sample"]
    return "ANN, samples" if sampling else row.algorithm


def draw(scores: pd.DataFrame) -> plt.Figure:
    brackets = {one.problem: one for one in known()}
    experiments = list(dict.fromkeys(scores.experiment))
    with mpl.rc_context(LOOK):
        figure, grid = plt.subplots(2, 2, figsize=(9.5, 7), layout="constrained")
        for axes, experiment in zip(grid.flat, experiments, strict=False):
            rows = scores[scores.experiment == experiment]
            bracket = brackets.get(rows.test.iloc[0])
            if bracket:
                axes.axhspan(bracket.lower, bracket.upper, color="#f0f0f0", label="bracket")
            greedy = rows[rows.algorithm == "e-Greedy"].iloc[0]
            axes.axhline(greedy["mean"], color=INK, linewidth=1, label="e-Greedy")
            for number, line in enumerate(LINES):
                found = rows[rows.line == line].sort_values("offline_seconds")
                axes.errorbar(
                    found.offline_seconds.clip(lower=LEAST),
                    found["mean"],
                    found.ci95,
                    label=line,
                    color=COLOURS[number],
                    marker=SYMBOLS[number],
                    markersize=4,
                    linewidth=1.2,
                    elinewidth=0.8,
                )
            axes.set_xscale("log")
            axes.set_title(experiment, fontsize=10)
            axes.grid(axis="y")
        for axes in grid[1]:
            axes.set_xlabel("offline seconds")
        for axes in grid[:, 0]:
            axes.set_ylabel("mean discounted return")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=7)
    return figure


def main(out: str, figures: str) -> None:
    scores = jbrl.Results(out).scores.query("status == 'done'")
    scores = scores.assign(line=scores.apply(named, axis=1))
    draw(scores).savefig(Path(figures) / "trained.png", dpi=110)
    for row in scores.itertuples():
        values = json.loads(row.parameters)
        budget = values.get("budget", "")
        print(
            f"| {row.experiment} | {row.line} | {budget:,} | "
            if budget
            else f"| {row.experiment} | {row.line} |  | ",
            f"{row.offline_seconds:.3g} | {row.online_seconds * 1e9:.0f} | {row.mean:.2f} ± "
            f"{row.ci95:.2f} |",
            sep="",
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
