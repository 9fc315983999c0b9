"""Comparison of two studies: the agents that both have played, and the differences of their means.

Where both were played on the same MDPs the test is the paired one; elsewhere it is that of Welch
(1947), which takes the samples to be independent. MDPs are the same when they are drawn from the
same distribution with the same seed and number. A distribution is identified by its digest: edited
files keep their names.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from jbrl.base.errors import JbrlError
from jbrl.base.schema import AGENT
from jbrl.stats.paired_test import paired_z, rejected
from jbrl.stats.table import check_columns, check_returns, factor95, samples, summarise

PAIR = ("experiment", "prior", "test")
TIMES = ("offline_seconds", "online_seconds")
LEVEL = 0.95
IDENTICAL, AGREES, DIFFERS, UNTESTED = "identical", "agrees", "differs", "no test"
SAME, OTHER, UNKNOWN = "same", "differs", ""  # of a problem in two studies; unknown without digests
Test = Literal["paired", "Welch", ""]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A study beside the published numbers, or beside another study."""

    ours: str  # where they come from
    theirs: str
    # one row per cell, with its verdict: of `castronovo2016.verdicts`, or of `beside`
    table: pd.DataFrame
    note: str  # the outcome in words, a line for each part
    candidates: pd.DataFrame | None = None  # of `castronovo2016.with_published`; else None
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
    pairs = units[list(PAIR)].drop_duplicates("experiment")
    table = summarise(returns).merge(pairs, on="experiment", how="left")
    table = table.assign(case=list(map(case, table["prior"], table["test"])))
    if not {*AGENT, *TIMES} <= set(units.columns):
        return table
    times = units.groupby(list(AGENT))[list(TIMES)].mean().reset_index()
    return table.merge(times, on=list(AGENT), how="left")


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
    if prior == test:
        return "accurate"
    return "inaccurate" if prior in (f"U{test}", f"uniform({test})") else ""


def beside(
    ours: pd.DataFrame,
    our_returns: pd.DataFrame,
    theirs: pd.DataFrame,
    their_returns: pd.DataFrame,
    *,
    rounding: float = 0.0,
    problems: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Compare agents that are in both studies, with the same parameters in the experiment of the
    same name.

    Args:
      ours, theirs: what `played` returns.
      our_returns, their_returns: the score tables.
      rounding: by how much two returns may differ, having been rounded, that were the same.
      problems: by experiment, what `same_problems` says of its test distribution; MDPs of those
        that differ are not paired.

    Returns:
      One row per agent, in our order: `AGENT`; n, mean, ci95; other_n, other_mean, other_ci95;
      `difference`, ours less theirs; `interval`, the half-width of its 95% interval; `combined`,
      the sum of the two half-widths; `problem` ("same", "differs", "" where it is not known);
      `test` ("paired", "Welch", "" for a single MDP), `p_value` (two-sided), `holm` (whether it is
      significant among all rows, Holm 1979), `verdict`: identical, agrees, differs (p at most
      0.05), no test.

    Raises:
      JbrlError: an experiment has another prior or test distribution in the other study, or no
        agent is in both.
    """
    _check_experiments(ours, theirs)
    both = ours.merge(theirs, on=list(AGENT), suffixes=("", "_other"))
    if both.empty:
        names = " / ".join(", ".join(sorted(set(table["experiment"]))) for table in (ours, theirs))
        raise JbrlError(
            "no agent is in both studies: expected the same experiment, algorithm and parameters "
            f"in each (experiments found: {names})"
        )
    scores = [samples(returns) for returns in (our_returns, their_returns)]
    keys = list(both[list(AGENT)].itertuples(index=False, name=None))
    rows = []
    for row, key in zip(both.to_dict("records"), keys, strict=True):
        row["problem"] = (problems or {}).get(row["experiment"], UNKNOWN)
        rows.append(_row(row, scores[0][key], scores[1][key], rounding))
    compared = pd.DataFrame(rows)
    tested = compared["verdict"].isin((AGREES, DIFFERS)).to_numpy()
    holm = np.zeros(len(compared), bool)
    holm[tested] = rejected(compared.loc[tested, "p_value"].tolist(), 1 - LEVEL, "holm")
    return compared.assign(holm=holm)[[*compared.columns.drop("verdict"), "holm", "verdict"]]


def only_in_one(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return agents (`AGENT`) that only the first study has, and those that only the second has."""
    columns = list(AGENT)
    both = ours[columns].merge(theirs[columns], on=columns, how="outer", indicator=True)
    left, right = (
        both.loc[both["_merge"] == f"{side}_only", columns] for side in ("left", "right")
    )
    return left, right


def same_problems(
    ours: Mapping[str, str | None], theirs: Mapping[str, str | None]
) -> dict[str, str]:
    """Return, by experiment of both studies, `SAME`, `OTHER`, or `UNKNOWN` where a digest is not
    known.

    Args:
      ours, theirs: the digest of the distribution of each experiment, by its name.
    """
    verdicts = {}
    for name in ours.keys() & theirs.keys():
        one, other = ours[name], theirs[name]
        verdicts[name] = UNKNOWN if not one or not other else SAME if one == other else OTHER
    return verdicts


def _check_experiments(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    pairs = (side[list(PAIR)].drop_duplicates() for side in (ours, theirs))
    both = pd.merge(*pairs, on="experiment", suffixes=("", "_other"))
    other = both[(both["prior"] != both["prior_other"]) | (both["test"] != both["test_other"])]
    if len(other):
        row = other.iloc[0]
        raise JbrlError(
            f"experiment {row['experiment']} has prior {row['prior']} and test {row['test']} in "
            f"one study and prior {row['prior_other']} and test {row['test_other']} in the other: "
            "they cannot be compared"
        )


def _row(row: dict[str, Any], a: pd.Series, b: pd.Series, rounding: float) -> dict[str, Any]:
    test, interval, p_value = _tested(a, b, pairs=row["problem"] != OTHER)
    difference = row["mean"] - row["mean_other"]
    same = test == "paired" and bool((a - b.reindex(a.index)).abs().max() <= rounding * (1 + 1e-9))
    verdict = DIFFERS if p_value <= 1 - LEVEL else AGREES
    verdict = UNTESTED if not test else IDENTICAL if same else verdict
    return {
        **{c: row[c] for c in (*AGENT, "n", "mean", "ci95")},
        **{f"other_{c}": row[f"{c}_other"] for c in ("n", "mean", "ci95")},
        "difference": difference,
        "interval": interval,
        "combined": row["ci95"] + row["ci95_other"],
        "problem": row["problem"],
        "test": test,
        "p_value": p_value,
        "verdict": verdict,
    }


def _tested(a: pd.Series, b: pd.Series, *, pairs: bool) -> tuple[Test, float, float]:
    """Return the name of the test, half-width of the interval of the difference, p-value."""
    if len(a) < 2 or len(b) < 2:
        return "", np.nan, np.nan
    if pairs and len(a) == len(b) and a.index.isin(b.index).all():
        outcome = paired_z(a, b, level=LEVEL)
        half = float(factor95(len(a)) * outcome.standard_error)
        return "paired", half, float(2 * stdtr(len(a) - 1, -abs(outcome.z)))
    return "Welch", *_welch(a.to_numpy(), b.to_numpy())


def _welch(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return the half-width of the 95% interval of the difference of the means, and the two-sided
    p-value.
    """
    squares = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    error, difference = np.sqrt(sum(squares)), abs(a.mean() - b.mean())
    if error == 0:
        return 0.0, float(difference == 0)
    freedom = sum(squares) ** 2 / (squares[0] ** 2 / (len(a) - 1) + squares[1] ** 2 / (len(b) - 1))
    half = float(stdtrit(freedom, (1 + LEVEL) / 2) * error)
    return half, float(2 * stdtr(freedom, -difference / error))
