"""Tables of docs/agents/tabular.md and docs/agents/tabular.md, from experiments/tabular.toml.

python experiments/tabular.py [DIR] [--out FOLDER]

DIR holds results of the study: means, widths of intervals and parameters are kept in
experiments/published/tabular.csv. Without DIR, the tables are written again from what is kept. A
test compares them.
"""

import argparse
import json
from pathlib import Path

import pandas as pd

import jbrl

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments" / "published" / "tabular.csv"
STATIC = ROOT / "docs" / "_static" / "tabular"
COLUMNS = ("experiment", "algorithm", "parameters", "n", "mean", "ci95")
NAMED = {"Q-learning": ("alpha",), "Sarsa": ("alpha", "trace_decay")}  # in every row


def label(algorithm: str, parameters: str) -> str:
    """Return the parameters of a row: those that all rows name, and those not at their default."""
    values = json.loads(parameters)
    if algorithm not in NAMED:
        return algorithm
    usual = jbrl.AGENTS[algorithm].agent()
    shown = [
        f"`{name}={value:g}`"
        for name, value in values.items()
        if name in NAMED[algorithm] or value != getattr(usual, name)
    ]
    return ", ".join(shown)


def table(found: pd.DataFrame, algorithm: str) -> str:
    """Write means and half-widths of 95% intervals, a row for each setting, and one for Random."""
    rows = found[found["algorithm"].isin([algorithm, "Random"])]
    experiments = list(dict.fromkeys(rows["experiment"]))
    lines = ["| " + " | ".join(["", *experiments]) + " |", "|---|" + "---:|" * len(experiments)]
    for (name, parameters), cells in rows.groupby(["algorithm", "parameters"], sort=False):
        by = cells.set_index("experiment")
        shown = [f"{by['mean'][e]:.1f} ± {by['ci95'][e]:.1f}" for e in experiments]
        lines.append("| " + " | ".join([label(name, parameters), *shown]) + " |")
    return "\n".join(lines).replace("| -", "| −") + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="results to keep")
    parser.add_argument("--out", type=Path, default=STATIC)
    chosen = parser.parse_args(arguments)
    if chosen.folder:
        scores = jbrl.Results(chosen.folder).scores.query("status == 'done'")
        scores[list(COLUMNS)].to_csv(KEPT, index=False, float_format="%.6g")
    found = pd.read_csv(KEPT)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for algorithm in NAMED:
        place = chosen.out / f"{algorithm.lower()}.md"
        place.write_text(table(found, algorithm), encoding="utf-8")


if __name__ == "__main__":
    main()
