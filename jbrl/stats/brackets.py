"""Known brackets of Bayes-optimal values, and the share of them that a score is.

`brackets.csv` is written by `experiments/bounds/collect.py` from what `jbrl bound` printed.
"""

import csv
import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

FILE = "brackets.csv"
SHARES = ("share_low", "share_high")
_COLUMNS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("problem", "digest"), str),
    **dict.fromkeys(("horizon", "decisions"), int),
    **dict.fromkeys(("discount", "lower", "upper"), float),
    "clairvoyant": lambda text: float(text or "nan"),
}


@dataclasses.dataclass(frozen=True)
class Bracket:
    """Limits of the greatest mean return of any agent whose prior is the distribution of its
    MDP.
    """

    problem: str
    digest: str
    discount: float
    horizon: int
    decisions: int
    lower: float
    upper: float
    clairvoyant: float  # NaN: not known


@cache
def known() -> tuple[Bracket, ...]:
    """Return all brackets that are kept."""
    text = (resources.files("jbrl.stats") / FILE).read_text(encoding="utf-8")
    return tuple(
        Bracket(**{name: _COLUMNS[name](value) for name, value in row.items()})
        for row in csv.DictReader(text.splitlines())
    )


def find(problem: str, discount: float, horizon: int, digest: str | None = None) -> Bracket | None:
    """Return the bracket of a test distribution, by its digest, or by its name where that is not
    known; None where none is kept.

    An agent with another prior than the test distribution cannot earn more on average than one
    with the right one: the bracket holds for it too.
    """
    wanted = (problem if digest is None else digest, discount, horizon)
    key = "problem" if digest is None else "digest"
    fits = (one for one in known() if (getattr(one, key), one.discount, one.horizon) == wanted)
    return next(fits, None)


def digests_of_tests(units: pd.DataFrame) -> dict[str, str]:
    """Return the digests of the test distributions of units by their names, as far as they are
    known.
    """
    if "test_digest" not in units.columns:
        return {}
    told = units[units["test_digest"].notna()].drop_duplicates("test")
    return dict(zip(told["test"], told["test_digest"], strict=True))


def with_digests(manifest: Mapping[str, Any], units: pd.DataFrame) -> dict[str, Any]:
    """Return a manifest with the digests of the test distributions of its experiments, as far as
    its units tell them.

    A distribution may have another name than the one that is kept, and the other way round.
    """
    told = units[units["test_digest"].notna()].drop_duplicates("experiment")
    digests = dict(zip(told["experiment"], told["test_digest"], strict=True))
    return {**manifest, "test_digests": digests}


def of_experiments(manifest: Mapping[str, Any]) -> dict[str, Bracket]:
    """Return the brackets of the experiments of a study, by name, where they are known."""
    study, digests = manifest.get("study") or {}, manifest.get("test_digests") or {}
    brackets = {}
    for table in manifest.get("experiments") or []:
        settings = {**study, **{key: value for key, value in table.items() if value is not None}}
        discount, horizon = settings.get("discount"), settings.get("horizon")
        test = str(settings.get("test") or settings.get("prior") or "").replace(" ", "")
        if isinstance(discount, int | float) and isinstance(horizon, int):
            bracket = find(test, float(discount), horizon, digests.get(table["name"]))
            if bracket is not None:
                brackets[table["name"]] = bracket
    return brackets


def share(mean: float, ci95: float, bracket: Bracket) -> tuple[float, float]:
    """Return the least and the greatest share of the Bayes-optimal value that a mean return can
    be, its own 95% interval taken into account; NaN where the interval is not known, as with one
    MDP, or the lower end is not positive.
    """
    if bracket.lower <= 0:
        return np.nan, np.nan
    least, most = mean - ci95, mean + ci95
    return (
        least / (bracket.upper if least > 0 else bracket.lower),
        most / (bracket.lower if most > 0 else bracket.upper),
    )


def with_shares(
    scores: pd.DataFrame, brackets: Mapping[str, Bracket], oracles: Collection[str] = ()
) -> pd.DataFrame:
    """Return scores with the columns `SHARES` behind their interval, if any bracket is known.

    Args:
      oracles: algorithms that are shown the MDP, of which a bracket says nothing.
    """
    if not any(name in brackets for name in scores["experiment"]):
        return scores
    shares = [
        share(row.mean, row.ci95, brackets[row.experiment])
        if row.experiment in brackets and row.algorithm not in oracles
        else (np.nan, np.nan)
        for row in scores[["experiment", "algorithm", "mean", "ci95"]].itertuples(index=False)
    ]
    scores = scores.copy()
    for number, column in enumerate(SHARES):
        place = scores.columns.get_loc("ci95") + 1 + number
        scores.insert(place, column, np.array([pair[number] for pair in shares]))
    return scores


def share_text(pair: tuple[float, float]) -> str:
    """Return a share in per cent, as an interval rounded outward: `89-99 %`; empty where it is not
    known.
    """
    low, high = (round(100 * end, 6) for end in pair)
    return "" if np.isnan(low) else f"{math.floor(low)}\N{EN DASH}{math.ceil(high)} %"
