"""Winners from left to right along the online axis, beside the lists that the paper prints (section
5.3).

The offline bound lies just under the least offline time of OPPS-DS, which is therefore not
among them. Times that are not distinguished are ties (`time_ties`).
"""

import numpy as np
import pandas as pd

from jbrl.base.schema import AGENT
from jbrl.stats import published
from jbrl.stats.table import check_columns
from jbrl.stats.time_bounds import Contest, resolved, winners_by_bound

SEARCH = "OPPS-DS"
PAPER, DESCRIBED, PROGRAM = "paper", "as described", "as published"


def with_published(scores: pd.DataFrame, returns: pd.DataFrame) -> pd.DataFrame:
    """Return the lists of winners of the paper, and those of a study, with the algorithms as they
    are described and as they were published.

    Of several experiments of a study with the prior and the test distribution of one pair, that
    with the most agents counts: the others' MDPs cannot all be paired with its own.

    Args:
      scores: one row per agent: `AGENT`, case (accurate, inaccurate), test, offline_seconds,
        online_seconds.
      returns: score table of the same agents.

    Returns:
      One row per step: case, experiment, source ("paper", "as described", "as published"), place
      (from 1), bound (seconds per decision from which on; NaN for the paper), algorithms (tuple,
      the best first; in the paper by name). A source is left out of an experiment in which it has
      fewer than two algorithms.

    Raises:
      JbrlError: a column is missing, or what `Contest` raises.
    """
    check_columns(scores, (*AGENT, "case", "test", "offline_seconds", "online_seconds"), "scores")
    names = tuple(dict.fromkeys(published.cells()["algorithm"]))
    replaced = {
        note["algorithm"]: note["played"]
        for note in published.notes().to_dict("records")
        if _stands_in(note)
    }
    casts = {
        DESCRIBED: {name: name for name in names},
        PROGRAM: {replaced.get(name, name): name for name in names},
    }
    parts = []
    for (case, experiment), lists in published.winners_by_bound().groupby(
        ["case", "experiment"], sort=False
    ):
        parts.append(_steps(lists, case, experiment, PAPER))
        here = scores[(scores["case"] == case) & (scores["test"] == experiment)]
        here = here[here["experiment"].isin(here["experiment"].mode()[:1])]
        for source, cast in casts.items():
            found = _winners(here[here["algorithm"].isin(cast)], returns, cast)
            parts.append(_steps(found, case, experiment, source))
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def in_words(steps: pd.DataFrame) -> pd.DataFrame:
    """Return one row per list: case, experiment, source, `winners` as the paper prints them:
    `(Random), (BEB, e-Greedy)`.
    """
    texts = steps["algorithms"].map(lambda names: f"({', '.join(sorted(names))})")
    keys = ["case", "experiment", "source"]
    return (
        steps.assign(winners=texts)
        .groupby(keys, sort=False)["winners"]
        .agg(", ".join)
        .reset_index()
    )


def _stands_in(note: dict[str, str]) -> bool:
    """Return whether a note names the program's computation under the name of an algorithm, with
    any parameters.
    """
    return note["kind"] == "defect" and not note["parameters"]


def _winners(scores: pd.DataFrame, returns: pd.DataFrame, cast: dict[str, str]) -> pd.DataFrame:
    """Return the steps of one experiment; empty where there is no competitor."""
    searches = scores["algorithm"] == SEARCH
    known = scores[
        ~searches & np.isfinite(scores["online_seconds"]) & np.isfinite(scores["offline_seconds"])
    ]
    if known["algorithm"].nunique() < 2:
        return pd.DataFrame(columns=["bound", "algorithms"])
    least = resolved(scores[searches & np.isfinite(scores["online_seconds"])])[
        "offline_seconds"
    ].min()
    bounds = {"offline": float(np.nextafter(least, 0))} if np.isfinite(least) else {}
    mine = returns[
        returns["experiment"].isin(known["experiment"])
        & returns["algorithm"].isin(known["algorithm"])
    ]
    found = winners_by_bound(Contest(resolved(known), mine), bounds=bounds)
    return found.assign(
        algorithms=[tuple(cast[name] for name in names) for names in found["algorithms"]]
    )


def _steps(found: pd.DataFrame, case: str, experiment: str, source: str) -> pd.DataFrame:
    told = {
        "case": case,
        "experiment": experiment,
        "source": source,
        "place": np.arange(1, len(found) + 1),
    }
    bounds = found["bound"] if "bound" in found.columns else np.full(len(found), np.nan)
    return pd.DataFrame({**told, "bound": bounds, "algorithms": list(found["algorithms"])})
