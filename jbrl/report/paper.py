"""The parameters that Castronovo et al. 2016 played (section 6.1), beside those of a study."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from jbrl.report.content import Cell, Column, Row, Table
from jbrl.report.tables import Section
from jbrl.report.terms import MDPS
from jbrl.report.text import listing, symbol

PROBLEMS = ("GC", "GDL", "Grid")  # of its tests
PLAYED: dict[str, dict[str, tuple[Any, ...]]] = {
    "Random": {},
    "e-Greedy": {"epsilon": tuple(k / 10 for k in range(11))},
    "Soft-max": {"tau": (0.05, 0.1, 0.2, 0.33, 0.5, 1.0, 2.0, 3.0, 5.0, 25.0)},
    "OPPS-DS": {
        "space": ("F2", "F3", "F4", "F5", "F6"),
        "budget": (50, 500, 1250, 2500, 5000, 10_000, 100_000, 1_000_000),
    },
    "BAMCP": {
        "simulations": (1, 500, 1250, 2500, 5000, 10_000, 25_000),
        "depth": (15, 25, 50),
    },
    "BFS3": {
        "trajectories": (1, 500, 1250, 2500, 5000, 10_000),
        "samples": (2, 5, 10, 15),
        "depth": (15, 25, 50),
    },
    "SBOSS": {
        "epsilon": tuple(10.0**-k for k in range(7)),
        "delta": (9.0, 7.0, 5.0, 3.0, 1.0, *(10.0**-k for k in range(1, 7))),
    },
    "BEB": {"beta": (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0, 16.0)},
}
# What an agent may compute; more of it is better play.
BUDGETS = {
    "OPPS-DS": ("budget", "pull"),
    "BAMCP": ("simulations", "simulation"),
    "BFS3": ("trajectories", "trajectory"),
}


def budgets(parts: Sequence[Section]) -> str:
    """Return which budgets were played where those of the paper are larger, in words; empty where
    none is or where the study does not play the problems of the paper.
    """
    played = _values(parts)
    found = []
    for algorithm, (name, noun) in BUDGETS.items():
        mine, theirs = sorted(played.get(algorithm, {}).get(name, [])), PLAYED[algorithm][name]
        if mine and max(mine) < max(theirs):
            found.append(
                f"{algorithm} has {listing([f'{k:,}' for k in mine])} "
                f"{noun if mine == [1] else _plural(noun)} (in the paper {min(theirs):,} to "
                f"{max(theirs):,})"
            )
    return "; ".join(found) + "." if found else ""


def _plural(noun: str) -> str:
    return noun.removesuffix("y") + "ies" if noun.endswith("y") else f"{noun}s"


def parameters(parts: Sequence[Section]) -> Table | None:
    """Return the parameters played beside those of the paper; None where the study does not play
    the problems of the paper.
    """
    played = _values(parts)
    rows = []
    for algorithm, mine in played.items():
        theirs = PLAYED.get(algorithm)
        if theirs is None:
            rows.append(_row(algorithm, "", "", "not in the paper"))
            continue
        rows += [
            _row(algorithm, symbol(name), _listed(mine.get(name, ())), _listed(values))
            for name, values in theirs.items()
        ]
    columns = tuple(map(Column, ("Algorithm", "Parameter", "Played", "In the paper")))
    title = "Parameters played, and those of Castronovo et al. (2016)"
    return Table("Settings--paper", title, columns, tuple(rows)) if rows else None


def _row(algorithm: str, *texts: str) -> Row:
    return Row((Cell(algorithm, algorithm=algorithm), *map(Cell, texts)))


def _values(parts: Sequence[Section]) -> dict[str, dict[str, list[Any]]]:
    """Values of each parameter of each algorithm that competes in the problems of the paper."""
    mine = [s.table[~s.table["oracle"]] for s in parts if s.terms is MDPS and s.test in PROBLEMS]
    found: dict[str, dict[str, list[Any]]] = {}
    for row in pd.concat(mine).itertuples() if mine else ():
        of = found.setdefault(str(row.algorithm), {})
        for name, value in _parameters(str(row.parameters)).items():
            values = of.setdefault(name, [])
            values += [value] if value not in values else []
    return found


def _parameters(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
