"""Comparison of scores with the published ones, cell by cell: a cell is an algorithm in an
experiment.

A cell may be played in several ways: by the algorithm with the parameters that are printed; by what
the published program computes under its name, where that is something else; with what the paper
misprints corrected; with a smaller budget, where that printed was not played. Each is compared with
the published interval, and the first that agrees with it decides.

Two means agree when they differ by no more than the sum of the half-widths of their 95% intervals.
For equal half-widths that is 2.77 standard errors of the difference, which chance passes once in
180 times.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.base.schema import AGENT
from jbrl.stats import published
from jbrl.stats.published import CELL
from jbrl.stats.table import Z95, check_columns, check_returns, factor95, summarise

PAIR = ("experiment", "prior", "test")
TIMES = ("offline_seconds", "online_seconds")
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
# all their parameters are budgets: with less of one it is the same algorithm, played worse
SEARCHES = ("BAMCP", "BFS3")
CANDIDATES = (
    *CELL,
    "way",
    "played_in",
    "agent",
    "parameters",
    "n",
    "mean",
    "ci95",
    "difference",
    "combined",
    "apart",
    "agrees",
)
_SLACK = 1e-9  # 0 ± 0 agrees with 0 ± 0, and numbers of two decimals are not exact


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A study beside the published numbers, or beside another study."""

    ours: str  # where they come from
    theirs: str
    # one row per cell, with its verdict: of `verdicts`, or of `jbrl.stats.two_studies.beside`
    table: pd.DataFrame
    note: str  # the outcome in words, a line for each part
    candidates: pd.DataFrame | None = None  # of `with_published`; None beside another study
    # of `jbrl.stats.winners.in_words`; None where times are not known
    winners: pd.DataFrame | None = None
    # of the test distributions of the study, by name, where they are known
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)


def played(returns: pd.DataFrame, units: pd.DataFrame) -> pd.DataFrame:
    """Return one row per agent, all seeds taken together: `AGENT`, n, mean, std, ci95, prior, test,
    case, and `TIMES` where they are known.

    Args:
      returns: score table; columns `jbrl.base.schema.AGENT` and `score`.
      units: a table with the columns `PAIR`, and with `AGENT` and `TIMES` where they are known.

    Raises:
      JbrlError: a column is missing or there is no row.
    """
    returns = check_returns(returns, (*AGENT, "score"))
    if returns.empty:
        raise JbrlError("no returns: not one unit of this study is done")
    check_columns(units, PAIR, "units")
    found = summarise(returns).merge(
        units[list(PAIR)].drop_duplicates("experiment"), on="experiment", how="left"
    )
    found = found.assign(
        case=[case(prior, test) for prior, test in zip(found["prior"], found["test"], strict=True)]
    )
    if not {*AGENT, *TIMES} <= set(units.columns):
        return found
    return found.merge(
        units.groupby(list(AGENT))[list(TIMES)].mean().reset_index(), on=list(AGENT), how="left"
    )


def check_protocol(ours: Mapping[str, Any], theirs: Mapping[str, Any], us: str, them: str) -> None:
    """Refuse to compare returns that are not the same quantity. What is not known is not checked.

    Raises:
      JbrlError: another horizon or discount.
    """
    for field in ("horizon", "discount"):
        if field in ours and field in theirs and ours[field] != theirs[field]:
            raise JbrlError(
                f"{field} is {ours[field]!r} in {us} and {theirs[field]!r} in {them}: returns "
                "under different ones cannot be compared; run the study with --set "
                f"study.{field}={theirs[field]}"
            )


def case(prior: str, test: str) -> str:
    """Return "accurate" (the prior is the test distribution), "inaccurate" (it is the uniform one),
    or "" for neither.
    """
    return (
        "accurate"
        if prior == test
        else "inaccurate"
        if prior in (f"U{test}", f"uniform({test})")
        else ""
    )


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
    rows = [row for cell in published.cells().to_dict("records") for row in _ways(cell, scores)]
    if not rows:
        have = ", ".join(
            dict.fromkeys(
                f"{a} in {e}"
                for a, e in zip(scores["algorithm"], scores["experiment"], strict=True)
            )
        )
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
    groups = dict(list(candidates.groupby(list(CELL), sort=False)))
    none = candidates.iloc[:0]
    return pd.DataFrame(
        [
            _verdict(cell, groups.get(tuple(cell[c] for c in CELL), none))
            for cell in published.cells().to_dict("records")
        ]
    )


def counts(found: pd.DataFrame) -> dict[str, int]:
    """Count the cells of `verdicts` with each verdict, and those that agree in some way:
    `{"agrees": …, …, "in all": …, "cells": 48}`.
    """
    told = {
        name: int((found["verdict"] == name).sum())
        for name in (*VERDICTS.values(), DIFFERS, ABSENT)
    }
    return told | {"in all": sum(told[name] for name in VERDICTS.values()), "cells": len(found)}


def _ways(cell: dict[str, Any], scores: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of a cell."""
    here = scores[(scores["case"] == cell["case"]) & (scores["test"] == cell["experiment"])]
    here = here.sort_values("n", ascending=False, kind="stable")
    noted = [
        (n["kind"], n["played"], n["parameters"] or cell["parameters"])
        for kind in (DEFECT, MISPRINT)
        for n in published.notes_on(cell)
        if n["kind"] == kind
    ]
    same = _settings(here, cell["agent"], json.loads(cell["parameters"]))
    for way, fits in (
        (SAME, same),
        *((kind, _settings(here, agent, json.loads(p))) for kind, agent, p in noted),
    ):
        if len(fits):
            yield _row(cell, way, fits.iloc[0])
    smaller = here.iloc[:0] if len(same) else _smaller(here, cell)
    if len(smaller):
        yield _row(cell, OTHER, smaller.iloc[-1])
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
    """Return the rows of a search with no parameter above the printed one, by increasing budget
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
    return (
        mine[within]
        .assign(budget=budgets[within].prod(axis=1))
        .sort_values(["budget", "n"], kind="stable")
    )


def _row(cell: Mapping[str, Any], way: str, ours: pd.Series) -> dict[str, Any]:
    difference = ours["mean"] - cell["mean"]
    combined = ours["ci95"] + cell["ci95"]
    error = np.hypot(ours["ci95"] / factor95(ours["n"]), cell["ci95"] / Z95)
    apart = (
        0.0
        if abs(difference) < _SLACK
        else difference / error
        if error
        else np.copysign(np.inf, difference)
    )
    agrees = bool(abs(difference) <= combined + _SLACK)
    numbers = {"difference": difference, "combined": combined, "apart": apart, "agrees": agrees}
    told = {"way": way, "played_in": ours["experiment"]}
    told |= {"agent": ours["algorithm"], "parameters": ours["parameters"]}
    return {
        **{c: cell[c] for c in CELL},
        **told,
        **{c: ours[c] for c in ("n", "mean", "ci95")},
        **numbers,
    }


def _verdict(cell: Mapping[str, Any], candidates: pd.DataFrame) -> dict[str, Any]:
    ways, best = candidates[candidates["way"] != BEST], candidates[candidates["way"] == BEST]
    agreeing = ways[ways["agrees"].astype(bool)]
    decides = (
        agreeing.iloc[0]
        if len(agreeing)
        else ways.loc[ways["apart"].abs().idxmin()]
        if len(ways)
        else None
    )
    verdict = (
        ABSENT if decides is None else VERDICTS[decides["way"]] if decides["agrees"] else DIFFERS
    )
    kinds = {VERDICTS[DEFECT]: DEFECT, VERDICTS[MISPRINT]: MISPRINT, DIFFERS: EXPLANATION}
    kind = kinds.get(verdict)
    note = next(
        (n for n in published.notes_on(cell) if n["kind"] == kind),
        {"explanation": "", "reference": ""},
    )
    told = [note["explanation"]] if note["explanation"] else []
    if decides is not None and decides["way"] == OTHER:
        told.insert(0, _instead(cell, decides["parameters"]))
    numbers = {
        c: np.nan if decides is None else decides[c]
        for c in ("mean", "ci95", "difference", "combined", "apart")
    }
    return {
        **{c: cell[c] for c in (*CELL, "printed")},
        "published": cell["mean"],
        "published_ci95": cell["ci95"],
        **{c: "" if decides is None else decides[c] for c in ("played_in", "agent", "parameters")},
        "n": 0 if decides is None else int(decides["n"]),
        **numbers,
        **{
            f"best{c}": best.iloc[0][f"{source}"] if len(best) else np.nan
            for c, source in (("", "mean"), ("_ci95", "ci95"))
        },
        "best_parameters": best.iloc[0]["parameters"] if len(best) else "",
        "verdict": verdict,
        "explanation": "; ".join(told),
        "reference": note["reference"],
    }


def _instead(cell: Mapping[str, Any], parameters: str) -> str:
    """Describe the smaller budget that was played: `5,000 simulations instead of 10,000`, `depth 15
    instead of 50`.
    """
    values = json.loads(parameters)
    changed = [
        (name, values[name], v)
        for name, v in json.loads(cell["parameters"]).items()
        if values[name] != v
    ]
    texts = [
        (name, f"{ours:,}", f"{printed:,}") for name, ours, printed in sorted(changed, reverse=True)
    ]
    return ", ".join(
        f"depth {a} instead of {b}" if name == "depth" else f"{a} {name} instead of {b}"
        for name, a, b in texts
    )
