"""Comparison of two studies: the agents that both have played, and the differences of their means.

Where both were played on the same MDPs the test is the paired one; elsewhere it is that of Welch
(1947), which takes the samples to be independent. MDPs are the same when they are drawn from the
same distribution with the same seed and number. A distribution is identified by its digest: edited
files keep their names.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from jbrl.base.errors import JbrlError
from jbrl.base.schema import AGENT, MDP
from jbrl.stats.agreement import PAIR
from jbrl.stats.paired_test import paired_z, rejected
from jbrl.stats.table import factor95

LEVEL = 0.95
IDENTICAL, AGREES, DIFFERS, UNTESTED = "identical", "agrees", "differs", "no test"
SAME, OTHER, UNKNOWN = "same", "differs", ""  # of a problem in two studies; unknown without digests
Test = Literal["paired", "Welch", ""]


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
      ours, theirs: what `jbrl.stats.agreement.played` returns.
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
    samples = [_samples(returns) for returns in (our_returns, their_returns)]
    keys = list(both[list(AGENT)].itertuples(index=False, name=None))
    rows = []
    for row, key in zip(both.to_dict("records"), keys, strict=True):
        row["problem"] = (problems or {}).get(row["experiment"], UNKNOWN)
        rows.append(_row(row, samples[0][key], samples[1][key], rounding))
    found = pd.DataFrame(rows)
    tested = found["verdict"].isin((AGREES, DIFFERS)).to_numpy()
    holm = np.zeros(len(found), bool)
    holm[tested] = rejected(found.loc[tested, "p_value"].tolist(), 1 - LEVEL, "holm")
    return found.assign(holm=holm)[[*found.columns.drop("verdict"), "holm", "verdict"]]


def only_in_one(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return agents (`AGENT`) that only the first study has, and those that only the second has."""
    columns = list(AGENT)
    both = ours[columns].merge(theirs[columns], on=columns, how="outer", indicator=True)
    return both.loc[both["_merge"] == "left_only", columns], both.loc[
        both["_merge"] == "right_only", columns
    ]


def same_problems(
    ours: Mapping[str, str | None], theirs: Mapping[str, str | None]
) -> dict[str, str]:
    """Return, by experiment of both studies, `SAME`, `OTHER`, or `UNKNOWN` where a digest is not
    known.

    Args:
      ours, theirs: the digest of the distribution of each experiment, by its name.
    """
    found = {}
    for name in ours.keys() & theirs.keys():
        one, other = ours[name], theirs[name]
        found[name] = UNKNOWN if not one or not other else SAME if one == other else OTHER
    return found


def _check_experiments(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    pairs = [
        {row["experiment"]: (row["prior"], row["test"]) for row in t[list(PAIR)].to_dict("records")}
        for t in (ours, theirs)
    ]
    for name in pairs[0]:
        if name in pairs[1] and pairs[0][name] != pairs[1][name]:
            told = ["prior {} and test {}".format(*pair[name]) for pair in pairs]
            raise JbrlError(
                f"experiment {name} has {told[0]} in one study and {told[1]} in the other: they "
                "cannot be compared"
            )


def _samples(returns: pd.DataFrame) -> dict[tuple, pd.Series]:
    return {
        key: rows.set_index(list(MDP))["score"]
        for key, rows in returns.groupby(list(AGENT), sort=False)
    }


def _row(row: dict, a: pd.Series, b: pd.Series, rounding: float) -> dict:
    test, interval, p_value = _tested(a, b, pairs=row["problem"] != OTHER)
    difference = row["mean"] - row["mean_other"]
    same = test == "paired" and bool((a - b.reindex(a.index)).abs().max() <= rounding * (1 + 1e-9))
    verdict = (
        UNTESTED if not test else IDENTICAL if same else DIFFERS if p_value <= 1 - LEVEL else AGREES
    )
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
        found = paired_z(a, b, level=LEVEL)
        return "paired", float(factor95(len(a)) * found.standard_error), found.p_value
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
    return float(stdtrit(freedom, (1 + LEVEL) / 2) * error), float(
        2 * stdtr(freedom, -difference / error)
    )
