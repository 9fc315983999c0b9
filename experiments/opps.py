"""Score of OPPS-DS against its budget, and what it finds: the figures of docs/opps.md.

python experiments/opps.py OUT            runs two studies into OUT (25 minutes on two cores that
                                          were busy otherwise); again: what is left
python experiments/opps.py OUT FIGURES    draws the figures from OUT into the folder FIGURES
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import jbrl
from jbrl.report.axes import COLOURS, INK, LOOK, ORACLE, SYMBOLS
from jbrl.stats.table import summarise

PAIRS = {
    "GC": "GC",
    "GDL": "GDL",
    "Grid": "Grid",
    "GC-inaccurate": "UGC",
    "GDL-inaccurate": "UGDL",
    "Grid-inaccurate": "UGrid",
}
SPACES = ["F2", "F3", "F4", "F5", "F6"]
BUDGETS = [50, 500, 1250, 2500, 5000, 10_000]
LARGE = [100_000]
# best OPPS-DS
PAPER = {
    "GC": 42.47,
    "GDL": 3.10,
    "Grid": 7.03,
    "GC-inaccurate": 39.29,
    "GDL-inaccurate": 2.99,
    "Grid-inaccurate": 1.09,
}


def study(name: str, seeds: list[int], budgets: list[int]) -> dict:
    return {
        "study": {"name": name, "seed": seeds},
        "experiments": [
            {"name": pair, "prior": prior, "test": prior.removeprefix("U")}
            for pair, prior in PAIRS.items()
        ],
        "agents": [
            {"algorithm": "OPPS-DS", "space": SPACES, "budget": budgets},
            {"algorithm": "Formula", "formula": ["Q0"]},
        ],
    }


def curve(out: Path) -> pd.DataFrame:
    """Return the mean and 95 % interval by experiment, space and budget, over the MDPs of all
    seeds.
    """
    parts = [
        jbrl.Results(out / name).returns.query("algorithm == 'OPPS-DS'")
        for name in ("small", "large")
    ]
    returns = pd.concat(parts, ignore_index=True)
    values = returns["parameters"].map(json.loads)
    returns = returns.assign(space=values.str["space"], budget=values.str["budget"])
    return summarise(returns, by=("experiment", "space", "budget"))


def draw_curve(found: pd.DataFrame, base: pd.DataFrame) -> Figure:
    with mpl.rc_context(LOOK):
        figure, grid = plt.subplots(2, 3, figsize=(9.5, 6), layout="constrained")
        for axes, pair in zip(grid.flat, PAIRS, strict=True):
            for number, space in enumerate(SPACES):
                rows = found[(found.experiment == pair) & (found.space == space)].sort_values(
                    "budget"
                )
                rows = rows.assign(x=rows.budget * 1.06 ** (number - 2))  # side by side
                look = {
                    "color": COLOURS[number],
                    "marker": SYMBOLS[number],
                    "markersize": 4,
                    "linewidth": 1.2,
                    "elinewidth": 0.8,
                }
                few, many = rows[rows.budget <= BUDGETS[-1]], rows[rows.budget > BUDGETS[-1]]
                axes.errorbar(few.x, few["mean"], few.ci95, label=space, **look)
                axes.errorbar(
                    many.x,
                    many["mean"],
                    many.ci95,
                    **look | {"linewidth": 0, "markerfacecolor": "white"},
                )
            axes.axhline(
                PAPER[pair], color=INK, linestyle=(0, (5, 3)), linewidth=1, label="paper, best"
            )
            row = base[base.experiment == pair].iloc[0]
            axes.axhline(row["mean"], color=ORACLE, linewidth=1, label="Q0 alone")
            axes.set_xscale("log")
            axes.set_title(pair, fontsize=10)
            axes.grid(axis="y")
        for axes in grid[1]:
            axes.set_xlabel("budget, pulls")
        for axes in grid[:, 0]:
            axes.set_ylabel("mean discounted return")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=7)
    return figure


def draw_arms(out: Path) -> Figure:
    """Draw means of the arms of F3 after 10,000 pulls on each prior, seed 0, the best ones, and how
    often they were pulled.
    """
    tried = jbrl.Results(out / "small").strategies.query("seed == 0")
    values = tried["parameters"].map(json.loads)
    tried = tried[(values.str["space"] == "F3") & (values.str["budget"] == 10_000)]
    with mpl.rc_context(LOOK):
        figure, grid = plt.subplots(2, 3, figsize=(9.5, 7.5), layout="constrained")
        for axes, prior in zip(grid.flat, PAIRS.values(), strict=True):
            rows = tried[tried.prior == prior].head(14).reset_index(drop=True)
            colours = [COLOURS[1] if chosen else COLOURS[0] for chosen in rows.chosen]
            axes.hlines(
                rows.index,
                rows["mean"] - rows.ci95,
                rows["mean"] + rows.ci95,
                colors=colours,
                linewidth=1.4,
            )
            axes.scatter(rows["mean"], rows.index, c=colours, s=16, zorder=3)
            axes.set_yticks(rows.index, rows.strategy)
            for y, pulls in enumerate(rows.pulls):
                axes.annotate(
                    f"{pulls}",
                    (1.01, y),
                    xycoords=("axes fraction", "data"),
                    va="center",
                    fontsize=8,
                    color=ORACLE,
                )
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.set_title(prior, fontsize=10)
            axes.grid(axis="x")
        for axes in grid[1]:
            axes.set_xlabel("mean return on the prior")
    return figure


def table(out: Path) -> pd.DataFrame:
    """Tabulate beside the paper: what F3 with 10,000 pulls finds, and scores, by seed."""
    results = jbrl.Results(out / "small")
    scores = results.scores[results.scores.algorithm == "OPPS-DS"]
    values = scores["parameters"].map(json.loads)
    scores = scores[(values.str["space"] == "F3") & (values.str["budget"] == 10_000)]
    found: list[Any] = [
        results.learned(row.experiment, "OPPS-DS", row.seed, **json.loads(row.parameters))
        for row in scores.itertuples()
    ]
    formulas = [learned.strategy.formula for learned in found]
    return scores.assign(formula=formulas, paper=scores.experiment.map(PAPER))[
        ["experiment", "seed", "formula", "mean", "ci95", "paper"]
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("figures", metavar="FIGURES", type=Path, nargs="?")
    options = parser.parse_args()
    folder = options.out
    if not options.figures:
        jbrl.run(study("small", [0, 1, 2], BUDGETS), folder / "small")
        jbrl.run(study("large", [0], LARGE), folder / "large")
    else:
        results = jbrl.Results(folder / "small")
        means = summarise(results.returns.query("algorithm == 'Formula'"), by=("experiment",))
        for name, figure in (
            ("opps-budget", draw_curve(curve(folder), means)),
            ("opps-arms", draw_arms(folder)),
        ):
            figure.savefig(options.figures / f"{name}.png", dpi=110)
        print(table(folder).round(2).to_string(index=False))
        print(
            np.round(
                curve(folder).pivot(index=["experiment", "space"], columns="budget", values="mean"),
                2,
            ).to_string()
        )
