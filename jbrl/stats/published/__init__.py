"""Published numbers of Castronovo et al. 2016, as tables, with notes on them; those of Jordan et
al. 2020 are in `jordan2020`.

README.md says where each comes from.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

import pandas as pd

# returns under another are other returns
PROTOCOL: Mapping[str, float] = {"horizon": 250, "discount": 0.95}
CELL = ("case", "experiment", "algorithm")
_SEARCHES = ("BAMCP", "BFS3")
_NAMES = {("BAMCP", "K"): "simulations", ("BFS3", "K"): "trajectories", ("BFS3", "C"): "samples"}


def cells() -> pd.DataFrame:
    """Return the 48 cells of Figs 9 and 13, in their order.

    Returns:
      Columns `CELL`; `printed`, the parameters as they are printed; `agent` and `parameters`
      (JSON), who plays it here; `mean` and `ci95`, as printed. OPPS-DS is printed with the formula
      that it has found, which is played by the agent Formula.
    """
    found = paper().rename(columns={"agent": "algorithm", "parameters": "printed", "score": "mean"})
    agents = ["Formula" if name == "OPPS-DS" else name for name in found["algorithm"]]
    settings = [
        json.dumps(parameters(a, p), sort_keys=True)
        for a, p in zip(found["algorithm"], found["printed"], strict=True)
    ]
    numbers = {
        name: found[source].astype(float)
        for name, source in (("mean", "mean"), ("ci95", "half_width"))
    }
    return found.assign(agent=agents, parameters=settings, **numbers)[
        [*CELL, "printed", "agent", "parameters", "mean", "ci95"]
    ]


def parameters(algorithm: str, printed: str) -> dict[str, float | str]:
    """Return parameters of a cell by the names that they have here: `K=500;C=15;depth=50` of BFS3
    is trajectories, samples and depth.
    """
    if algorithm == "OPPS-DS":
        return {"formula": printed.replace("(x,u)", "")}
    pairs = (pair.split("=") for pair in printed.split(";") if pair)
    values = {_NAMES.get((algorithm, name), name): float(value) for name, value in pairs}
    return {name: int(value) if algorithm in _SEARCHES else value for name, value in values.items()}


def paper() -> pd.DataFrame:
    """Return the same 48 cells as they are printed, all text: case, experiment, agent, parameters,
    score, half_width.
    """
    return read_table("castronovo2016.csv")


def program() -> pd.DataFrame:
    """Return means obtained with the authors' program: the columns of `paper`, half_width empty."""
    return read_table("bbrl-cpp.csv")


def notes() -> pd.DataFrame:
    """Return the notes on cells.

    Returns:
      Columns `CELL`, empty where a note holds for all; `kind`; `played` and `parameters` (JSON;
      empty: those of the cell), the agent that the note is about; `explanation`; `reference`, a
      page of the documentation.
    """
    return read_table("notes.csv")


def notes_on(cell: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the notes that hold for a cell (`CELL`), a dict of the columns of `notes` each."""
    return [dict(note) for note in _all_notes() if all(note[c] in ("", cell[c]) for c in CELL)]


def winners_by_bound() -> pd.DataFrame:
    """Return the winners from left to right along the online axis, the offline bound lying just
    under the least time of OPPS-DS (section 5.3).

    Returns:
      Columns case, experiment, algorithms (tuple), one row per step.
    """
    found = read_table("winners_by_bound.csv")
    return found.assign(algorithms=[tuple(names.split(";")) for names in found["algorithms"]])


@cache
def _all_notes() -> tuple[Mapping[str, str], ...]:
    return tuple(notes().to_dict("records"))


@cache
def _read(name: str) -> pd.DataFrame:
    with resources.files(__package__).joinpath(name).open(encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False, dtype=str)


def read_table(name: str) -> pd.DataFrame:
    """Return one of the files in this folder, all text."""
    return _read(name).copy()
