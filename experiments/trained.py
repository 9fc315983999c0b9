"""Score against offline seconds of the study experiments/trained.toml: figure of docs/trained.md.

python experiments/trained.py [DIR] [--out FOLDER]

DIR holds results of the study: they are archived in experiments/published/trained. Without DIR,
what is kept there is drawn again.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import jbrl
from jbrl.report.axes import COLOURS, INK, LOOK, SYMBOLS
from jbrl.stats.brackets import Bracket, digests_of_tests, find

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments" / "published" / "trained"
STATIC = ROOT / "docs" / "_static"
LINES = (
    *("OPPS-DS", "ANN", "ANN, mean and belief, sampled"),
    *("BeliefPPO", "BeliefPPO, mean and belief", "RL2"),
)
LEAST = 1e-2  # seconds: what is less is drawn here


def named(row: pd.Series) -> str:
    """Return the algorithm, and what its network sees where that is not the default."""
    values = json.loads(row["parameters"])
    inputs = values.get("inputs")
    other = inputs not in (None, {"ANN": "mean", "BeliefPPO": "belief"}.get(row["algorithm"]))
    shown = [row["algorithm"], *([inputs] if other else [])]
    return ", ".join([*shown, *(["sampled"] if other and values.get("sample") else [])])


def scores() -> pd.DataFrame:
    """Return the rows that are kept, ordered by experiment, agent and budget, with `line`,
    `budget`, 0 where there is none, and `test_digest`.
    """
    results = jbrl.Results(KEPT)
    found = results.scores.query("status == 'done'")
    budgets = [json.loads(p).get("budget", 0) for p in found["parameters"]]
    digests = found["test"].map(digests_of_tests(results.units))
    found = found.assign(line=found.apply(named, axis=1), budget=budgets, test_digest=digests)
    experiments, agents = (list(dict.fromkeys(found[name])) for name in ("experiment", "line"))
    order = [
        (experiments.index(row["experiment"]), agents.index(row["line"]), row["budget"])
        for row in found.to_dict("records")
    ]
    return found.iloc[sorted(range(len(order)), key=order.__getitem__)]


def bracket_of(row: Mapping[str, Any]) -> Bracket | None:
    """Return the bracket of the test distribution of a row, where one is kept."""
    return find(row["test"], 0.95, 250, row["test_digest"])


def draw(found: pd.DataFrame) -> Figure:
    """Draw score against offline seconds, a panel for each experiment."""
    with mpl.rc_context(LOOK):
        figure, grid = plt.subplots(2, 2, figsize=(9.5, 7), layout="constrained")
        for axes, (experiment, rows) in zip(
            grid.flat, found.groupby("experiment", sort=False), strict=True
        ):
            _panel(axes, rows)
            axes.set_title(experiment, fontsize=10)
        for axes in grid[1]:
            axes.set_xlabel("offline seconds")
        for axes in grid[:, 0]:
            axes.set_ylabel("mean discounted return")
        legend: dict[str, Any] = {}
        for axes in grid.flat:
            legend |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend(legend.values(), legend.keys(), loc="outside upper center", ncols=4)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    bracket = bracket_of(rows.iloc[0].to_dict())
    if bracket:
        axes.axhspan(bracket.lower, bracket.upper, color="#eeeeee", label="Bayes-optimal value")
    greedy = rows[rows["algorithm"] == "e-Greedy"].iloc[0]
    axes.axhline(greedy["mean"], color=INK, linewidth=1, label="e-Greedy")
    for number, line in enumerate(LINES):
        found = rows[rows["line"] == line].sort_values("budget")
        if len(found):
            axes.errorbar(
                found["offline_seconds"].clip(lower=LEAST),
                found["mean"],
                found["ci95"],
                label=line,
                color=COLOURS[number],
                marker=SYMBOLS[number],
                markersize=4,
                linewidth=1.2,
                elinewidth=0.8,
            )
    axes.set_xscale("log")
    axes.grid(axis="y")


def main(arguments: list[str] | None = None) -> None:
    """Write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, default=STATIC, metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    if chosen.folder:
        jbrl.Results(chosen.folder).archive(KEPT, decimals=3)
    found = scores()
    draw(found).savefig(chosen.out / "trained.png", dpi=110)


if __name__ == "__main__":
    main()
