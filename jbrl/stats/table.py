"""The score table of a study: one row per sample, its means and intervals by agent.

One sample is the score of one agent in one environment, for example its discounted return on one
MDP. Names and messages here say MDP for an environment drawn, since in score tables of other
sources (`jbrl.stats.score_table`) an environment is what an experiment is here.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from jbrl.base.errors import JbrlError, expect, listed, shown
from jbrl.base.schema import AGENT, MDP, RETURNS

_LETTERS = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "eta"),
    *("kappa", "lambda", "mu", "rho", "sigma", "tau"),
)
_GREEK = dict(zip(_LETTERS, "αβγδεηκλμρστ", strict=True))
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def check_level(level: object) -> None:
    """Refuse a level of confidence outside (0, 1)."""
    if not (isinstance(level, int | float) and 0 < level < 1):
        raise JbrlError(f"level = {level!r}: expected a number between 0 and 1, both excluded")


def oracles_of(manifest: Mapping[str, Any]) -> set[str]:
    """Return algorithms that see the environment itself, the true MDP."""
    units = manifest.get("units") or []
    return {*(manifest.get("oracles") or ()), *(u["algorithm"] for u in units if u.get("oracle"))}


def named_of(manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return names of the parameters that a study sets, of each algorithm that it lists by name."""
    tables = manifest.get("agents") or []
    return {t["algorithm"]: [name for name in t if name != "algorithm"] for t in tables}


def lifetimes_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the lifetimes of experiments in words ("250 steps", "100 episodes"), by name, where
    they are known.
    """
    tables = manifest.get("experiments") or []
    return {table["name"]: table["lifetime"] for table in tables if "criterion" in table}


def settings_of(
    agents: pd.DataFrame, named: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Return what tells the agent of each row from others of its algorithm (`setting_texts`).

    Args:
      agents: columns algorithm and parameters.
      named: parameters to show of an only setting, by algorithm.
    """
    by_algorithm = agents.groupby("algorithm", sort=False)["parameters"]
    texts = {name: setting_texts(own, (named or {}).get(name)) for name, own in by_algorithm}
    who = zip(agents["algorithm"], agents["parameters"], strict=True)
    return [texts[name][parameters] for name, parameters in who]


def agent_names(agents: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a name for each algorithm and its parameters.

    An algorithm with one setting of its parameters has its name; several settings have names that
    say in which parameters they differ: `e-Greedy(ε = 0.1; c = 2)`. Commas separate algorithms.
    """
    settings: dict[str, dict[str, None]] = {}
    for algorithm, parameters in agents:
        settings.setdefault(algorithm, {})[parameters] = None
    names = {}
    for algorithm, mine in settings.items():
        for parameters, text in setting_texts(mine).items():
            text = text.replace(", ", "; ") if len(mine) > 1 else ""
            names[algorithm, parameters] = f"{algorithm}({text})" if text else algorithm
    return names


def setting_texts(
    parameters: Iterable[str], otherwise: Sequence[str] | None = None
) -> dict[str, str]:
    """Return a text for each setting of one algorithm: the parameters in which they differ, with as
    many digits as distinguish them.

    Args:
      otherwise: names to show of an only setting, as `shown` of `parameters_text`.
    """
    settings = list(dict.fromkeys(parameters))
    shown = varied(settings) or otherwise
    texts = {p: parameters_text(p, shown) for p in settings}
    if len(set(texts.values())) < len(settings):
        texts = {p: parameters_text(p, shown, exactly=True) for p in settings}
    return texts


def parameters_text(
    parameters: str, shown: Sequence[str] | None = None, *, exactly: bool = False
) -> str:
    """Write JSON text of parameters as `ε = 0.1, K = 500`; text that is no JSON object stays as it
    is.

    Args:
      shown: names to show; default: all but capacities that are left open.
      exactly: write numbers with all digits instead of six.
    """
    try:
        values = json.loads(parameters)
    except ValueError:
        return str(parameters)
    if not isinstance(values, dict):
        return str(parameters)
    told = {
        name: v
        for name, v in values.items()
        if (not (name.startswith("max_") and v == 0) if shown is None else name in shown)
    }
    return ", ".join(
        f"{symbol(name)} {'~' if isinstance(v, dict) else '='} {_value(v, exactly)}"
        for name, v in told.items()
    )


def varied(parameters: Iterable[str]) -> list[str] | None:
    """Return names of the parameters in which several agents of an algorithm differ; None (show
    all) when there is only one agent.
    """
    different = list(dict.fromkeys(parameters))
    try:
        tables = [json.loads(p) for p in different]
    except ValueError:
        return None
    if len(tables) < 2 or not all(isinstance(t, dict) for t in tables):
        return None
    names = dict.fromkeys(name for table in tables for name in table)
    return [name for name in names if len({json.dumps(table.get(name)) for table in tables}) > 1]


def symbol(name: str) -> str:
    """Return Greek letters where the name of a parameter is one: `epsilon` is `ε`, `epsilon0` and
    `epsilon_0` are `ε₀`.
    """
    parts = re.fullmatch(r"([a-z]+)_?(\d*)", name)
    if not parts or parts.group(1) not in _GREEK:
        return name
    return _GREEK[parts.group(1)] + parts.group(2).translate(_SUBSCRIPTS)


def _value(value: object, exactly: bool) -> str:
    if isinstance(value, dict):  # a distribution
        return ", ".join(
            f"{kind}({', '.join(_value(v, exactly) for v in values)})"
            for kind, values in value.items()
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) and not exactly else str(value)


def check_columns(table: pd.DataFrame, columns: Iterable[str], name: str) -> None:
    """Refuse a table that lacks one of `columns`.

    Raises:
      JbrlError: names the table, the missing columns and those that are there.
    """
    expect(name, table, pd.DataFrame, "a table of pandas")
    missing = [c for c in columns if c not in table.columns]
    if missing:
        present = listed(table.columns) or "none"
        raise JbrlError(f"{name}: no column {', '.join(missing)} (columns found: {present})")


def check_returns(returns: pd.DataFrame, columns: Iterable[str] = RETURNS) -> pd.DataFrame:
    """Return the table with `score` as float64.

    Raises:
      JbrlError: a column is missing, or a score is not a finite number (the row is named).
    """
    columns = tuple(columns)
    check_columns(returns, columns, "returns")
    scores = pd.to_numeric(returns["score"], errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(scores))
    if bad.size:
        row = returns.iloc[bad[0]]
        where = ", ".join(f"{c} {row[c]}" for c in columns if c != "score")
        given = shown(row["score"], repr if isinstance(row["score"], str) else str)
        more = f" (and {bad.size - 1} more)" if bad.size > 1 else ""
        raise JbrlError(
            f"returns: row {bad[0] + 1} ({where}): score {given}: expected a finite number{more}"
        )
    return returns.assign(score=scores)


def rows_of(returns: pd.DataFrame, agents: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a score table that belong to `agents` (columns `AGENT`), in their order.

    The text that names an agent is parsed once, not once for each table that is merged.
    """
    number = returns.groupby(list(AGENT), sort=False).ngroup().to_numpy()
    _, first = np.unique(number, return_index=True)
    played = pd.MultiIndex.from_frame(returns.iloc[first][list(AGENT)])
    wanted = played.isin(pd.MultiIndex.from_frame(agents[list(AGENT)]))
    mine = returns if wanted.all() else returns[wanted[number]]
    return mine.reset_index(drop=True)


def samples(returns: pd.DataFrame) -> dict[tuple[str, str, str], pd.Series]:
    """Return the scores of each agent by `AGENT`, each indexed by `MDP`, in order of first
    appearance.

    Agents that have the same MDPs in the same order share one index, which is compared and checked
    once instead of once for each agent.
    """
    columns = [returns[c].to_numpy() for c in MDP]
    scores = returns["score"].to_numpy()
    number = returns.groupby(list(AGENT), sort=False).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    pieces = np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else []
    names = returns.iloc[[rows[0] for rows in pieces]][list(AGENT)]
    series: dict[tuple[str, str, str], pd.Series] = {}
    index, known = None, [column[:0] for column in columns]
    for key, rows in zip(names.itertuples(index=False, name=None), pieces, strict=True):
        mdps = [column[rows] for column in columns]
        if index is None or not all(map(np.array_equal, mdps, known)):
            index, known = pd.MultiIndex.from_arrays(mdps, names=list(MDP)), mdps
        series[key] = pd.Series(scores[rows], index, name="score")
    return series


Z95 = 1.96  # as the published program has it; the exact quantile is 1.95996
FEW = 100  # scores; below, the factor is Student's


def factor95(n: np.ndarray | pd.Series | int) -> np.ndarray:
    """Return the half-width of a 95% interval of a mean of n scores, in standard errors: float64.

    Student's quantile for n below `FEW` (NaN for one score), else `Z95` as in the published
    program: for n = 100 the two differ by 1.2%, for the paper's 500 by 0.2%.
    """
    n = np.asarray(n, np.float64)
    student = stdtrit(np.where(n > 1, n - 1.0, np.nan), 0.975)
    return np.where(n < FEW, student, Z95)


def half95(sample: np.ndarray) -> float:
    """Return the half-width of the 95% interval of the mean of a sample, [n]; NaN below two."""
    n = len(sample)
    return float(factor95(n) * sample.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan


def summarise(returns: pd.DataFrame, by: Iterable[str] = AGENT) -> pd.DataFrame:
    """Return one row per agent, in order of first appearance.

    The interval of the mean is mean ± ci95 with ci95 = `factor95`(n) s / √n, s having n - 1 in its
    denominator. One sample has no spread: its `std` and `ci95` are NaN.

    Args:
      returns: score table with the columns `by` and `score`; one row per environment drawn.
      by: columns that distinguish agents.

    Returns:
      Columns `by`, then `n` (int64), `mean`, `std`, `ci95` (float64).

    Raises:
      JbrlError: a column is missing, or a score is not a finite number.

    Source: Castronovo et al. 2016, section 3.2, with the standard error corrected and
    Student's factor for few scores (docs/statistics.md).

    >>> table = pd.DataFrame({"algorithm": ["a", "a", "b"], "score": [1.0, 3.0, 2.0]})
    >>> jbrl.summarise(table, by=["algorithm"])["mean"].tolist()
    [2.0, 2.0]
    """
    by = [by] if isinstance(by, str) else list(by)
    groups = check_returns(returns, [*by, "score"]).groupby(by, sort=False, dropna=False)["score"]
    summary = groups.agg(n="size", mean="mean", std="std").reset_index()
    summary["n"] = summary["n"].astype(np.int64)
    return summary.assign(ci95=factor95(summary["n"]) * summary["std"] / np.sqrt(summary["n"]))


def parameter_columns(table: pd.DataFrame, column: str = "parameters") -> pd.DataFrame:
    """Replace the JSON text of a column by one column for each parameter.

    Args:
      table: rows with `column`, JSON objects as text, such as `Results.scores` and
        `Results.returns`.

    Returns:
      A copy, dtype object in the new columns: numbers, text and Booleans as in the JSON, None where
      the agent of a row has no such parameter, nested values (a distribution) as JSON text. Columns
      stand where `column` stood, in order of first appearance; `parameter_NAME` is the name of one
      that the table has already.

    Raises:
      KeyError: the table has no such column.
    """
    decoded = {text: _values(column, text) for text in table[column].unique()}
    names = list(dict.fromkeys(name for values in decoded.values() for name in values))
    place, rest = list(table.columns).index(column), table.drop(columns=column)
    for offset, name in enumerate(names):
        values = [decoded[text].get(name) for text in table[column]]
        free = f"parameter_{name}" if name in rest.columns else name
        rest.insert(place + offset, free, pd.Series(values, table.index, dtype=object))
    return rest


def _values(column: str, text: str) -> Mapping[str, object]:
    """Decode the parameters of one agent; text that is no JSON object stays as it is."""
    try:
        decoded = json.loads(text)
    except ValueError:
        decoded = text
    if not isinstance(decoded, dict):
        return {column: text} if text else {}
    return {
        name: json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value
        for name, value in decoded.items()
    }


SEARCH = ["prior", "algorithm", "parameters", "seed"]  # columns that distinguish searches
STRETCH = "to lifetime "  # what the name of a row begins with that is a stretch of a training


def is_training(rows: pd.DataFrame) -> bool:
    """Return whether the rows of a search are the stretches of a training, in order."""
    return bool(rows["strategy"].str.startswith(STRETCH).all())


def few(strategies: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return at most `n` rows of each search: the first, which were tried most; of a training,
    stretches evenly spaced, the last one among them.

    Args:
      strategies: as `Results.strategies` returns them.
    """
    kept = [
        place[evenly(len(place), n)] if is_training(strategies.iloc[place]) else place[:n]
        for place in strategies.groupby(SEARCH, sort=False).indices.values()
    ]
    return strategies.iloc[np.sort(np.concatenate([np.zeros(0, int), *kept]))]


def evenly(count: int, n: int) -> np.ndarray:
    """Return at most `n` of the numbers 0 to `count` - 1, evenly spaced, the last among them."""
    n = min(n, count)
    return np.arange(1, n + 1) * count // max(n, 1) - 1
