"""Published numbers of Castronovo et al. 2016, and a comparison of scores with them, by cells. A
cell is an algorithm in an experiment.

A cell may be played in several ways: by the algorithm with the parameters that are printed; by what
the published program computes under its name, where that is something else; with what the paper
misprints corrected; with a smaller budget, where that printed was not played. Each is compared with
the published interval, and the first that agrees with it decides.

Two means agree when they differ by no more than the sum of the half-widths of their 95% intervals.
For equal half-widths that is 2.77 standard errors of the difference, which chance passes once in
180 times.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.stats.published import read_table
from jbrl.stats.table import Z95, factor95

# returns under another are other returns
PROTOCOL: Mapping[str, float] = {"horizon": 250, "discount": 0.95}
CELL = ("case", "experiment", "algorithm")
# all their parameters are budgets: with less of one it is the same algorithm, played worse
SEARCHES = ("BAMCP", "BFS3")
_NAMES = {("BAMCP", "K"): "simulations", ("BFS3", "K"): "trajectories", ("BFS3", "C"): "samples"}

# The ways in which a cell may be played, in the order in which they are tried; the best of all
# settings is shown and decides nothing.
SAME, DEFECT, MISPRINT = "same parameters", "defect", "misprint"
OTHER, BEST = "other parameters", "our best"
VERDICTS = {
    SAME: "agrees",
    DEFECT: "known defect",
    MISPRINT: "misprint",
    OTHER: "agrees, other parameters",
}
DIFFERS, ABSENT = "differs", "not played"
EXPLANATION = "explanation"  # kind of a note on a cell that differs
CANDIDATES = (
    *(*CELL, "way", "played_in", "agent", "parameters", "n", "mean", "ci95"),
    *("difference", "combined", "apart", "agrees"),
)
_SLACK = 1e-9  # 0 ± 0 agrees with 0 ± 0, and numbers of two decimals are not exact


def cells() -> pd.DataFrame:
    """Return the 48 cells of Figs 9 and 13, in their order.

    Returns:
      Columns `CELL`; `printed`, the parameters as they are printed; `agent` and `parameters`
      (JSON), who plays it here; `mean` and `ci95`, as printed. OPPS-DS is printed with the formula
      that it has found, which is played by the agent Formula.
    """
    table = paper().rename(columns={"agent": "algorithm", "parameters": "printed", "score": "mean"})
    agents = ["Formula" if name == "OPPS-DS" else name for name in table["algorithm"]]
    pairs = zip(table["algorithm"], table["printed"], strict=True)
    settings = [json.dumps(parameters(*pair), sort_keys=True) for pair in pairs]
    mean, ci95 = (table[name].astype(float) for name in ("mean", "half_width"))
    table = table.assign(agent=agents, parameters=settings, mean=mean, ci95=ci95)
    return table[[*CELL, "printed", "agent", "parameters", "mean", "ci95"]]


def parameters(algorithm: str, printed: str) -> dict[str, float | str]:
    """Return parameters of a cell by the names that they have here: `K=500;C=15;depth=50` of BFS3
    is trajectories, samples and depth.
    """
    if algorithm == "OPPS-DS":
        return {"formula": printed.replace("(x,u)", "")}
    pairs = (pair.split("=") for pair in printed.split(";") if pair)
    values = {_NAMES.get((algorithm, name), name): float(value) for name, value in pairs}
    return {name: int(value) if algorithm in SEARCHES else value for name, value in values.items()}


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


@cache
def _all_notes() -> tuple[Mapping[str, str], ...]:
    return tuple(notes().to_dict("records"))


def with_published(scores: pd.DataFrame) -> pd.DataFrame:
    """Return every way in which a published cell has been played, beside what was published.

    Args:
      scores: what `played` returns.

    Returns:
      Columns `CANDIDATES`: `played_in` is our experiment, that with the most MDPs where the same
      agent was played in several with this prior and test; `difference` is ours less theirs,
      `combined` the sum of both half-widths, `apart` the difference in combined standard errors.
      Cells in order, of each the ways in the order of `VERDICTS`, then the best setting of the
      algorithm.

    Raises:
      JbrlError: not one cell has been played.
    """
    rows = [row for cell in cells().to_dict("records") for row in _ways(cell, scores)]
    if not rows:
        have = ", ".join((scores["algorithm"] + " in " + scores["experiment"]).unique())
        raise JbrlError(
            "none of the published cells has been played: expected an algorithm of Castronovo et "
            "al. 2016 on GC, GDL or Grid with the same or the uniform prior; found "
            f"{have[:300]}{'…' if len(have) > 300 else ''}"
        )
    return pd.DataFrame(rows, columns=list(CANDIDATES))


def verdicts(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the verdict on each of the 48 cells.

    Args:
      candidates: what `with_published` returns.

    Returns:
      One row per cell: `CELL`, `printed`, `published`, `published_ci95`; `played_in`, `agent`,
      `parameters`, `n`, `mean`, `ci95`, `difference`, `combined`, `apart` of the way that
      decides: the first that agrees, else the nearest; `best`, `best_ci95`, `best_parameters` of
      the algorithm's best setting; `verdict`, `explanation`, `reference`.
    """
    ways, best = (candidates[(candidates["way"] == BEST) == last] for last in (False, True))
    distance = np.where(ways["agrees"].astype(bool), -1.0, ways["apart"].abs())
    ways = ways.assign(distance=distance).sort_values("distance", kind="stable")
    table = cells().rename(
        columns={"mean": "published", "ci95": "published_ci95", "parameters": "wanted"}
    )
    table = table.drop(columns="agent").merge(
        ways.drop_duplicates(list(CELL)).drop(columns="distance"), on=list(CELL), how="left"
    )
    names = {"mean": "best", "ci95": "best_ci95", "parameters": "best_parameters"}
    table = table.merge(
        best[[*CELL, *names]].rename(columns=names), on=list(CELL), how="left"
    ).fillna({"played_in": "", "agent": "", "parameters": "", "best_parameters": "", "n": 0})
    told = pd.DataFrame([_verdict(row) for row in table.to_dict("records")])
    columns = table.columns.drop(["wanted", "way", "agrees"])
    return table[columns].astype({"n": int}).join(told)


def counts(table: pd.DataFrame) -> dict[str, int]:
    """Count the cells of `verdicts` with each verdict, and those that agree in some way:
    `{"agrees": …, …, "in all": …, "cells": 48}`.
    """
    told = {
        name: int((table["verdict"] == name).sum())
        for name in (*VERDICTS.values(), DIFFERS, ABSENT)
    }
    return told | {"in all": sum(told[name] for name in VERDICTS.values()), "cells": len(table)}


def in_words(table: pd.DataFrame) -> str:
    """Count the cells that agree, by the way in which they do, and those that do not."""
    count = counts(table)
    ways = {
        VERDICTS[DEFECT]: "as the published program computes them",
        VERDICTS[MISPRINT]: "with a misprint corrected",
        VERDICTS[OTHER]: "with a smaller budget than printed",
        DIFFERS: "in no way",
        ABSENT: "are not played",
    }
    others = "".join(f", {count[name]} {text}" for name, text in ways.items() if count[name])
    described = count[VERDICTS[SAME]]
    return f"{described} of {count['cells']} published cells agree as described{others}"


def _ways(cell: dict[str, Any], scores: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of a cell."""
    here = scores[(scores["case"] == cell["case"]) & (scores["test"] == cell["experiment"])]
    here = here.sort_values("n", ascending=False, kind="stable")
    printed = [(SAME, cell["agent"], cell["parameters"])]
    noted = [
        (kind, note["played"], note["parameters"] or cell["parameters"])
        for kind in (DEFECT, MISPRINT)
        for note in notes_on(cell)
        if note["kind"] == kind
    ]
    ways = [
        (way, _settings(here, agent, json.loads(parameters)))
        for way, agent, parameters in printed + noted
    ]
    if not len(ways[0][1]):
        ways.append((OTHER, _smaller(here, cell)))
    for way, fits in ways:
        if len(fits):
            yield _row(cell, way, fits.iloc[0])
    settings = here[here["algorithm"] == cell["algorithm"]]
    if len(settings):
        yield _row(cell, BEST, settings.loc[settings["mean"].idxmax()])


def _settings(here: pd.DataFrame, agent: str, wanted: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of an agent whose parameters include those wanted, with any others
    (capacities, options).
    """
    mine = here[here["algorithm"] == agent]
    values = [json.loads(text) for text in mine["parameters"]]
    return mine[np.array([v | wanted == v for v in values], bool)]


def _smaller(here: pd.DataFrame, cell: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of a search with no parameter above the printed one, by decreasing budget
    (the product of them all), then by the number of MDPs.
    """
    if cell["algorithm"] not in SEARCHES:
        return here.iloc[:0]
    wanted = json.loads(cell["parameters"])
    mine = here[here["algorithm"] == cell["agent"]]
    budgets = np.array(
        [[json.loads(text).get(name, np.inf) for name in wanted] for text in mine["parameters"]]
    ).reshape(-1, len(wanted))
    within = (budgets <= np.array(list(wanted.values()))).all(axis=1)
    smaller = mine[within].assign(budget=budgets[within].prod(axis=1))
    return smaller.sort_values(["budget", "n"], kind="stable")[::-1]


def _row(cell: Mapping[str, Any], way: str, ours: pd.Series) -> dict[str, Any]:
    difference = ours["mean"] - cell["mean"]
    combined = ours["ci95"] + cell["ci95"]
    error = np.hypot(ours["ci95"] / factor95(ours["n"]), cell["ci95"] / Z95)
    if abs(difference) < _SLACK:
        apart = 0.0
    else:
        apart = difference / error if error else np.copysign(np.inf, difference)
    return {
        **{c: cell[c] for c in CELL},
        "way": way,
        "played_in": ours["experiment"],
        "agent": ours["algorithm"],
        **{c: ours[c] for c in ("parameters", "n", "mean", "ci95")},
        "difference": difference,
        "combined": combined,
        "apart": apart,
        "agrees": bool(abs(difference) <= combined + _SLACK),
    }


def _verdict(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the verdict on a cell, with what is known about it."""
    if not row["agent"]:
        return {"verdict": ABSENT, "explanation": "", "reference": ""}
    verdict = VERDICTS[row["way"]] if row["agrees"] else DIFFERS
    kind = {VERDICTS[DEFECT]: DEFECT, VERDICTS[MISPRINT]: MISPRINT, DIFFERS: EXPLANATION}
    known = [note for note in notes_on(row) if note["kind"] == kind.get(verdict)]
    note = known[0] if known else {"explanation": "", "reference": ""}
    told = [_instead(row)] if row["way"] == OTHER else []
    told += [note["explanation"]] if note["explanation"] else []
    return {"verdict": verdict, "explanation": "; ".join(told), "reference": note["reference"]}


def _instead(row: Mapping[str, Any]) -> str:
    """Describe the smaller budget that was played: `5,000 simulations instead of 10,000`, `depth 15
    instead of 50`.
    """
    wanted, values = json.loads(row["wanted"]), json.loads(row["parameters"])
    return ", ".join(
        f"depth {values[name]:,} instead of {v:,}"
        if name == "depth"
        else f"{values[name]:,} {name} instead of {v:,}"
        for name, v in sorted(wanted.items(), reverse=True)
        if values[name] != v
    )
