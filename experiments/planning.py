"""Draw the score of agents that plan in belief space against their budget, and the time that
it takes.

jbrl run experiments/planning.toml --out out/planning
python experiments/planning.py out/planning docs/_static
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import LogLocator, NullFormatter

import jbrl

# Agent: the budget on the horizontal axis, what distinguishes lines, and how the axis is called.
FIGURES = {
    "BAMCP": ("simulations", "depth", "K, simulations for each decision"),
    "BFS3": ("trajectories", "depth", "K, trajectories (C = 15)"),
    "SBOSS": ("epsilon", "delta", "epsilon: the smaller, the more samples"),
    "BOSS": ("sampled", "known", "K, models drawn"),
}
MARKERS = "os^D"


def panel(axes: list, rows: pd.DataFrame, budget: str, line: str) -> None:
    """Draw scores with 95 % intervals above, microseconds for each decision below, one line for
    each value of `line`.
    """
    values = sorted(rows[line].unique())
    for number, value in enumerate(values):
        chosen = rows[rows[line] == value].sort_values(budget)
        nudge = 1.04 ** (number - (len(values) - 1) / 2)  # intervals side by side
        style = {"marker": MARKERS[number], "markersize": 4, "color": f"C{number}"}
        axes[0].errorbar(
            chosen[budget] * nudge,
            chosen["mean"],
            chosen["ci95"],
            capsize=2,
            lw=1,
            label=f"{line} = {value:g}",
            **style,
        )
        axes[1].plot(chosen[budget], chosen["online_seconds"] * 1e6, lw=1, **style)
    axes[0].set(xscale="log", title=rows.experiment.iloc[0])
    axes[1].set(xscale="log", yscale="log")
    axes[1].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes[1].yaxis.set_major_formatter("{x:g}")
    axes[1].yaxis.set_minor_formatter(NullFormatter())
    for one in axes:
        one.grid(alpha=0.3)


def draw(scores: pd.DataFrame, algorithm: str, file: Path) -> None:
    """Draw one figure: a column for each experiment."""
    budget, line, label = FIGURES[algorithm]
    rows = scores[(scores.algorithm == algorithm) & (scores.status == "done")]
    rows = rows.join(pd.DataFrame([json.loads(text) for text in rows.parameters], index=rows.index))
    names = list(dict.fromkeys(rows.experiment))
    figure, axes = plt.subplots(
        2,
        len(names),
        figsize=(3.1 * len(names), 4.8),
        sharex="col",
        squeeze=False,
        layout="constrained",
    )
    for column, name in zip(axes.T, names, strict=True):
        panel(list(column), rows[rows.experiment == name], budget, line)
    axes[0, 0].set_ylabel("mean discounted return"), axes[1, 0].set_ylabel("µs for each decision")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=len(labels), fontsize=9, frameon=False
    )
    figure.supxlabel(label, fontsize=10)
    figure.savefig(file, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=jbrl.Results, help="of experiments/planning.toml")
    parser.add_argument("folder", type=Path, help="of the figures")
    options = parser.parse_args()
    results, folder = options.results, options.folder
    for name in FIGURES:
        draw(results.scores, name, folder / f"{name.lower()}.png")
