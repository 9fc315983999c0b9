"""Play the cells of the published comparison whose agents need no search, and print them beside the published figures.

python experiments/published.py [N]
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import jbrl.runner.experiment as experiment
from jbrl.agents.agent import AGENTS

HERE = Path(__file__).parent / "published"
PLAYED = ("Random", "e-Greedy", "BEB", "Optimal")


def cells() -> pd.DataFrame:
    """The published cells with one of the `PLAYED` agents: source, case, experiment, agent, parameters, score, half_width."""
    paper = pd.read_csv(HERE / "castronovo2016.csv", keep_default_na=False)
    program = pd.read_csv(HERE / "bbrl-cpp.csv", keep_default_na=False)
    both = pd.concat([paper.assign(source="paper"), program.assign(source="C++")])
    return both[both.agent.isin(PLAYED)].reset_index(drop=True)


def parameters(text: str, agent: str, truncated: bool) -> dict[str, float]:
    """Parameters of a cell; the C++ program plays BEB with the integer part of beta, whatever the paper prints."""
    values = {name: float(value) for name, value in (pair.split("=") for pair in text.split(";") if pair)}
    return {name: float(int(value)) if truncated and agent == "BEB" else value for name, value in values.items()}


def compare(n_mdps: int = 500, seed: int = 0) -> pd.DataFrame:
    """One row per published cell: our mean and 95 % half-width, the published ones, and the difference in combined standard errors."""
    rows, published = [], cells()
    widths = published[published.source == "paper"].set_index(["case", "experiment", "agent"]).half_width.astype(float)
    for cell in published.itertuples():
        chosen = parameters(cell.parameters, cell.agent, truncated=True)
        prior = cell.experiment if cell.case == "accurate" else "U" + cell.experiment
        played = experiment.play(AGENTS[cell.agent].agent(**chosen), prior=prior, test=cell.experiment, n_mdps=n_mdps, seed=seed)
        mean, half = played.returns.mean(), 1.96 * played.returns.std(ddof=1) / np.sqrt(n_mdps)
        theirs = float(widths.get((cell.case, cell.experiment, cell.agent), half))
        off = (mean - float(cell.score)) / (np.hypot(half, theirs) / 1.96)
        note = ", ".join(f"{name} = {value:g}" for name, value in chosen.items())
        rows.append((cell.source, cell.case, cell.experiment, cell.agent, note, mean, half, float(cell.score), theirs, off))
    names = ["source", "case", "experiment", "agent", "played with", "jbrl", "±", "published", "± ", "standard errors apart"]
    return pd.DataFrame(rows, columns=names)


if __name__ == "__main__":
    table = compare(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
    print(table.round(2).to_string(index=False))
    print(f"largest distance: {table['standard errors apart'].abs().max():.2f} combined standard errors")
